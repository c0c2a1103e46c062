/* A worker's process: it is started, told to go, killed, and its agent hears of its
 * end. */

#include "tests/lib/cluster.h"

#include "common/exit_code.h"

#include <inttypes.h>
#include <signal.h>

enum { HOUR_MS = 3600 * 1000, DEAF_PERCENT = 5 };

#define EPOCH_MS UINT64_C(1700000000000)

uint64_t worker_now(const struct sim_worker *w)
{
    return w->node->cluster->sim.now_ms;
}

/* --- the end --- */

/* Unix time, where nodes do not agree about it, and it is set anew again and again. */
static uint64_t wall_ms(const struct sim_worker *w)
{
    struct cluster *c = w->node->cluster;
    uint64_t right_ms = EPOCH_MS + worker_now(w);

    return c->config.wall_seed == 0
               ? right_ms
               : right_ms - HOUR_MS + sim_random(&c->wall, UINT64_C(2) * HOUR_MS);
}

static void on_drained(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;
    struct agent_end end = {.message = "", .tail = "", .log_path = ""};

    if (!w->node->agent || tag != w->life) {
        return;
    }
    if (w->node->paused_until_ms > worker_now(w)) {
        sim_put_off(&w->node->cluster->sim, &w->node->cluster->event,
                    w->node->paused_until_ms);
        return;
    }
    end.wall_ms = wall_ms(w);
    agent_drained(w->node->agent, w->slot, &end, worker_now(w));
    node_after_call(w->node);
}

/* `tag`: life << 16 | status. */
static void on_exited(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;
    struct sim *sim = &w->node->cluster->sim;

    if (!w->node->agent || tag >> 16 != w->life) {
        return;
    }
    if (w->node->paused_until_ms > sim->now_ms) {
        sim_put_off(sim, &w->node->cluster->event, w->node->paused_until_ms);
        return;
    }
    sim_after(sim, sim_between(sim, 1, 20), on_drained, w, w->life);
    agent_exited(w->node->agent, w->slot,
                 &(struct agent_exit){(int)(tag & 0xffff), sim->now_ms, wall_ms(w)},
                 sim->now_ms);
    node_after_call(w->node);
}

void worker_die(struct sim_worker *w, int status)
{
    struct sim *sim = &w->node->cluster->sim;

    w->is_alive = false;
    train_sealed(w)->has_lost = true;
    sim_note(sim, "node %u: worker %u ends with %d", w->node->index, w->slot, status);
    if (status != 0 && status != EXIT_LEFT << 8) {
        train_break(w);
    }
    if (w->flow) {
        relay_flow_end(w->flow);
    }
    sim_after(sim, sim_between(sim, 1, 5), on_exited, w,
              w->life << 16 | (uint64_t)(unsigned)status);
}

void worker_leave(struct sim_worker *w, int code)
{
    worker_die(w, code << 8);
}

/* --- the start --- */

static void refuse(struct sim_worker *w)
{
    struct control c = {.type = CONTROL_REFUSE,
                        .code = EXIT_MISTAKE,
                        .max_world = w->node->cluster->config.max_world,
                        .text = "too many ranks"};

    agent_control(w->node->agent, w->slot, &c, worker_now(w));
    node_after_call(w->node);
    if (w->is_alive) {
        worker_leave(w, EXIT_MISTAKE);
    }
}

/* In the first step, or when the agent goes on. */
static void on_begin(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;
    uint32_t max_world = w->node->cluster->config.max_world;

    if (!w->is_alive || tag != w->life) {
        return;
    }
    if (w->node->paused_until_ms > worker_now(w)) {
        sim_put_off(&w->node->cluster->sim, &w->node->cluster->event,
                    w->node->paused_until_ms);
        return;
    }
    if (max_world > 0 && w->world > max_world) {
        refuse(w);
    } else {
        train_begin(w);
    }
}

void worker_spawn(struct sim_worker *w, const struct agent_round *round)
{
    struct node *n = w->node;
    struct sim *sim = &n->cluster->sim;

    ASSERT(!w->is_alive);
    worker_store_close(w);
    *w = (struct sim_worker){
        .node = n,
        .slot = w->slot,
        .life = w->life + 1,
        .is_alive = true,
        .is_deaf =
            (n->cluster->config.faults & FAULT_DEAF) && sim_chance(sim, DEAF_PERCENT),
        .rank = round->topology.first_rank + w->slot,
        .world = round->topology.world_size,
        .job_life = n->conn->job_life,
        .generation = round->generation,
    };
    worker_store_open(w);
    agent_spawned(n->agent, w->slot, 1000 + w->slot, sim->now_ms);
    sim_after(sim, sim_between(sim, 20, 300), on_begin, w, w->life);
}

/* --- what it is told --- */

/* `tag`: life << 16 | status; a worker that was told to go, goes. */
static void on_going(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;

    if (w->is_alive && tag >> 16 == w->life && w->hang == HANGS_NOT) {
        worker_die(w, (int)(tag & 0xffff));
    }
}

static void go(struct sim_worker *w, uint64_t within_ms)
{
    struct sim *sim = &w->node->cluster->sim;

    sim_after(sim, sim_between(sim, 1, within_ms), on_going, w,
              w->life << 16 | (uint64_t)EXIT_LOST_PEER << 8);
}

/* The same of all ranks, and no step of those that were committed is forgotten. */
static void start(struct sim_worker *w, uint64_t step)
{
    struct sealed *s = train_sealed(w);

    if (s->has_begun && s->start_step != step) {
        cluster_violate(w->node->cluster,
                        "generation %" PRIu64 " starts after step %" PRIu64
                        " and after %" PRIu64,
                        w->generation, s->start_step, step);
    }
    if (!s->has_begun) {
        s->has_begun = true;
        s->begun_ms = worker_now(w);
        s->start_step = step;
        s->step = step;
        s->world = w->world;
        watch_start(w->node->cluster, s);
    }
    w->start_step = step;
    w->step = step;
}

void worker_control(struct sim_worker *w, const struct control *c)
{
    if (!w->is_alive) {
        return;
    }
    switch (c->type) {
    case CONTROL_START:
        start(w, c->step);
        break;
    case CONTROL_ABORT:
        if (!w->is_deaf) {
            go(w, 50);
        }
        break;
    case CONTROL_LEAVE:
        w->is_leaving = !w->is_deaf;
        break;
    case CONTROL_DECISION:
        if (!c->accepted && !(c->is_commit && c->step <= w->start_step)) {
            go(w, 5); /* else it was ask_again of cluster_train.c */
        } else if (c->accepted) {
            train_decided(w, c);
        }
        break;
    case CONTROL_HELLO:
    case CONTROL_REFUSE:
    case CONTROL_RESUMED:
    case CONTROL_PROGRESS:
    case CONTROL_COMMIT:
        UNREACHABLE();
    }
}

void worker_signal(struct sim_worker *w, int signal)
{
    if (w->is_alive && (signal == SIGKILL || (!w->is_deaf && w->hang == HANGS_NOT))) {
        worker_die(w, signal);
    }
}
