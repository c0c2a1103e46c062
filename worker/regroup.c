#include "worker/regroup.h"

#include "common/mem.h"

#include <string.h>

/* What two ranges of the flat block have in common; true if there is anything. */
static bool intersect(const struct shard_range *a, const struct shard_range *b,
                      size_t *ret_begin, size_t *ret_n)
{
    size_t begin = MAX(a->begin, b->begin);
    size_t end = MIN(a->end, b->end);

    *ret_begin = begin;
    *ret_n = end > begin ? end - begin : 0;
    return end > begin;
}

static void add_tail(struct regroup_tail **list, size_t *n, int peer, size_t at,
                     size_t size)
{
    *list = mem_grow(*list, *n + 1, sizeof(**list));
    (*list)[(*n)++] = (struct regroup_tail){.peer = peer, .at = at, .n = size};
}

static void add_copy(struct regroup *r, size_t own, size_t share, size_t n)
{
    r->copy = mem_grow(r->copy, r->n_copies + 1, sizeof(*r->copy));
    r->copy[r->n_copies++] = (struct regroup_copy){.own = own, .share = share, .n = n};
}

/* What the own rank writes of what shard `s` holds. */
static void plan_written(struct regroup *r, const struct shard_map *written,
                         const struct shard_map *held, int s, bool is_own)
{
    size_t begin;
    size_t n;

    for (int g = 0; g < written->n_ranges; g++) {
        const struct shard_range *to = &written->range[g];
        const struct shard_range *from = &held->range[g];

        if (!intersect(to, from, &begin, &n)) {
            continue;
        }
        if (is_own) {
            add_copy(r, from->at + (begin - from->begin), to->at + (begin - to->begin),
                     n);
        } else {
            add_tail(&r->recv, &r->n_recvs, s, to->at + (begin - to->begin), n);
        }
    }
}

/* What shard `s` writes of what the own rank holds. */
static void plan_held(struct regroup *r, const struct shard_map *held,
                      const struct shard_map *written, int s)
{
    size_t begin;
    size_t n;

    for (int g = 0; g < written->n_ranges; g++) {
        const struct shard_range *from = &held->range[g];

        if (intersect(from, &written->range[g], &begin, &n)) {
            add_tail(&r->send, &r->n_sends, s, from->at + (begin - from->begin), n);
        }
    }
}

/* Rows go forwards: tails come from shards behind and go to shards before. */
static void plan_shards(struct regroup *r, const struct layout *layout,
                        const struct holder *h)
{
    struct shard_map written;
    struct shard_map held;
    struct shard_map other;

    share_spans(layout, h, &written);
    shard_map_init(&held, layout, h->groups, h->n_shards, h->rank);
    for (int s = 0; s < h->rank; s++) {
        struct holder before = *h;

        before.rank = s;
        share_spans(layout, &before, &other);
        plan_held(r, &held, &other, s);
        shard_map_release(&other);
    }
    plan_written(r, &written, &held, h->rank, true);
    for (int s = h->rank + 1; s < h->n_shards; s++) {
        shard_map_init(&other, layout, h->groups, h->n_shards, s);
        plan_written(r, &written, &other, s, false);
        shard_map_release(&other);
    }
    shard_map_release(&written);
    shard_map_release(&held);
}

/* All hold everything: the own block is the flat block. */
static void plan_whole(struct regroup *r, const struct layout *layout,
                       const struct holder *h)
{
    struct shard_map written;

    share_spans(layout, h, &written);
    if (written.size > 0) {
        add_copy(r, written.range[0].begin, 0, written.size);
    }
    shard_map_release(&written);
}

void regroup_init(struct regroup *r, const struct layout *layout,
                  const struct holder *holder)
{
    *r = (struct regroup){0};
    if (!holder_is_sharded(holder)) {
        plan_whole(r, layout, holder);
    } else if (holder->rank < holder->n_shards) {
        plan_shards(r, layout, holder);
    }
}

void regroup_release(struct regroup *r)
{
    mem_free(r->copy);
    mem_free(r->send);
    mem_free(r->recv);
    *r = (struct regroup){0};
}

void regroup_sends(const struct regroup *r, const float *own, struct piece *ret)
{
    for (size_t i = 0; i < r->n_sends; i++) {
        const struct regroup_tail *t = &r->send[i];
        const float *from = own + t->at;

        ret[i] = (struct piece){.peer = t->peer, .bytes = t->n * sizeof(float)};
        memcpy(&ret[i].data, &from, sizeof(from)); /* const: it is only read */
    }
}

void regroup_recvs(const struct regroup *r, float *share, struct piece *ret)
{
    for (size_t i = 0; i < r->n_recvs; i++) {
        const struct regroup_tail *t = &r->recv[i];

        ret[i] = (struct piece){.peer = t->peer, .bytes = t->n * sizeof(float)};
        ret[i].data = share + t->at;
    }
}
