/* See gather.h. A pass is a list of groups, group 0 left out, without repetitions; at
 * each place of it the next `ahead` groups are put on their way. */

#include "worker/parallel/gather.h"

#include "common/mem.h"

struct slot {
    float *data;
    int group;            /* −1: none */
    struct ticket loaded; /* of QUEUE_GATHER */
    struct ticket used;   /* of QUEUE_COMPUTE: what has read it */
};

struct gather {
    struct gather_config config;
    float *arena; /* owned (device) */
    size_t arena_bytes;
    struct slot *slot; /* owned; slot 0 is group 0's */
    int n_slots;
    int *slot_of;     /* owned: of each group; −1: not here */
    int *group_of;    /* owned: of each unit */
    size_t **offsets; /* owned: of each group, bytes of each shard */
    int *order;       /* owned: up and down again */
    int n_up, n_order;
    /* the running pass */
    int n_pass;          /* of `order` */
    int at;              /* place in it; −1: before the first */
    size_t n_loaded;     /* elements of the own block that were gathered */
    struct ticket ready; /* of QUEUE_COMPUTE: the own block is what it is */
};

/* ---- sizes ----------------------------------------------------------------------- */

static size_t group_begin(const struct gather_config *c, int group)
{
    return c->layout->unit[c->groups->first[group]].offset;
}

static size_t group_size(const struct gather_config *c, int group)
{
    const struct unit *last = &c->layout->unit[c->groups->first[group + 1] - 1];

    return last->offset + last->size - group_begin(c, group);
}

static int count_slots(const struct gather_config *c)
{
    int others = c->groups->n - 1;

    return 1 + (c->keep ? others : MIN(c->ahead + 1, others));
}

static size_t ring_size(const struct gather_config *c)
{
    size_t most = 0;

    for (int g = 1; g < c->groups->n; g++) {
        most = MAX(most, group_size(c, g));
    }
    return most;
}

/* What a pass sees is the own block itself. */
static bool has_all(const struct gather_config *c)
{
    return c->groups->one_owner && c->shard == 0 && c->dtype == DTYPE_FP32;
}

size_t gather_bytes(const struct gather_config *c)
{
    size_t floats =
        c->keep ? c->layout->size
                : group_size(c, 0) + (size_t)(count_slots(c) - 1) * ring_size(c);

    return has_all(c) ? 0 : floats * sizeof(float);
}

/* ---- life ------------------------------------------------------------------------ */

static void lay_out(struct gather *g)
{
    const struct gather_config *c = &g->config;
    float *at = has_all(c) ? (float *)(uintptr_t)c->params : g->arena; /* only read */

    for (int i = 0; i < g->n_slots; i++) {
        g->slot[i].data = at;
        at += i == 0 || c->keep ? group_size(c, i) : ring_size(c);
    }
}

static void index_groups(struct gather *g)
{
    const struct gather_config *c = &g->config;
    int n = c->groups->n;

    g->slot_of = mem_array((size_t)n, sizeof(*g->slot_of));
    g->group_of = mem_array((size_t)c->layout->n_units, sizeof(*g->group_of));
    g->offsets = mem_array((size_t)n, sizeof(*g->offsets));
    for (int i = 0; i < n; i++) {
        g->slot_of[i] = -1;
        for (int u = c->groups->first[i]; u < c->groups->first[i + 1]; u++) {
            g->group_of[u] = i;
        }
        g->offsets[i] = mem_array((size_t)c->n_shards + 1, sizeof(size_t));
        shard_bounds(c->layout, c->groups, i, c->n_shards, g->offsets[i]);
        for (int s = 0; s <= c->n_shards; s++) {
            g->offsets[i][s] = (g->offsets[i][s] - group_begin(c, i)) * sizeof(float);
        }
    }
}

static void make_order(struct gather *g)
{
    int n = g->config.groups->n;

    g->order = mem_array(2 * (size_t)n, sizeof(*g->order));
    for (int i = 1; i < n; i++) {
        g->order[g->n_up++] = i;
    }
    g->n_order = g->n_up;
    for (int i = n - 2; i > 0; i--) {
        g->order[g->n_order++] = i;
    }
}

static struct gather *make(const struct gather_config *config)
{
    struct gather *g = mem_zalloc(sizeof(*g));

    g->config = *config;
    g->n_slots = count_slots(config);
    g->slot = mem_array((size_t)g->n_slots, sizeof(*g->slot));
    for (int i = 0; i < g->n_slots; i++) {
        g->slot[i].group = -1;
    }
    index_groups(g);
    make_order(g);
    return g;
}

int gather_new(const struct gather_config *config, struct gather **ret,
               struct errmsg *msg)
{
    struct gather *g = make(config);
    void *arena = NULL;
    int rv;

    g->arena_bytes = gather_bytes(config);
    rv = g->arena_bytes > 0 ? device_alloc(config->device, g->arena_bytes, &arena) : 0;
    if (rv < 0) {
        size_t mib = g->arena_bytes >> 20;

        gather_free(g);
        return errmsg_set(msg, rv, "gathered parameters (%zu MiB): %s", mib,
                          err_text(rv));
    }
    g->arena = arena;
    lay_out(g);
    *ret = g;
    return 0;
}

void gather_free(struct gather *g)
{
    if (!g) {
        return;
    }
    if (g->arena) {
        device_free(g->config.device, g->arena, g->arena_bytes);
    }
    for (int i = 0; i < g->config.groups->n; i++) {
        mem_free(g->offsets[i]);
    }
    mem_free(g->offsets);
    mem_free(g->slot);
    mem_free(g->slot_of);
    mem_free(g->group_of);
    mem_free(g->order);
    mem_free(g);
}

/* ---- a pass ---------------------------------------------------------------------- */

static bool is_wanted_soon(const struct gather *g, int group)
{
    for (int i = MAX(g->at, 0); i <= g->at + g->config.ahead && i < g->n_pass; i++) {
        if (g->order[i] == group) {
            return true;
        }
    }
    return false;
}

/* Of a ring of `ahead` + 1 one is always free: what is wanted soon, the group at hand
 * included, is no more than that. */
static int choose_slot(const struct gather *g, int group)
{
    if (group == 0 || g->config.keep) {
        return group;
    }
    for (int i = 1; i < g->n_slots; i++) {
        if (g->slot[i].group < 0) {
            return i;
        }
    }
    for (int i = 1; i < g->n_slots; i++) {
        if (!is_wanted_soon(g, g->slot[i].group)) {
            return i;
        }
    }
    ASSERT(!"a slot is free");
    return -1;
}

static void put_own(const struct gather_config *c, float *to,
                    const struct shard_range *own)
{
    const float *from = c->params + own->at;
    size_t n = own->end - own->begin;

    if (n > 0 && c->dtype == DTYPE_FP32) {
        device_copy(c->device, QUEUE_GATHER, to, from, n * sizeof(float));
    } else if (n > 0) {
        c->device->k->round(c->device, QUEUE_GATHER, to, from, n, c->dtype);
    }
}

static void fetch(struct gather *g, struct slot *s)
{
    const struct gather_config *c = &g->config;
    int group = s->group;
    const struct shard_range *own = &c->own->range[group];

    device_wait(c->device, QUEUE_GATHER, g->ready);
    device_wait(c->device, QUEUE_GATHER, s->used);
    if (!has_all(c)) {
        put_own(c, s->data + (own->begin - group_begin(c, group)), own);
    }
    comm_all_gather(c->comm, QUEUE_GATHER, s->data, g->offsets[group]);
    s->loaded = device_mark(c->device, QUEUE_GATHER);
}

static void load(struct gather *g, int group)
{
    struct slot *s;
    int i;

    if (g->slot_of[group] >= 0) {
        return;
    }
    i = choose_slot(g, group);
    s = &g->slot[i];
    if (s->group >= 0) {
        g->slot_of[s->group] = -1;
    }
    s->group = group;
    g->slot_of[group] = i;
    g->n_loaded += g->config.own->range[group].end - g->config.own->range[group].begin;
    if (s->data) {
        fetch(g, s);
    }
}

static void load_ahead(struct gather *g)
{
    for (int i = g->at + 1; i <= g->at + g->config.ahead && i < g->n_pass; i++) {
        load(g, g->order[i]);
    }
}

static struct slot *enter(struct gather *g, int group)
{
    if (group > 0 && (g->at < 0 || g->order[g->at] != group)) {
        g->at++;
        ASSERT(g->at < g->n_pass && g->order[g->at] == group);
    }
    load(g, group);
    load_ahead(g);
    return &g->slot[g->slot_of[group]];
}

static const float *on_begin(void *arg, int unit)
{
    struct gather *g = arg;
    int group = g->group_of[unit];
    struct slot *s = enter(g, group);

    device_wait(g->config.device, QUEUE_COMPUTE, s->loaded);
    return s->data +
           (g->config.layout->unit[unit].offset - group_begin(&g->config, group));
}

static void on_end(void *arg, int unit)
{
    struct gather *g = arg;
    struct slot *s = &g->slot[g->slot_of[g->group_of[unit]]];

    s->used = device_mark(g->config.device, QUEUE_COMPUTE);
}

struct unit_params gather_pass(struct gather *g, bool backward)
{
    g->n_pass = backward ? g->n_order : g->n_up;
    g->at = -1;
    return (struct unit_params){.begin = on_begin, .end = on_end, .arg = g};
}

void gather_stale(struct gather *g)
{
    for (int i = 0; i < g->config.groups->n; i++) {
        g->slot_of[i] = -1;
    }
    for (int i = 0; i < g->n_slots; i++) {
        g->slot[i].group = -1;
    }
    g->ready = device_mark(g->config.device, QUEUE_COMPUTE);
}

/* ---- what it costs --------------------------------------------------------------- */

/* The elements that one leaf's passes make it gather. */
static size_t try_leaf(struct gather *g)
{
    size_t before = g->n_loaded;

    (void)gather_pass(g, true);
    (void)enter(g, 0);
    for (int i = 0; i < g->n_order; i++) {
        (void)enter(g, g->order[i]);
    }
    return g->n_loaded - before;
}

/* All leaves but the first begin with what the one before has left. */
size_t gather_sent(const struct gather_config *c, uint32_t n_leaves)
{
    struct gather *g = make(c);
    size_t floats = try_leaf(g);

    floats += (n_leaves - 1) * try_leaf(g);
    gather_free(g);
    return floats * (size_t)(c->n_shards - 1) * sizeof(float);
}
