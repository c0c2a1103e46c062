#include "common/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_SIZE 256

struct trace {
    const char *machine; /* static strings, all three */
    const char *from;
    const char *to;
};

static struct {
    char name[32];
    char context[64];
    enum log_level level;
    bool is_journal;
    pthread_mutex_t lock; /* guards what follows */
    void (*sink)(const char *line, size_t size);
    struct trace ring[RING_SIZE];
    unsigned n_traces;
} logger = {.level = LOG_LEVEL_INFO, .lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

void log_setup(const char *name, const char *context, enum log_level level)
{
    (void)snprintf(logger.name, sizeof(logger.name), "%s", name);
    (void)snprintf(logger.context, sizeof(logger.context), "%s", context);
    logger.level = level;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): before the first thread */
    logger.is_journal = getenv("JOURNAL_STREAM") != NULL;
}

enum log_level log_level_parse(const char *text, enum log_level fallback)
{
    for (size_t i = 0; i < ARRAY_LEN(level_names); i++) {
        if (strcasecmp(text, level_names[i]) == 0) {
            return (enum log_level)i;
        }
    }
    return fallback;
}

void log_set_sink(void (*sink)(const char *line, size_t size))
{
    (void)pthread_mutex_lock(&logger.lock);
    logger.sink = sink;
    (void)pthread_mutex_unlock(&logger.lock);
}

static void put_line(const char *line, size_t size)
{
    bool has_sink;

    (void)pthread_mutex_lock(&logger.lock);
    has_sink = logger.sink != NULL;
    if (has_sink) {
        logger.sink(line, size);
    }
    (void)pthread_mutex_unlock(&logger.lock);
    if (!has_sink && write(STDERR_FILENO, line, size) < 0) {
        return; /* nowhere left to say so */
    }
}

void log_write(enum log_level level, const char *sentence, const char *fmt, ...)
{
    static const int syslog_levels[] = {3, 4, 6, 7};
    char prefix[8] = "";
    char line[2048];
    char pairs[1024];
    va_list args;
    int n;

    if (level > logger.level) {
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(pairs, sizeof(pairs), fmt, args); /* cut is fine */
    va_end(args);
    if (logger.is_journal) {
        (void)snprintf(prefix, sizeof(prefix), "<%d>", syslog_levels[level]);
    }
    n = snprintf(line, sizeof(line), "%s%s: %s%s%s%s%s%s%s\n", prefix, logger.name,
                 level == LOG_LEVEL_INFO ? "" : level_names[level],
                 level == LOG_LEVEL_INFO ? "" : ": ", sentence, *pairs ? " " : "",
                 pairs, *logger.context ? " " : "", logger.context);
    if (n > (int)sizeof(line) - 1) { /* cut, but a line */
        n = (int)sizeof(line) - 1;
        line[n - 1] = '\n';
    }
    put_line(line, (size_t)n);
}

void log_trace(const char *machine, const char *id, const char *from, const char *to)
{
    (void)pthread_mutex_lock(&logger.lock);
    logger.ring[logger.n_traces++ % RING_SIZE] = (struct trace){machine, from, to};
    (void)pthread_mutex_unlock(&logger.lock);
    log_debug("state", "machine=%s%s%s from=%s to=%s", machine, *id ? " id=" : "", id,
              from, to);
}

/* Runs in a dying process: takes no lock. */
void log_dump_trace(void)
{
    unsigned first = logger.n_traces > RING_SIZE ? logger.n_traces - RING_SIZE : 0;

    for (unsigned i = first; i < logger.n_traces; i++) {
        const struct trace *t = &logger.ring[i % RING_SIZE];

        (void)fprintf(stderr, "  %s: %s -> %s\n", t->machine, t->from, t->to);
    }
}

_Noreturn void check_failed(const char *file, int line, const char *func,
                            const char *what)
{
    (void)fprintf(stderr, "%s: bug: %s:%d: %s: %s\n", logger.name, file, line, func,
                  what);
    log_dump_trace();
    abort();
}
