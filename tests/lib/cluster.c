/* The run: nodes start, faults come and go, everything heals, and the job must come to
 * its end, or be cancelled. */

#include "tests/lib/cluster.h"

#include "common/exit_code.h"
#include "common/mem.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    PATIENCE_MS = 1800000, /* after the last fault; the join time-out is 600 s */
    STEP_MS = 40,
};

void cluster_violate(struct cluster *c, const char *fmt, ...)
{
    char what[384];
    va_list args;

    if (c->result->violation[0] != '\0') {
        return; /* the first is the one */
    }
    va_start(args, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, args); /* cut is fine */
    va_end(args);
    (void)snprintf(c->result->violation, sizeof(c->result->violation),
                   "seed %" PRIu64 ", at %" PRIu64 " ms: %s", c->config.seed,
                   c->sim.now_ms, what);
}

struct sealed *cluster_sealed(struct cluster *c, uint64_t job_life, uint64_t generation)
{
    struct sealed *s;

    for (size_t i = c->n_sealed; i > 0; i--) {
        s = c->sealed[i - 1];
        if (s->job_life == job_life && s->generation == generation) {
            return s;
        }
    }
    s = mem_zalloc(sizeof(*s));
    s->job_life = job_life;
    s->generation = generation;
    s->rank = mem_array((size_t)c->config.n_nodes * c->config.nproc, sizeof(*s->rank));
    c->sealed = mem_grow(c->sealed, c->n_sealed + 1, sizeof(struct sealed *));
    c->sealed[c->n_sealed++] = s;
    return s;
}

struct sim_worker *cluster_worker(struct cluster *c, size_t i)
{
    size_t node = i / c->config.nproc;

    return node < c->config.n_nodes ? &c->nodes[node].workers[i % c->config.nproc]
                                    : NULL;
}

/* --- the run --- */

static bool is_over(const struct cluster *c)
{
    for (uint32_t i = 0; i < c->config.n_nodes; i++) {
        if (!c->nodes[i].has_ended || c->nodes[i].returns > 0) {
            return false;
        }
    }
    return (c->sim.now_ms > c->config.faults_until_ms ||
            c->config.faults == 0) && /* else somebody may be started again */
           watch_is_over(c);
}

static void start(struct cluster *c)
{
    serving_start(c);
    for (uint32_t i = 0; i < c->config.n_nodes; i++) {
        struct node *n = &c->nodes[i];

        n->cluster = c;
        n->index = i;
        (void)snprintf(n->host, sizeof(n->host), "host%u", i / 2);
        for (uint32_t k = 0; k < c->config.nproc; k++) {
            n->workers[k] =
                (struct sim_worker){.node = n, .slot = k, .life = (uint64_t)k << 24};
            buf_init(&n->workers[k].to_relay, 0);
            buf_init(&n->workers[k].from_relay, 0);
        }
        faults_start_after(n, sim_random(&c->sim, 2000));
    }
    faults_begin(c);
}

/* Some node has seen the job done; the others too, or they came when it was over. */
static void check_end(struct cluster *c)
{
    for (uint32_t i = 0; i < c->config.n_nodes; i++) {
        const struct node *n = &c->nodes[i];

        if (n->exit_code == 0) {
            c->result->n_done += n->was_closed || !n->is_drained;
        } else if (n->exit_code != EXIT_RENDEZVOUS && n->exit_code < 128) {
            cluster_violate(c, "node %u ended with %d", i, n->exit_code);
        }
    }
    watch_end(c);
    operators_check_end(c);
    histories_check_end(c);
    if (c->is_cancelled || c->may_be_cancelled) {
        return; /* it need not come to its own end */
    }
    if (c->result->n_done == 0) {
        cluster_violate(c, "no node has seen the job done");
    }
    if (c->result->last_step != c->config.total_steps) {
        cluster_violate(c, "the last committed step is %" PRIu64, c->result->last_step);
    }
}

static void release(struct cluster *c)
{
    for (uint32_t i = 0; i < c->config.n_nodes; i++) {
        node_kill(&c->nodes[i]);
    }
    /* The service's last words go nowhere. */
    if (c->service) {
        operators_end(c);
    }
    service_free(c->service);
    for (size_t i = 0; i < c->n_conns; i++) {
        c->conns[i]->server_open = false;
        c->conns[i]->agent_open = false;
    }
    c->service = NULL;
    while (sim_next(&c->sim, &c->event)) { /* frees the frames under way */
        c->event.cb(c->event.arg, c->event.tag);
    }
    for (size_t i = 0; i < c->n_conns; i++) {
        mem_free(c->conns[i]);
    }
    disk_release(c);
    operators_release(c);
    histories_release(c);
    mem_free(c->conns);
    for (size_t i = 0; i < c->n_sealed; i++) {
        mem_free(c->sealed[i]->rank);
        mem_free(c->sealed[i]);
    }
    mem_free(c->sealed);
    mem_free(c->nodes);
    sim_release(&c->sim);
    sim_release(&c->wall);
}

void cluster_run(const struct cluster_config *config, struct cluster_result *ret)
{
    struct cluster *c = mem_zalloc(sizeof(*c));

    *ret = (struct cluster_result){0};
    c->config = *config;
    c->nodes = mem_array(config->n_nodes, sizeof(*c->nodes));
    c->config.step_ms = config->step_ms ? config->step_ms : STEP_MS;
    c->result = ret;
    sim_init(&c->sim, config->seed);
    sim_init(&c->wall, config->wall_seed);
    start(c);
    while (!is_over(c) && ret->violation[0] == '\0' && sim_next(&c->sim, &c->event)) {
        c->event.cb(c->event.arg, c->event.tag);
        if (c->sim.now_ms > config->faults_until_ms + PATIENCE_MS) {
            cluster_violate(c, "no end in sight");
        }
    }
    if (ret->violation[0] == '\0') {
        check_end(c);
    }
    ret->hash = c->sim.hash;
    ret->end_ms = c->sim.now_ms;
    c->is_ending = true;
    for (uint32_t i = 0; i < config->n_nodes; i++) {
        c->nodes[i].has_ended = true;
        c->nodes[i].exit_code = 0;
    }
    c->config.faults = 0;
    release(c);
    mem_free(c);
}
