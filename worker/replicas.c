#include "worker/replicas.h"

#include "worker/cadence.h"
#include "worker/trainer.h"

#include "common/mem.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <xxhash.h>

enum {
    NAMED_MAX = 8, /* ranks in a line */
    WAIT_MS = 30000,
};

struct replicas {
    struct replicas_config config;
    bool is_gathered; /* what is compared is gathered; else it is the own block */
    int rank, world_size, n_units;
    uint64_t *hash; /* owned, device memory: n_units of each rank */
    size_t bytes;
    size_t *offset; /* owned: of the all-gather */
    bool *is_wrong; /* owned; of each rank */
    bool is_judged; /* some are */
};

/* ---- who is wrong ---------------------------------------------------------------- */

/* Of ranks first, first + stride, …: the hash that more than half of them have (false:
 * none has so many). */
static bool find_majority(const uint64_t *hash, int world_size, int n_units, int first,
                          int stride, uint64_t *ret)
{
    int n = 0, votes = 0, count = 0;

    for (int r = first; r < world_size; r += stride) { /* Boyer and Moore's vote */
        uint64_t h = hash[(size_t)r * (size_t)n_units];

        *ret = votes == 0 ? h : *ret;
        votes += h == *ret ? 1 : -1;
        n++;
    }
    for (int r = first; r < world_size; r += stride) {
        count += hash[(size_t)r * (size_t)n_units] == *ret;
    }
    return 2 * count > n;
}

/* One unit, between ranks of equal shard. */
static bool judge_unit(const uint64_t *hash, int world_size, int n_units, int first,
                       int stride, bool *is_wrong)
{
    uint64_t right = 0;
    bool is_known = find_majority(hash, world_size, n_units, first, stride, &right);
    bool found = false;

    for (int r = first; r < world_size; r += stride) {
        if (!is_known || hash[(size_t)r * (size_t)n_units] != right) {
            is_wrong[r] = true;
            found = true;
        }
    }
    return found;
}

int replicas_judge(const uint64_t *hash, int world_size, int n_units, int stride,
                   bool *is_wrong)
{
    int unit = -1;

    for (int r = 0; r < world_size; r++) {
        is_wrong[r] = false;
    }
    for (int u = 0; u < n_units; u++) {
        for (int s = 0; s < stride; s++) {
            bool found = judge_unit(hash + u, world_size, n_units, s, stride, is_wrong);

            unit = found && unit < 0 ? u : unit;
        }
    }
    return unit;
}

/* ---- life ------------------------------------------------------------------------ */

static bool has_copies_of_all(const struct mesh *mesh)
{
    return mesh->dp_replicate > 1;
}

bool replicas_exist(const struct mesh *mesh, const struct zero *zero)
{
    return has_copies_of_all(mesh) || (mesh->dp_shard > 1 && !zero->params);
}

size_t replicas_bytes(const struct layout *layout, int world_size)
{
    return (size_t)layout->n_units * (size_t)world_size * sizeof(uint64_t);
}

int replicas_new(const struct replicas_config *config, struct replicas **ret,
                 struct errmsg *msg)
{
    struct replicas *r = mem_zalloc(sizeof(*r));
    void *hash;
    int rv;

    r->config = *config;
    r->is_gathered = !has_copies_of_all(&config->mesh);
    r->rank = config->comm->rank;
    r->world_size = config->comm->world_size;
    r->n_units = config->layout->n_units;
    r->bytes = replicas_bytes(config->layout, r->world_size);
    r->offset = mem_array((size_t)r->world_size + 1, sizeof(*r->offset));
    r->is_wrong = mem_array((size_t)r->world_size, sizeof(*r->is_wrong));
    for (int i = 0; i <= r->world_size; i++) {
        r->offset[i] = (size_t)i * (size_t)r->n_units * sizeof(uint64_t);
    }
    rv = device_alloc(config->device, r->bytes, &hash);
    if (rv < 0) {
        replicas_free(r);
        return errmsg_set(msg, rv, "no memory for the replicas' hashes");
    }
    r->hash = hash;
    *ret = r;
    return 0;
}

void replicas_free(struct replicas *r)
{
    if (!r) {
        return;
    }
    if (r->hash) {
        device_free(r->config.device, r->hash, r->bytes);
    }
    mem_free(r->offset);
    mem_free(r->is_wrong);
    mem_free(r);
}

/* ---- hashes ---------------------------------------------------------------------- */

struct hashing {
    const float *data;
    size_t n;
    uint64_t *hash; /* goes on from what it is */
};

/* A task of the compute queue: what is gathered has come then. */
static int on_hash(void *arg, struct errmsg *msg)
{
    const struct hashing *h = arg;

    (void)msg;
    *h->hash = XXH3_64bits_withSeed(h->data, h->n * sizeof(float), *h->hash);
    return 0;
}

static void add_to_hash(struct replicas *r, int unit, const float *data, size_t n)
{
    struct hashing h = {
        .data = data,
        .n = n,
        .hash = r->hash + (size_t)r->rank * (size_t)r->n_units + unit,
    };

    device_enqueue(r->config.device, QUEUE_COMPUTE, on_hash, &h, sizeof(h));
}

/* A unit's part of a range, block by block. */
static void hash_part(struct replicas *r, int unit, const struct shard_range *range,
                      const float *const *blocks, int n_blocks)
{
    const struct unit *u = &r->config.layout->unit[unit];
    size_t begin = MAX(u->offset, range->begin);
    size_t end = MIN(u->offset + u->size, range->end);

    for (int b = 0; b < n_blocks && begin < end; b++) {
        add_to_hash(r, unit, blocks[b] + range->at + (begin - range->begin),
                    end - begin);
    }
}

static void hash_own(struct replicas *r, const float *const *blocks, int n_blocks)
{
    const struct shard_map *own = &r->config.parallel->own;

    for (int u = 0; u < r->n_units; u++) {
        for (int k = 0; k < own->n_ranges; k++) {
            hash_part(r, u, &own->range[k], blocks, n_blocks);
        }
    }
}

/* A pass like any other: what it gathers stays for the next step. */
static void hash_gathered(struct replicas *r)
{
    struct parallel *p = r->config.parallel;
    struct unit_params params = p->ops->pass(p, false);

    for (int i = 0; i <= r->n_units; i++) { /* in the end the head, unit 0 again */
        const struct unit *unit = &r->config.layout->unit[i % r->n_units];
        const float *data = params.begin ? params.begin(params.arg, i % r->n_units)
                                         : params.flat + unit->offset;

        if (i < r->n_units) {
            add_to_hash(r, i, data, unit->size);
        }
        if (params.end) {
            params.end(params.arg, i % r->n_units);
        }
    }
}

static int exchange(struct replicas *r, struct errmsg *msg)
{
    struct device *d = r->config.device;
    int rv;

    device_wait(d, QUEUE_REDUCE, device_mark(d, QUEUE_COMPUTE));
    comm_all_gather(r->config.comm, QUEUE_REDUCE, r->hash, r->offset);
    rv = device_finish(d, device_mark(d, QUEUE_REDUCE), r->config.timeout_ms, msg);
    return rv < 0 ? rv : device_last_error(d, msg);
}

/* ---- the verdict ----------------------------------------------------------------- */

static const char *comma(int i, int n)
{
    return i == 0 ? "" : i == n - 1 ? " and " : ", ";
}

/* "rank 3", "ranks 0 and 1", "ranks 1, 2, 4 and 5 more". */
static void name_wrong(const struct replicas *r, char *text, size_t size)
{
    int n = 0, named = 0, shown;
    size_t used;

    for (int i = 0; i < r->world_size; i++) {
        n += r->is_wrong[i];
    }
    shown = n > NAMED_MAX ? NAMED_MAX - 1 : n;
    used = (size_t)snprintf(text, size, "rank%s ", n > 1 ? "s" : "");
    for (int i = 0; i < r->world_size && named < shown; i++) {
        if (r->is_wrong[i]) {
            used +=
                (size_t)snprintf(text + used, size - used, "%s%d", comma(named, n), i);
            named++;
        }
    }
    if (n > shown) {
        (void)snprintf(text + used, size - used, " and %d more", n - shown);
    }
}

/* Somebody holds what the first wrong rank should. */
static bool is_right_known(const struct replicas *r, int stride)
{
    int wrong = 0;

    while (!r->is_wrong[wrong]) {
        wrong++;
    }
    for (int i = wrong % stride; i < r->world_size; i += stride) {
        if (!r->is_wrong[i]) {
            return true;
        }
    }
    return false;
}

static int blame(const struct replicas *r, int unit, const char *what, int stride,
                 uint64_t step, struct errmsg *msg)
{
    char who[NAMED_MAX * 16 + 32];

    name_wrong(r, who, sizeof(who));
    return errmsg_set(
        msg, r->is_wrong[r->rank] ? ERR_DIVERGED : ERR_PEER_LOST,
        "step %" PRIu64 ": the %s of %s differ from %s (first in %s): a machine's "
        "memory, processor or network is at fault; none of it was saved, a restart goes "
        "on from the last checkpoint",
        step, what, who, is_right_known(r, stride) ? "all others'" : "one another",
        r->config.layout->unit[unit].name);
}

int replicas_compare(struct replicas *r, const float *const *blocks, int n_blocks,
                     uint64_t step, struct errmsg *msg)
{
    int stride = r->is_gathered ? 1 : r->config.mesh.dp_shard;
    int unit, rv;

    device_fill(r->config.device, QUEUE_COMPUTE, r->hash, 0, r->bytes);
    if (r->is_gathered) {
        n_blocks = 1;
        hash_gathered(r);
    } else {
        hash_own(r, blocks, n_blocks);
    }
    rv = exchange(r, msg);
    if (rv < 0) {
        return rv;
    }
    unit = replicas_judge(r->hash, r->world_size, r->n_units, stride, r->is_wrong);
    r->is_judged = unit >= 0;
    return unit < 0 ? 0
                    : blame(r, unit, n_blocks > 1 ? "weights or moments" : "weights",
                            stride, step, msg);
}

/* Who ends first is taken for the cause: let it be a rank that is wrong. When it has
 * ended the agent ends this process (control_client.h). */
static void wait_for_the_wrong(void)
{
    (void)poll(NULL, 0, WAIT_MS);
}

int replicas_check(const struct trainer *t, bool is_saved, struct errmsg *msg)
{
    const float *const state[] = {t->parallel->params, adamw_exp_avg(t->optimizer),
                                  adamw_exp_avg_sq(t->optimizer)};
    int64_t every = t->config->parallel.check_every;
    int rv;

    if (!t->replicas || (!is_saved && !cadence_is_due(every, t->step))) {
        return 0;
    }
    rv = replicas_compare(t->replicas, state, is_saved ? (int)ARRAY_LEN(state) : 1,
                          t->step, msg);
    if (rv == ERR_PEER_LOST && t->replicas->is_judged) {
        wait_for_the_wrong();
    }
    return rv;
}
