/* What the output of ctrun itself is, and the pipes and pseudo-terminals that its workers
 * have in that place (output_slot.h). */

#include "launcher/output/output_slot.h"
#include "launcher/output/pty.h"
#include "launcher/path.h"

#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ends_look_at_consoles(struct output *o)
{
    const char *term =
        getenv("TERM"); /* NOLINT(concurrency-mt-unsafe): nobody sets it */

    for (int i = 0; i < 2; i++) {
        o->is_terminal[i] = isatty(STDOUT_FILENO + i);
        o->consoles[i].can_erase =
            o->is_terminal[i] && term && strcmp(term, "dumb") != 0;
    }
    o->is_typed_to = isatty(STDIN_FILENO);
    o->console[0] = &o->consoles[0];
    o->console[1] = path_is_same_file(STDOUT_FILENO, STDERR_FILENO) ? &o->consoles[0]
                                                                    : &o->consoles[1];
}

static void on_resized(uv_signal_t *handle, int signal)
{
    struct output *o = handle->data;

    (void)signal;
    for (size_t i = 0; i < 2 * o->n_slots; i++) {
        const struct slot *s = o->slots[i / 2];

        if (s && s->streams[i % 2].fd >= 0 && s->streams[i % 2].is_pty) {
            pty_resize(s->streams[i % 2].fd, STDOUT_FILENO + (int)(i % 2));
        }
    }
    if (o->on_resized) {
        o->on_resized(o->config_arg);
    }
}

/* Where that cannot be, workers keep the size that they began with. */
void ends_watch_size(struct output *o)
{
    if ((o->is_terminal[0] || o->is_terminal[1]) &&
        uv_signal_init(o->loop, &o->resized) == 0) {
        o->resized.data = o;
        o->watches_size = true;
        closer_opened(&o->closer);
        uv_unref((uv_handle_t *)&o->resized);
        (void)uv_signal_start(&o->resized, on_resized, SIGWINCH);
    }
}

/* A program finds a terminal where ctrun has one and passes its bytes on as they are. */
static bool wants_pty(const struct stream *st, int number)
{
    return st->slot->mode == MODE_FOREIGN && st->route.to_console &&
           !st->route.is_teed && st->slot->output->is_terminal[number];
}

/* Only our end does not block: the worker's is another open file. */
static int make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return -errno;
    }
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0) {
        int error = -errno;

        (void)close(ends[0]);
        (void)close(ends[1]);
        return error;
    }
    return 0;
}

/* The ends of one of a worker's streams. */
static int make_ends(struct stream *st, int number, int ends[2])
{
    int rv;

    if (wants_pty(st, number)) {
        rv = pty_open(STDOUT_FILENO + number, ends);
        st->is_pty = rv == 0;
        if (rv == 0) {
            return 0;
        }
        log_debug("no pseudo-terminal, a pipe instead", "rank=%u error=\"%s\"",
                  st->slot->rank, err_text(rv));
    }
    return make_pipe(ends);
}

int ends_make(struct slot *s, int out[2], int err[2])
{
    int rv = make_ends(&s->streams[0], 0, out);

    if (rv < 0) {
        return rv;
    }
    rv = make_ends(&s->streams[1], 1, err);
    if (rv < 0) {
        (void)close(out[0]);
        (void)close(out[1]);
    }
    return rv;
}
