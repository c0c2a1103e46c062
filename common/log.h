#ifndef COMMON_LOG_H
#define COMMON_LOG_H

/* One line per event on stderr: a sentence, then key=value pairs. Log once, at the
 * place that decides what to do about it; library modules log at most at debug. Where
 * stderr is systemd's journal (JOURNAL_STREAM names it) a line begins with <N>. What a
 * terminal obeys (utf8.h) becomes '?'. Thread-safe: a line is one write(2). */

#include "common/check.h"

#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* `name` (the program) and `context` ("rank=3"; may be "") begin every line. Both
 * copied. */
void log_setup(const char *name, const char *context, enum log_level level);
void log_set_level(enum log_level level); /* while other threads log, too */
/* "<3>" … where stderr is the journal, for lines that are written otherwise; else "". */
const char *log_prefix(enum log_level level);
enum log_level log_level_parse(const char *text, enum log_level fallback);

/* log_info("round sealed", "round=%u nodes=%d", …); `fmt` is never empty. */
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
void log_write(enum log_level level, const char *sentence, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* Others' text as the value of a key: as it is, or in quotes, where it could be taken
 * for more than one value. No line that somebody makes up looks like one of ours. Cut
 * to `size`. Returns `ret`. */
const char *log_value(const char *text, char *ret, size_t size);

/* Where lines go instead of stderr, for a program that must not wait for whoever reads
 * them; NULL: stderr again. Called by any thread, one at a time; must not log. */
void log_set_sink(void (*sink)(const char *line, size_t size));

/* Remembers a state change in a ring of the last 256, printed by a failed ASSERT; the
 * texts are static. `id`: which machine of that kind, for the debug line; may be "". */
void log_trace(const char *machine, const char *id, const char *from, const char *to);
void log_dump_trace(void);

#endif
