/* PURE. The table of a model's tensors: see unit.h. */

#include "worker/model/unit.h"

#include "worker/device/kernels.h"

#include "common/mem.h"
#include "common/str.h"

#include <fnmatch.h>
#include <string.h>

const char *const unit_state_suffix[UNIT_STATES] = {"", ".exp_avg", ".exp_avg_sq"};

/* Far above any real model: products of two dimensions times layers fit 64 bits. */
enum { LAYERS_MAX = 10000, DIM_MAX = 1 << 20, TOKENS_MAX = 1 << 26 };

/* One row of a block's table; a dimension is a multiple of dim, 0 for "none". */
struct block_row {
    const char *name;
    int rows, columns; /* in units of dim */
    enum tensor_init init;
};

static const struct block_row block_rows[] = {
    {"ln_1.weight", 1, 0, INIT_ONE},
    {"ln_1.bias", 1, 0, INIT_ZERO},
    {"attn.c_attn.weight", 1, 3, INIT_NORMAL},
    {"attn.c_attn.bias", 3, 0, INIT_ZERO},
    {"attn.c_proj.weight", 1, 1, INIT_NORMAL_RESIDUAL},
    {"attn.c_proj.bias", 1, 0, INIT_ZERO},
    {"ln_2.weight", 1, 0, INIT_ONE},
    {"ln_2.bias", 1, 0, INIT_ZERO},
    {"mlp.c_fc.weight", 1, 4, INIT_NORMAL},
    {"mlp.c_fc.bias", 4, 0, INIT_ZERO},
    {"mlp.c_proj.weight", 4, 1, INIT_NORMAL_RESIDUAL},
    {"mlp.c_proj.bias", 1, 0, INIT_ZERO},
};
_Static_assert(ARRAY_LEN(block_rows) <= UNIT_MAX_TENSORS, "a block fits its table");

static int check_range(const char *key, int value, int max, struct errmsg *msg)
{
    if (value >= 1 && value <= max) {
        return 0;
    }
    return errmsg_set(msg, ERR_INVALID, "%s=%d: must be 1 to %d", key, value, max);
}

static int check_config(const struct model_config *c, struct errmsg *msg)
{
    if (strcmp(c->family, "gpt2") != 0) {
        return errmsg_set(msg, ERR_UNSUPPORTED, "model.family=%s: only gpt2 is built",
                          c->family);
    }
    int rc = check_range("model.layers", c->layers, LAYERS_MAX, msg);
    rc = rc != 0 ? rc : check_range("model.dim", c->dim, DIM_MAX, msg);
    rc = rc != 0 ? rc : check_range("model.heads", c->heads, DIM_MAX, msg);
    rc = rc != 0 ? rc : check_range("model.context", c->context, TOKENS_MAX, msg);
    rc = rc != 0 ? rc : check_range("model.vocab", c->vocab, TOKENS_MAX, msg);
    if (rc == 0 && c->dim % c->heads != 0) {
        rc = errmsg_set(msg, ERR_INVALID,
                        "model.heads=%d does not divide model.dim=%d: choose a divisor",
                        c->heads, c->dim);
    }
    return rc;
}

/* Appends one tensor to the unit in work; columns 0: one dimension. */
static void add_tensor(struct unit *u, const char *prefix, const char *name,
                       size_t rows, size_t columns)
{
    ASSERT(u->n_tensors < UNIT_MAX_TENSORS);
    struct tensor *t = &u->tensor[u->n_tensors++];
    bool fits = str_format(t->name, sizeof(t->name), "%s%s", prefix, name);
    ASSERT(fits);
    t->shape[0] = rows;
    t->shape[1] = columns > 0 ? columns : 1;
    t->n_dims = columns > 0 ? 2 : 1;
    t->offset = u->size;
    t->size = t->shape[0] * t->shape[1];
    t->decay = t->n_dims >= 2;
    u->size += t->size;
}

static void set_init(struct unit *u, enum tensor_init init)
{
    u->tensor[u->n_tensors - 1].init = init;
}

static struct unit *unit_begin(struct layout *l, const char *name)
{
    struct unit *u = &l->unit[l->n_units];
    bool fits = str_format(u->name, sizeof(u->name), "%s", name);
    ASSERT(fits);
    u->offset = l->size;
    return u;
}

/* Pads the unit in work and moves on to the next. */
static void unit_end(struct layout *l)
{
    struct unit *u = &l->unit[l->n_units++];
    l->n_params += u->size;
    u->size = ROUND_UP(u->size, SUMSQ_CHUNK);
    l->size += u->size;
}

static void add_block(struct layout *l, int layer, size_t dim)
{
    char name[32];
    char prefix[40];
    bool fits = str_format(name, sizeof(name), "h.%d", layer) &&
                str_format(prefix, sizeof(prefix), "%s.", name);
    ASSERT(fits);
    struct unit *u = unit_begin(l, name);
    for (size_t i = 0; i < ARRAY_LEN(block_rows); i++) {
        const struct block_row *row = &block_rows[i];
        add_tensor(u, prefix, row->name, (size_t)row->rows * dim,
                   (size_t)row->columns * dim);
        set_init(u, row->init);
    }
    unit_end(l);
}

int layout_gpt2(const struct model_config *config, struct layout *ret,
                struct errmsg *msg)
{
    *ret = (struct layout){0};
    int rc = check_config(config, msg);
    if (rc != 0) {
        return rc;
    }
    size_t dim = (size_t)config->dim;
    ret->unit = mem_array((size_t)config->layers + 2, sizeof(*ret->unit));

    struct unit *u = unit_begin(ret, "embedding");
    add_tensor(u, "", "wte.weight", (size_t)config->vocab, dim);
    set_init(u, INIT_NORMAL);
    add_tensor(u, "", "wpe.weight", (size_t)config->context, dim);
    set_init(u, INIT_NORMAL);
    unit_end(ret);

    for (int i = 0; i < config->layers; i++) {
        add_block(ret, i, dim);
    }

    u = unit_begin(ret, "head");
    add_tensor(u, "", "ln_f.weight", dim, 0);
    set_init(u, INIT_ONE);
    add_tensor(u, "", "ln_f.bias", dim, 0);
    set_init(u, INIT_ZERO);
    unit_end(ret);
    return 0;
}

void layout_release(struct layout *l)
{
    mem_free(l->unit);
    *l = (struct layout){0};
}

static const struct tensor *unit_find(const struct unit *u, const char *name)
{
    for (int i = 0; i < u->n_tensors; i++) {
        if (strcmp(u->tensor[i].name, name) == 0) {
            return &u->tensor[i];
        }
    }
    return NULL;
}

const struct tensor *layout_find(const struct layout *l, const char *name,
                                 const struct unit **ret_unit)
{
    const struct tensor *t = NULL;
    for (int i = 0; i < l->n_units && t == NULL; i++) {
        t = unit_find(&l->unit[i], name);
        if (t != NULL && ret_unit != NULL) {
            *ret_unit = &l->unit[i];
        }
    }
    return t;
}

static const char *nearer_name(const struct unit *u, const char *text,
                               const char *found)
{
    for (int j = 0; j < u->n_tensors; j++) {
        if (str_distance(text, u->tensor[j].name) < str_distance(text, found)) {
            found = u->tensor[j].name;
        }
    }
    return found;
}

/* However far that is: a pattern is shorter than what it is to match. */
static const char *nearest_name(const struct layout *l, const char *text)
{
    const char *found = l->unit[0].tensor[0].name;

    for (int i = 0; i < l->n_units; i++) {
        found = nearer_name(&l->unit[i], text, found);
    }
    return found;
}

/* How many of the unit's tensors match. */
static int freeze_unit(struct layout *l, struct unit *u, const char *pattern)
{
    int n = 0;

    for (int j = 0; j < u->n_tensors; j++) {
        struct tensor *t = &u->tensor[j];

        if (fnmatch(pattern, t->name, 0) == 0) {
            l->n_frozen += t->frozen ? 0 : t->size;
            t->frozen = true;
            n++;
        }
    }
    return n;
}

static bool is_frozen(const struct unit *u)
{
    for (int j = 0; j < u->n_tensors; j++) {
        if (!u->tensor[j].frozen) {
            return false;
        }
    }
    return true;
}

int layout_freeze(struct layout *l, const char *pattern, struct errmsg *msg)
{
    int n = 0;

    for (int i = 0; i < l->n_units; i++) {
        n += freeze_unit(l, &l->unit[i], pattern);
    }
    while (l->first_trained < l->n_units && is_frozen(&l->unit[l->first_trained])) {
        l->first_trained++;
    }
    if (n > 0) {
        return 0;
    }
    return errmsg_set(msg, ERR_INVALID,
                      "\"%s\" matches no tensor; the nearest is \"%s\"", pattern,
                      nearest_name(l, pattern));
}
