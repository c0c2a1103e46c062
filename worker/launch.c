#include "worker/launch.h"

#include "common/control.h"
#include "common/str.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The environment is read before the first thread starts. */
static const char *get(const char *name)
{
    return getenv(name); /* NOLINT(concurrency-mt-unsafe): single-threaded so far */
}

static int get_int(const char *name, int64_t low, int64_t high, int *ret,
                   struct errmsg *msg)
{
    const char *text = get(name);
    int64_t v;

    if (!text) {
        return errmsg_set(
            msg, ERR_INVALID,
            "WORLD_SIZE is set but %s is not: start ctrun-worker with ctrun", name);
    }
    if (str_parse_i64(text, &v) < 0 || v < low || v > high) {
        return errmsg_set(msg, ERR_INVALID,
                          "%s=\"%s\" is not a number from %lld to %lld", name, text,
                          (long long)low, (long long)high);
    }
    *ret = (int)v;
    return 0;
}

static void get_text(const char *name, const char *fallback, char *text, size_t size)
{
    const char *value = get(name);

    (void)snprintf(text, size, "%s", value ? value : fallback);
}

static int read_ranks(struct launch *l, struct errmsg *msg)
{
    int rv;

    rv = get_int("WORLD_SIZE", 1, 1 << 20, &l->world_size, msg);
    rv = rv < 0 ? rv : get_int("RANK", 0, l->world_size - 1, &l->rank, msg);
    rv = rv < 0
             ? rv
             : get_int("LOCAL_WORLD_SIZE", 1, l->world_size, &l->local_world_size, msg);
    rv = rv < 0
             ? rv
             : get_int("LOCAL_RANK", 0, l->local_world_size - 1, &l->local_rank, msg);
    rv = rv < 0 ? rv : get_int("GROUP_RANK", 0, l->world_size - 1, &l->node, msg);
    return rv < 0 ? rv : get_int("MASTER_PORT", 1, 65535, &l->master_port, msg);
}

static int read_control(struct launch *l, struct errmsg *msg)
{
    const char *generation = get(CONTROL_GENERATION_ENV);
    int rv;

    if (!get(CONTROL_FD_ENV)) {
        return l->world_size == 1 ? 0
                                  : errmsg_set(msg, ERR_INVALID,
                                               "WORLD_SIZE=%d, but there is no control "
                                               "channel (" CONTROL_FD_ENV
                                               "): start several ranks with ctrun",
                                               l->world_size);
    }
    rv = get_int(CONTROL_FD_ENV, 3, INT_MAX, &l->control_fd, msg);
    if (rv == 0 && (!generation || str_parse_u64(generation, &l->generation) < 0)) {
        rv = errmsg_set(msg, ERR_INVALID, CONTROL_GENERATION_ENV " is not a number");
    }
    return rv;
}

/* Where ctrun has not bound the ranks, all those of the node have the same CPUs. */
static int read_cpu_ranks(struct launch *l, struct errmsg *msg)
{
    int rv;

    l->cpu_rank = l->local_rank;
    l->cpu_ranks = l->local_world_size;
    if (!get(CONTROL_CPU_RANKS_ENV)) {
        return 0;
    }
    rv = get_int(CONTROL_CPU_RANKS_ENV, 1, l->local_world_size, &l->cpu_ranks, msg);
    return rv < 0
               ? rv
               : get_int(CONTROL_CPU_RANK_ENV, 0, l->cpu_ranks - 1, &l->cpu_rank, msg);
}

int launch_read(struct launch *ret, struct errmsg *msg)
{
    int rv;

    *ret = (struct launch){
        .world_size = 1,
        .local_world_size = 1,
        .cpu_ranks = 1,
        .control_fd = -1,
        .generation = 1,
    };
    get_text("MASTER_ADDR", "127.0.0.1", ret->master_addr, sizeof(ret->master_addr));
    get_text("TORCHELASTIC_RUN_ID", "", ret->run_id, sizeof(ret->run_id));
    get_text("CTRUN_NODE_ADDR", "127.0.0.1", ret->node_addr, sizeof(ret->node_addr));
    if (!get("WORLD_SIZE")) {
        return 0;
    }
    rv = read_ranks(ret, msg);
    rv = rv < 0 ? rv : read_cpu_ranks(ret, msg);
    return rv < 0 ? rv : read_control(ret, msg);
}
