/* What becomes of a worker's lines once it is known where they go (output_slot.h): the
 * prefix, the console, the lines that are written a second time. */

#include "launcher/output/output_slot.h"
#include "launcher/output/own_lines.h"

#include "common/clock.h"
#include "common/str.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned number_of(const struct stream *st)
{
    return (unsigned)(st - st->slot->streams);
}

void lines_route(struct slot *s, bool is_engine)
{
    for (unsigned i = 0; i < 2; i++) {
        struct redirects_stream stream = {is_engine, s->rank, s->index, i};

        s->streams[i].route = redirects_route(&s->output->redirects, &stream);
    }
}

/* ---- the prefix ---- */

static void format_time(char text[32])
{
    uint64_t now_ms = clock_wall_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm tm;
    size_t n;

    n = localtime_r(&seconds, &tm) ? strftime(text, 32, "%Y-%m-%d %H:%M:%S", &tm) : 0;
    (void)snprintf(text + n, 32 - n, ".%03u", (unsigned)(now_ms % 1000));
}

/* Made for the slot once, or again for each piece when the time is in it. */
static void make_prefix(struct slot *s)
{
    struct output *o = s->output;
    char time[32] = "";
    struct line_prefix_values values = {o->role, s->rank, s->index, o->host, time};

    if (s->prefix_size > 0 && !o->prefix_has_time) {
        return;
    }
    if (o->prefix_has_time) {
        format_time(time);
    }
    s->prefix_size = line_prefix_format(o->prefix, &values, s->prefix);
}

/* ---- the console ---- */

static void put(struct stream *st, const char *data, size_t size)
{
    struct output *o = st->slot->output;
    unsigned i = number_of(st);
    const char *between = console_join(o->console[i], st, data, size);

    writer_append(o->writers[WRITER_CONSOLE], st->console, between, strlen(between));
    writer_append(o->writers[WRITER_CONSOLE], st->console, data, size);
    own_lines_console(i == 0 ? STDOUT_FILENO : STDERR_FILENO,
                      o->console[i]->rest != CONSOLE_FRESH);
}

/* A bar whose place another has taken is drawn once more for its line's end. */
static void write_console(struct stream *st, const char *data, size_t size)
{
    const struct console *console = st->slot->output->console[number_of(st)];

    if (data[0] == '\n' && st->bar.size > 0 && !console_is_mid_line(console, st)) {
        put(st, st->bar.text, st->bar.size);
    }
    put(st, data, size);
    console_bar_note(&st->bar, data, size);
}

void lines_to_console(struct stream *st, const char *data, size_t size)
{
    struct slot *s = st->slot;
    struct buf *lines = &s->output->lines;

    if (!st->route.is_teed) {
        write_console(st, data, size);
        return;
    }
    make_prefix(s);
    buf_clear(lines);
    line_prefix_add(lines, s->prefix, s->prefix_size, data, size, &st->place);
    write_console(st, (const char *)buf_bytes(lines), buf_len(lines));
}

void lines_end(struct stream *st)
{
    struct slot *s = st->slot;
    struct output *o = s->output;
    bool keeps_bytes = s->mode == MODE_FOREIGN && o->n_open == 1 && !st->route.is_teed;

    if (console_is_mid_line(o->console[number_of(st)], st) && !keeps_bytes) {
        write_console(st, "\n", 1);
    }
}

/* ---- lines that are written a second time ---- */

/* One file for all ranks of a generation. */
static struct writer_file *filtered_file(const struct slot *s, unsigned i)
{
    static const char *const names[] = {"stdout", "stderr"};
    struct output *o = s->output;
    char path[PATH_MAX];

    if (o->filtered_generation != s->generation) {
        lines_close_filtered(o);
        o->filtered_generation = s->generation;
    }
    if (!o->filtered[i] &&
        str_format(path, sizeof(path), "%s/attempt_%llu/filtered_%s.log", o->log_base,
                   (unsigned long long)s->generation, names[i])) {
        o->filtered[i] = writer_open(o->writers[WRITER_FILES], path, o->max_size);
    }
    return o->filtered[i];
}

void lines_close_filtered(struct output *o)
{
    for (size_t i = 0; i < 2; i++) {
        writer_close(o->writers[WRITER_FILES], o->filtered[i]);
        o->filtered[i] = NULL;
    }
}

static void write_filtered(struct stream *st, const char *line, size_t size)
{
    struct slot *s = st->slot;
    struct buf *lines = &s->output->lines;
    struct writer_file *file = filtered_file(s, number_of(st));
    enum line_place place = LINE_START;

    if (!file) {
        return;
    }
    make_prefix(s);
    buf_clear(lines);
    line_prefix_add(lines, s->prefix, s->prefix_size, line, size, &place);
    if (line[size - 1] != '\n') {
        line_prefix_add(lines, "", 0, "\n", 1, &place);
    }
    writer_append(s->output->writers[WRITER_FILES], file, buf_bytes(lines),
                  buf_len(lines));
}

bool lines_are_filtered(const struct stream *st)
{
    const struct output *o = st->slot->output;

    return st->route.is_teed && o->log_base &&
           !line_filter_is_empty(&o->filters[number_of(st)]);
}

void lines_to_filtered(struct stream *st, const char *data, size_t size)
{
    const struct line_filter *filter = &st->slot->output->filters[number_of(st)];

    if (!lines_are_filtered(st)) {
        return;
    }
    while (size > 0) {
        const char *end = memchr(data, '\n', size);
        size_t n = end ? (size_t)(end - data) + 1 : size;

        if (line_filter_matches(filter, data, n)) {
            write_filtered(st, data, n);
        }
        data += n;
        size -= n;
    }
}
