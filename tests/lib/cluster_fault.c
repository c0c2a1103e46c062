/* What goes wrong, and what operators do: one thing after the other, at random, until
 * everything heals. */

#include "tests/lib/cluster.h"

#include <signal.h>

enum {
    DOOMED_PERCENT = 70, /* of durable servers: killed while they write */
    HANG_MAX_MS = 60000,
};

static void on_node_back(void *arg, uint64_t tag)
{
    struct node *n = arg;

    (void)tag;
    n->returns--;
    if (n->cluster->is_cancelled) {
        n->has_ended = n->has_ended || !n->agent; /* who would start it again? */
    } else if (!n->has_ended || n->exit_code >= 128 ||
               (n->is_drained && !n->was_closed)) { /* else the job is over for it */
        node_start(n);
    }
}

void faults_start_after(struct node *n, uint64_t delay_ms)
{
    n->returns++;
    sim_after(&n->cluster->sim, delay_ms, on_node_back, n, 0);
}

/* Never shorter: what is held is to come at the time that was announced. */
static void extend(uint64_t *until_ms, uint64_t to_ms)
{
    *until_ms = MAX(*until_ms, to_ms);
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
        train_sealed(w)->rank[w->rank].is_culprit = true;
        worker_die(w, SIGKILL);
    }
}

static void tell_to_leave(struct cluster *c, struct node *n)
{
    if (n->agent && n->paused_until_ms <= c->sim.now_ms) {
        watch_told(n);
        agent_signal(n->agent, sim_chance(&c->sim, 50) ? SIGTERM : SIGUSR1,
                     c->sim.now_ms);
        node_after_call(n);
        faults_start_after(n, CLUSTER_AWAY_MS);
    }
}

/* `tag`: the worker's life. */
static void on_resume(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;

    if (tag == w->life) {
        train_resume(w);
    }
}

/* Until it is killed, where hangs are not only told. */
static void hang_worker(struct cluster *c, struct node *n)
{
    struct sim_worker *w = &n->workers[sim_random(&c->sim, c->config.nproc)];
    uint64_t for_ms =
        c->config.reports_hangs ? sim_between(&c->sim, 1000, 20000) : HANG_MAX_MS;

    if (w->is_alive) {
        train_hang(w, sim_chance(&c->sim, 50));
        sim_after(&c->sim, for_ms, on_resume, w, w->life);
    }
}

static void on_space(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    (void)tag;
    if (c->service && c->sim.now_ms >= c->full_until_ms) {
        service_set_space(c->service, SPACE_FINE);
        serving_after_call(c);
    }
}

/* What a reload of the configuration sets, and what the disk says. */
static void fill_disk(struct cluster *c)
{
    static const enum durable_space spaces[] = {SPACE_LOW, SPACE_SCARCE, SPACE_SPENT};
    enum durable_space space = spaces[sim_random(&c->sim, ARRAY_LEN(spaces))];
    uint64_t for_ms = sim_between(&c->sim, 100, 4000);
    size_t store_mib = (size_t)sim_between(&c->sim, 16, 1024);

    if (!c->service) {
        return;
    }
    service_set_store(c->service, store_mib << 20, store_mib << 19);
    if (!c->config.is_durable) {
        return; /* it has none */
    }
    service_set_space(c->service, space);
    serving_after_call(c);
    extend(&c->full_until_ms, c->sim.now_ms + for_ms);
    if (space != SPACE_LOW) {
        extend(&c->scarce_until_ms, c->full_until_ms);
    }
    sim_at(&c->sim, c->full_until_ms, on_space, c, 0);
}

static void ask_something(struct cluster *c)
{
    static const char *const verbs[] = {"status",  "ps",   "events",
                                        "history", "logs", "bogus"};

    operator_comes(c, verbs[sim_random(&c->sim, ARRAY_LEN(verbs))]);
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
        faults_start_after(n, sim_between(sim, 100, 5000));
        break;
    case FAULT_AGENT_PAUSE:
        extend(&n->paused_until_ms, sim->now_ms + sim_between(sim, 100, 8000));
        break;
    case FAULT_SERVER:
        if (c->service && c->config.is_durable && sim_chance(sim, DOOMED_PERCENT)) {
            c->is_doomed = true;
        } else if (c->service) {
            serving_kill(c);
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
        hang_worker(c, n);
        break;
    case FAULT_ASK:
        ask_something(c);
        break;
    case FAULT_DRAIN:
        operator_comes(c, "drain_one");
        break;
    case FAULT_FULL:
        fill_disk(c);
        break;
    case FAULT_COPY:
        copy_happens(c);
        break;
    case FAULT_DEAF:
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

static void on_cancel(void *arg, uint64_t tag)
{
    (void)tag;
    operator_comes(arg, "cancel");
}

void faults_begin(struct cluster *c)
{
    sim_after(&c->sim, 1000, on_fault, c, 0);
    if (c->config.cancel_ms > 0) {
        sim_at(&c->sim, c->config.cancel_ms, on_cancel, c, 0);
    }
}
