#include "launcher/report.h"

#include "launcher/options/signals.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/utf8.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { REPORT_MAX = 256 * 1024, RULE_WIDTH = 60 };

static const char traceback_head[] = "Traceback (most recent call last):";

static void put(struct buf *out, const char *text, size_t size)
{
    int rv = buf_append(out, text, size);

    ASSERT(rv == 0); /* fields are bounded, and one byte becomes five at most */
}

static void put_text(struct buf *out, const char *text)
{
    put(out, text, strlen(text));
}

static void put_rule(struct buf *out, char c)
{
    char line[RULE_WIDTH + 1];

    memset(line, c, RULE_WIDTH);
    line[RULE_WIDTH] = '\n';
    put(out, line, sizeof(line));
}

/* The character at `s`; returns its length. */
static size_t put_character(struct buf *out, const char *s, size_t size)
{
    uint32_t code = ' ';
    size_t n = MAX(utf8_decode((const uint8_t *)s, size, &code), (size_t)1);
    char escaped[16];

    if (code == '\t' || !utf8_is_wild(code)) {
        put(out, s, n);
    } else {
        (void)snprintf(escaped, sizeof(escaped), code <= 0xff ? "\\x%02x" : "\\u%04x",
                       code);
        put_text(out, escaped);
    }
    return n;
}

/* A worker's words on somebody's terminal: what it would obey, but tabs, is shown as
 * \xNN or \uNNNN. Line ends become line ends with `indent` behind them; with NULL they
 * are no better than the others. */
static void put_escaped(struct buf *out, const char *text, const char *indent)
{
    const char *end = text + strlen(text);

    while (text < end) {
        if (!indent || *text != '\n') {
            text += put_character(out, text, (size_t)(end - text));
        } else if (++text < end) { /* the caller ends the last line */
            put_text(out, "\n");
            put_text(out, indent);
        }
    }
}

static void put_field(struct buf *out, const char *name, const char *value,
                      const char *indent)
{
    int rv = buf_printf(out, "  %-10s: ", name);

    ASSERT(rv == 0);
    put_escaped(out, value, indent);
    put_text(out, "\n");
}

static void put_cause_fields(struct buf *out, const struct msg_report *r,
                             const char *time)
{
    char name[SIGNALS_NAME_MAX];
    char value[128];

    put_field(out, "time", time, NULL);
    put_field(out, "host", r->host, NULL);
    (void)snprintf(value, sizeof(value), "%d (local_rank: %u)", r->rank, r->local_rank);
    put_field(out, "rank", value, NULL);
    (void)snprintf(value, sizeof(value), "%llu", (unsigned long long)r->generation);
    put_field(out, "generation", value, NULL);
    if (r->signal > 0) { /* torchrun's way to write it, with its two blanks */
        signals_name(r->signal, name);
        (void)snprintf(value, sizeof(value), "%d (pid: %u)  (%s)", -r->signal, r->pid,
                       name);
    } else {
        (void)snprintf(value, sizeof(value), "%d (pid: %u)", r->code, r->pid);
    }
    put_field(out, "exitcode", value, NULL);
    put_field(out, "error_file", *r->error_file ? r->error_file : "<N/A>", NULL);
    put_field(out, "log", *r->log_path ? r->log_path : "<N/A>", NULL);
}

/* Behind torch's "[rank0]: ", where a line begins with one. */
static const char *skip_rank(const char *line)
{
    static const char prefix[] = "[rank";
    const char *p = line + strlen(prefix);

    if (strncmp(line, prefix, strlen(prefix)) != 0) {
        return line;
    }
    p += strspn(p, "0123456789");
    return strncmp(p, "]: ", 3) == 0 ? p + 3 : line;
}

static bool is_line(const char *line, const char *text)
{
    size_t len = strlen(text);

    line = skip_rank(line);
    return strncmp(line, text, len) == 0 && (line[len] == '\n' || line[len] == '\0');
}

/* Between the tracebacks of one exception. */
static bool is_chain(const char *line)
{
    return is_line(line, "During handling of the above exception, another exception "
                         "occurred:") ||
           is_line(line, "The above exception was the direct cause of the following "
                         "exception:");
}

/* The last traceback in `tail` whose last line is `last`: what lies from `*ret_start`
 * to `*ret_end`. The first one may have lost its head: the tail is short. */
static bool find_exception(const char *tail, const char *last, const char **ret_start,
                           const char **ret_end)
{
    const char *start = tail;
    bool is_chained = false;
    bool found = false;

    for (const char *line = tail; *line != '\0';) {
        const char *end = strchrnul(line, '\n');
        bool is_blank = *skip_rank(line) == '\n';

        end += *end == '\n';
        if (memmem(line, (size_t)(end - line), traceback_head,
                   strlen(traceback_head)) &&
            (!start || !is_chained)) {
            start = line;
        }
        is_chained = is_chain(line) || (is_blank && is_chained);
        if (start && is_line(line, last)) {
            *ret_start = start;
            *ret_end = end;
            found = true;
            start = NULL; /* what comes now is no part of it */
        }
        line = end;
    }
    return found;
}

/* The last lines without the exception that `message` tells, as Python prints it, each
 * line maybe with torch's "[rank0]: " before it. What stands before and behind it
 * stays: nobody else reports that. */
static char *tail_without_message(const struct msg_report *r)
{
    char *message = mem_strdup(r->message);
    char *tail = mem_strdup(r->tail);
    size_t len = strlen(message);
    const char *start;
    const char *end;
    const char *last;

    while (len > 0 && message[len - 1] == '\n') {
        message[--len] = '\0';
    }
    last = strrchr(message, '\n');
    last = last ? last + 1 : message;
    if (strstr(message, traceback_head) && find_exception(tail, last, &start, &end)) {
        memmove(tail + (start - tail), end, strlen(end) + 1);
    }
    mem_free(message);
    return tail;
}

static void put_tail(struct buf *out, const struct msg_report *r)
{
    char *tail = tail_without_message(r);

    if (*tail != '\0') {
        put_text(out, "  last lines:\n    ");
        put_escaped(out, tail, "    ");
        put_text(out, "\n");
    }
    mem_free(tail);
}

/* Nobody leaves a word of its own behind who is ended by KILL. */
static void put_kill_hint(struct buf *out, const struct msg_report *r)
{
    if (r->signal == SIGKILL && *r->message == '\0') {
        put_field(out, "hint",
                  "if nobody sent it, the kernel may have been out of memory: dmesg",
                  NULL);
    }
}

static void put_traceback(struct buf *out, const struct msg_report *r)
{
    char name[SIGNALS_NAME_MAX];
    char value[128];

    if (*r->message) {
        put_field(out, "traceback", r->message, "    ");
    } else if (r->signal > 0) {
        signals_name(r->signal, name);
        (void)snprintf(value, sizeof(value), "Signal %d (%s) received by PID %u",
                       r->signal, name, r->pid);
        put_field(out, "traceback", value, NULL);
    } else { /* scripts look for the word */
        put_field(out, "traceback",
                  strstr(r->tail, traceback_head) ? "in the last lines" : "<N/A>",
                  NULL);
    }
    put_kill_hint(out, r);
    put_tail(out, r);
}

static void put_others(struct buf *out, const struct msg_report *r)
{
    put_text(out, "Failures:\n  ");
    put_escaped(out, *r->others ? r->others : "<NO_OTHER_FAILURES>", "  ");
    put_text(out, "\n");
}

static void put_decision(struct buf *out, const struct msg_report *r)
{
    if (*r->text) {
        put_escaped(out, r->text, "");
        put_text(out, "\n");
    }
}

static char *finish(struct buf *out)
{
    put(out, "", 1);
    return (char *)out->data; /* nothing was consumed: the text begins there */
}

/* Each failure was followed by one, but for the last. */
static uint32_t count_restarts(const struct msg_report *r)
{
    return r->failures > 0 ? MIN(r->failures - 1, r->max_restarts) : 0;
}

char *report_format(const struct msg_report *r, const char *time)
{
    struct buf out;
    int rv;

    buf_init(&out, REPORT_MAX);
    put_rule(&out, '=');
    put_escaped(&out, *r->program ? r->program : "the job", NULL);
    put_text(&out, " FAILED\n");
    put_rule(&out, '-');
    if (r->rank >= 0 || *r->others) {
        put_others(&out, r);
        put_rule(&out, '-');
    }
    if (r->rank >= 0) {
        rv = buf_printf(&out, "Root Cause (first observed failure):\n[%d]:\n", r->rank);
        ASSERT(rv == 0);
        put_cause_fields(&out, r, time);
        put_traceback(&out, r);
        put_rule(&out, '-');
    }
    put_decision(&out, r);
    rv = buf_printf(&out, "restarts: %u of %u; exit code %u\n", count_restarts(r),
                    r->max_restarts, r->exit_code);
    ASSERT(rv == 0);
    put_rule(&out, '=');
    return finish(&out);
}

char *report_escape(const char *text)
{
    struct buf out;

    buf_init(&out, REPORT_MAX);
    put_escaped(&out, text, NULL);
    return finish(&out);
}
