/* See scatter.h. A "part" is what is sent together: a group, or behind the last the
 * head. Everything a turn does is laid out at the start; the turn's additions number
 * the buffers: staging 0 … S − 1, then the slots. */

#include "worker/parallel/scatter.h"

#include "worker/device/kernels.h"

#include "common/mem.h"

#include <string.h>

enum { RING = 2 };

struct part {
    size_t *bounds;     /* owned; elements from the part's begin, of each shard */
    size_t at;          /* the own shard in a slot */
    struct piece *send; /* owned; S for each ring buffer */
    struct piece *recv; /* owned; from rank 0, 1, … of the team */
    size_t n_send;      /* of one ring buffer */
    float **buf;        /* owned; see above */
};

struct move {
    int slot, staging;
};

struct turn {
    int n_leaves;
    int first_add, n_adds, first_move, n_moves;
};

/* Where a part's gradient is written. */
struct buffer {
    float *data;
    struct ticket sent; /* of QUEUE_REDUCE */
};

struct scatter {
    struct scatter_config config;
    float *arena; /* owned (device): buffers, staging */
    size_t arena_bytes;
    float *staging;
    struct buffer first;      /* of the head; it is gone when group 0's comes */
    struct buffer ring[RING]; /* of the others */
    struct part *part;        /* owned; groups, then the head */
    struct turn *turn;        /* owned */
    struct addition *adds;    /* owned */
    struct move *moves;       /* owned */
    int n_turns, n_adds, n_moves, n_slots;
    struct counter held;
    int *group_of; /* owned; of each unit */
    /* the running turn */
    int at; /* which; −1 before the first */
    int next_ring, group_ring;
};

/* ---- sizes ----------------------------------------------------------------------- */

static size_t group_begin(const struct scatter_config *c, int group)
{
    return unit_group_begin(c->layout, c->groups, group);
}

static size_t group_size(const struct scatter_config *c, int group)
{
    return unit_group_size(c->layout, c->groups, group);
}

size_t scatter_head_size(const struct scatter_config *c)
{
    const struct shard_range *own = &c->own->range[0];
    size_t tied = ROUND_UP(c->tied_size, SUMSQ_CHUNK);

    return MIN(own->end, tied) - MIN(own->begin, tied);
}

size_t scatter_slot_size(const struct scatter_config *c)
{
    return c->own->size + scatter_head_size(c);
}

static size_t ring_size(const struct scatter_config *c)
{
    return unit_group_largest(c->layout, c->groups);
}

/* The largest own shard of a part. */
static size_t shard_size(const struct scatter_config *c)
{
    size_t most = 0;

    for (int g = 0; g < c->groups->n; g++) {
        most = MAX(most, c->own->range[g].end - c->own->range[g].begin);
    }
    return most;
}

static size_t count_floats(const struct scatter_config *c)
{
    return group_size(c, 0) + RING * ring_size(c) + (size_t)c->n_shards * shard_size(c);
}

size_t scatter_bytes(const struct scatter_config *c)
{
    return count_floats(c) * sizeof(float);
}

/* Each leaf's gradient, but the own shards; the last turn may leave a rank out. */
size_t scatter_sent(const struct scatter_config *c)
{
    size_t all =
        c->layout->size + ROUND_UP(c->tied_size, SUMSQ_CHUNK) - scatter_slot_size(c);
    size_t leaves = 0;

    for (uint32_t i = c->begin + (uint32_t)c->shard; i < c->end;
         i += (uint32_t)c->n_shards) {
        leaves++;
    }
    return leaves * all * sizeof(float);
}

/* ---- the turns ------------------------------------------------------------------- */

static bool is_held(const struct scatter *s, int buffer)
{
    for (int i = 0; i < s->held.n; i++) {
        if (s->held.slot[i] == buffer) {
            return true;
        }
    }
    return false;
}

static int free_slot(const struct scatter *s)
{
    int slot = 0;

    while (is_held(s, s->config.n_shards + slot)) {
        slot++;
    }
    return slot;
}

/* What the turn leaves in staging goes into slots. */
static void move_rest(struct scatter *s, struct turn *t)
{
    int slot;

    for (int i = 0; i < s->held.n; i++) {
        if (s->held.slot[i] < s->config.n_shards) {
            slot = free_slot(s);
            s->moves[s->n_moves++] = (struct move){slot, s->held.slot[i]};
            t->n_moves++;
            s->held.slot[i] = s->config.n_shards + slot;
            s->n_slots = MAX(s->n_slots, slot + 1);
        }
    }
}

static void plan_exact(struct scatter *s, struct turn *t, uint32_t leaf)
{
    struct addition adds[TREE_MAX_BLOCKS];
    int n;

    for (int i = 0; i < t->n_leaves; i++) {
        n = tree_push(&s->held, leaf + (uint32_t)i, i, adds);
        memcpy(s->adds + s->n_adds, adds, (size_t)n * sizeof(*adds));
        s->n_adds += n;
        t->n_adds += n;
    }
    move_rest(s, t);
}

static void plan_fast(struct scatter *s, struct turn *t)
{
    bool is_first = s->n_slots == 0;
    int sum = is_first ? 0 : s->config.n_shards;

    for (int i = is_first; i < t->n_leaves; i++) {
        s->adds[s->n_adds++] = (struct addition){sum, i};
        t->n_adds++;
    }
    if (is_first) {
        s->moves[s->n_moves++] = (struct move){0, 0};
        t->n_moves = s->n_slots = 1;
    }
}

static void plan_turns(struct scatter *s)
{
    const struct scatter_config *c = &s->config;
    uint32_t n = c->end - c->begin, team = (uint32_t)c->n_shards;

    s->n_turns = (int)((n + team - 1) / team);
    s->turn = mem_array((size_t)s->n_turns, sizeof(*s->turn));
    s->adds = mem_array(n, sizeof(*s->adds));
    s->moves = mem_array(n, sizeof(*s->moves));
    for (int j = 0; j < s->n_turns; j++) {
        struct turn *t = &s->turn[j];
        uint32_t leaf = c->begin + (uint32_t)j * team;

        *t = (struct turn){.n_leaves = (int)MIN(team, c->end - leaf),
                           .first_add = s->n_adds,
                           .first_move = s->n_moves};
        if (c->exact) {
            plan_exact(s, t, leaf);
        } else {
            plan_fast(s, t);
        }
    }
    for (int i = 0; i < s->held.n; i++) {
        s->held.slot[i] -= c->n_shards;
    }
    s->held.n = c->exact ? s->held.n : 1;
}

static void free_turns(struct scatter *s)
{
    mem_free(s->turn);
    mem_free(s->adds);
    mem_free(s->moves);
}

int scatter_slots(const struct scatter_config *config)
{
    struct scatter s = {.config = *config};

    plan_turns(&s);
    free_turns(&s);
    return s.n_slots;
}

/* ---- the parts ------------------------------------------------------------------- */

static struct buffer *buffer_of(struct scatter *s, int group, int ring)
{
    return group == 0 || group == s->config.groups->n ? &s->first : &s->ring[ring];
}

/* What is written at `data`, to its owners; returns the number of pieces. */
static size_t plan_sends(const struct scatter *s, const struct part *p, float *data,
                         struct piece *send)
{
    size_t n = 0;

    for (int r = 0; r < s->config.n_shards; r++) {
        size_t floats = p->bounds[r + 1] - p->bounds[r];

        if (floats > 0) {
            send[n] = (struct piece){.peer = r, .bytes = floats * sizeof(float)};
            send[n++].data = data + p->bounds[r];
        }
    }
    return n;
}

static void plan_pieces(struct scatter *s, struct part *p, int group, size_t own)
{
    size_t team = (size_t)s->config.n_shards;

    p->send = mem_array(RING * team, sizeof(*p->send));
    p->recv = mem_array(team, sizeof(*p->recv));
    for (int ring = 0; ring < RING; ring++) {
        p->n_send = plan_sends(s, p, buffer_of(s, group, ring)->data,
                               p->send + (size_t)ring * team);
    }
    for (int r = 0; r < s->config.n_shards && own > 0; r++) {
        p->recv[r] = (struct piece){.peer = r, .bytes = own * sizeof(float)};
        p->recv[r].data = p->buf[r];
    }
}

static void plan_part(struct scatter *s, int group)
{
    const struct scatter_config *c = &s->config;
    struct part *p = &s->part[group];
    size_t team = (size_t)c->n_shards, own, tied = ROUND_UP(c->tied_size, SUMSQ_CHUNK);
    bool is_head = group == c->groups->n;
    int cut_as = is_head ? 0 : group;

    p->at = is_head ? c->own->size : c->own->range[group].at;
    p->bounds = mem_array(team + 1, sizeof(*p->bounds));
    shard_bounds(c->layout, c->groups, cut_as, c->n_shards, p->bounds);
    for (size_t r = 0; r <= team; r++) {
        p->bounds[r] -= group_begin(c, cut_as);
        p->bounds[r] = is_head ? MIN(p->bounds[r], tied) : p->bounds[r];
    }
    own = p->bounds[c->shard + 1] - p->bounds[c->shard];
    p->buf = mem_array(team + (size_t)s->n_slots, sizeof(*p->buf));
    for (size_t i = 0; i < team; i++) {
        p->buf[i] = s->staging + i * own;
    }
    for (size_t i = 0; i < (size_t)s->n_slots; i++) {
        p->buf[team + i] = c->slots + i * scatter_slot_size(c) + p->at;
    }
    plan_pieces(s, p, group, own);
}

/* ---- life ------------------------------------------------------------------------ */

static void lay_out(struct scatter *s)
{
    const struct scatter_config *c = &s->config;
    float *at = s->arena;

    s->first.data = at;
    at += group_size(c, 0);
    for (int i = 0; i < RING; i++) {
        s->ring[i].data = at;
        at += ring_size(c);
    }
    s->staging = at;
}

static void index_units(struct scatter *s)
{
    const struct unit_groups *g = s->config.groups;

    s->group_of = mem_array((size_t)s->config.layout->n_units, sizeof(*s->group_of));
    for (int i = 0; i < g->n; i++) {
        for (int u = g->first[i]; u < g->first[i + 1]; u++) {
            s->group_of[u] = i;
        }
    }
}

int scatter_new(const struct scatter_config *config, struct scatter **ret,
                struct errmsg *msg)
{
    struct scatter *s = mem_zalloc(sizeof(*s));
    void *arena;
    int rv;

    ASSERT(config->groups->n > 1 && config->tied_size <= group_size(config, 0));
    s->config = *config;
    s->at = -1;
    s->arena_bytes = scatter_bytes(config);
    rv = device_alloc(config->device, s->arena_bytes, &arena);
    if (rv < 0) {
        size_t mib = s->arena_bytes >> 20;

        mem_free(s);
        return errmsg_set(msg, rv, "buffers of the gradient exchange (%zu MiB): %s",
                          mib, err_text(rv));
    }
    s->arena = arena;
    plan_turns(s);
    lay_out(s);
    index_units(s);
    s->part = mem_array((size_t)config->groups->n + 1, sizeof(*s->part));
    for (int i = 0; i <= config->groups->n; i++) {
        plan_part(s, i);
    }
    *ret = s;
    return 0;
}

void scatter_free(struct scatter *s)
{
    if (!s) {
        return;
    }
    for (int i = 0; i <= s->config.groups->n; i++) {
        mem_free(s->part[i].bounds);
        mem_free(s->part[i].send);
        mem_free(s->part[i].recv);
        mem_free(s->part[i].buf);
    }
    mem_free(s->part);
    mem_free(s->group_of);
    free_turns(s);
    device_free(s->config.device, s->arena, s->arena_bytes);
    mem_free(s);
}

const struct counter *scatter_held(const struct scatter *s)
{
    return &s->held;
}

/* ---- a turn ---------------------------------------------------------------------- */

bool scatter_is_last(const struct scatter *s)
{
    return s->at == s->n_turns - 1;
}

static float *take(struct scatter *s, struct buffer *b)
{
    device_wait(s->config.device, QUEUE_COMPUTE, b->sent);
    return b->data;
}

float *scatter_turn(struct scatter *s)
{
    s->at = scatter_is_last(s) ? 0 : s->at + 1;
    return s->config.tied_size > 0 ? take(s, buffer_of(s, s->config.groups->n, 0))
                                   : NULL;
}

static void round_part(struct scatter *s, int group, int ring)
{
    const struct scatter_config *c = &s->config;
    float *data = buffer_of(s, group, ring)->data;

    if (c->dtype != DTYPE_FP32) {
        c->device->k->round(c->device, QUEUE_COMPUTE, data, data,
                            s->part[group].bounds[c->n_shards], c->dtype);
    }
}

/* The own leaf's part to its owners, everybody's here; then the turn's sums. */
static void send(struct scatter *s, int group, int ring)
{
    const struct scatter_config *c = &s->config;
    const struct turn *t = &s->turn[s->at];
    struct part *p = &s->part[group];
    size_t own = p->bounds[c->shard + 1] - p->bounds[c->shard];
    bool has_leaf = c->shard < t->n_leaves;

    if (has_leaf) {
        round_part(s, group, ring);
    }
    device_wait(c->device, QUEUE_REDUCE, device_mark(c->device, QUEUE_COMPUTE));
    comm_all_to_all(c->comm, QUEUE_REDUCE, p->send + (size_t)ring * (size_t)c->n_shards,
                    has_leaf ? p->n_send : 0, p->recv,
                    own > 0 ? (size_t)t->n_leaves : 0);
    buffer_of(s, group, ring)->sent = device_mark(c->device, QUEUE_REDUCE);
    if (own == 0) {
        return;
    }
    if (t->n_adds > 0) {
        c->device->k->sum_ordered(c->device, QUEUE_REDUCE, p->buf,
                                  c->n_shards + s->n_slots, s->adds + t->first_add,
                                  t->n_adds, own);
    }
    for (int i = 0; i < t->n_moves; i++) {
        const struct move *m = &s->moves[t->first_move + i];

        device_copy(c->device, QUEUE_REDUCE, p->buf[c->n_shards + m->slot],
                    p->buf[m->staging], own * sizeof(float));
    }
}

/* The padding is no gradient, but part of the norm: what another part has left there
 * must go. */
static void clear_padding(struct scatter *s, int unit, float *grads)
{
    const struct unit *u = &s->config.layout->unit[unit];
    size_t used = 0;

    for (int i = 0; i < u->n_tensors; i++) {
        used = MAX(used, u->tensor[i].offset + u->tensor[i].size);
    }
    if (used < u->size) {
        device_fill(s->config.device, QUEUE_COMPUTE, grads + used, 0,
                    (u->size - used) * sizeof(float));
    }
}

float *scatter_begin(struct scatter *s, int unit)
{
    const struct scatter_config *c = &s->config;
    int group = s->group_of[unit];
    bool is_new = unit + 1 == c->layout->n_units || s->group_of[unit + 1] != group;
    struct buffer *b;
    float *grads;

    if (is_new) {
        s->group_ring = s->next_ring;
        s->next_ring = group > 0 ? (s->next_ring + 1) % RING : s->next_ring;
    }
    b = buffer_of(s, group, s->group_ring);
    grads = (is_new ? take(s, b) : b->data) +
            (c->layout->unit[unit].offset - group_begin(c, group));
    clear_padding(s, unit, grads);
    return grads;
}

int scatter_end(struct scatter *s, int unit)
{
    int group = s->group_of[unit];

    if (unit + 1 == s->config.layout->n_units && s->config.tied_size > 0) {
        send(s, s->config.groups->n, 0);
    }
    if (unit != s->config.groups->first[group]) {
        return -1;
    }
    send(s, group, s->group_ring);
    return group;
}
