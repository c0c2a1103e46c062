#ifndef LAUNCHER_OUTPUT_LINE_FILTER_H
#define LAUNCHER_OUTPUT_LINE_FILTER_H

/* PURE. Which lines are written a second time: those that contain one of the texts of
 * torchrun's --duplicate-stdout-filters, a list with commas, `,,` being a comma. An
 * empty text is none (torchrun: every line). */

#include <stdbool.h>
#include <stddef.h>

struct line_filter {
    char *texts; /* owned: one after the other, each with its terminator; then "" */
};

/* `list` may be NULL. */
void line_filter_init(struct line_filter *f, const char *list);
void line_filter_release(struct line_filter *f);

static inline bool line_filter_is_empty(const struct line_filter *f)
{
    return f->texts[0] == '\0';
}

bool line_filter_matches(const struct line_filter *f, const char *line, size_t size);

#endif
