/* What would be started, as far as it is known without the other nodes: each of them is
 * taken to be like this one, and with MIN:MAX all to be there. */

#include "launcher/dry_run.h"
#include "launcher/json_text.h"
#include "launcher/place/devices.h"
#include "launcher/supervisor_core.h"

#include "common/exit_code.h"
#include "common/log.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>

enum { WORKER_MAX = 64 * 1024 * 1024 };

static struct agent_round make_round(const struct supervisor *s)
{
    const struct launch_options *o = s->options;
    uint32_t group_rank = o->node_rank > 0 ? (uint32_t)o->node_rank : 0;

    return (struct agent_round){
        .generation = 1,
        .topology = {.group_rank = group_rank,
                     .group_world = o->max_nodes,
                     .first_rank = group_rank * s->nproc,
                     .nproc = s->nproc,
                     .world_size = o->max_nodes * s->nproc,
                     .role_first_rank = group_rank * s->nproc,
                     .role_world_size = o->max_nodes * s->nproc}};
}

static bool is_rank_known(const struct supervisor *s)
{
    return s->options->max_nodes == 1 || s->options->node_rank >= 0;
}

/* What the start chooses: ranks by the order of joining, ports, addresses. */
static void list_unknown(const struct supervisor *s, const char **ret)
{
    const struct launch_options *o = s->options;
    size_t n = 0;

    if (!is_rank_known(s)) {
        ret[n++] = "RANK";
        ret[n++] = "GROUP_RANK";
        ret[n++] = "ROLE_RANK";
    }
    if (!s->access.fixed_addr) {
        ret[n++] = "MASTER_PORT";
    }
    if (s->access.is_shared) {
        ret[n++] = "MASTER_ADDR";
    }
    if (o->rdzv_id[0] == '\0') {
        ret[n++] = "TORCHELASTIC_RUN_ID";
    }
    if (!s->is_engine) {
        ret[n++] = "TORCHELASTIC_ERROR_FILE";
    }
    if (supervisor_timers_are_on()) {
        ret[n++] = "TORCHELASTIC_TIMER_FILE";
    }
    if (s->local_addr[0] == '\0' && (!o->standalone || s->access.is_shared)) {
        ret[n++] = "CTRUN_NODE_ADDR";
    }
    ASSERT(n < DRY_RUN_MAX_UNKNOWN);
    ret[n] = NULL;
}

static void put_head(const struct supervisor *s, struct buf *out)
{
    const struct launch_options *o = s->options;

    if (!o->json) {
        json_put(out,
                 "dry run: %u of %u ranks would run on this node, and all find each "
                 "other at %s; environment: what is put over the inherited one\n",
                 s->nproc, s->nproc * o->max_nodes, s->endpoint);
        return;
    }
    json_put(out, "{\"run_id\": ");
    json_put_text(out, o->rdzv_id[0] != '\0' ? o->rdzv_id : NULL);
    json_put(out,
             ", \"min_nodes\": %u, \"max_nodes\": %u, \"endpoint\": ", o->min_nodes,
             o->max_nodes);
    json_put_text(out, o->standalone ? NULL : s->endpoint);
    json_put(out, ", \"host\": ");
    json_put_text(out, s->host);
    json_put(out, ", \"workers\": [");
}

static int put_worker(struct supervisor *s, const struct slot *slot, struct buf *out,
                      struct errmsg *msg)
{
    /* NOLINTBEGIN(concurrency-mt-unsafe): nobody sets the environment */
    struct device_list visible = device_list_choose(getenv("CUDA_VISIBLE_DEVICES"),
                                                    getenv("HIP_VISIBLE_DEVICES"));
    /* NOLINTEND(concurrency-mt-unsafe) */
    struct agent_round round = make_round(s);
    const struct msg_node nobody = {.addr = ""}; /* group rank 0's is not known yet */
    struct access_master master = access_master(&s->access, &nobody, 0);
    struct worker_env values = supervisor_env(slot, &round, &master);
    struct dry_run_worker worker = {.local_rank = slot->number};
    char device[128];
    char **argv = NULL;
    char *cpus;
    char **env;
    int rv =
        worker_command_make(&s->command, s->options->program, slot->number, &argv, msg);

    if (rv < 0) {
        return rv;
    }
    values.timer_file = supervisor_timers_are_on() ? "" : NULL;
    env = worker_env_own(s->env, &values);
    cpus = placement_format_cpus(&s->placement, slot->number);
    devices_name(&visible, slot->number, device, sizeof(device));
    worker.rank = is_rank_known(s)
                      ? (int64_t)round.topology.first_rank + (int64_t)slot->number
                      : -1;
    worker.argv = argv;
    worker.env = env;
    worker.device = device;
    worker.cpus = cpus ? cpus : "";
    list_unknown(s, worker.unknown);
    if (s->options->json) {
        json_put(out, "%s", slot->number > 0 ? ", " : "");
        dry_run_put_json(out, &worker);
    } else {
        dry_run_put_text(out, &worker);
    }
    mem_free(cpus);
    mem_free(env);
    mem_free(argv);
    return 0;
}

/* A worker at a time: there may be thousands, and their arguments long. */
static void print(struct buf *out)
{
    (void)fwrite(buf_bytes(out), 1, buf_len(out),
                 stdout); /* main.c looks whether it was whole */
    buf_consume(out, buf_len(out));
}

static int print_all(struct supervisor *s, struct errmsg *msg)
{
    struct buf out;
    int rv = 0;

    buf_init(&out, WORKER_MAX);
    put_head(s, &out);
    for (uint32_t i = 0; i < s->nproc && rv == 0; i++) {
        struct slot slot = {.supervisor = s, .number = i};

        rv = put_worker(s, &slot, &out, msg);
        print(&out);
    }
    if (rv == 0 && s->options->json) {
        json_put(&out, "]}\n");
        print(&out);
    }
    buf_release(&out);
    return rv;
}

int supervisor_dry_run(struct launch_options *options, char *const *env)
{
    struct supervisor *s = mem_zalloc(sizeof(*s));
    struct access_config access;
    struct errmsg msg = {0};
    int rv;

    s->options = options;
    s->env = env;
    rv = supervisor_resolve(s, 0, &msg);
    access = supervisor_access(s, "127.0.0.1");
    access_make(&access, &s->access);
    if (rv == 0) {
        supervisor_explain_console(s, options->max_nodes * s->nproc);
    }
    rv = rv < 0 ? rv : print_all(s, &msg);
    if (rv < 0) {
        log_error(msg.text, "%s", "");
    }
    placement_release(&s->placement);
    mem_free(s);
    return rv < 0 ? EXIT_MISTAKE : EXIT_SUCCESS;
}
