#include "launcher/place/numa.h"

#include "launcher/place/device_list.h"

#include "common/mem.h"
#include "common/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE SIZE_MAX /* a node that has no CPU for ctrun */

/* A GPU or, where there is none, a worker. */
struct device {
    size_t node;  /* index in the machine's */
    size_t place; /* among the devices there … */
    size_t n;     /* … so many */
};

struct devices {
    struct device *device; /* owned */
    size_t n;
    size_t *gpu; /* owned; n indices of the machine's, NULL: they are workers */
};

void numa_machine_release(struct numa_machine *m)
{
    mem_free(m->nodes);
    mem_free(m->gpus);
}

/* --- which GPUs --- */

/* The one whose UUID begins so, as CUDA has it; n_gpus: none, or several. */
static size_t find_uuid(const struct numa_machine *m, const char *text)
{
    size_t found = m->n_gpus;
    size_t n = 0;

    for (size_t i = 0; i < m->n_gpus; i++) {
        if (str_starts_with(m->gpus[i].uuid, text)) {
            found = i;
            n++;
        }
    }
    return n == 1 ? found : m->n_gpus;
}

static int find_gpu(const struct numa_machine *m, const char *text, size_t *ret,
                    struct errmsg *msg)
{
    uint64_t number = m->n_gpus;

    if (str_parse_u64(text, &number) < 0 && str_starts_with(text, "GPU-")) {
        number = find_uuid(m, text);
    }
    if (number >= m->n_gpus) {
        return errmsg_set(msg, ERR_INVALID,
                          "--numa-binding: which GPU '%.80s' in CUDA_VISIBLE_DEVICES "
                          "is cannot be told (%zu found); name GPUs by their numbers",
                          text, m->n_gpus);
    }
    *ret = number;
    return 0;
}

static int choose_gpus(const struct numa_machine *m, const char *visible,
                       struct devices *ds, struct errmsg *msg)
{
    const char *text;
    char entry[128];
    size_t size;
    int rv = 0;

    while (rv == 0 && (text = device_list_next(&visible, &size)) != NULL) {
        (void)snprintf(entry, sizeof(entry), "%.*s", (int)size, text);
        ds->gpu = mem_grow(ds->gpu, ds->n + 1, sizeof(*ds->gpu));
        rv = find_gpu(m, entry, &ds->gpu[ds->n], msg);
        ds->n += rv == 0;
    }
    return rv;
}

static int list_gpus(const struct numa_machine *m, const char *visible,
                     struct devices *ds, struct errmsg *msg)
{
    if (m->n_gpus == 0) {
        return 0;
    }
    if (visible) {
        return choose_gpus(m, visible, ds, msg);
    }
    ds->gpu = mem_array(m->n_gpus, sizeof(*ds->gpu));
    for (; ds->n < m->n_gpus; ds->n++) {
        ds->gpu[ds->n] = ds->n;
    }
    return 0;
}

/* --- where they are --- */

static size_t find_node(const struct numa_machine *m, uint32_t id)
{
    for (size_t i = 0; i < m->n_nodes; i++) {
        if (m->nodes[i].id == id) {
            return i;
        }
    }
    return NOWHERE;
}

static void count_places(const struct numa_machine *m, struct devices *ds)
{
    size_t *n_at = mem_array(m->n_nodes, sizeof(*n_at));

    memset(n_at, 0, m->n_nodes * sizeof(*n_at));
    for (size_t i = 0; i < ds->n; i++) {
        if (ds->device[i].node != NOWHERE) {
            ds->device[i].place = n_at[ds->device[i].node]++;
        }
    }
    for (size_t i = 0; i < ds->n; i++) {
        ds->device[i].n = ds->device[i].node != NOWHERE ? n_at[ds->device[i].node] : 0;
    }
    mem_free(n_at);
}

static void place_gpus(const struct numa_machine *m, struct devices *ds)
{
    ds->device = mem_array(ds->n, sizeof(*ds->device));
    for (size_t i = 0; i < ds->n; i++) {
        ds->device[i] = (struct device){.node = find_node(m, m->gpus[ds->gpu[i]].node)};
    }
}

/* No GPU: the workers themselves, the nodes' in blocks. */
static void place_workers(const struct numa_machine *m, uint32_t nproc,
                          struct devices *ds)
{
    ds->n = nproc;
    ds->device = mem_array(ds->n, sizeof(*ds->device));
    for (size_t i = 0; i < ds->n; i++) {
        ds->device[i] = (struct device){.node = i * m->n_nodes / ds->n};
    }
}

/* Each of the workers' devices has CPUs. */
static int check_devices(const struct numa_machine *m, const struct devices *ds,
                         uint32_t nproc, struct errmsg *msg)
{
    if (ds->n < nproc) {
        return errmsg_set(
            msg, ERR_INVALID,
            "--numa-binding: %u workers, but %zu GPU%s; lower --nproc-per-node, or, for "
            "workers without GPUs, set CUDA_VISIBLE_DEVICES to nothing",
            nproc, ds->n, ds->n == 1 ? "" : "s");
    }
    for (uint32_t i = 0; i < nproc; i++) {
        if (ds->device[i].node == NOWHERE) {
            return errmsg_set(
                msg, ERR_INVALID,
                "--numa-binding: ctrun may use no CPU of NUMA node %u, where GPU %u "
                "(%s) is; widen its CPU affinity (taskset, the cgroup's cpuset)",
                m->gpus[ds->gpu[i]].node, i, m->gpus[ds->gpu[i]].addr);
        }
    }
    return 0;
}

/* --- which CPUs --- */

static void bind_socket(const struct numa_machine *m, const struct device *d,
                        struct cpuset *ret)
{
    for (size_t i = 0; i < m->n_nodes; i++) {
        if (m->nodes[i].socket == m->nodes[d->node].socket) {
            cpuset_join(ret, &m->nodes[i].cpus);
        }
    }
}

/* The groups (cores, caches) of a node, each by its lowest CPU. */
static void list_groups(const struct numa_machine *m, const struct numa_node *node,
                        struct cpuset *ret)
{
    *ret = (struct cpuset){{0}};
    for (int cpu = cpuset_next(&node->cpus, 0); cpu >= 0;
         cpu = cpuset_next(&node->cpus, cpu + 1)) {
        cpuset_add(ret, m->group[cpu]);
    }
}

/* The node's CPUs that are in one of the groups. */
static void take_groups(const struct numa_machine *m, const struct numa_node *node,
                        const struct cpuset *groups, struct cpuset *ret)
{
    for (int cpu = cpuset_next(&node->cpus, 0); cpu >= 0;
         cpu = cpuset_next(&node->cpus, cpu + 1)) {
        if (cpuset_has(groups, m->group[cpu])) {
            cpuset_add(ret, (unsigned)cpu);
        }
    }
}

static int bind_exclusive(const struct numa_machine *m, const struct device *d,
                          struct cpuset *ret, struct errmsg *msg)
{
    const struct numa_node *node = &m->nodes[d->node];
    struct cpuset mine = {{0}};
    struct cpuset cores;
    size_t n;
    size_t first;
    size_t end;
    size_t i = 0;

    ASSERT(d->n > 0); /* itself */
    list_groups(m, node, &cores);
    n = cpuset_count(&cores);
    if (n < d->n) {
        return errmsg_set(
            msg, ERR_INVALID,
            "--numa-binding=exclusive: %zu core%s of NUMA node %u for %zu "
            "devices there; use node or socket",
            n, n == 1 ? "" : "s", node->id, d->n);
    }
    first = d->place * (n / d->n) + MIN(d->place, n % d->n);
    end = first + n / d->n + (d->place < n % d->n);
    for (int core = cpuset_next(&cores, 0); core >= 0;
         core = cpuset_next(&cores, core + 1)) {
        if (i >= first && i < end) {
            cpuset_add(&mine, (unsigned)core);
        }
        i++;
    }
    take_groups(m, node, &mine, ret);
    return 0;
}

struct cache {
    int first; /* its lowest CPU */
    size_t n_cpus;
};

static int compare_caches(const void *left, const void *right)
{
    const struct cache *a = left;
    const struct cache *b = right;

    if (a->n_cpus != b->n_cpus) {
        return a->n_cpus > b->n_cpus ? -1 : 1;
    }
    return (a->first > b->first) - (a->first < b->first);
}

static void bind_core_complex(const struct numa_machine *m, const struct device *d,
                              struct cpuset *ret)
{
    const struct numa_node *node = &m->nodes[d->node];
    struct cpuset mine = {{0}};
    struct cpuset groups;
    struct cache *caches;
    size_t n = 0;

    list_groups(m, node, &groups);
    caches = mem_array(cpuset_count(&groups), sizeof(*caches));
    for (int first = cpuset_next(&groups, 0); first >= 0;
         first = cpuset_next(&groups, first + 1)) {
        caches[n] = (struct cache){.first = first};
        for (int cpu = cpuset_next(&node->cpus, 0); cpu >= 0;
             cpu = cpuset_next(&node->cpus, cpu + 1)) {
            caches[n].n_cpus += m->group[cpu] == first;
        }
        n++;
    }
    ASSERT(n > 0); /* the node has a CPU */
    qsort(caches, n, sizeof(*caches), compare_caches);
    cpuset_add(&mine, (unsigned)caches[d->place % n].first);
    take_groups(m, node, &mine, ret);
    mem_free(caches);
}

static int bind_device(const struct numa_machine *m, enum numa_binding binding,
                       const struct device *d, struct cpuset *ret, struct errmsg *msg)
{
    *ret = (struct cpuset){{0}};
    switch (binding) {
    case NUMA_NONE:
        break;
    case NUMA_NODE:
        *ret = m->nodes[d->node].cpus;
        return 0;
    case NUMA_SOCKET:
        bind_socket(m, d, ret);
        return 0;
    case NUMA_EXCLUSIVE:
        return bind_exclusive(m, d, ret, msg);
    case NUMA_CORE_COMPLEX:
        bind_core_complex(m, d, ret);
        return 0;
    }
    UNREACHABLE();
}

int numa_plan(const struct numa_machine *m, enum numa_binding binding,
              const char *visible, uint32_t nproc, struct cpuset *ret,
              struct errmsg *msg)
{
    struct devices ds = {0};
    int rv = list_gpus(m, visible, &ds, msg);

    ASSERT(m->n_nodes > 0 && nproc > 0);
    if (rv == 0 && ds.n > 0) {
        place_gpus(m, &ds);
        rv = check_devices(m, &ds, nproc, msg);
    } else if (rv == 0) {
        place_workers(m, nproc, &ds);
    }
    if (rv == 0) {
        count_places(m, &ds);
    }
    for (uint32_t i = 0; i < nproc && rv == 0; i++) {
        rv = bind_device(m, binding, &ds.device[i], &ret[i], msg);
    }
    mem_free(ds.device);
    mem_free(ds.gpu);
    return rv;
}

/* --- who has the same CPUs --- */

struct owner {
    const struct cpuset *cpus; /* borrowed */
    uint32_t local_rank;
};

static int compare_owners(const void *left, const void *right)
{
    const struct owner *a = left;
    const struct owner *b = right;
    int order = memcmp(a->cpus, b->cpus, sizeof(*a->cpus));

    return order != 0
               ? order
               : (a->local_rank > b->local_rank) - (a->local_rank < b->local_rank);
}

void numa_count_shares(const struct cpuset *cpus, uint32_t nproc,
                       struct numa_share *ret)
{
    struct owner *sorted = mem_array(nproc, sizeof(*sorted));
    uint32_t first = 0;

    for (uint32_t i = 0; i < nproc; i++) {
        sorted[i] = (struct owner){&cpus[i], i};
    }
    qsort(sorted, nproc, sizeof(*sorted), compare_owners);
    for (uint32_t i = 1; i <= nproc; i++) {
        if (i < nproc && cpuset_equal(sorted[i].cpus, sorted[first].cpus)) {
            continue;
        }
        for (uint32_t k = first; k < i; k++) {
            ret[sorted[k].local_rank] = (struct numa_share){k - first, i - first};
        }
        first = i;
    }
    mem_free(sorted);
}
