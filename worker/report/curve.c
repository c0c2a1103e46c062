#include "worker/report/progress.h"

#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The loss curve in braille: a character is 2 × 4 dots. Happy path: one pass finds the
 * range of steps, a second one the mean loss of each column of dots, then neighbouring
 * means are joined by dots and the grid is written with its axes. */

enum { MAX_COLUMNS = 400, MAX_ROWS = 100, MAX_DOTS_X = 2 * MAX_COLUMNS };
enum { MAX_TEXT = 1 << 18, LINE_MAX_BYTES = METRICS_LINE_MAX };

struct curve {
    int columns, rows;  /* characters */
    int dots_x, dots_y; /* 2·columns, 4·rows */
    double first, last; /* steps */
    double low, high;   /* losses */
    double sum[MAX_DOTS_X];
    unsigned n[MAX_DOTS_X];
    uint8_t cell[MAX_ROWS][MAX_COLUMNS]; /* braille patterns */
};

/* The next line with a step and a finite loss; false at the end. */
static bool next_point(FILE *file, double *ret_step, double *ret_loss)
{
    char line[LINE_MAX_BYTES];

    while (fgets(line, sizeof(line), file)) {
        json_t *object = json_loads(line, 0, NULL);
        const json_t *step = json_object_get(object, "step");
        const json_t *loss = json_object_get(object, "loss");
        bool is_point = json_is_number(step) && json_is_number(loss);

        if (is_point) {
            *ret_step = json_number_value(step);
            *ret_loss = json_number_value(loss);
        }
        json_decref(object);
        if (is_point) {
            return true;
        }
    }
    return false;
}

static int find_range(FILE *file, struct curve *c, const char *path, struct errmsg *msg)
{
    double step;
    double loss;
    bool is_first = true;

    while (next_point(file, &step, &loss)) {
        c->first = is_first ? step : MIN(c->first, step);
        c->last = is_first ? step : MAX(c->last, step);
        is_first = false;
    }
    if (is_first) {
        return errmsg_set(msg, ERR_MISSING, "%s: no step in it yet", path);
    }
    return 0;
}

static void add_points(FILE *file, struct curve *c)
{
    double range = MAX(c->last - c->first, 1);
    double step;
    double loss;

    while (next_point(file, &step, &loss)) {
        double at = (step - c->first) / range * (c->dots_x - 1);
        int x = (int)MIN(MAX(at + 0.5, 0), c->dots_x - 1); /* the file may have grown */

        c->sum[x] += loss;
        c->n[x]++;
    }
}

static void find_losses(struct curve *c)
{
    bool is_first = true;

    for (int x = 0; x < c->dots_x; x++) {
        double mean = c->n[x] > 0 ? c->sum[x] / c->n[x] : 0;

        c->sum[x] = mean;
        if (c->n[x] > 0) {
            c->low = is_first ? mean : MIN(c->low, mean);
            c->high = is_first ? mean : MAX(c->high, mean);
            is_first = false;
        }
    }
}

static void set_dot(struct curve *c, int x, int y)
{
    static const uint8_t bits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

    c->cell[y / 4][x / 2] |= bits[y % 4][x % 2];
}

/* The row of dots of a loss, from the top. */
static int row_of(const struct curve *c, double loss)
{
    double range = c->high - c->low;
    double share = range > 0 ? (c->high - loss) / range : 0.5;

    return (int)(share * (c->dots_y - 1) + 0.5);
}

static void draw_line(struct curve *c, int x0, int y0, int x1, int y1)
{
    int steps = MAX(x1 - x0, y1 > y0 ? y1 - y0 : y0 - y1);

    for (int i = 0; i <= steps; i++) {
        double share = steps > 0 ? (double)i / steps : 0;

        set_dot(c, x0 + (int)(share * (x1 - x0) + 0.5),
                (int)(y0 + share * (y1 - y0) + 0.5));
    }
}

static void draw(struct curve *c)
{
    int x_before = -1;
    int y_before = 0;

    for (int x = 0; x < c->dots_x; x++) {
        int y = row_of(c, c->sum[x]);

        if (c->n[x] == 0) {
            continue;
        }
        if (x_before < 0) {
            set_dot(c, x, y);
        } else {
            draw_line(c, x_before, y_before, x, y);
        }
        x_before = x;
        y_before = y;
    }
}

/* U+2800 + pattern in UTF-8. */
static int put_cell(struct buf *b, uint8_t pattern)
{
    uint8_t utf8[3] = {0xe2, (uint8_t)(0xa0 | pattern >> 6),
                       (uint8_t)(0x80 | (pattern & 0x3f))};

    return buf_append(b, utf8, sizeof(utf8));
}

static int put_row(struct buf *b, const struct curve *c, int row)
{
    char label[32] = "";
    int rv;

    if (row == 0 || row == c->rows - 1 || (row % 4 == 0 && row + 2 < c->rows)) {
        double share = c->rows > 1 ? (double)row / (c->rows - 1) : 0;
        double loss = c->high - share * (c->high - c->low);

        (void)snprintf(label, sizeof(label), "%.3f", loss); /* cut is fine */
    }
    rv = buf_printf(b, "%9s %s", label, label[0] ? "┤" : "│");
    for (int x = 0; x < c->columns && rv == 0; x++) {
        rv = put_cell(b, c->cell[row][x]);
    }
    return rv < 0 ? rv : buf_printf(b, "\n");
}

static int put_axis(struct buf *b, const struct curve *c)
{
    char first[32];
    char last[32];
    int rv;

    (void)snprintf(first, sizeof(first), "%.0f", c->first); /* cut is fine */
    (void)snprintf(last, sizeof(last), "step %.0f", c->last);
    rv = buf_printf(b, "%9s └", "loss");
    for (int x = 0; x < c->columns && rv == 0; x++) {
        rv = buf_printf(b, "─");
    }
    return rv < 0 ? rv
                  : buf_printf(b, "\n%11s%s%*s\n", "", first,
                               MAX(c->columns - (int)strlen(first), 0), last);
}

static char *print(const struct curve *c)
{
    struct buf b;
    char *text;
    int rv = 0;

    buf_init(&b, MAX_TEXT);
    for (int row = 0; row < c->rows && rv == 0; row++) {
        rv = put_row(&b, c, row);
    }
    rv = rv < 0 ? rv : put_axis(&b, c);
    rv = rv < 0 ? rv : buf_append(&b, "", 1);
    ASSERT(rv == 0); /* MAX_ROWS × MAX_COLUMNS × 3 bytes and the axes */
    text = mem_dup(buf_bytes(&b), buf_len(&b));
    buf_release(&b);
    return text;
}

int progress_curve(const char *metrics_path, int columns, int rows, char **ret,
                   struct errmsg *msg)
{
    FILE *file = fopen(metrics_path, "re");
    struct curve *c;
    int rv;

    if (!file) {
        rv = errno == ENOENT ? ERR_MISSING : -errno;
        return errmsg_set(msg, rv, "%s: %s", metrics_path, err_text(rv));
    }
    c = mem_zalloc(sizeof(*c));
    c->columns = MIN(MAX(columns, 1), MAX_COLUMNS);
    c->rows = MIN(MAX(rows, 1), MAX_ROWS);
    c->dots_x = 2 * c->columns;
    c->dots_y = 4 * c->rows;
    rv = find_range(file, c, metrics_path, msg);
    if (rv == 0) {
        rewind(file);
        add_points(file, c);
        find_losses(c);
        draw(c);
        *ret = print(c);
    }
    (void)fclose(file); /* only read from */
    mem_free(c);
    return rv;
}
