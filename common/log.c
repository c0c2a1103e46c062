#include "common/log.h"

#include "common/utf8.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RING_SIZE 256
#define VALUE_MAX 300
#define DYING_MS  1000 /* for which a reader may stand still */

struct trace {
    const char *machine; /* static strings, all three */
    const char *from;
    const char *to;
};

static struct {
    char name[32];
    char context[64];
    _Atomic enum log_level level; /* may change while threads log */
    bool is_journal;
    pthread_mutex_t lock; /* guards what follows */
    void (*sink)(const char *line, size_t size);
    struct trace ring[RING_SIZE];
    unsigned n_traces;
} logger = {.level = LOG_LEVEL_INFO, .lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* The variable is inherited by whom this program starts, and stderr may have been
 * redirected since: it names the very file. */
static bool is_journal(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): before the first thread */
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat st;
    char text[64];

    if (!stream || fstat(STDERR_FILENO, &st) < 0) {
        return false;
    }
    (void)snprintf(text, sizeof(text), "%llu:%llu", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino);
    return strcmp(stream, text) == 0;
}

void log_setup(const char *name, const char *context, enum log_level level)
{
    (void)snprintf(logger.name, sizeof(logger.name), "%s", name);
    (void)snprintf(logger.context, sizeof(logger.context), "%s", context);
    logger.level = level;
    logger.is_journal = is_journal();
}

void log_set_level(enum log_level level)
{
    logger.level = level;
}

const char *log_prefix(enum log_level level)
{
    static const char *const prefixes[] = {"<3>", "<4>", "<6>", "<7>"};

    return logger.is_journal ? prefixes[level] : "";
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

/* What a peer has said may be in it: one line, and nothing that a terminal obeys. */
static void clean(char *line, size_t size)
{
    for (size_t i = 0; i < size;) {
        uint32_t code = ' ';
        size_t n = MAX(utf8_decode((uint8_t *)line + i, size - i, &code), (size_t)1);

        if (utf8_is_wild(code)) {
            memset(line + i, '?', n);
        }
        i += n;
    }
}

const char *log_value(const char *text, char *ret, size_t size)
{
    bool is_plain = *text != '\0';
    size_t n = 0;

    ASSERT(size >= 3);
    for (const char *at = text; *at; at++) {
        is_plain = is_plain && (unsigned char)*at > ' ' && !strchr("\"'=\x7f", *at);
    }
    if (is_plain) {
        (void)snprintf(ret, size, "%s", text); /* cut is fine */
        return ret;
    }
    ret[n++] = '"';
    for (; *text && n < size - 2; text++) {
        char c = *text;

        if (c == '"') {
            c = '\'';
        } else if ((unsigned char)c < ' ' || c == 0x7f) {
            c = ' ';
        }
        ret[n++] = c;
    }
    ret[n++] = '"';
    ret[n] = '\0';
    return ret;
}

void log_write(enum log_level level, const char *sentence, const char *fmt, ...)
{
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
    n = snprintf(line, sizeof(line), "%s%s: %s%s%s%s%s%s%s\n", log_prefix(level),
                 logger.name, level == LOG_LEVEL_INFO ? "" : level_names[level],
                 level == LOG_LEVEL_INFO ? "" : ": ", sentence, *pairs ? " " : "",
                 pairs, *logger.context ? " " : "", logger.context);
    if (n > (int)sizeof(line) - 1) { /* cut, but a line */
        n = (int)sizeof(line) - 1;
        line[n - 1] = '\n';
    }
    clean(line, (size_t)n - 1);
    put_line(line, (size_t)n);
}

void log_trace(const char *machine, const char *id, const char *from, const char *to)
{
    char value[VALUE_MAX];

    (void)pthread_mutex_lock(&logger.lock);
    logger.ring[logger.n_traces++ % RING_SIZE] = (struct trace){machine, from, to};
    (void)pthread_mutex_unlock(&logger.lock);
    log_debug("state", "machine=%s%s%s from=%s to=%s", machine, *id ? " id=" : "",
              *id ? log_value(id, value, sizeof(value)) : "", from, to);
}

/* Whether somebody reads: a process that dies must not hang instead. */
static bool has_room(void)
{
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&room, 1, DYING_MS) != 0; /* a signal is no reader that stands still */
}

/* Runs in a dying process: takes no lock. */
void log_dump_trace(void)
{
    unsigned first = logger.n_traces > RING_SIZE ? logger.n_traces - RING_SIZE : 0;

    for (unsigned i = first; i < logger.n_traces && has_room(); i++) {
        const struct trace *t = &logger.ring[i % RING_SIZE];

        (void)fprintf(stderr, "  %s: %s -> %s\n", t->machine, t->from, t->to);
    }
}

_Noreturn void check_failed(const char *file, int line, const char *func,
                            const char *what)
{
    if (has_room()) {
        (void)fprintf(stderr, "%s: bug: %s:%d: %s: %s\n", logger.name, file, line, func,
                      what);
    }
    log_dump_trace();
    abort();
}

/* Not by log_error: a sink may want memory, and whoever reads may stand still. */
_Noreturn void check_out_of_memory(size_t size)
{
    if (has_room()) {
        (void)fprintf(
            stderr,
            "%s%s: error: out of memory (%zu bytes wanted): a limit (ulimit -v, "
            "-d; systemd's LimitAS=, LimitDATA=) or the machine's memory is too "
            "small for what this program is to hold\n",
            log_prefix(LOG_LEVEL_ERROR), logger.name, size);
    }
    abort();
}
