#include "worker/plan.h"

#include "worker/checkpoint/file.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/evaluate.h"
#include "worker/replicas.h"
#include "worker/snapshot.h"

#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct arena {
    const char *name;
    size_t bytes;
};

enum { ARENAS_MAX = 20 };

/* What one rank takes. */
struct rank_plan {
    int rank;
    struct arena arena[ARENAS_MAX];
    size_t n;
    size_t total;
};

/* Bytes of this process. */
struct process {
    size_t resident;
    size_t size; /* of its address space */
    size_t data; /* of that, private and writable: touched or not */
};

/* Zeros when /proc does not tell. */
static struct process read_process(void)
{
    unsigned long size = 0, resident = 0, data = 0;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/self/statm", "re");

    if (!file) {
        return (struct process){0};
    }
    /* NOLINTNEXTLINE(cert-err34-c): the kernel's own numbers */
    if (fscanf(file, "%lu %lu %*u %*u %*u %lu", &size, &resident, &data) != 3) {
        size = resident = data = 0;
    }
    (void)fclose(file);
    return (struct process){resident * page, size * page, data * page};
}

static double mib(size_t bytes)
{
    return (double)bytes / (1024 * 1024);
}

/* The comm is not open yet, so the other nodes are taken to have as many ranks as this
 * one if that comes out even. */
static struct parallel_config parallel_of(const struct trainer *t, int rank)
{
    struct parallel_config ret = trainer_parallel_config(t);
    int local = t->launch->local_world_size;

    ret.rank = rank;
    ret.node_size = t->launch->world_size % local == 0 ? local : 0;
    return ret;
}

/* One leaf's tokens and targets. */
static size_t leaf_bytes(const struct gpt2_config *model)
{
    return 2 * (size_t)model->batch * (size_t)model->seq_len * sizeof(int32_t);
}

static size_t all_losses_bytes(const struct trainer *t)
{
    uint32_t n_val = evaluate_batches(t);

    return losses_bytes(t->n_leaves, t->launch->world_size) +
           (n_val > 0 ? losses_bytes(n_val, t->launch->world_size) : 0);
}

static void add_arena(struct rank_plan *p, const char *name, size_t bytes)
{
    ASSERT(p->n < ARENAS_MAX);
    p->arena[p->n++] = (struct arena){name, bytes};
    p->total += bytes;
}

/* The ranks of the own node that are in a group of `size`, `stride` apart. */
static int near(const struct trainer *t, int size, int stride)
{
    return MIN(size, MAX(t->launch->local_world_size / stride, 1));
}

static size_t collectives_bytes(const struct trainer *t)
{
    const char *kind = t->config->comm.kind;
    const struct mesh *m = &t->mesh;
    int n_secondary = trainer_parallel_config(t).n_secondary;
    size_t n = comm_bytes(kind, t->launch->local_world_size);

    if (m->dp_shard > 1) {
        n += comm_bytes(kind, near(t, m->dp_shard, 1));
    }
    if (n_secondary > 0) {
        n += comm_bytes(kind, near(t, n_secondary, 1));
    }
    if (m->dp_shard > 1 && m->dp_replicate > 1) {
        n += comm_bytes(kind, near(t, m->dp_shard, 1));
        n += comm_bytes(kind, near(t, m->dp_replicate, m->dp_shard));
    }
    return n;
}

static void plan_rank(const struct trainer *t, int rank, size_t program,
                      struct rank_plan *p)
{
    struct gpt2_config model = trainer_model_config(t->config);
    struct parallel_config parallel = parallel_of(t, rank);
    struct parallel_bytes bytes = t->strategy->bytes(&parallel);
    struct adamw_config adamw = trainer_adamw_config(t);
    struct shard_map own;
    struct loader_config loader = trainer_loader_config(t);
    struct feed_config feed = trainer_feed_config(t, rank);
    bool reads = !trainer_is_fed(t) || rank == 0;
    struct holder holder = trainer_holder(t, rank);

    parallel_own(&parallel, &own);
    adamw.own = &own;
    *p = (struct rank_plan){.rank = rank};
    add_arena(p, "parameters", bytes.params);
    if (bytes.rounded > 0) {
        add_arena(p, "rounded parameters", bytes.rounded);
    }
    if (bytes.gathered > 0) {
        add_arena(p, "parameters of others", bytes.gathered);
    }
    if (bytes.kept > 0) {
        add_arena(p, "pieces of them, kept", bytes.kept);
    }
    add_arena(p, "gradients and reduction", bytes.grads);
    add_arena(p, "optimizer state", adamw_bytes(&adamw));
    add_arena(p, "activations of a micro-batch", gpt2_arena_bytes(&model));
    add_arena(p, "tokens of a micro-batch", leaf_bytes(&model));
    add_arena(p, "losses of all micro-batches", all_losses_bytes(t));
    if (trainer_is_fed(t)) {
        add_arena(p, "tokens of a step", feed_bytes(&feed));
    }
    if (trainer_compares(t)) {
        add_arena(p, "hashes of the weights",
                  replicas_bytes(&t->layout, t->launch->world_size));
    }
    add_arena(p, "batches read ahead", reads ? loader_bytes(&loader) : 0);
    add_arena(p, "order of the samples", t->sampler ? sampler_bytes(t->sampler) : 0);
    add_arena(p, "checkpoint snapshot",
              snapshot_bytes(&t->layout, &holder, !t->config->checkpoint.snapshot));
    add_arena(p, "checkpoint file",
              rank < holder_writers(&holder) ? DIRECT_IO_BYTES : 0);
    add_arena(p, "collectives", collectives_bytes(t));
    if (t->profile) {
        add_arena(p, "profile", trace_bytes());
    }
    add_arena(p, "program and libraries", program);
    shard_map_release(&own);
}

static void print_memory(const struct rank_plan *p, const char *remark)
{
    (void)printf("memory of rank %d%s:\n", p->rank, remark);
    for (size_t i = 0; i < p->n; i++) {
        (void)printf("  %-28s %12.2f MiB\n", p->arena[i].name, mib(p->arena[i].bytes));
    }
    (void)printf("  %-28s %12.2f MiB\n", "total", mib(p->total));
}

/* The first of those that take most: how many blocks of the tree a rank holds differs.
 */
static void find_largest(const struct trainer *t, size_t program, struct rank_plan *ret)
{
    struct rank_plan p;

    plan_rank(t, 0, program, ret);
    for (int rank = 1; rank < t->launch->world_size; rank++) {
        plan_rank(t, rank, program, &p);
        if (p.total > ret->total) {
            *ret = p;
        }
    }
}

/* What all ranks of this machine take, where it has less. */
static void print_excess(const struct trainer *t, size_t program)
{
    const struct launch *l = t->launch;
    int first = l->rank - l->local_rank;
    size_t has = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t needed = 0;
    struct rank_plan p;

    for (int rank = first; rank < first + l->local_world_size; rank++) {
        plan_rank(t, rank, program, &p);
        needed += p.total;
    }
    if (needed > has) {
        (void)printf("too large: %.1f GiB for the %d rank%s here, more than the %.1f "
                     "GiB of this machine\n",
                     mib(needed) / 1024, l->local_world_size,
                     l->local_world_size > 1 ? "s" : "", mib(has) / 1024);
    }
}

static void print_data(const struct trainer *t)
{
    if (t->train_data) {
        (void)printf("data: %" PRIu64 " tokens, %" PRIu64 " samples\n",
                     dataset_tokens(t->train_data), dataset_samples(t->train_data));
    } else {
        (void)printf("data: data.train is not set; planned without the order of its "
                     "samples (data.sampler=torch) and without data.val\n");
    }
}

static size_t sent_by(const struct trainer *t, int rank)
{
    struct parallel_config parallel = parallel_of(t, rank);
    struct feed_config feed = trainer_feed_config(t, rank);

    return t->strategy->sent(&parallel) + (trainer_is_fed(t) ? feed_sent(&feed) : 0);
}

static void print_sent(const struct trainer *t)
{
    size_t all = 0;

    for (int rank = 0; rank < t->launch->world_size; rank++) {
        all += sent_by(t, rank);
    }
    (void)printf("sent per step: %.2f MiB by rank %d, %.2f MiB by all\n",
                 mib(sent_by(t, t->launch->rank)), t->launch->rank, mib(all));
}

static void print_plan(const struct trainer *t)
{
    size_t program = read_process().resident;
    struct rank_plan own;
    struct rank_plan largest;
    struct rank_plan other;

    plan_rank(t, t->launch->rank, program, &own);
    find_largest(t, program, &largest);
    (void)printf(
        "mesh: dp_replicate=%d dp_shard=%d tp=1 pp=1 (%s), %u micro-batch%s a step\n",
        t->mesh.dp_replicate, t->mesh.dp_shard, t->strategy->name, t->n_leaves,
        t->n_leaves > 1 ? "es" : "");
    (void)printf("parameters: %zu in %d units: embeddings, %d block%s, last norm\n",
                 t->layout.n_params, t->layout.n_units, t->layout.n_units - 2,
                 t->layout.n_units > 3 ? "s" : "");
    if (t->layout.n_frozen > 0) {
        (void)printf("trained: %zu of them; %zu are frozen\n",
                     t->layout.n_params - t->layout.n_frozen, t->layout.n_frozen);
    }
    print_data(t);
    print_memory(&own, "");
    if (largest.total > own.total) {
        print_memory(&largest, ", the largest");
    }
    if (trainer_is_fed(t) && largest.rank != 1) {
        plan_rank(t, 1, program, &other);
        print_memory(&other, ", which owns nothing");
    }
    print_excess(t, program);
    print_sent(t);
}

/* ---- too little memory ----------------------------------------------------------- */

/* What a shell's ulimit sets. */
struct limit {
    const char *name;
    size_t bytes, room;
};

static struct limit read_limit(int resource, const char *name, size_t used)
{
    struct rlimit l = {RLIM_INFINITY, RLIM_INFINITY};

    (void)getrlimit(resource, &l);
    return (struct limit){name, l.rlim_cur, l.rlim_cur - MIN(l.rlim_cur, used)};
}

/* The one that leaves less room; of no limit there is room for anything. */
static struct limit own_limit(void)
{
    struct process p = read_process();
    struct limit data = read_limit(RLIMIT_DATA, "ulimit -d", p.data);
    struct limit space = read_limit(RLIMIT_AS, "ulimit -v", p.size);

    return data.room <= space.room ? data : space;
}

static size_t largest_arena(const struct rank_plan *p)
{
    size_t most = 0;

    for (size_t i = 0; i < p->n; i++) {
        most = MAX(most, p->arena[i].bytes);
    }
    return most;
}

int plan_blame(const struct trainer *t, struct errmsg *msg)
{
    const char *remedy = t->strategy && t->strategy->zero.params
                             ? "take more ranks, or a smaller model"
                             : "take parallel.strategy=fsdp on several ranks, or a "
                               "smaller model";
    char what[sizeof(msg->text)];
    struct limit limit = own_limit();
    struct rank_plan p;

    if (!t->strategy || t->mesh.dp_shard == 0) {
        return -ENOMEM;
    }
    plan_rank(t, t->launch->rank, 0, &p);
    memcpy(what, msg->text, sizeof(what));
    if (largest_arena(&p) <= limit.room) { /* it was not the limit */
        return errmsg_set(msg, -ENOMEM,
                          "%s; a rank takes %.0f MiB in all (--dry-run lists them): %s",
                          what, mib(p.total), remedy);
    }
    return errmsg_set(msg, ERR_TOO_LARGE,
                      "%s; a rank takes %.0f MiB in all beside the program (--dry-run "
                      "lists them), its limit is %.0f MiB (%s): raise that, or %s",
                      what, mib(p.total), mib(limit.bytes), limit.name, remedy);
}

int plan_run(struct trainer *t, struct errmsg *msg)
{
    int rv = trainer_open_dry(t, msg);

    if (rv == 0 && trainer_leads(t)) {
        print_plan(t);
    }
    return rv;
}
