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

/* Whom a group comes from. */
struct source {
    struct comm *comm;
    int n, own;       /* parts, and the own one */
    size_t **offsets; /* owned: of each group, bytes of each part */
};

enum { FROM_ALL, FROM_NEIGHBOURS, N_SOURCES };

struct gather {
    struct gather_config config;
    float *arena; /* owned (device) */
    size_t arena_bytes;
    struct slot *slot; /* owned; slot 0 is group 0's */
    int n_slots;
    int *slot_of;  /* owned: of each group; −1: not here */
    int *group_of; /* owned: of each unit */
    int *order;    /* owned: up and down again */
    int n_up, n_order;
    struct source source[N_SOURCES];
    struct shard_map piece; /* of each group; without pieces no ranges */
    float *pieces;          /* in the arena; group 0 has none */
    bool *is_kept;          /* owned: of each group, its piece */
    /* the running pass */
    int n_pass;          /* of `order` */
    int at;              /* place in it; −1: before the first */
    size_t sent;         /* bytes, to others */
    struct ticket ready; /* of QUEUE_COMPUTE: the own block is what it is */
};

/* ---- sizes ----------------------------------------------------------------------- */

static size_t group_begin(const struct gather_config *c, int group)
{
    return unit_group_begin(c->layout, c->groups, group);
}

static size_t group_size(const struct gather_config *c, int group)
{
    return unit_group_size(c->layout, c->groups, group);
}

static int count_slots(const struct gather_config *c)
{
    int others = c->groups->n - 1;

    return 1 + (c->keep ? others : MIN(c->ahead + 1, others));
}

static size_t ring_size(const struct gather_config *c)
{
    return unit_group_largest(c->layout, c->groups);
}

/* What a pass sees is the own block itself. */
static bool has_all(const struct gather_config *c)
{
    return c->groups->one_owner && c->shard == 0 && c->dtype == DTYPE_FP32;
}

/* What stays in the ring is never gathered again. */
static bool keeps_pieces(const struct gather_config *c)
{
    return c->n_secondary > 1 && count_slots(c) < c->groups->n;
}

static void map_pieces(const struct gather_config *c, struct shard_map *ret)
{
    shard_map_init(ret, c->layout, c->groups, c->n_secondary,
                   c->shard % c->n_secondary);
}

size_t gather_kept_bytes(const struct gather_config *c)
{
    struct shard_map m;
    size_t floats;

    if (!keeps_pieces(c)) {
        return 0;
    }
    map_pieces(c, &m);
    floats = m.size - m.range[1].at;
    shard_map_release(&m);
    return floats * sizeof(float);
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
    g->pieces = at;
}

static void index_groups(struct gather *g)
{
    const struct gather_config *c = &g->config;
    int n = c->groups->n;

    g->slot_of = mem_array((size_t)n, sizeof(*g->slot_of));
    g->group_of = mem_array((size_t)c->layout->n_units, sizeof(*g->group_of));
    for (int i = 0; i < n; i++) {
        g->slot_of[i] = -1;
        for (int u = c->groups->first[i]; u < c->groups->first[i + 1]; u++) {
            g->group_of[u] = i;
        }
    }
}

static struct source make_source(const struct gather_config *c, struct comm *comm,
                                 int n)
{
    struct source s = {.comm = comm, .n = n, .own = c->shard % n};

    s.offsets = mem_array((size_t)c->groups->n, sizeof(*s.offsets));
    for (int i = 0; i < c->groups->n; i++) {
        s.offsets[i] = mem_array((size_t)n + 1, sizeof(size_t));
        shard_bounds(c->layout, c->groups, i, n, s.offsets[i]);
        for (int k = 0; k <= n; k++) {
            s.offsets[i][k] = (s.offsets[i][k] - group_begin(c, i)) * sizeof(float);
        }
    }
    return s;
}

static void release_source(struct source *s, int n_groups)
{
    for (int i = 0; i < n_groups && s->offsets; i++) {
        mem_free(s->offsets[i]);
    }
    mem_free(s->offsets);
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
    g->source[FROM_ALL] = make_source(config, config->comm, config->n_shards);
    g->is_kept = mem_array((size_t)config->groups->n, sizeof(*g->is_kept));
    if (keeps_pieces(config)) {
        g->source[FROM_NEIGHBOURS] =
            make_source(config, config->secondary, config->n_secondary);
        map_pieces(config, &g->piece);
    }
    return g;
}

int gather_new(const struct gather_config *config, struct gather **ret,
               struct errmsg *msg)
{
    struct gather *g = make(config);
    void *arena = NULL;
    int rv;

    g->arena_bytes = gather_bytes(config) + gather_kept_bytes(config);
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
    for (int i = 0; i < N_SOURCES; i++) {
        release_source(&g->source[i], g->config.groups->n);
    }
    shard_map_release(&g->piece);
    mem_free(g->is_kept);
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

/* Between a slot and the own piece of what is in it. */
static void copy_piece(struct gather *g, const struct slot *s, bool out)
{
    const struct gather_config *c = &g->config;
    const struct shard_range *r = &g->piece.range[s->group];
    float *here = s->data + (r->begin - group_begin(c, s->group));
    float *there = g->pieces + (r->at - g->piece.range[1].at);
    size_t n = r->end - r->begin;

    if (n > 0) {
        device_copy(c->device, QUEUE_GATHER, out ? there : here, out ? here : there,
                    n * sizeof(float));
    }
}

static bool keeps(const struct gather *g, int group)
{
    return group > 0 && g->piece.n_ranges > 0;
}

static void fetch(struct gather *g, struct slot *s)
{
    const struct gather_config *c = &g->config;
    int group = s->group;
    const struct shard_range *own = &c->own->range[group];
    const struct source *from = &g->source[g->is_kept[group]];

    device_wait(c->device, QUEUE_GATHER, g->ready);
    device_wait(c->device, QUEUE_GATHER, s->used);
    if (g->is_kept[group]) {
        copy_piece(g, s, false);
    } else if (!has_all(c)) {
        put_own(c, s->data + (own->begin - group_begin(c, group)), own);
    }
    comm_all_gather(from->comm, QUEUE_GATHER, s->data, from->offsets[group]);
    if (keeps(g, group) && !g->is_kept[group]) {
        copy_piece(g, s, true);
    }
    s->loaded = device_mark(c->device, QUEUE_GATHER); /* after a pass all is done */
}

static size_t sent_to_others(const struct source *s, int group)
{
    const size_t *at = s->offsets[group];

    return (size_t)(s->n - 1) * (at[s->own + 1] - at[s->own]);
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
    g->sent += sent_to_others(&g->source[g->is_kept[group]], group);
    if (s->data) {
        fetch(g, s);
    }
    g->is_kept[group] = keeps(g, group);
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
        g->is_kept[i] = false;
    }
    for (int i = 0; i < g->n_slots; i++) {
        g->slot[i].group = -1;
    }
    g->ready = device_mark(g->config.device, QUEUE_COMPUTE);
}

/* ---- what it costs --------------------------------------------------------------- */

/* What one leaf's passes make it send. */
static size_t try_leaf(struct gather *g)
{
    size_t before = g->sent;

    (void)gather_pass(g, true);
    (void)enter(g, 0);
    for (int i = 0; i < g->n_order; i++) {
        (void)enter(g, g->order[i]);
    }
    return g->sent - before;
}

/* All leaves but the first begin with what the one before has left. */
size_t gather_sent(const struct gather_config *c, uint32_t n_leaves)
{
    struct gather *g = make(c);
    size_t bytes = try_leaf(g);

    bytes += (n_leaves - 1) * try_leaf(g);
    gather_free(g);
    return bytes;
}
