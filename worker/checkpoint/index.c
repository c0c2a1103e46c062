#include "worker/checkpoint/index.h"

#include "worker/checkpoint/file.h"
#include "worker/checkpoint/safetensors.h"

#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void index_init(struct index *x, const char *dir, const struct manifest *manifest)
{
    *x = (struct index){.manifest = manifest, .fd = -1};
    ASSERT(str_format(x->dir, sizeof(x->dir), "%s", dir));
}

static void close_shard(struct index *x)
{
    if (x->fd >= 0) {
        (void)close(x->fd); /* read only */
        x->fd = -1;
    }
}

void index_release(struct index *x)
{
    close_shard(x);
    mem_free(x->piece);
    x->piece = NULL;
    x->n_pieces = 0;
}

size_t piece_row_bytes(const struct piece *piece)
{
    return (piece->n_dims == 2 ? piece->shape[1] : 1) * sizeof(float);
}

/* --- building --- */

struct shard_tables {
    json_t *offsets;
    json_t *shapes;
};

static bool is_index(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* An array of exactly `n` sizes. */
static int get_sizes(const json_t *array, size_t n, size_t ret[2])
{
    if (!json_is_array(array) || json_array_size(array) != n) {
        return ERR_CORRUPT;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);

        if (!is_index(value)) {
            return ERR_CORRUPT;
        }
        ret[i] = (size_t)json_integer_value(value);
    }
    return 0;
}

static int get_piece(const struct st_tensor *t, const struct shard_tables *tables,
                     struct piece *ret)
{
    const json_t *info = json_object_get(tables->offsets, t->name);
    size_t offsets[2] = {0, 0};

    if (!str_format(ret->name, sizeof(ret->name), "%s", t->name) ||
        t->dtype != ST_F32 || t->n_dims < 1 || t->n_dims > 2) {
        return ERR_CORRUPT;
    }
    if (get_sizes(json_object_get(info, "saved_offsets"), t->n_dims, offsets) < 0 ||
        get_sizes(json_object_get(tables->shapes, t->name), t->n_dims, ret->shape) <
            0) {
        return ERR_CORRUPT;
    }
    if (offsets[1] != 0 || offsets[0] > ret->shape[0] || t->shape[0] == 0 ||
        t->shape[0] > ret->shape[0] - offsets[0] ||
        (t->n_dims == 2 && t->shape[1] != ret->shape[1])) {
        return ERR_CORRUPT;
    }
    ret->n_dims = (int)t->n_dims;
    ret->row = offsets[0];
    ret->n_rows = t->shape[0];
    ret->offset = t->offset;
    return 0;
}

static int add_pieces(struct index *x, size_t file, const struct safetensors *s,
                      const struct shard_tables *tables, struct errmsg *msg)
{
    if (s->n_tensors > INDEX_PIECES_MAX - x->n_pieces) {
        return errmsg_set(msg, ERR_TOO_LARGE, "the checkpoint has too many boxes");
    }
    x->piece = mem_grow(x->piece, x->n_pieces + s->n_tensors, sizeof(*x->piece));
    for (size_t i = 0; i < s->n_tensors; i++) {
        struct piece *p = &x->piece[x->n_pieces];

        *p = (struct piece){.file = file};
        if (get_piece(&s->tensor[i], tables, p) < 0) {
            return errmsg_set(msg, ERR_CORRUPT, "tensor '%.80s' is not a box of rows",
                              s->tensor[i].name);
        }
        x->n_pieces++;
    }
    return 0;
}

static json_t *load_table(const struct safetensors *s, const char *key)
{
    const char *text = safetensors_metadata(s, key);
    json_error_t error;

    return text ? json_loads(text, JSON_REJECT_DUPLICATES, &error) : NULL;
}

int index_add_file(struct index *x, size_t file, struct errmsg *msg)
{
    const struct checkpoint_file *f = &x->manifest->files[file];
    struct shard_tables tables;
    struct safetensors s;
    char path[CHECKPOINT_PATH_MAX];
    int rv;

    if (!str_format(path, sizeof(path), "%s/%s", x->dir, f->name)) {
        return errmsg_set(msg, -ENAMETOOLONG, "the path is too long");
    }
    rv = safetensors_open(path, &s, msg);
    if (rv < 0) {
        return rv;
    }
    tables.offsets = load_table(&s, INDEX_OFFSETS_KEY);
    tables.shapes = load_table(&s, INDEX_SHAPES_KEY);
    if (tables.offsets && tables.shapes) {
        rv = add_pieces(x, file, &s, &tables, msg);
    } else {
        rv = errmsg_set(msg, ERR_CORRUPT, "does not say which rows it holds");
    }
    json_decref(tables.offsets);
    json_decref(tables.shapes);
    safetensors_close(&s);
    return rv;
}

/* --- checking --- */

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a;
    const struct piece *y = b;
    int order = strcmp(x->name, y->name);

    if (order != 0) {
        return order;
    }
    if (x->row != y->row) {
        return x->row < y->row ? -1 : 1;
    }
    return (x->file > y->file) - (x->file < y->file);
}

static bool same_tensor(const struct piece *a, const struct piece *b)
{
    return strcmp(a->name, b->name) == 0;
}

struct complaint {
    const struct index *index;
    index_problem_cb *on_problem;
    void *arg;
    size_t n;
};

static void complain(struct complaint *c, const struct piece *p, const char *what,
                     size_t row)
{
    struct errmsg text;

    (void)errmsg_set(&text, ERR_CORRUPT, "tensor '%s' %s %zu", p->name, what, row);
    c->on_problem(c->arg, c->index->manifest->files[p->file].name, text.text);
    c->n++;
}

/* The pieces [p, end) are one tensor's, by row. */
static void check_tensor(struct complaint *c, const struct piece *p,
                         const struct piece *end)
{
    const struct piece *first = p;
    size_t row = 0;

    for (; p < end; p++) {
        if (p->n_dims != first->n_dims || p->shape[0] != first->shape[0] ||
            p->shape[1] != first->shape[1]) {
            complain(c, p, "has another shape in another file, here from row", p->row);
        } else if (p->row > row) {
            complain(c, p, "lacks rows from", row);
        } else if (p->row < row) {
            complain(c, p, "is there twice from row", p->row);
        }
        row = MAX(row, p->row + p->n_rows);
    }
    if (row < first->shape[0]) {
        complain(c, end - 1, "lacks rows from", row);
    }
}

size_t index_check(struct index *x, index_problem_cb *on_problem, void *arg)
{
    struct complaint c = {.index = x, .on_problem = on_problem, .arg = arg};
    size_t begin = 0;

    if (x->n_pieces > 0) {
        qsort(x->piece, x->n_pieces, sizeof(*x->piece), compare_pieces);
    }
    for (size_t i = 1; i <= x->n_pieces; i++) {
        if (i == x->n_pieces || !same_tensor(&x->piece[begin], &x->piece[i])) {
            check_tensor(&c, &x->piece[begin], &x->piece[i]);
            begin = i;
        }
    }
    return c.n;
}

/* --- reading --- */

static void on_first_problem(void *arg, const char *file, const char *what)
{
    struct errmsg *msg = arg;

    if (msg->text[0] == '\0') {
        (void)errmsg_set(msg, ERR_CORRUPT, "%s: %s", file, what);
    }
}

int index_open(struct index *x, const char *dir, const struct manifest *manifest,
               struct errmsg *msg)
{
    struct errmsg first = {""};
    int rv = 0;

    index_init(x, dir, manifest);
    for (size_t i = 0; i < manifest->n_files && rv == 0; i++) {
        rv = index_add_file(x, i, msg);
        if (rv < 0) {
            (void)errmsg_wrap(msg, rv, "%s", manifest->files[i].name);
        }
    }
    if (rv == 0 && index_check(x, on_first_problem, &first) > 0) {
        rv = errmsg_set(msg, ERR_CORRUPT, "%s", first.text);
    }
    if (rv < 0) {
        index_release(x);
    }
    return rv;
}

const struct piece *index_find(const struct index *x, const char *name)
{
    size_t low = 0;
    size_t high = x->n_pieces;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(x->piece[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == x->n_pieces || strcmp(x->piece[low].name, name) != 0) {
        return NULL;
    }
    return &x->piece[low];
}

static int open_shard(struct index *x, size_t file)
{
    char path[CHECKPOINT_PATH_MAX];
    uint64_t size;

    if (x->fd >= 0 && x->file == file) {
        return 0;
    }
    close_shard(x);
    if (!str_format(path, sizeof(path), "%s/%s", x->dir,
                    x->manifest->files[file].name)) {
        return -ENAMETOOLONG;
    }
    x->fd = file_open_read(path, &size);
    x->file = file;
    return x->fd < 0 ? x->fd : 0;
}

int index_read(struct index *x, size_t file, uint64_t offset, void *data, size_t size,
               struct errmsg *msg)
{
    int rv = open_shard(x, file);

    if (rv == 0) {
        rv = file_read_at(x->fd, data, size, offset);
    }
    if (rv < 0) {
        return errmsg_set(msg, rv, "%s: cannot be read: %s",
                          x->manifest->files[file].name, err_text(rv));
    }
    return 0;
}
