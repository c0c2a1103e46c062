#include "launcher/output/own_lines.h"

#include "launcher/output/writer.h"
#include "launcher/path.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum {
    QUEUE_MAX = 1024 * 1024,
    STILL_MS = 2000, /* a reader that stands still so long takes nothing more */
    SLOW_MS = 30000, /* … nor is a slow one waited for any longer */
    PAUSE_MS = 2,
};

/* One per process, as stderr is. */
static struct {
    struct writer *writer; /* owned */
    struct writer_file *console;
    bool is_shared;           /* stdout is the same terminal or file */
    _Atomic bool mid_line[2]; /* of stdout, stderr */
} own;

void own_lines_console(int fd, bool is_mid_line)
{
    ASSERT(fd == STDOUT_FILENO || fd == STDERR_FILENO);
    atomic_store(&own.mid_line[fd - STDOUT_FILENO], is_mid_line);
}

static bool take_mid_line(void)
{
    bool out = own.is_shared && atomic_exchange(&own.mid_line[0], false);
    bool err = atomic_exchange(&own.mid_line[1], false);

    return out || err;
}

/* By any thread. Lost when nobody has read for so long: there is no place to say so. */
static void put(const char *line, size_t size)
{
    char *fresh;

    if (!take_mid_line()) {
        (void)writer_offer(own.writer, own.console, line, size);
        return;
    }
    fresh = mem_alloc(size + 1); /* in one piece: others write there, too */
    fresh[0] = '\n';
    memcpy(fresh + 1, line, size);
    if (!writer_offer(own.writer, own.console, fresh, size + 1)) {
        atomic_store(&own.mid_line[STDERR_FILENO - STDOUT_FILENO],
                     true); /* as before */
    }
    mem_free(fresh);
}

static void drop(const char *line, size_t size)
{
    (void)line;
    (void)size;
}

void own_lines_start(void)
{
    ASSERT(!own.writer);
    own.is_shared = path_is_same_file(STDOUT_FILENO, STDERR_FILENO);
    own.writer = writer_new(QUEUE_MAX, NULL, NULL);
    own.console = writer_borrow(own.writer, STDERR_FILENO);
    log_set_sink(put);
}

void own_lines_put(const char *text)
{
    put(text, strlen(text));
}

/* True when all is written. */
static bool flush(struct writer *w)
{
    uint64_t progress = writer_progress(w);
    uint64_t start_ms = clock_ms();
    uint64_t since_ms = start_ms;

    while (!writer_is_finished(w) && clock_ms() - since_ms < STILL_MS &&
           clock_ms() - start_ms < SLOW_MS) {
        (void)poll(NULL, 0, PAUSE_MS);
        if (writer_progress(w) != progress) {
            progress = writer_progress(w);
            since_ms = clock_ms();
        }
    }
    return writer_is_finished(w);
}

void own_lines_stop(void)
{
    bool is_flushed;

    log_set_sink(drop); /* nothing comes any more: the writer is given back */
    writer_close(own.writer, own.console);
    writer_end(own.writer);
    is_flushed = flush(own.writer);
    writer_free(own.writer);
    own.writer = NULL;
    own.console = NULL;
    if (is_flushed) {
        log_set_sink(NULL);
    }
}
