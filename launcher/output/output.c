/* Happy path of a slot: output_open_rank makes its ends (output_ends.c) and polls ours →
 * on_readable reads a bounded piece and hands it to slot_take → output_close_rank reads
 * what is left, then asks both writers for a mark → on_wake sees the marks, closes the
 * handles, calls back. Failures: a writer is full → the pipe is not polled until
 * on_wake; a grandchild keeps a pipe open → after the pipe's capacity, or when it is
 * empty, it is closed all the same; a writer hangs → CLOSE_MS, then the slot closes
 * without it. */

#include "launcher/output/output.h"

#include "launcher/output/output_slot.h"

#include "common/err.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    SILENCE_MS = 100,
    STILL_MS = 2000, /* a writer that stands still so long hangs … */
    MAX_WAITS = 15,  /* … and one that creeps is waited for so many times */
    PIPE_DEFAULT = 65536,
};

static void on_wake(uv_async_t *handle);
static void on_readable(uv_poll_t *handle, int status, int events);

/* On a writer's thread. */
static void wake_loop(void *arg)
{
    struct output *o = arg;

    (void)uv_async_send(&o->wake); /* cannot fail on an open handle */
}

static void release(struct output *o)
{
    for (size_t i = 0; i < o->n_slots; i++) {
        mem_free(o->slots[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        line_filter_release(&o->filters[i]);
    }
    mem_free(o->slots);
    buf_release(&o->lines);
    mem_free(o->prefix);
    mem_free(o->role);
    mem_free(o->host);
    mem_free(o->log_base);
    mem_free(o);
}

static void take_config(struct output *o, const struct output_config *config)
{
    o->loop = config->loop;
    o->maybe_engine = config->maybe_engine;
    o->log_base = config->log_base ? mem_strdup(config->log_base) : NULL;
    o->makes_files_late = config->makes_files_late;
    o->max_size = config->max_size;
    o->on_resized = config->on_resized;
    o->on_cut = config->on_cut;
    o->config_arg = config->arg;
    if (config->redirects) {
        o->redirects = *config->redirects;
    }
    o->prefix = mem_strdup(config->prefix ? config->prefix : LINE_PREFIX_DEFAULT);
    o->prefix_has_time = line_prefix_has_time(o->prefix);
    o->role = mem_strdup(config->role ? config->role : "");
    o->host = mem_strdup(config->host ? config->host : "");
    for (size_t i = 0; i < 2; i++) {
        line_filter_init(&o->filters[i], config->filters[i]);
    }
}

int output_new(const struct output_config *config, struct output **ret,
               struct errmsg *msg)
{
    struct output *o = mem_zalloc(sizeof(*o));
    int rv;

    take_config(o, config);
    ends_look_at_consoles(o);
    buf_init(&o->lines, SIZE_MAX / 2); /* of what is read at once, with its prefixes */
    closer_init(&o->closer);
    rv = uv_async_init(o->loop, &o->wake, on_wake);
    if (rv < 0) {
        release(o);
        return errmsg_set(msg, rv, "output: %s", err_text(rv));
    }
    rv = uv_timer_init(o->loop, &o->timer);
    ASSERT(rv == 0); /* sets fields only */
    o->wake.data = o;
    o->timer.data = o;
    rv = uv_timer_init(o->loop, &o->silence);
    ASSERT(rv == 0);
    o->silence.data = o;
    closer_opened(&o->closer);
    closer_opened(&o->closer);
    closer_opened(&o->closer);
    ends_watch_size(o);
    for (int i = 0; i < 2; i++) {
        o->writers[i] = writer_new(OUTPUT_QUEUE_MAX, wake_loop, o);
    }
    uv_unref((uv_handle_t *)&o->wake); /* what is open keeps the loop alive, not this */
    *ret = o;
    return 0;
}

/* ---- closing ---- */

static void close_handles(struct slot *s);

static void on_slot_handle_closed(uv_handle_t *handle)
{
    struct slot *s = handle->data;

    closer_closed(&s->closer);
}

static void on_slot_closed(void *arg)
{
    struct slot *s = arg;
    void (*on_closed)(void *arg) = s->on_closed;

    s->state = SLOT_FREE;
    s->output->n_open--;
    s->on_closed = NULL;
    if (on_closed) {
        on_closed(s->arg);
    }
    if (s->output->is_stopping) {
        wake_loop(s->output);
    }
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct stream *st = handle->data;

    handle->data = st->slot;
    on_slot_handle_closed(handle);
}

static bool is_flushed(const struct slot *s)
{
    return writer_marked(s->output->writers[0]) >= s->marks[0] &&
           writer_marked(s->output->writers[1]) >= s->marks[1];
}

static void flush_slot(struct slot *s)
{
    slot_end(s);
    s->state = SLOT_FLUSHING;
    for (size_t i = 0; i < 2; i++) {
        s->marks[i] = writer_mark(s->output->writers[i]);
    }
    if (is_flushed(s)) {
        close_handles(s);
    }
}

/* The stream's end, or as much of it as is waited for. */
static void end_stream(struct stream *st)
{
    struct slot *s = st->slot;

    uv_close((uv_handle_t *)&st->poll, on_poll_closed);
    (void)close(st->fd); /* a pipe's reading end loses nothing */
    st->fd = -1;
    slot_stream_ended(st);
    if (s->state == SLOT_DRAINING && s->streams[0].fd < 0 && s->streams[1].fd < 0) {
        flush_slot(s);
    }
}

/* True while the writers get on: a slow terminal is given time, a hung file system is
 * not. */
static bool gets_on(struct output *o, uint64_t *progress, unsigned *n_waits)
{
    uint64_t now = writer_progress(o->writers[0]) + writer_progress(o->writers[1]);
    bool has_moved = now != *progress;

    *progress = now;
    return has_moved && ++*n_waits < MAX_WAITS;
}

/* Nobody takes what was said. */
static void note_cut(struct output *o)
{
    if (!o->was_cut && o->on_cut) {
        o->on_cut(o->config_arg);
    }
    o->was_cut = true;
}

static void drain_stream(struct stream *st);

/* Its reader is waited for no more; its file gets what the pipe still holds. */
static void cut_stream(struct stream *st)
{
    note_cut(st->slot->output);
    st->is_cut = true;
    drain_stream(st);
}

static void on_close_bound(uv_timer_t *timer)
{
    struct slot *s = timer->data;

    if (gets_on(s->output, &s->progress, &s->n_waits)) {
        return; /* the timer repeats */
    }
    for (size_t i = 0; i < 2; i++) {
        struct stream *st = &s->streams[i];

        if (st->fd >= 0 && st->is_paused) {
            cut_stream(st);
        } else if (st->fd >= 0) {
            end_stream(st);
        }
    }
    if (s->state == SLOT_FLUSHING) {
        note_cut(s->output);
        close_handles(s);
    }
}

static void close_handles(struct slot *s)
{
    s->state = SLOT_CLOSING;
    closer_finish(&s->closer, on_slot_closed, s);
    uv_close((uv_handle_t *)&s->timer, on_slot_handle_closed);
}

/* ---- reading ---- */

/* A prompt, or dots that count: on a terminal, a line without its end is shown when
 * nothing more has come for a while. */
static void on_silence(uv_timer_t *timer)
{
    struct output *o = timer->data;
    bool has_more = false;

    for (size_t i = 0; i < 2 * o->n_slots; i++) {
        struct stream *st = o->slots[i / 2] ? &o->slots[i / 2]->streams[i % 2] : NULL;

        if (st && st->is_silent) {
            slot_pass_part(st);
        }
        if (st) {
            st->is_silent = st->fd >= 0 && st->is_pty && buf_len(&st->part) > 0;
            has_more = has_more || st->is_silent;
        }
    }
    if (!has_more) {
        (void)uv_timer_stop(timer); /* always 0 */
    }
}

static void wait_for_silence(struct stream *st)
{
    struct output *o = st->slot->output;

    st->is_silent = false;
    if (buf_len(&st->part) > 0 && st->is_pty &&
        !uv_is_active((const uv_handle_t *)&o->silence)) {
        int rv = uv_timer_start(&o->silence, on_silence, SILENCE_MS, SILENCE_MS);

        ASSERT(rv == 0);
    }
}

/* Reads one piece. False when there is nothing more for now, or for ever. */
static bool read_piece(struct stream *st)
{
    struct output *o = st->slot->output;
    bool is_draining = st->slot->state == SLOT_DRAINING;
    ssize_t n;

    if (!st->is_cut && slot_is_held_up(st)) {
        (void)uv_poll_stop(&st->poll);
        st->is_paused = true;
        return false;
    }
    n = read(st->fd, o->data, sizeof(o->data));
    if (n < 0 && errno == EINTR) {
        return true;
    }
    if (n < 0 && errno == EAGAIN && !is_draining) {
        return false;
    }
    if (n > 0) {
        slot_take(st, o->data, (size_t)n);
        wait_for_silence(st);
        st->left -= MIN(st->left, (size_t)n);
    }
    if (n <= 0 || (is_draining && st->left == 0)) {
        end_stream(st);
        return false;
    }
    return true;
}

static void poll_stream(struct stream *st)
{
    int rv = uv_poll_start(&st->poll, UV_READABLE, on_readable);

    ASSERT(rv == 0);
    st->is_paused = false;
}

/* One piece a turn: a flood must not keep the loop from its other work. */
static void on_readable(uv_poll_t *handle, int status, int events)
{
    struct stream *st = handle->data;

    (void)status; /* read tells what is the matter */
    (void)events;
    (void)read_piece(st);
}

/* The worker has ended: only what its pipe can hold is still to come. */
static void drain_stream(struct stream *st)
{
    while (read_piece(st)) {
    }
}

static void resume(struct slot *s)
{
    for (size_t i = 0; i < 2; i++) {
        struct stream *st = &s->streams[i];

        if (st->fd < 0 || !st->is_paused) {
            continue;
        }
        poll_stream(st);
        if (s->state == SLOT_DRAINING) {
            drain_stream(st);
        }
    }
}

static void advance_stop(struct output *o);

static void on_wake(uv_async_t *handle)
{
    struct output *o = handle->data;

    for (size_t i = 0; i < o->n_slots; i++) {
        struct slot *s = o->slots[i];

        if (s && (s->state == SLOT_OPEN || s->state == SLOT_DRAINING)) {
            resume(s);
        }
        if (s && s->state == SLOT_FLUSHING && is_flushed(s)) {
            close_handles(s);
        }
    }
    if (o->is_stopping) {
        advance_stop(o);
    }
}

/* ---- slots ---- */

static struct slot *make_slot(struct output *o, uint32_t index)
{
    struct slot *s = mem_alloc(sizeof(*s));

    memset(s, 0, offsetof(struct slot, tail));
    tail_clear(&s->tail);
    s->path[0] = '\0';
    s->output = o;
    s->index = index;
    for (size_t i = 0; i < 2; i++) {
        s->streams[i].slot = s;
        s->streams[i].fd = -1;
    }
    return s;
}

static struct slot *slot_at(struct output *o, uint32_t index)
{
    if (index >= o->n_slots) {
        size_t n = (size_t)index + 1;

        o->slots = mem_grow(o->slots, n, sizeof(struct slot *));
        for (size_t i = o->n_slots; i < n; i++) {
            o->slots[i] = NULL;
        }
        o->n_slots = n;
    }
    if (!o->slots[index]) {
        o->slots[index] = make_slot(o, index);
    }
    return o->slots[index];
}

static void open_stream(struct slot *s, struct stream *st, int fd)
{
    int rv = uv_poll_init(s->output->loop, &st->poll, fd);

    ASSERT(rv == 0); /* a pipe can be polled */
    st->fd = fd;
    st->is_cut = false;
    st->poll.data = st;
    closer_opened(&s->closer);
    poll_stream(st);
}

int output_open_rank(struct output *o, uint32_t slot, uint32_t rank,
                     uint64_t generation, int ret_ends[2], struct errmsg *msg)
{
    struct slot *s = slot_at(o, slot);
    int out[2] = {-1, -1};
    int err[2] = {-1, -1};
    int rv;

    ASSERT(s->state == SLOT_FREE && !o->is_stopping);
    s->rank = rank;
    s->generation = generation;
    slot_begin(s);
    rv = ends_make(s, out, err);
    if (rv < 0) {
        slot_end(s);
        return errmsg_set(msg, rv, "making pipes for rank %u: %s", rank, err_text(rv));
    }
    s->state = SLOT_OPEN;
    o->n_open++;
    closer_init(&s->closer);
    open_stream(s, &s->streams[0], out[0]);
    open_stream(s, &s->streams[1], err[0]);
    rv = uv_timer_init(o->loop, &s->timer);
    ASSERT(rv == 0); /* sets fields only */
    s->timer.data = s;
    closer_opened(&s->closer);
    ret_ends[0] = out[1];
    ret_ends[1] = err[1];
    return 0;
}

void output_is_engine(struct output *o, uint32_t slot, const char *folder)
{
    struct slot *s = slot < o->n_slots ? o->slots[slot] : NULL;

    if (s && (s->state == SLOT_OPEN || s->state == SLOT_DRAINING)) {
        slot_is_engine(s, folder);
    }
}

void output_has_refused(struct output *o, uint32_t slot)
{
    struct slot *s = slot < o->n_slots ? o->slots[slot] : NULL;

    if (s) {
        s->has_refused = true;
    }
}

void output_close_rank(struct output *o, uint32_t slot, void (*on_closed)(void *arg),
                       void *arg)
{
    struct slot *s = slot < o->n_slots ? o->slots[slot] : NULL;
    int rv;

    ASSERT(s && s->state == SLOT_OPEN);
    s->on_closed = on_closed;
    s->arg = arg;
    s->state = SLOT_DRAINING;
    s->n_waits = 0;
    rv = uv_timer_start(&s->timer, on_close_bound, STILL_MS, STILL_MS);
    ASSERT(rv == 0);
    if (s->streams[0].fd < 0 && s->streams[1].fd < 0) {
        flush_slot(s);
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        struct stream *st = &s->streams[i];
        int capacity = st->fd >= 0 ? fcntl(st->fd, F_GETPIPE_SZ) : 0;

        st->left = capacity > 0 ? (size_t)capacity : PIPE_DEFAULT;
        if (st->fd >= 0) {
            drain_stream(st);
        }
    }
}

const char *output_tail(const struct output *o, uint32_t slot)
{
    struct slot *s = slot < o->n_slots ? o->slots[slot] : NULL;

    return s ? tail_text(&s->tail) : "";
}

const char *output_log_path(const struct output *o, uint32_t slot)
{
    const struct slot *s = slot < o->n_slots ? o->slots[slot] : NULL;

    return s ? s->path : "";
}

const char *output_keep(struct output *o, uint32_t slot, const char *name,
                        const void *data, size_t size)
{
    struct slot *s = slot < o->n_slots ? o->slots[slot] : NULL;
    struct writer_file *file;

    if (!s || size > OUTPUT_KEPT_MAX || !slot_has_folder(s) ||
        !str_format(o->kept, sizeof(o->kept), "%s/%s", s->path, name)) {
        return "";
    }
    file = writer_open(o->writers[WRITER_FILES], o->kept, 0);
    writer_append(o->writers[WRITER_FILES], file, data, size);
    writer_close(o->writers[WRITER_FILES], file);
    return o->kept;
}

/* ---- the end ---- */

static void on_output_handle_closed(uv_handle_t *handle)
{
    struct output *o = handle->data;

    closer_closed(&o->closer);
}

static void on_output_closed(void *output)
{
    struct output *o = output;
    void (*on_stopped)(void *arg) = o->on_stopped;
    void *arg = o->arg;

    release(o);
    on_stopped(arg);
}

static void free_writers(struct output *o)
{
    for (size_t i = 0; i < 2; i++) {
        writer_free(o->writers[i]);
        o->writers[i] = NULL;
    }
    closer_finish(&o->closer, on_output_closed, o);
    uv_close((uv_handle_t *)&o->wake, on_output_handle_closed);
    uv_close((uv_handle_t *)&o->timer, on_output_handle_closed);
    uv_close((uv_handle_t *)&o->silence, on_output_handle_closed);
    if (o->watches_size) {
        uv_close((uv_handle_t *)&o->resized, on_output_handle_closed);
    }
}

static void on_stop_bound(uv_timer_t *timer)
{
    struct output *o = timer->data;

    if (!gets_on(o, &o->progress, &o->n_waits)) {
        note_cut(o);
        free_writers(o);
    }
}

/* Called for every event while stopping: first the slots, then the writers. */
static void advance_stop(struct output *o)
{
    if (o->n_open > 0 || !o->writers[0]) {
        return;
    }
    if (!uv_is_active((const uv_handle_t *)&o->timer)) {
        int rv = uv_timer_start(&o->timer, on_stop_bound, STILL_MS, STILL_MS);

        ASSERT(rv == 0);
        lines_close_filtered(o);
        writer_end(o->writers[0]);
        writer_end(o->writers[1]);
    }
    if (writer_is_finished(o->writers[0]) && writer_is_finished(o->writers[1])) {
        free_writers(o);
    }
}

void output_stop(struct output *o, void (*on_stopped)(void *arg), void *arg)
{
    ASSERT(!o->is_stopping);
    o->is_stopping = true;
    o->on_stopped = on_stopped;
    o->arg = arg;
    uv_ref((uv_handle_t *)&o->wake);
    for (size_t i = 0; i < o->n_slots; i++) {
        if (o->slots[i] && o->slots[i]->state == SLOT_OPEN) {
            output_close_rank(o, (uint32_t)i, NULL, NULL);
        }
    }
    wake_loop(o);
}
