#include "launcher/verbs/table.h"

#include "common/mem.h"
#include "common/utf8.h"

#include <string.h>

enum {
    GAP = 2,
    NARROW = 8, /* so much of a cell says something yet */
    CELL_MAX = 16 * 1024,
};

struct cell {
    char *text; /* owned; harmless UTF-8 */
    size_t columns;
    enum table_colour colour;
};

struct text_table {
    struct table_column column[TABLE_MAX_COLUMNS];
    size_t n_columns;
    struct cell *cell; /* owned */
    size_t n_cells;
};

static const char *const colour_codes[] = {
    [TABLE_PLAIN] = "",       [TABLE_GREEN] = "\033[32m", [TABLE_YELLOW] = "\033[33m",
    [TABLE_RED] = "\033[31m", [TABLE_DIM] = "\033[2m",
};

struct text_table *table_new(const struct table_column *columns, size_t n)
{
    struct text_table *t = mem_zalloc(sizeof(*t));

    ASSERT(n > 0 && n <= TABLE_MAX_COLUMNS);
    memcpy(t->column, columns, n * sizeof(*columns));
    t->n_columns = n;
    return t;
}

void table_free(struct text_table *t)
{
    if (!t) {
        return;
    }
    for (size_t i = 0; i < t->n_cells; i++) {
        mem_free(t->cell[i].text);
    }
    mem_free(t->cell);
    mem_free(t);
}

/* mem_alloc'ed, and harmless. */
static char *tame(const char *text)
{
    struct buf clean;
    char *copy;
    int rv;

    buf_init(&clean, 3 * (size_t)CELL_MAX);
    rv = utf8_tame(&clean, text, strnlen(text, CELL_MAX));
    ASSERT(rv == 0); /* at most three times as much */
    copy = mem_alloc(buf_len(&clean) + 1);
    if (buf_len(&clean) > 0) {
        memcpy(copy, buf_bytes(&clean), buf_len(&clean));
    }
    copy[buf_len(&clean)] = '\0';
    buf_release(&clean);
    return copy;
}

void table_put(struct text_table *t, const char *text, enum table_colour colour)
{
    struct cell *cell;

    if ((t->n_cells & (t->n_cells - 1)) == 0) { /* full: 0, 1, 2, 4 … */
        t->cell = mem_grow(t->cell, MAX(2 * t->n_cells, 1), sizeof(*t->cell));
    }
    cell = &t->cell[t->n_cells++];
    cell->text = tame(text && text[0] != '\0' ? text : "-");
    cell->columns = utf8_columns(cell->text, strlen(cell->text));
    cell->colour = colour;
}

/* ---- writing ---- */

static void put(struct buf *out, const char *text, size_t size)
{
    int rv = buf_append(out, text, size);

    (void)rv; /* past the buffer's ceiling the rest is missing */
}

static void put_spaces(struct buf *out, size_t n)
{
    for (; n > 0; n--) {
        put(out, " ", 1);
    }
}

/* The bytes of the text that fit into so many columns. */
static size_t fitting(const char *text, size_t columns)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t size = strlen(text);
    size_t at = 0;

    while (at < size) {
        uint32_t code = 0;
        size_t n = MAX(utf8_decode(s + at, size - at, &code), (size_t)1);

        if (utf8_columns(text, at + n) > columns) {
            break;
        }
        at += n;
    }
    return at;
}

/* Padded to its column's width, or cut to it with an ellipsis. */
static void put_cell(struct buf *out, const struct cell *c, size_t width,
                     enum table_align align, bool has_colours)
{
    bool is_cut = c->columns > width;
    size_t size = is_cut ? fitting(c->text, width - 1) : strlen(c->text);
    size_t used = utf8_columns(c->text, size) + is_cut;
    bool is_coloured = has_colours && c->colour != TABLE_PLAIN;

    put_spaces(out, align == TABLE_RIGHT ? width - used : 0);
    if (is_coloured) {
        put(out, colour_codes[c->colour], strlen(colour_codes[c->colour]));
    }
    put(out, c->text, size);
    put(out, "…", is_cut ? strlen("…") : 0);
    if (is_coloured) {
        put(out, "\033[0m", 4);
    }
    put_spaces(out, align == TABLE_LEFT ? width - used : 0);
}

/* The widest of a column. */
static size_t measure(const struct text_table *t, size_t column)
{
    const char *title = t->column[column].title;
    size_t width = utf8_columns(title, strlen(title));

    for (size_t i = column; i < t->n_cells; i += t->n_columns) {
        width = MAX(width, t->cell[i].columns);
    }
    return width;
}

/* How much room there is to be, where not all of it may be had. */
struct layout {
    size_t width[TABLE_MAX_COLUMNS]; /* 0: the column is left out */
};

static size_t total_of(const struct text_table *t, const struct layout *l)
{
    size_t total = 0;

    for (size_t i = 0; i < t->n_columns; i++) {
        total += l->width[i] > 0 ? l->width[i] + (total > 0 ? GAP : 0) : 0;
    }
    return total;
}

/* … with all cut that may be, to `floor` in any case. */
static size_t least_of(const struct text_table *t, const struct layout *l, size_t floor)
{
    struct layout cut = *l;

    for (size_t i = 0; i < t->n_columns; i++) {
        if (t->column[i].least > 0) {
            cut.width[i] = MIN(cut.width[i], MIN(t->column[i].least, floor));
        }
    }
    return total_of(t, &cut);
}

static bool says_nothing(const struct text_table *t, size_t column)
{
    for (size_t i = column; i < t->n_cells; i += t->n_columns) {
        if (strcmp(t->cell[i].text, "-") != 0) {
            return false;
        }
    }
    return true;
}

/* Which columns are left out, as long as the rest does not fit. */
enum pass { PASS_EMPTY, PASS_MAY_GO, PASS_ANY_EMPTY, PASS_ANY, PASSES };

static bool may_go_in(const struct text_table *t, size_t column, enum pass pass)
{
    bool is_empty = pass == PASS_EMPTY || pass == PASS_ANY_EMPTY;
    bool is_any = pass == PASS_ANY || pass == PASS_ANY_EMPTY;

    return (is_any ? column >= TABLE_KEPT : t->column[column].may_go) &&
           (!is_empty || says_nothing(t, column));
}

static void leave_out(const struct text_table *t, struct layout *l, size_t width,
                      enum pass pass)
{
    size_t floor = pass >= PASS_ANY_EMPTY ? NARROW : SIZE_MAX;

    for (size_t i = t->n_columns; i > 0 && least_of(t, l, floor) > width; i--) {
        if (may_go_in(t, i - 1, pass)) {
            l->width[i - 1] = 0;
        }
    }
}

/* What still does not fit is taken from the last of those that may be cut, then the
 * others. */
static void shrink(const struct text_table *t, struct layout *l, size_t width,
                   size_t floor)
{
    size_t total = total_of(t, l);

    for (size_t i = t->n_columns; i > 0 && total > width; i--) {
        size_t least = MIN(l->width[i - 1], MIN(t->column[i - 1].least, floor));
        size_t take = MIN(total - width, l->width[i - 1] - least);

        if (least > 0) {
            l->width[i - 1] -= take;
            total -= take;
        }
    }
}

/* What is left on a terminal that is narrower still: of the widest. */
static void squeeze(const struct text_table *t, struct layout *l, size_t width)
{
    for (size_t total = total_of(t, l); total > width; total--) {
        size_t widest = 0;

        for (size_t i = 1; i < t->n_columns; i++) {
            widest = l->width[i] > l->width[widest] ? i : widest;
        }
        if (l->width[widest] <= 1) {
            return;
        }
        l->width[widest]--;
    }
}

static void lay_out(const struct text_table *t, struct layout *l, size_t width)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        l->width[i] = measure(t, i);
    }
    if (width > 0) {
        for (enum pass pass = 0; pass < PASSES; pass++) {
            leave_out(t, l, width, pass);
        }
        shrink(t, l, width, SIZE_MAX);
        shrink(t, l, width, NARROW);
        squeeze(t, l, width);
    }
}

static void cut_trailing(struct buf *out)
{
    while (buf_len(out) > 0 && buf_bytes(out)[buf_len(out) - 1] == ' ') {
        out->end--;
    }
}

static void put_row(const struct text_table *t, const struct cell *cells,
                    const struct layout *l, bool has_colours, struct buf *out)
{
    bool is_first = true;

    for (size_t i = 0; i < t->n_columns; i++) {
        if (l->width[i] > 0) {
            put_spaces(out, is_first ? 0 : GAP);
            put_cell(out, &cells[i], l->width[i], t->column[i].align, has_colours);
            is_first = false;
        }
    }
    cut_trailing(out);
    put(out, "\n", 1);
}

void table_write(const struct text_table *t, size_t width, bool has_colours,
                 struct buf *out)
{
    struct cell titles[TABLE_MAX_COLUMNS];
    struct layout l = {{0}};

    ASSERT(t->n_cells % t->n_columns == 0); /* whole rows */
    lay_out(t, &l, width);
    for (size_t i = 0; i < t->n_columns; i++) {
        titles[i].text = (char *)(uintptr_t)t->column[i].title; /* only read */
        titles[i].columns = utf8_columns(titles[i].text, strlen(titles[i].text));
        titles[i].colour = TABLE_DIM;
    }
    put_row(t, titles, &l, has_colours, out);
    for (size_t i = 0; i + t->n_columns <= t->n_cells; i += t->n_columns) {
        put_row(t, &t->cell[i], &l, has_colours, out);
    }
}

void table_write_text(struct buf *out, const char *text, enum table_colour colour,
                      bool has_colours)
{
    struct cell cell = {.text = tame(text), .colour = colour};

    cell.columns = utf8_columns(cell.text, strlen(cell.text));
    put_cell(out, &cell, cell.columns, TABLE_LEFT, has_colours);
    mem_free(cell.text);
}
