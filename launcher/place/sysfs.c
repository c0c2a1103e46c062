#include "launcher/place/sysfs.h"

#include "common/mem.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXT_MAX = 1 << 16, /* of a file: a list of every second CPU fits */
    CACHES_MAX = 64,    /* of a CPU: so many indices are looked for */
    NO_GROUP = UINT16_MAX,
};

#define NVIDIA     0x10de
#define DRIVER_DIR "proc/driver/nvidia/gpus"

struct reader {
    const char *root; /* borrowed */
    struct errmsg *msg;
    char path[PATH_MAX]; /* of the file at hand */
    char text[TEXT_MAX]; /* its text, without the newline at the end */
};

static int read_text(struct reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* -ENOENT says nothing yet: some files need not be there. */
static int fail(struct reader *r, int rv)
{
    return errmsg_set(r->msg, ERR_INVALID, "--numa-binding: cannot read %.300s: %s",
                      r->path, err_text(rv));
}

static int name_file(struct reader *r, const char *fmt, va_list args)
{
    int n = snprintf(r->path, sizeof(r->path), "%s/", r->root);
    int rest;

    if (n < 0 || (size_t)n >= sizeof(r->path)) {
        return -ENAMETOOLONG;
    }
    rest = vsnprintf(r->path + n, sizeof(r->path) - (size_t)n, fmt, args);
    return rest < 0 || (size_t)rest >= sizeof(r->path) - (size_t)n ? -ENAMETOOLONG : 0;
}

/* The file of this name into r->text; 0 or -errno. */
static int read_text(struct reader *r, const char *fmt, ...)
{
    size_t size = 0;
    ssize_t n = 1;
    va_list args;
    int rv;
    int fd;

    va_start(args, fmt);
    rv = name_file(r, fmt, args);
    va_end(args);
    fd = rv < 0 ? -1 : open(r->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return rv < 0 ? rv : -errno;
    }
    while (n > 0 && size < sizeof(r->text)) {
        n = read(fd, r->text + size, sizeof(r->text) - size);
        rv = n < 0 ? -errno : 0;
        size += n > 0 ? (size_t)n : 0;
    }
    (void)close(fd); /* only read */
    if (rv == 0 && size == sizeof(r->text)) {
        return -EFBIG;
    }
    while (size > 0 && r->text[size - 1] == '\n') {
        size--;
    }
    r->text[size] = '\0';
    return rv;
}

/* --- CPUs --- */

/* The last file as a list of CPUs; `rv` is its reading's. */
static int take_list(struct reader *r, int rv, struct cpuset *ret)
{
    if (rv == 0 && cpuset_parse(r->text, ret) < 0) {
        rv = -EINVAL;
    }
    return rv < 0 ? fail(r, rv) : 0;
}

static void add_node(struct numa_machine *m, uint32_t id, const struct cpuset *cpus)
{
    m->nodes = mem_grow(m->nodes, m->n_nodes + 1, sizeof(*m->nodes));
    m->nodes[m->n_nodes++] = (struct numa_node){.id = id, .cpus = *cpus};
}

/* Where it has a CPU that ctrun may use. */
static int read_node(struct reader *r, int id, const struct cpuset *allowed,
                     struct numa_machine *m)
{
    struct cpuset cpus;
    int rv =
        take_list(r, read_text(r, "sys/devices/system/node/node%d/cpulist", id), &cpus);

    if (rv < 0) {
        return rv;
    }
    cpuset_keep(&cpus, allowed);
    if (cpuset_next(&cpus, 0) >= 0) {
        add_node(m, (uint32_t)id, &cpus);
    }
    return 0;
}

static int read_nodes(struct reader *r, const struct cpuset *allowed,
                      struct numa_machine *m)
{
    int rv = read_text(r, "sys/devices/system/node/online");
    struct cpuset ids = {{0}};

    if (rv == -ENOENT) {
        add_node(m, 0, allowed); /* a kernel without NUMA */
        return 0;
    }
    rv = take_list(r, rv, &ids);
    for (int id = cpuset_next(&ids, 0); id >= 0 && rv == 0;
         id = cpuset_next(&ids, id + 1)) {
        rv = read_node(r, id, allowed, m);
    }
    if (rv == 0 && m->n_nodes == 0) {
        return errmsg_set(r->msg, ERR_INVALID,
                          "--numa-binding: no NUMA node has a CPU that ctrun may use");
    }
    return rv;
}

static int read_socket(struct reader *r, struct numa_node *node)
{
    int rv = read_text(r, "sys/devices/system/cpu/cpu%d/topology/physical_package_id",
                       cpuset_next(&node->cpus, 0));

    if (rv == 0 && str_parse_i64(r->text, &node->socket) < 0) {
        rv = -EINVAL;
    }
    return rv < 0 ? fail(r, rv) : 0;
}

static int read_core(struct reader *r, int cpu, struct cpuset *ret)
{
    return take_list(
        r,
        read_text(r, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu),
        ret);
}

/* The level of the CPU's cache of this index; 0: not one of data. -ENOENT: no such
 * cache. */
static int read_cache_level(struct reader *r, int cpu, int index)
{
    uint64_t level = 0;
    int rv =
        read_text(r, "sys/devices/system/cpu/cpu%d/cache/index%d/type", cpu, index);

    if (rv < 0) {
        return rv;
    }
    if (strcmp(r->text, "Unified") != 0 && strcmp(r->text, "Data") != 0) {
        return 0;
    }
    rv = read_text(r, "sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, index);
    if (rv == 0 && (str_parse_u64(r->text, &level) < 0 || level > CACHES_MAX)) {
        rv = -EINVAL;
    }
    return rv < 0 ? fail(r, rv) : (int)level;
}

/* Who shares the CPU's cache of the highest level. */
static int read_cache(struct reader *r, int cpu, struct cpuset *ret)
{
    int highest = 0;
    int best = -1;

    for (int i = 0; i < CACHES_MAX; i++) {
        int level = read_cache_level(r, cpu, i);

        if (level == -ENOENT) {
            break;
        }
        if (level < 0) {
            return level == ERR_INVALID ? level : fail(r, level);
        }
        best = level > highest ? i : best;
        highest = MAX(highest, level);
    }
    if (best < 0) {
        return fail(r, -ENOENT);
    }
    return take_list(
        r,
        read_text(r, "sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu,
                  best),
        ret);
}

/* One reading for all CPUs of a core, or under a cache. */
static int read_group(struct reader *r, enum numa_binding binding, int cpu,
                      struct numa_machine *m)
{
    struct cpuset members = {{0}};
    int rv;

    if (m->group[cpu] != NO_GROUP) {
        return 0;
    }
    rv = binding == NUMA_EXCLUSIVE ? read_core(r, cpu, &members)
                                   : read_cache(r, cpu, &members);
    if (rv == 0 && !cpuset_has(&members, (unsigned)cpu)) {
        rv = fail(r, -EINVAL); /* it shares with itself, at least */
    }
    for (int i = cpuset_next(&members, 0); i >= 0 && rv == 0;
         i = cpuset_next(&members, i + 1)) {
        m->group[i] = (uint16_t)cpuset_next(&members, 0);
    }
    return rv;
}

static int read_groups(struct reader *r, enum numa_binding binding,
                       const struct numa_node *node, struct numa_machine *m)
{
    int rv = 0;

    for (int cpu = cpuset_next(&node->cpus, 0); cpu >= 0 && rv == 0;
         cpu = cpuset_next(&node->cpus, cpu + 1)) {
        rv = read_group(r, binding, cpu, m);
    }
    return rv;
}

static int read_cpus(struct reader *r, enum numa_binding binding,
                     const struct cpuset *allowed, struct numa_machine *m)
{
    int rv = read_nodes(r, allowed, m);

    for (size_t i = 0; i < m->n_nodes && rv == 0; i++) {
        if (binding == NUMA_SOCKET) {
            rv = read_socket(r, &m->nodes[i]);
        } else if (binding != NUMA_NODE) {
            rv = read_groups(r, binding, &m->nodes[i], m);
        }
    }
    return rv;
}

/* --- GPUs --- */

static int read_hex(struct reader *r, const char *addr, const char *name,
                    unsigned long *ret)
{
    int rv = read_text(r, "sys/bus/pci/devices/%s/%s", addr, name);
    char *end;

    *ret = rv == 0 ? strtoul(r->text, &end, 16) : 0; /* 0 is neither */
    return rv == -ENOENT ? 0 : rv;
}

/* 1: an NVIDIA GPU; 0: something else; or -errno. */
static int is_gpu(struct reader *r, const char *addr)
{
    unsigned long kind;
    unsigned long vendor;
    int rv = read_hex(r, addr, "vendor", &vendor);

    if (rv < 0 || vendor != NVIDIA) {
        return rv;
    }
    rv = read_hex(r, addr, "class", &kind);
    return rv < 0 ? rv : kind >> 8 == 0x0300 || kind >> 8 == 0x0302;
}

/* The value of a line "NAME: \t VALUE" of r->text; "" without. */
static void find_line(const struct reader *r, const char *name, char *ret, size_t size)
{
    const char *at = strstr(r->text, name);

    *ret = '\0';
    if (at) {
        at += strlen(name);
        at += strspn(at, ": \t");
        (void)snprintf(ret, size, "%.*s", (int)strcspn(at, " \t\n"), at);
    }
}

static bool is_there(struct reader *r, const char *name)
{
    char path[PATH_MAX];

    return str_format(path, sizeof(path), "%s/%s", r->root, name) &&
           access(path, F_OK) == 0;
}

/* What NVIDIA's driver says of the GPU. 1; 0: it is not for us; or -errno. */
static int ask_driver(struct reader *r, struct numa_gpu *gpu)
{
    char file[64];
    char minor[16];
    int rv;

    if (!is_there(r, DRIVER_DIR)) {
        return 1; /* the bus is all that is known */
    }
    rv = read_text(r, DRIVER_DIR "/%s/information", gpu->addr);
    if (rv < 0) {
        return rv == -ENOENT ? 0 : rv;
    }
    find_line(r, "GPU UUID", gpu->uuid, sizeof(gpu->uuid));
    find_line(r, "Device Minor", minor, sizeof(minor));
    return minor[0] == '\0' ||
           (str_format(file, sizeof(file), "dev/nvidia%s", minor) && is_there(r, file));
}

/* -1: there is one node, says the kernel; so it is the first. */
static int read_gpu_node(struct reader *r, struct numa_gpu *gpu)
{
    int rv = read_text(r, "sys/bus/pci/devices/%s/numa_node", gpu->addr);
    int64_t node = -1;

    if (rv == 0 && (str_parse_i64(r->text, &node) < 0 || node > INT32_MAX)) {
        rv = -EINVAL;
    }
    if (rv < 0 && rv != -ENOENT) {
        return fail(r, rv);
    }
    gpu->node = (uint32_t)MAX(node, 0);
    return 0;
}

static int take_device(struct reader *r, const char *addr, struct numa_machine *m)
{
    struct numa_gpu gpu = {.uuid = ""};
    int rv = is_gpu(r, addr);

    if (rv > 0 && !str_format(gpu.addr, sizeof(gpu.addr), "%s", addr)) {
        rv = -ENAMETOOLONG;
    }
    rv = rv > 0 ? ask_driver(r, &gpu) : rv;
    if (rv <= 0) {
        return rv < 0 ? fail(r, rv) : 0;
    }
    rv = read_gpu_node(r, &gpu);
    if (rv == 0) {
        m->gpus = mem_grow(m->gpus, m->n_gpus + 1, sizeof(*m->gpus));
        m->gpus[m->n_gpus++] = gpu;
    }
    return rv;
}

/* "0000:1b:00.0"; a domain may have more digits. */
static int compare_addrs(const void *left, const void *right)
{
    const char *a = ((const struct numa_gpu *)left)->addr;
    const char *b = ((const struct numa_gpu *)right)->addr;
    size_t len_a = strlen(a);
    size_t len_b = strlen(b);

    return len_a != len_b ? (len_a > len_b) - (len_a < len_b) : strcmp(a, b);
}

static int read_gpus(struct reader *r, struct numa_machine *m)
{
    const struct dirent *entry;
    char path[PATH_MAX];
    int rv = 0;
    DIR *dir;

    if (!str_format(path, sizeof(path), "%s/sys/bus/pci/devices", r->root)) {
        return errmsg_set(r->msg, ERR_INVALID, "--numa-binding: the path is too long");
    }
    dir = opendir(path);
    if (!dir) {
        return 0; /* no PCI bus, no GPU on it */
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): our own DIR */
    while (rv == 0 && (entry = readdir(dir))) {
        rv = entry->d_name[0] == '.' ? 0 : take_device(r, entry->d_name, m);
    }
    (void)closedir(dir);
    if (m->n_gpus > 1) {
        qsort(m->gpus, m->n_gpus, sizeof(*m->gpus), compare_addrs);
    }
    return rv;
}

int sysfs_read_machine(const char *root, enum numa_binding binding,
                       const struct cpuset *allowed, struct numa_machine *ret,
                       struct errmsg *msg)
{
    struct reader *r = mem_zalloc(sizeof(*r));
    int rv;

    r->root = root;
    r->msg = msg;
    ret->nodes = NULL;
    ret->n_nodes = 0;
    ret->gpus = NULL;
    ret->n_gpus = 0;
    for (size_t i = 0; i < CPUSET_MAX; i++) {
        ret->group[i] = NO_GROUP;
    }
    rv = read_cpus(r, binding, allowed, ret);
    rv = rv < 0 ? rv : read_gpus(r, ret);
    if (rv < 0) {
        numa_machine_release(ret);
    }
    mem_free(r);
    return rv;
}
