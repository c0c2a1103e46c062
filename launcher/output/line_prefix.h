#ifndef LAUNCHER_OUTPUT_LINE_PREFIX_H
#define LAUNCHER_OUTPUT_LINE_PREFIX_H

/* PURE. What stands in front of the lines of a teed stream. A template is Python's
 * string.Template, as torchrun uses it: ${role_name}, ${rank}, ${local_rank},
 * ${hostname} and, ours, ${time}, with or without braces; $$ is a dollar sign; what it
 * does not know stays as it is. */

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINE_PREFIX_MAX = 1024 }; /* with its terminator; a longer one is cut */

#define LINE_PREFIX_DEFAULT "[${role_name}${local_rank}]:"

struct line_prefix_values {
    const char *role_name;
    uint32_t rank, local_rank;
    const char *hostname;
    const char *time;
};

/* Returns its length. */
size_t line_prefix_format(const char *template, const struct line_prefix_values *values,
                          char ret[LINE_PREFIX_MAX]);

/* Has the prefix to be made anew when time has passed? */
bool line_prefix_has_time(const char *template);

/* Where a stream stands: at the start of a line (0), of a line that a carriage return
 * has gone back to, within one. */
enum line_place { LINE_START, LINE_RETURNED, LINE_WITHIN };

/* Appends the data with the prefix in front of every line, also where a line is begun
 * again behind a carriage return (a progress bar). `out` has no bound that matters. */
void line_prefix_add(struct buf *out, const char *prefix, size_t prefix_size,
                     const char *data, size_t size, enum line_place *place);

#endif
