#ifndef WORKER_PARALLEL_GATHER_H
#define WORKER_PARALLEL_GATHER_H

/* The parameters that the passes see, gathered group by group from the shards' own
 * blocks on QUEUE_GATHER, some groups ahead of their use.
 *
 *   compute   ── 0 ── 1 ────── 2 ────── 3 ──        order of a leaf: 0 1 … n−1, then
 *   gather      1 ─► 2 ─────► 3 ─────► …            back; group 0 is the tied head, too
 *
 * A gathered group stays valid until `gather_stale`, as long as its buffer is not taken
 * for another: with `keep` every group has a buffer (ZeRO-1, ZeRO-2), else group 0 has
 * one and the others share a ring of `ahead` + 1 (ZeRO-3). All ranks of the shard group
 * make the same passes, so they enqueue the same gathers.
 *
 * With `n_secondary` a rank keeps a piece of each group of the ring, 1/n_secondary of
 * what it saw, until `gather_stale`: only the first gather of a group comes from all
 * shards, later ones from the neighbours that have the other pieces (ZeRO++'s hpZ):
 *
 *   8 shards, n_secondary = 4     first   0 1 2 3 4 5 6 7
 *                                 later   0 1 2 3│4 5 6 7 */

#include "worker/comm/comm.h"
#include "worker/model/gpt2.h"
#include "worker/parallel/shards.h"

struct gather;

struct gather_config {
    struct device *device;
    struct comm *comm;           /* of the shard group, on QUEUE_GATHER */
    struct comm *secondary;      /* of the neighbours, on the same; NULL: none */
    const struct layout *layout; /* borrowed, as the next three */
    const struct unit_groups *groups;
    const struct shard_map *own;
    const float *params; /* the own block */
    enum dtype dtype;    /* of what is gathered: rounded on its way */
    int n_shards, shard;
    int n_secondary; /* divides n_shards; 0: nothing is kept */
    bool keep;
    int ahead; /* groups gathered before they are needed, ≥ 0 */
};

size_t gather_bytes(const struct gather_config *config);
size_t gather_kept_bytes(const struct gather_config *config); /* the pieces, besides */

/* Bytes that a rank sends in a step of `n_leaves` turns. */
size_t gather_sent(const struct gather_config *config, uint32_t n_leaves);

int gather_new(const struct gather_config *config, struct gather **ret,
               struct errmsg *msg) MUST_CHECK;
void gather_free(struct gather *g); /* NULL allowed */

/* Before a pass: what it asks for comes by `begin` and `end` of *ret. */
struct unit_params gather_pass(struct gather *g, bool backward);

/* The own block has changed by what is on the compute queue now. */
void gather_stale(struct gather *g);

#endif
