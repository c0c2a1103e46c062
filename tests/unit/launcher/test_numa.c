/* --numa-binding on made-up machines: a sysfs tree in a temporary folder → the CPUs of
 * each worker. The rules are torch 2.15's (torch/numa/binding.py). */

#include "launcher/place/sysfs.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* `n_nodes` NUMA nodes of `cores` cores each, SMT siblings numbered behind all cores,
 * `per_cache` cores under a last-level cache. */
struct machine {
    int n_nodes, nodes_per_socket, cores, per_cache;
    bool is_smt;
};

struct gpu {
    const char *addr;
    int node;
};

static const struct machine two_sockets = {4, 2, 4, 4, true};      /* 32 CPUs */
static const struct machine four_complexes = {1, 1, 16, 4, false}; /* 16 CPUs */

static const struct gpu four_gpus[] = {{"a000:9a:00.0", 2},
                                       {"0000:1b:00.0", 0},
                                       {"10000:01:00.0", 3},
                                       {"0000:1c:00.0", 0}};

static struct scratch scratch;

static void put(const char *text, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void put(const char *text, const char *fmt, ...)
{
    char name[256];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(name, sizeof(name), fmt, args);
    va_end(args);
    (void)scratch_text(&scratch, name, text);
}

/* "first-last" of the cores and, with SMT, of their siblings. */
static void range(const struct machine *m, int first, int n, char *ret, size_t size)
{
    int all = m->n_nodes * m->cores;

    if (m->is_smt) {
        (void)snprintf(ret, size, "%d-%d,%d-%d\n", first, first + n - 1, first + all,
                       first + all + n - 1);
    } else {
        (void)snprintf(ret, size, "%d-%d\n", first, first + n - 1);
    }
}

static void put_cache(int cpu, int index, const char *type, const char *level,
                      const char *shared)
{
    put(type, "sys/devices/system/cpu/cpu%d/cache/index%d/type", cpu, index);
    put(level, "sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, index);
    put(shared, "sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu,
        index);
}

static void put_cpu(const struct machine *m, int cpu)
{
    int core = cpu % (m->n_nodes * m->cores);
    char text[64];

    (void)snprintf(text, sizeof(text), "%d\n", core / m->cores / m->nodes_per_socket);
    put(text, "sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    range(m, core, 1, text, sizeof(text));
    put(text, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    put_cache(cpu, 0, "Data\n", "1\n", text);
    put_cache(cpu, 1, "Instruction\n", "1\n", text);
    put_cache(cpu, 2, "Unified\n", "2\n", text);
    range(m, core / m->per_cache * m->per_cache, m->per_cache, text, sizeof(text));
    put_cache(cpu, 3, "Unified\n", "3\n", text);
    put_cache(cpu, 4, "Instruction\n", "4\n", "0\n"); /* higher, but not of data */
}

static void put_machine(const struct machine *m)
{
    int n_cpus = m->n_nodes * m->cores * (m->is_smt ? 2 : 1);
    char text[64];

    (void)snprintf(text, sizeof(text), m->n_nodes > 1 ? "0-%d\n" : "%d\n",
                   m->n_nodes - 1);
    put(text, "sys/devices/system/node/online");
    for (int node = 0; node < m->n_nodes; node++) {
        range(m, node * m->cores, m->cores, text, sizeof(text));
        put(text, "sys/devices/system/node/node%d/cpulist", node);
    }
    for (int cpu = 0; cpu < n_cpus; cpu++) {
        put_cpu(m, cpu);
    }
}

static void put_device(const char *addr, const char *class, const char *vendor,
                       int node)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%d\n", node);
    put(class, "sys/bus/pci/devices/%s/class", addr);
    put(vendor, "sys/bus/pci/devices/%s/vendor", addr);
    put(text, "sys/bus/pci/devices/%s/numa_node", addr);
}

static void put_gpus(const struct gpu *gpus, size_t n)
{
    put_device("0000:00:1f.0", "0x060100\n", "0x8086\n", 0); /* a bridge */
    put_device("0000:1b:00.1", "0x040300\n", "0x10de\n", 0); /* a GPU's sound */
    put_device("0000:00:02.0", "0x030000\n", "0x8086\n", 0); /* another's graphics */
    for (size_t i = 0; i < n; i++) {
        put_device(gpus[i].addr, i == 0 ? "0x030000\n" : "0x030200\n", "0x10de\n",
                   gpus[i].node);
    }
}

/* What `--nproc-per-node=nproc --numa-binding=…` comes to with these CPUs allowed: the
 * workers' CPUs with blanks between, or the error. */
struct question {
    enum numa_binding binding;
    uint32_t nproc;
    const char *allowed, *visible;
};

static const char *answer(const struct question *q)
{
    static char text[1024];
    struct cpuset cpus[16];
    struct cpuset allowed;
    struct numa_machine machine;
    struct errmsg msg = {0};
    size_t n = 0;
    int rv;

    text[0] = '\0';
    assert_true(q->nproc <= ARRAY_LEN(cpus));
    assert_int_equal(cpuset_parse(q->allowed, &allowed), 0);
    rv = sysfs_read_machine(scratch.dir, q->binding, &allowed, &machine, &msg);
    if (rv == 0) {
        rv = numa_plan(&machine, q->binding, q->visible, q->nproc, cpus, &msg);
        numa_machine_release(&machine);
    }
    for (uint32_t i = 0; i < q->nproc && rv == 0; i++) {
        char *list = cpuset_format(&cpus[i]);

        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i > 0 ? " " : "",
                              list);
        mem_free(list);
    }
    if (rv < 0) {
        const char *at;

        assert_int_equal(rv, ERR_INVALID);
        assert_null(strchr(msg.text, '\n'));
        at = strstr(msg.text, scratch.dir); /* paths without the folder */
        (void)snprintf(text, sizeof(text), "%.*s%s",
                       at ? (int)(at - msg.text) : (int)strlen(msg.text), msg.text,
                       at ? at + strlen(scratch.dir) : "");
    }
    return text;
}

struct row {
    struct question q;
    const char *expected;
};

static void check(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *text = answer(&rows[i].q);

        if (strcmp(text, rows[i].expected) != 0) {
            fail_msg("row %zu: %s\nexpected: %s", i, text, rows[i].expected);
        }
    }
}

#define CHECK_ROWS(rows) check(rows, ARRAY_LEN(rows))

static void workers_are_bound_near_their_gpus_in_pci_order(void **state)
{
    static const struct row rows[] = {
        {{NUMA_NODE, 4, "0-31", NULL}, "0-3,16-19 0-3,16-19 8-11,24-27 12-15,28-31"},
        {{NUMA_SOCKET, 4, "0-31", NULL}, "0-7,16-23 0-7,16-23 8-15,24-31 8-15,24-31"},
        {{NUMA_EXCLUSIVE, 4, "0-31", NULL},
         "0-1,16-17 2-3,18-19 8-11,24-27 12-15,28-31"},
        {{NUMA_CORE_COMPLEX, 4, "0-31", NULL},
         "0-3,16-19 0-3,16-19 8-11,24-27 12-15,28-31"},
        /* fewer workers than GPUs: the others' cores stay theirs */
        {{NUMA_EXCLUSIVE, 1, "0-31", NULL}, "0-1,16-17"},
    };

    (void)state;
    put_machine(&two_sockets);
    put_gpus(four_gpus, 4);
    CHECK_ROWS(rows);
}

static void cuda_visible_devices_says_which_gpu_is_which(void **state)
{
    static const struct row rows[] = {
        {{NUMA_NODE, 2, "0-31", "3,0"}, "12-15,28-31 0-3,16-19"},
        {{NUMA_NODE, 1, "0-31", " 2 , 1"}, "8-11,24-27"},
        /* alone at its node now */
        {{NUMA_EXCLUSIVE, 2, "0-31", "1,2"}, "0-3,16-19 8-11,24-27"},
        {{NUMA_NODE, 2, "0-31", "2,-1,0"},
         "--numa-binding: 2 workers, but 1 GPU; lower --nproc-per-node, or, for workers "
         "without GPUs, set CUDA_VISIBLE_DEVICES to nothing"},
        {{NUMA_NODE, 1, "0-31", "4"},
         "--numa-binding: which GPU '4' in CUDA_VISIBLE_DEVICES is cannot be told (4 "
         "found); name GPUs by their numbers"},
        {{NUMA_NODE, 1, "0-31", "GPU-1234"},
         "--numa-binding: which GPU 'GPU-1234' in CUDA_VISIBLE_DEVICES is cannot be told "
         "(4 found); name GPUs by their numbers"},
        {{NUMA_NODE, 1, "0-31", "MIG-8932f937"},
         "--numa-binding: which GPU 'MIG-8932f937' in CUDA_VISIBLE_DEVICES is cannot be "
         "told (4 found); name GPUs by their numbers"},
        /* hidden on purpose, or by Slurm: as on a machine without */
        {{NUMA_NODE, 2, "0-31", ""}, "0-3,16-19 8-11,24-27"},
        {{NUMA_NODE, 2, "0-31", "NoDevFiles"}, "0-3,16-19 8-11,24-27"},
    };

    (void)state;
    put_machine(&two_sockets);
    put_gpus(four_gpus, 4);
    CHECK_ROWS(rows);
}

static void without_gpus_the_nodes_take_the_workers_in_blocks(void **state)
{
    static const struct row rows[] = {
        {{NUMA_NODE, 1, "0-31", NULL}, "0-3,16-19"},
        {{NUMA_NODE, 2, "0-31", "0,1"}, "0-3,16-19 8-11,24-27"},
        {{NUMA_SOCKET, 2, "0-31", NULL}, "0-7,16-23 8-15,24-31"},
        {{NUMA_NODE, 3, "0-31", NULL}, "0-3,16-19 4-7,20-23 8-11,24-27"},
        {{NUMA_EXCLUSIVE, 8, "0-31", NULL},
         "0-1,16-17 2-3,18-19 4-5,20-21 6-7,22-23 8-9,24-25 10-11,26-27 12-13,28-29 "
         "14-15,30-31"},
        /* nodes without a CPU for us take nobody */
        {{NUMA_NODE, 2, "0-1,12", NULL}, "0-1 12"},
        {{NUMA_EXCLUSIVE, 2, "30-31", NULL}, "30 31"},
    };

    (void)state;
    put_machine(&two_sockets);
    CHECK_ROWS(rows);
}

static void caches_are_taken_in_turn_those_with_most_cpus_first(void **state)
{
    static const struct gpu gpus[] = {
        {"0000:01:00.0", -1}, {"0000:02:00.0", -1}, {"0000:03:00.0", -1}};
    static const struct row rows[] = {
        {{NUMA_CORE_COMPLEX, 3, "0-15", NULL}, "0-3 4-7 8-11"},
        {{NUMA_CORE_COMPLEX, 3, "1-15", NULL}, "4-7 8-11 12-15"},
        {{NUMA_CORE_COMPLEX, 3, "2-3,5-15", NULL}, "8-11 12-15 5-7"},
        {{NUMA_CORE_COMPLEX, 3, "0,4-5", NULL}, "4-5 0 4-5"},
        {{NUMA_EXCLUSIVE, 3, "0-15", NULL}, "0-5 6-10 11-15"},
        {{NUMA_EXCLUSIVE, 3, "1-5", NULL}, "1-2 3-4 5"},
        {{NUMA_EXCLUSIVE, 2, "1-2", NULL},
         "--numa-binding=exclusive: 2 cores of NUMA node 0 for 3 devices there; use node "
         "or socket"},
        {{NUMA_NODE, 2, "3,9", NULL}, "3,9 3,9"},
    };

    (void)state;
    put_machine(&four_complexes);
    put_gpus(gpus, 3);
    CHECK_ROWS(rows);
}

/* CPU 0's sibling is 16: a core counts by its lowest CPU, also by one that ctrun may
 * not use. */
static void cores_of_which_a_part_is_allowed_keep_their_order(void **state)
{
    static const struct row rows[] = {
        {{NUMA_EXCLUSIVE, 2, "1-3,16", NULL}, "1,16 2-3"},
        {{NUMA_EXCLUSIVE, 2, "0-1,16-17", NULL}, "0,16 1,17"},
        {{NUMA_NODE, 4, "0-15", NULL}, "0-3 0-3 8-11 12-15"},
        {{NUMA_SOCKET, 4, "2,5,14", NULL},
         "--numa-binding: ctrun may use no CPU of NUMA node 2, where GPU 2 "
         "(a000:9a:00.0) is; widen its CPU affinity (taskset, the cgroup's cpuset)"},
        {{NUMA_SOCKET, 2, "2,5,14", NULL}, "2,5 2,5"},
    };

    (void)state;
    put_machine(&two_sockets);
    put_gpus(four_gpus, 4);
    CHECK_ROWS(rows);
}

static void put_driver(const char *addr, const char *uuid, const char *minor)
{
    char text[256];

    (void)snprintf(text, sizeof(text),
                   "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t %s\n"
                   "Bus Location: \t %s\nDevice Minor: \t %s\nGPU Excluded:\t No\n",
                   uuid, addr, minor);
    put(text, "proc/driver/nvidia/gpus/%s/information", addr);
}

/* In a container the bus shows GPUs that are somebody else's. */
static void the_drivers_list_says_which_gpus_are_ours(void **state)
{
    static const struct row rows[] = {
        {{NUMA_NODE, 2, "0-31", NULL}, "0-3,16-19 12-15,28-31"},
        {{NUMA_NODE, 1, "0-31", "GPU-8932f937"}, "12-15,28-31"},
        {{NUMA_NODE, 2, "0-31", "GPU-89,GPU-4"}, "12-15,28-31 0-3,16-19"},
        {{NUMA_NODE, 1, "0-31", "GPU-"}, /* either */
         "--numa-binding: which GPU 'GPU-' in CUDA_VISIBLE_DEVICES is cannot be told (2 "
         "found); name GPUs by their numbers"},
        {{NUMA_NODE, 1, "0-31", "2"},
         "--numa-binding: which GPU '2' in CUDA_VISIBLE_DEVICES is cannot be told (2 "
         "found); name GPUs by their numbers"},
    };

    (void)state;
    put_machine(&two_sockets);
    put_gpus(four_gpus, 4);
    put_driver("0000:1c:00.0", "GPU-4a4c9f11-0c3b", "1");
    put_driver("10000:01:00.0", "GPU-8932f937-d72c", "3");
    put_driver("a000:9a:00.0", "GPU-11111111-1111", "2");
    put("", "dev/nvidia1");
    put("", "dev/nvidia3"); /* and no nvidia2 */
    CHECK_ROWS(rows);
}

static void a_kernel_without_numa_has_one_node(void **state)
{
    static const struct row rows[] = {
        {{NUMA_NODE, 2, "0-1", NULL}, "0-1 0-1"},
        {{NUMA_CORE_COMPLEX, 1, "0-1", NULL},
         "--numa-binding: cannot read "
         "/sys/devices/system/cpu/cpu0/cache/index0/type: No such file or directory"},
    };

    (void)state;
    CHECK_ROWS(rows);
}

static void what_cannot_be_read_is_named(void **state)
{
    static const struct row missing[] = {
        {{NUMA_SOCKET, 1, "0", NULL},
         "--numa-binding: cannot read "
         "/sys/devices/system/cpu/cpu0/topology/physical_package_id: No such file or "
         "directory"},
        {{NUMA_EXCLUSIVE, 1, "0", NULL},
         "--numa-binding: cannot read "
         "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list: No such file or "
         "directory"},
        {{NUMA_NODE, 1, "1", NULL},
         "--numa-binding: no NUMA node has a CPU that ctrun may use"},
    };
    static const struct row damaged[] = {
        {{NUMA_SOCKET, 1, "0", NULL},
         "--numa-binding: cannot read "
         "/sys/devices/system/cpu/cpu0/topology/physical_package_id: Invalid argument"},
        {{NUMA_EXCLUSIVE, 1, "0", NULL},
         "--numa-binding: cannot read "
         "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list: Invalid argument"},
        {{NUMA_CORE_COMPLEX, 1, "0", NULL},
         "--numa-binding: cannot read /sys/devices/system/cpu/cpu0/cache/index0/level: "
         "Invalid argument"},
    };
    static const struct row list[] = {
        {{NUMA_NODE, 1, "0", NULL},
         "--numa-binding: cannot read /sys/devices/system/node/node0/cpulist: Invalid "
         "argument"},
    };

    (void)state;
    put("0\n", "sys/devices/system/node/online");
    put("0\n", "sys/devices/system/node/node0/cpulist");
    CHECK_ROWS(missing);
    put("x\n", "sys/devices/system/cpu/cpu0/topology/physical_package_id");
    put("1\n", "sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    put_cache(0, 0, "Unified\n", "-1\n", "0\n");
    CHECK_ROWS(damaged);
    put("0,8192\n", "sys/devices/system/node/node0/cpulist");
    CHECK_ROWS(list);
}

static void workers_with_the_same_cpus_are_counted(void **state)
{
    static const char *const lists[] = {"0-3", "4-7", "0-3", "8", "0-3", "4-7"};
    static const struct numa_share expected[] = {{0, 3}, {0, 2}, {1, 3},
                                                 {0, 1}, {2, 3}, {1, 2}};
    struct numa_share shares[ARRAY_LEN(lists)];
    struct cpuset cpus[ARRAY_LEN(lists)];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        assert_int_equal(cpuset_parse(lists[i], &cpus[i]), 0);
    }
    numa_count_shares(cpus, ARRAY_LEN(lists), shares);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        assert_int_equal(shares[i].place, expected[i].place);
        assert_int_equal(shares[i].n, expected[i].n);
    }
}

static int set_up(void **state)
{
    (void)state;
    scratch_open(&scratch);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

#define ON_A_MACHINE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_MACHINE(workers_are_bound_near_their_gpus_in_pci_order),
        ON_A_MACHINE(cuda_visible_devices_says_which_gpu_is_which),
        ON_A_MACHINE(without_gpus_the_nodes_take_the_workers_in_blocks),
        ON_A_MACHINE(caches_are_taken_in_turn_those_with_most_cpus_first),
        ON_A_MACHINE(cores_of_which_a_part_is_allowed_keep_their_order),
        ON_A_MACHINE(the_drivers_list_says_which_gpus_are_ours),
        ON_A_MACHINE(a_kernel_without_numa_has_one_node),
        ON_A_MACHINE(what_cannot_be_read_is_named),
        cmocka_unit_test(workers_with_the_same_cpus_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
