#include "worker/parallel/accumulate.h"

#include "common/mem.h"

struct leaf_plan {
    int slot;
    int first_add, n_adds; /* in `adds` */
};

struct accumulate {
    struct accumulate_config config;
    int n_slots;
    struct leaf_plan *leaf; /* owned; of each leaf */
    struct addition *adds;  /* owned; of all leaves */
    int n_adds;
    struct counter held;
    float **range; /* owned; per unit, then the head: its begin in each slot */
    /* the running leaf */
    uint32_t at, n; /* which, of how many */
    int next_unit;  /* −1: its backward is complete */
};

static const struct addition second_to_first = {0, 1};

int accumulate_slots(uint32_t begin, uint32_t end, bool exact)
{
    return exact ? tree_max_slots(begin, end) : (int)MIN(end - begin, 2);
}

/* ---- the plan -------------------------------------------------------------------- */

static int take_slot(uint64_t *free_slots)
{
    int i = __builtin_ctzll(*free_slots);

    *free_slots &= *free_slots - 1;
    return i;
}

static void plan_exact(struct accumulate *a)
{
    uint64_t free_slots =
        (UINT64_C(1) << a->n_slots) - 1; /* n_slots ≤ 2·log2 n + 1 < 64 */
    struct addition adds[TREE_MAX_BLOCKS];

    for (uint32_t i = 0; i < a->n; i++) {
        struct leaf_plan *l = &a->leaf[i];

        ASSERT(free_slots != 0);
        l->slot = take_slot(&free_slots);
        l->first_add = a->n_adds;
        l->n_adds = tree_push(&a->held, a->config.begin + i, l->slot, adds);
        for (int k = 0; k < l->n_adds; k++) {
            free_slots |= UINT64_C(1) << adds[k].src;
            a->adds[a->n_adds++] = adds[k];
        }
    }
}

static void plan_fast(struct accumulate *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        a->leaf[i] = (struct leaf_plan){i > 0, a->n_adds, i > 0};
        if (i > 0) {
            a->adds[a->n_adds++] = second_to_first;
        }
    }
    a->held = (struct counter){.n = 1}; /* everything, in slot 0 */
}

static float *slot(const struct accumulate *a, int i)
{
    return a->config.slots + (size_t)i * a->config.slot_size;
}

static float **range_of(const struct accumulate *a, int range)
{
    return a->range + (size_t)range * (size_t)a->n_slots;
}

static void plan_ranges(struct accumulate *a)
{
    const struct layout *l = a->config.layout;
    size_t at;

    a->range =
        mem_array((size_t)l->n_units + 1, (size_t)a->n_slots * sizeof(*a->range));
    for (int u = 0; u <= l->n_units; u++) {
        at = u < l->n_units ? l->unit[u].offset : a->config.head;
        for (int i = 0; i < a->n_slots; i++) {
            range_of(a, u)[i] = slot(a, i) + at;
        }
    }
}

struct accumulate *accumulate_new(const struct accumulate_config *config)
{
    struct accumulate *a = mem_zalloc(sizeof(*a));

    a->config = *config;
    a->n = config->end - config->begin;
    a->at = a->n - 1;
    a->next_unit = -1;
    a->n_slots = accumulate_slots(config->begin, config->end, config->exact);
    a->leaf = mem_array(a->n, sizeof(*a->leaf));
    a->adds = mem_array(a->n, sizeof(*a->adds));
    if (config->exact) {
        plan_exact(a);
    } else {
        plan_fast(a);
    }
    plan_ranges(a);
    return a;
}

void accumulate_free(struct accumulate *a)
{
    if (!a) {
        return;
    }
    mem_free(a->leaf);
    mem_free(a->adds);
    mem_free(a->range);
    mem_free(a);
}

const struct counter *accumulate_held(const struct accumulate *a)
{
    return &a->held;
}

/* ---- a leaf ---------------------------------------------------------------------- */

bool accumulate_is_last(const struct accumulate *a)
{
    return a->at == a->n - 1;
}

float *accumulate_turn(struct accumulate *a)
{
    ASSERT(a->next_unit < 0);
    a->at = accumulate_is_last(a) ? 0 : a->at + 1;
    a->next_unit = a->config.layout->n_units - 1;
    return slot(a, a->leaf[a->at].slot);
}

/* The leaf's additions over one range: a unit's, or, behind the last, the head's. */
static void add_range(struct accumulate *a, int range, size_t n)
{
    const struct leaf_plan *l = &a->leaf[a->at];
    struct device *d = a->config.device;
    float *grad = range_of(a, range)[l->slot];

    if (a->config.dtype != DTYPE_FP32 && n > 0) {
        d->k->round(d, QUEUE_COMPUTE, grad, grad, n, a->config.dtype);
    }
    if (l->n_adds > 0 && n > 0) {
        d->k->sum_ordered(d, QUEUE_COMPUTE, range_of(a, range), a->n_slots,
                          a->adds + l->first_add, l->n_adds, n);
    }
}

void accumulate_unit(struct accumulate *a, int unit)
{
    const struct layout *l = a->config.layout;

    ASSERT(unit == a->next_unit && unit >= 0);
    if (unit == l->n_units - 1) {
        add_range(a, l->n_units, a->config.slot_size - a->config.head);
    }
    add_range(a, unit, l->unit[unit].size);
    a->next_unit--;
}
