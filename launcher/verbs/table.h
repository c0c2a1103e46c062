#ifndef LAUNCHER_VERBS_TABLE_H
#define LAUNCHER_VERBS_TABLE_H

/* PURE. Rows and columns as text. What is put in comes from others (host names, what
 * ranks said): no control character of it reaches the terminal. */

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { TABLE_MAX_COLUMNS = 16, TABLE_KEPT = 2 };

enum table_align { TABLE_LEFT, TABLE_RIGHT };

enum table_colour { TABLE_PLAIN, TABLE_GREEN, TABLE_YELLOW, TABLE_RED, TABLE_DIM };

struct table_column {
    const char *title;
    enum table_align align;
    /* Where the terminal is too narrow it is left out, the last of them first, and those
     * that say nothing before; … */
    bool may_go;
    size_t least; /* … or cut to so many columns; 0: it is not. Where that is not
                   * enough, only the first TABLE_KEPT are sure of a place, however cut */
};

struct text_table;

struct text_table *table_new(const struct table_column *columns, size_t n);
void table_free(struct text_table *t); /* NULL allowed */

/* The next cell, in row by row; NULL or "": a dash. */
void table_put(struct text_table *t, const char *text, enum table_colour colour);

/* A row for each so many cells. `width`: of the terminal, 0: none is known. */
void table_write(const struct text_table *t, size_t width, bool has_colours,
                 struct buf *out);

/* One text of others, made harmless, with or without a colour. */
void table_write_text(struct buf *out, const char *text, enum table_colour colour,
                      bool has_colours);

#endif
