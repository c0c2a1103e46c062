/* Lines of one worker and where they go (output_slot.h). */

#include "launcher/output/output_slot.h"

#include "launcher/output/prompt.h"

#include "common/log.h"
#include "common/str.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int stream_index(const struct stream *st)
{
    return (int)(st - st->slot->streams);
}

static void hold(struct stream *st, const char *data, size_t size)
{
    struct buf *held = &st->slot->held;
    uint8_t index = (uint8_t)stream_index(st);
    uint32_t n = (uint32_t)size;
    int rv = 0;

    rv |= buf_append(held, &index, sizeof(index));
    rv |= buf_append(held, &n, sizeof(n));
    rv |= buf_append(held, data, size);
    ASSERT(rv == 0); /* emit has asked */
}

static struct writer_file *file_of(const struct stream *st)
{
    return st->slot->mode == MODE_ENGINE ? st->slot->file : st->file;
}

bool slot_has_folder(struct slot *s)
{
    const struct output *o = s->output;
    bool is_kept = s->streams[0].route.to_file || s->streams[1].route.to_file;

    return s->mode == MODE_FOREIGN && o->log_base && is_kept &&
           str_format(s->path, sizeof(s->path), "%s/attempt_%llu/%u", o->log_base,
                      (unsigned long long)s->generation, s->index);
}

/* FOREIGN: the file of a stream, once it has something to hold or at once. */
static void open_file(struct stream *st)
{
    static const char *const names[] = {"stdout", "stderr"};
    struct slot *s = st->slot;
    struct output *o = s->output;
    char path[PATH_MAX];

    if (st->route.to_file && slot_has_folder(s) &&
        str_format(path, sizeof(path), "%s/%s.log", s->path, names[stream_index(st)])) {
        st->file = writer_open(o->writers[WRITER_FILES], path, o->max_size);
    }
}

static void deliver(struct stream *st, const char *data, size_t size)
{
    struct slot *s = st->slot;

    if (s->mode == MODE_FOREIGN && !st->file) {
        open_file(st);
    }
    if (file_of(st)) {
        writer_append(s->output->writers[WRITER_FILES], file_of(st), data, size);
    }
    if (st->route.to_console) {
        lines_to_console(st, data, size);
    }
    lines_to_filtered(st, data, size);
}

bool slot_is_held_up(const struct stream *st)
{
    struct output *o = st->slot->output;
    size_t share = MAX(OUTPUT_SHARE_MIN, OUTPUT_QUEUE_MAX / (4 * o->n_open));
    bool is_held_up = false;

    if (st->slot->mode == MODE_UNDECIDED) {
        return false; /* lines are held */
    }
    if (file_of(st)) {
        is_held_up = writer_is_full(o->writers[WRITER_FILES], file_of(st), share);
    }
    if (st->route.to_console) {
        is_held_up = writer_is_full(o->writers[WRITER_CONSOLE], st->console, share) ||
                     is_held_up;
    }
    return is_held_up;
}

/* Calls `visit` for each piece that is held, in order; then nothing is held. */
static void release_held(struct slot *s, void (*visit)(struct stream *st,
                                                       const char *data, size_t size))
{
    struct buf held = s->held;

    buf_init(&s->held, held.max);
    while (buf_len(&held) > 0) {
        struct stream *st = &s->streams[buf_bytes(&held)[0]];
        uint32_t n;

        memcpy(&n, buf_bytes(&held) + 1, sizeof(n));
        buf_consume(&held, 1 + sizeof(n));
        visit(st, (const char *)buf_bytes(&held), n);
        buf_consume(&held, n);
    }
    buf_release(&held);
}

static void be_foreign(struct slot *s)
{
    s->mode = MODE_FOREIGN;
    lines_route(s, false);
    for (size_t i = 0; i < 2 && !s->output->makes_files_late; i++) {
        open_file(&s->streams[i]);
    }
    release_held(s, deliver);
}

static void emit(struct stream *st, const char *data, size_t size)
{
    struct slot *s = st->slot;
    size_t head = sizeof(uint8_t) + sizeof(uint32_t);

    if (size == 0) {
        return;
    }
    tail_add(&s->tail, data, size);
    if (s->mode == MODE_UNDECIDED &&
        buf_len(&s->held) + size + head > OUTPUT_HELD_MAX) {
        be_foreign(s); /* an engine would have said hello by now */
    }
    if (s->mode == MODE_UNDECIDED) {
        hold(st, data, size);
    } else {
        deliver(st, data, size);
    }
}

void slot_begin(struct slot *s)
{
    s->path[0] = '\0';
    s->prefix_size = 0;
    s->mode = MODE_UNDECIDED;
    s->has_refused = false;
    s->is_at_prompt = false;
    s->has_told_prompt = false;
    tail_clear(&s->tail);
    buf_init(&s->held, OUTPUT_HELD_MAX);
    for (size_t i = 0; i < 2; i++) {
        buf_init(&s->streams[i].part, OUTPUT_LINE_MAX);
        s->streams[i].is_bar = false;
        s->streams[i].bar.size = 0;
        s->streams[i].is_pty = false;
        s->streams[i].is_silent = false;
        s->streams[i].place = LINE_START;
        s->streams[i].file = NULL;
        s->streams[i].console = writer_borrow(s->output->writers[WRITER_CONSOLE],
                                              i == 0 ? STDOUT_FILENO : STDERR_FILENO);
    }
    if (!s->output->maybe_engine) {
        be_foreign(s);
    }
}

void slot_pass_part(struct stream *st)
{
    emit(st, (const char *)buf_bytes(&st->part), buf_len(&st->part));
    if (st->part.capacity > OUTPUT_READ_MAX) {
        buf_release(&st->part); /* few lines are so long */
    }
    buf_clear(&st->part);
}

/* What the beginnings of long lines of all other streams take. */
static size_t size_of_long_others(const struct stream *self)
{
    const struct output *o = self->slot->output;
    size_t size = 0;

    for (size_t i = 0; i < 2 * o->n_slots; i++) {
        const struct stream *st =
            o->slots[i / 2] ? &o->slots[i / 2]->streams[i % 2] : NULL;
        size_t n = st && st != self ? buf_len(&st->part) : 0;

        size += n > OUTPUT_READ_MAX ? n : 0;
    }
    return size;
}

/* Where others write, too, or whole lines are looked at; a file of its own needs no
 * whole ones. */
static bool may_keep(const struct stream *st, size_t size)
{
    size_t whole = buf_len(&st->part) + size;

    if (whole <= OUTPUT_READ_MAX) {
        return true;
    }
    return (st->route.to_console || lines_are_filtered(st)) &&
           whole <= OUTPUT_LINE_MAX &&
           size_of_long_others(st) + whole <= OUTPUT_LINES_MAX;
}

/* Keeps the beginning of a line; one that has grown too long is passed on as it is. */
static void keep_part(struct stream *st, const char *data, size_t size)
{
    int rv;

    if (!may_keep(st, size)) {
        slot_pass_part(st);
    }
    rv = buf_append(&st->part, data, size);
    ASSERT(rv == 0); /* a read is never longer than a line may be */
}

/* A lone program's prompt must be seen though its line has no end: nobody else writes
 * there. (With more ranks, or a filter, whole lines matter more.) */
static bool is_shown_at_once(const struct stream *st)
{
    const struct slot *s = st->slot;

    return s->mode == MODE_FOREIGN && s->output->n_open == 1 && !lines_are_filtered(st);
}

static bool is_another_at_prompt(const struct slot *self)
{
    const struct output *o = self->output;

    for (size_t i = 0; i < o->n_slots; i++) {
        if (o->slots[i] && o->slots[i] != self && o->slots[i]->is_at_prompt) {
            return true;
        }
    }
    return false;
}

/* Once for a worker: before its prompt is shown, so that it stands last. */
static void tell_prompt(struct stream *st, const char *prompt)
{
    struct slot *s = st->slot;
    char text[256];

    if (!st->route.to_console) {
        (void)snprintf(text, sizeof(text),
                       "rank %u waits at a prompt that the console does not show, %s: "
                       "what is typed may go there (--console=%u shows it)",
                       s->rank, prompt, s->rank);
    } else if (is_another_at_prompt(s)) {
        (void)snprintf(text, sizeof(text),
                       "rank %u, too, waits at a prompt, %s: what is typed goes to "
                       "whoever reads first",
                       s->rank, prompt);
    } else {
        (void)snprintf(text, sizeof(text), "rank %u waits at a prompt, %s", s->rank,
                       prompt);
    }
    log_info(text, "%s", "");
    s->has_told_prompt = true;
}

/* Of the line that has no end yet. A lone rank whose prompt is seen needs no word. */
static void look_for_prompt(struct stream *st)
{
    struct slot *s = st->slot;
    const char *prompt =
        s->output->is_typed_to
            ? prompt_at_end((const char *)buf_bytes(&st->part), buf_len(&st->part))
            : NULL;

    s->is_at_prompt = prompt != NULL;
    if (prompt && !s->has_told_prompt &&
        (s->output->n_open > 1 || !st->route.to_console)) {
        tell_prompt(st, prompt);
    }
}

/* Whole lines; and a progress bar, which goes back by a carriage return instead of
 * ending its line, as far as it is drawn. */
void slot_take(struct stream *st, const char *data, size_t size)
{
    const char *last = memrchr(data, '\n', size);
    size_t whole = last ? (size_t)(last - data) + 1 : 0;

    if (whole > 0 && buf_len(&st->part) > 0) {
        size_t first = (size_t)((const char *)memchr(data, '\n', size) - data) + 1;

        keep_part(st, data, first);
        slot_pass_part(st);
        emit(st, data + first, whole - first);
    } else {
        emit(st, data, whole);
    }
    keep_part(st, data + whole, size - whole);
    look_for_prompt(st);
    st->is_bar = (st->is_bar && whole == 0) || memchr(data + whole, '\r', size - whole);
    if (st->is_bar || is_shown_at_once(st)) {
        slot_pass_part(st);
    }
}

void slot_stream_ended(struct stream *st)
{
    slot_pass_part(st);
    buf_release(&st->part);
}

void slot_is_engine(struct slot *s, const char *folder)
{
    if (s->mode == MODE_ENGINE ||
        !str_format(s->path, sizeof(s->path), "%s/rank%u.log", folder, s->rank)) {
        return;
    }
    s->mode = MODE_ENGINE;
    s->file =
        writer_open(s->output->writers[WRITER_FILES], s->path, s->output->max_size);
    lines_route(s, true);
    release_held(s, deliver);
}

/* FNV-1a over what is held, but for the numbers behind "rank=" that log lines carry:
 * the same mistake is found by every rank. */
static uint64_t hash_held(const struct slot *s)
{
    static const char mark[] = "rank=";
    const char *at = (const char *)buf_bytes(&s->held);
    const char *end = at + buf_len(&s->held);
    uint64_t hash = 0xcbf29ce484222325U;

    while (at < end) {
        bool is_mark = (size_t)(end - at) >= sizeof(mark) &&
                       memcmp(at, mark, sizeof(mark) - 1) == 0;

        hash = (hash ^ (uint8_t)*at) * 0x100000001b3U;
        at += is_mark ? sizeof(mark) - 1 : 1;
        while (is_mark && at < end && isdigit((unsigned char)*at)) {
            at++;
        }
    }
    return hash;
}

/* True for the first worker of a generation that has this to say. */
static bool is_news(struct output *o, const struct slot *s)
{
    uint64_t hash = hash_held(s);

    if (o->seen_generation != s->generation) {
        o->seen_generation = s->generation;
        o->n_seen = 0;
    }
    for (size_t i = 0; i < o->n_seen; i++) {
        if (o->seen[i] == hash) {
            return false;
        }
    }
    if (o->n_seen < OUTPUT_SEEN_MAX) {
        o->seen[o->n_seen++] = hash;
    }
    return true;
}

static void say_held(struct stream *st, const char *data, size_t size)
{
    if (st->route.to_console) {
        lines_to_console(st, data, size);
    }
}

void slot_end(struct slot *s)
{
    struct output *o = s->output;

    if (s->mode == MODE_UNDECIDED && buf_len(&s->held) > 0 && !s->has_refused &&
        is_news(o, s)) {
        lines_route(s, false); /* all ranks: it may be any that has something to say */
        release_held(s, say_held);
    }
    buf_release(&s->held);
    for (size_t i = 0; i < 2; i++) {
        lines_end(&s->streams[i]);
        writer_close(o->writers[WRITER_CONSOLE], s->streams[i].console);
        writer_close(o->writers[WRITER_FILES], s->streams[i].file);
        s->streams[i].console = NULL;
        s->streams[i].file = NULL;
    }
    writer_close(o->writers[WRITER_FILES], s->file);
    s->file = NULL;
}
