/* The run: nodes start, faults come and go, everything heals, and the job must come to
 * its end. */

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
    DOOMED_PERCENT = 70,   /* of durable servers: killed while they write */
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
    for (size_t i = c->n_sealed; i > 0; i--) {
        struct sealed *s = &c->sealed[i - 1];

        if (s->job_life == job_life && s->generation == generation) {
            return s;
        }
    }
    c->sealed = mem_grow(c->sealed, c->n_sealed + 1, sizeof(*c->sealed));
    c->sealed[c->n_sealed] =
        (struct sealed){.job_life = job_life, .generation = generation};
    return &c->sealed[c->n_sealed++];
}

/* --- faults --- */

static void on_node_back(void *arg, uint64_t tag)
{
    struct node *n = arg;

    (void)tag;
    n->returns--;
    if (!n->has_ended || n->exit_code >= 128) { /* else the job is over for it */
        node_start(n);
    }
}

static void come_back_after(struct cluster *c, struct node *n, uint64_t delay_ms)
{
    n->returns++;
    sim_after(&c->sim, delay_ms, on_node_back, n, 0);
}

static void on_fast(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    (void)tag;
    c->is_slow = false;
}

static void kill_worker(struct cluster *c, struct node *n)
{
    struct sim_worker *w = &n->workers[sim_random(&c->sim, c->config.nproc)];

    if (w->is_alive) {
        worker_die(w, SIGKILL);
    }
}

static void tell_to_leave(struct cluster *c, struct node *n)
{
    if (n->agent && n->paused_until_ms <= c->sim.now_ms) {
        agent_signal(n->agent, SIGTERM, c->sim.now_ms);
        node_after_call(n);
        come_back_after(c, n, 60000); /* longer than any grace */
    }
}

/* Never shorter: what is held is to come at the time that was announced. */
static void extend(uint64_t *until_ms, uint64_t to_ms)
{
    *until_ms = MAX(*until_ms, to_ms);
}

static void inject(struct cluster *c, enum cluster_fault fault, struct node *n)
{
    struct sim *sim = &c->sim;

    sim_note(sim, "fault %d at node %u", (int)fault, n->index);
    switch (fault) {
    case FAULT_WORKER:
        kill_worker(c, n);
        break;
    case FAULT_AGENT:
        node_kill(n);
        come_back_after(c, n, sim_between(sim, 100, 5000));
        break;
    case FAULT_AGENT_PAUSE:
        extend(&n->paused_until_ms, sim->now_ms + sim_between(sim, 100, 8000));
        break;
    case FAULT_SERVER:
        if (c->service && c->config.is_durable && sim_chance(sim, DOOMED_PERCENT)) {
            c->is_doomed = true;
        } else if (c->service) {
            net_kill_server(c);
        }
        break;
    case FAULT_SERVER_PAUSE:
        extend(&c->server_paused_until_ms, sim->now_ms + sim_between(sim, 100, 10000));
        break;
    case FAULT_PARTITION:
        net_cut(n, sim->now_ms + sim_between(sim, 100, 25000));
        break;
    case FAULT_RESET:
        if (n->conn) {
            net_break(n->conn);
        }
        break;
    case FAULT_SLOW:
        c->is_slow = true;
        sim_after(sim, sim_between(sim, 1000, 10000), on_fast, c, 0);
        break;
    case FAULT_LEAVE:
        tell_to_leave(c, n);
        break;
    case FAULT_HANG:
    case FAULT_ALL:
        break; /* a property of workers; no fault */
    }
}

/* One of those that are enabled; 0: none is. */
static unsigned choose_fault(struct cluster *c)
{
    unsigned enabled[CLUSTER_FAULTS];
    unsigned n = 0;

    for (unsigned i = 0; i < CLUSTER_FAULTS; i++) {
        if (c->config.faults >> i & 1) {
            enabled[n++] = 1U << i;
        }
    }
    return n > 0 ? enabled[sim_random(&c->sim, n)] : 0;
}

static void on_fault(void *arg, uint64_t tag)
{
    struct cluster *c = arg;
    unsigned bit = choose_fault(c);
    struct node *n = &c->nodes[sim_random(&c->sim, c->config.n_nodes)];

    (void)tag;
    if (c->sim.now_ms >= c->config.faults_until_ms) {
        return;
    }
    if (bit != 0) {
        c->result->n_faults++;
        inject(c, (enum cluster_fault)bit, n);
    }
    sim_after(&c->sim, sim_between(&c->sim, 100, 3000), on_fault, c, 0);
}

/* --- the run --- */

static bool is_over(const struct cluster *c)
{
    for (uint32_t i = 0; i < c->config.n_nodes; i++) {
        if (!c->nodes[i].has_ended || c->nodes[i].returns > 0) {
            return false;
        }
    }
    return c->sim.now_ms > c->config.faults_until_ms ||
           c->config.faults == 0; /* else somebody may be started again */
}

static void start(struct cluster *c)
{
    net_start_server(c);
    for (uint32_t i = 0; i < c->config.n_nodes; i++) {
        struct node *n = &c->nodes[i];

        n->cluster = c;
        n->index = i;
        for (uint32_t k = 0; k < c->config.nproc; k++) {
            n->workers[k] =
                (struct sim_worker){.node = n, .slot = k, .life = (uint64_t)k << 24};
            buf_init(&n->workers[k].to_relay, 0);
            buf_init(&n->workers[k].from_relay, 0);
        }
        come_back_after(c, n, sim_random(&c->sim, 2000));
    }
    sim_after(&c->sim, 1000, on_fault, c, 0);
}

/* Some node has seen the job done; the others too, or they came when it was over. */
static void check_end(struct cluster *c)
{
    for (uint32_t i = 0; i < c->config.n_nodes; i++) {
        const struct node *n = &c->nodes[i];

        if (n->exit_code == 0) {
            c->result->n_done++;
        } else if (n->exit_code != EXIT_RENDEZVOUS && n->exit_code < 128) {
            cluster_violate(c, "node %u ended with %d", i, n->exit_code);
        }
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
    mem_free(c->conns);
    mem_free(c->sealed);
    sim_release(&c->sim);
    sim_release(&c->wall);
}

void cluster_run(const struct cluster_config *config, struct cluster_result *ret)
{
    struct cluster *c = mem_zalloc(sizeof(*c));

    *ret = (struct cluster_result){0};
    c->config = *config;
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
