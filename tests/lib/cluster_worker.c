/* A worker: hello, rank 0 resumes, steps with a SET of its own key, an ADD to its own
 * counter, an APPEND to its own text and a GET of a neighbour's key, rank 0 commits every fifth step; 0 after the last step, 80 when it is
 * told to abort or is refused, 83 when it is told to leave; 2 when it refuses the size
 * of the world, which it does instead of all that. */

#include "tests/lib/cluster.h"

#include "common/exit_code.h"
#include "common/tcpstore.h"
#include "common/wire.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    COMMIT_EVERY = 5,
    BUF_MAX = 65536,
    VALUE_SIZE = 8,
    HOUR_MS = 3600 * 1000,
    HANG_PERCENT = 5,
    ASK_AGAIN_PERCENT = 2,
};

#define EPOCH_MS UINT64_C(1700000000000)

static void on_step(void *arg, uint64_t tag);

static uint64_t now(const struct sim_worker *w)
{
    return w->node->cluster->sim.now_ms;
}

/* --- the end --- */

/* Unix time, where nodes do not agree about it, and it is set anew again and again. */
static uint64_t wall_ms(const struct sim_worker *w)
{
    struct cluster *c = w->node->cluster;
    uint64_t right_ms = EPOCH_MS + now(w);

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
    if (w->node->paused_until_ms > now(w)) {
        sim_put_off(&w->node->cluster->sim, &w->node->cluster->event,
                    w->node->paused_until_ms);
        return;
    }
    end.wall_ms = wall_ms(w);
    agent_drained(w->node->agent, w->slot, &end, now(w));
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

void worker_close_store(struct sim_worker *w)
{
    relay_flow_free(w->flow);
    w->flow = NULL;
    buf_release(&w->to_relay);
    buf_release(&w->from_relay);
}

void worker_die(struct sim_worker *w, int status)
{
    struct sim *sim = &w->node->cluster->sim;

    w->is_alive = false;
    sim_note(sim, "node %u: worker %u ends with %d", w->node->index, w->slot, status);
    if (w->flow) {
        relay_flow_end(w->flow);
    }
    sim_after(sim, sim_between(sim, 1, 5), on_exited, w,
              w->life << 16 | (uint64_t)(unsigned)status);
}

static void leave_with(struct sim_worker *w, int code)
{
    worker_die(w, code << 8);
}

/* --- the store --- */

static void on_flow_send(void *arg, const struct msg *m)
{
    const struct sim_worker *w = arg;

    if (w->node->agent) { /* else it is being buried */
        agent_relay(w->node->agent, m);
    }
}

static void on_flow_reply(void *arg, const uint8_t *bytes, size_t size)
{
    struct sim_worker *w = arg;

    if (w->is_alive && buf_append(&w->from_relay, bytes, size) < 0) {
        UNREACHABLE();
    }
}

static void put_u64(struct buf *b, uint64_t v)
{
    if (wire_put_u64(b, v) < 0) {
        UNREACHABLE();
    }
}

static void put_key(struct buf *b, enum tcpstore_op op, char kind, uint32_t rank)
{
    char key[16];
    int n = snprintf(key, sizeof(key), "/%c%u", kind, rank);

    if (wire_put_u8(b, (uint8_t)op) < 0) {
        UNREACHABLE();
    }
    put_u64(b, (uint64_t)n);
    if (buf_append(b, key, (size_t)n) < 0) {
        UNREACHABLE();
    }
}

static void pump(struct sim_worker *w)
{
    if (relay_flow_input(w->flow, &w->to_relay) < 0) {
        UNREACHABLE();
    }
}

static void begin_set(struct sim_worker *w)
{
    w->store = STORE_SET;
    w->set_value = w->step + 1;
    put_key(&w->to_relay, TCPSTORE_SET, 'k', w->rank);
    put_u64(&w->to_relay, VALUE_SIZE);
    put_u64(&w->to_relay, w->set_value);
    pump(w);
}

static void begin_add(struct sim_worker *w)
{
    w->store = STORE_ADD;
    put_key(&w->to_relay, TCPSTORE_ADD, 'n', w->rank);
    put_u64(&w->to_relay, 1);
    pump(w);
}

/* Neither lost nor done twice. */
static void check_add(struct sim_worker *w)
{
    struct wire_reader r;
    uint64_t value;

    wire_reader_init(&r, buf_bytes(&w->from_relay), buf_len(&w->from_relay));
    value = wire_get_u64(&r);
    buf_clear(&w->from_relay);
    w->n_added++;
    if (r.bad || value != w->n_added) {
        cluster_violate(w->node->cluster,
                        "generation %" PRIu64 ": the counter of rank %u is %" PRIu64
                        " after %" PRIu64 " times 1",
                        w->generation, w->rank, value, w->n_added);
    }
}

static void begin_append(struct sim_worker *w)
{
    w->store = STORE_APPEND;
    put_key(&w->to_relay, TCPSTORE_APPEND, 't', w->rank);
    put_u64(&w->to_relay, 1);
    if (wire_put_u8(&w->to_relay, 'x') < 0) {
        UNREACHABLE();
    }
    pump(w);
}

static void begin_length(struct sim_worker *w)
{
    w->store = STORE_LENGTH;
    put_key(&w->to_relay, TCPSTORE_GET, 't', w->rank);
    pump(w);
}

static void check_length(struct sim_worker *w)
{
    struct wire_reader r;
    uint64_t size;

    wire_reader_init(&r, buf_bytes(&w->from_relay), buf_len(&w->from_relay));
    size = wire_get_u64(&r);
    buf_clear(&w->from_relay);
    if (r.bad || size != w->n_added) {
        cluster_violate(w->node->cluster,
                        "generation %" PRIu64 ": the text of rank %u has %" PRIu64
                        " bytes after %" PRIu64 " times one",
                        w->generation, w->rank, size, w->n_added);
    }
}

static void begin_get(struct sim_worker *w)
{
    struct sim *sim = &w->node->cluster->sim;

    w->store = STORE_GET;
    w->target = (uint32_t)sim_random(sim, w->world);
    w->floor =
        cluster_sealed(w->node->cluster, w->job_life, w->generation)->acked[w->target];
    put_key(&w->to_relay, TCPSTORE_GET, 'k', w->target);
    pump(w);
}

/* A write that was acknowledged is read by everybody after. */
static void check_get(struct sim_worker *w)
{
    struct wire_reader r;
    uint64_t size;
    uint64_t value;

    wire_reader_init(&r, buf_bytes(&w->from_relay), buf_len(&w->from_relay));
    size = wire_get_u64(&r);
    value = size == VALUE_SIZE ? wire_get_u64(&r) : 0;
    buf_clear(&w->from_relay);
    if (r.bad || value < w->floor) {
        cluster_violate(w->node->cluster,
                        "generation %" PRIu64 ": rank %u read %" PRIu64
                        " of rank %u after %" PRIu64 " was acknowledged",
                        w->generation, w->rank, value, w->target, w->floor);
    }
}

void worker_store_reply(struct sim_worker *w, const struct msg_store_reply *m)
{
    struct sealed *s;

    if (!w->flow || m->client != (uint32_t)w->life) {
        return;
    }
    if (relay_flow_reply(w->flow, m) < 0) {
        cluster_violate(w->node->cluster, "the service closes a store connection");
        return;
    }
    if (!w->is_alive || !relay_flow_is_idle(w->flow)) {
        return;
    }
    if (w->store == STORE_SET) {
        s = cluster_sealed(w->node->cluster, w->job_life, w->generation);
        s->acked[w->rank] = MAX(s->acked[w->rank], w->set_value);
        begin_add(w);
    } else if (w->store == STORE_ADD) {
        check_add(w);
        begin_append(w);
    } else if (w->store == STORE_APPEND) {
        begin_length(w);
    } else if (w->store == STORE_LENGTH) {
        check_length(w);
        begin_get(w);
    } else if (w->store == STORE_GET) {
        check_get(w);
        w->store = STORE_IDLE;
    }
}

static void open_store(struct sim_worker *w)
{
    static const uint8_t hello[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};

    w->flow = relay_flow_new(&(struct relay_flow_config){
        .generation = w->generation,
        .client = (uint32_t)w->life,
        .max_held = BUF_MAX,
        .arg = w,
        .send = on_flow_send,
        .reply = on_flow_reply,
    });
    buf_init(&w->to_relay, BUF_MAX);
    buf_init(&w->from_relay, BUF_MAX);
    if (buf_append(&w->to_relay, hello, sizeof(hello)) < 0) {
        UNREACHABLE();
    }
    w->store = STORE_IDLE;
    w->n_added = 0;
}

/* --- towards the agent --- */

struct said {
    uint64_t life;
    struct control c;
};

static void say(struct sim_worker *w, struct control c)
{
    if (w->node->agent && w->node->paused_until_ms <= now(w)) {
        agent_control(w->node->agent, w->slot, &c, now(w));
        node_after_call(w->node);
    } /* to a stopped agent: what matters is asked again */
}

static void ask(struct sim_worker *w, enum control_type type)
{
    struct control c = {.type = type, .run = (uint32_t)w->generation, .step = w->step};

    if (w->node->paused_until_ms > now(w)) {
        return; /* the next step asks */
    }
    (void)snprintf(c.hash, sizeof(c.hash), "%" PRIu64, w->step);
    w->asked_resume = w->asked_resume || type == CONTROL_RESUMED;
    w->asked_commit = type == CONTROL_COMMIT;
    say(w, c);
}

/* A commit that must be refused: the step is committed, with another manifest. */
static void ask_again(struct sim_worker *w)
{
    struct control c = {.type = CONTROL_COMMIT,
                        .run = (uint32_t)w->generation,
                        .step = w->start_step,
                        .hash = "another"};

    say(w, c);
}

/* --- steps --- */

static void do_step(struct sim_worker *w)
{
    uint64_t total = w->node->cluster->config.total_steps;

    if (w->rank == 0 && !w->asked_resume) {
        ask(w, CONTROL_RESUMED);
    } else if (w->step < total) {
        w->step++;
        say(w, (struct control){.type = CONTROL_PROGRESS, .step = w->step});
    }
    if (!w->is_alive) {
        return;
    }
    if (w->flow && w->store == STORE_IDLE) {
        begin_set(w);
    }
    if (w->rank == 0 && w->asked_resume && !w->asked_commit &&
        sim_chance(&w->node->cluster->sim, ASK_AGAIN_PERCENT)) {
        ask_again(w);
    }
    if (w->rank == 0 && !w->asked_commit && w->asked_resume &&
        w->step > w->start_step && (w->step % COMMIT_EVERY == 0 || w->step == total)) {
        ask(w, CONTROL_COMMIT);
    }
}

static void refuse(struct sim_worker *w)
{
    struct control c = {.type = CONTROL_REFUSE,
                        .code = EXIT_MISTAKE,
                        .max_world = w->node->cluster->config.max_world,
                        .text = "too many ranks"};

    say(w, c);
    if (w->is_alive) {
        leave_with(w, EXIT_MISTAKE);
    }
}

/* In the first step, or when the agent goes on. */
static void on_refuse(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;

    if (!w->is_alive || tag != w->life) {
        return;
    }
    if (w->node->paused_until_ms > now(w)) {
        sim_put_off(&w->node->cluster->sim, &w->node->cluster->event,
                    w->node->paused_until_ms);
        return;
    }
    refuse(w);
}

static void on_step(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;
    struct sim *sim = &w->node->cluster->sim;
    bool is_done;

    if (!w->is_alive || tag != w->life) {
        return;
    }
    do_step(w);
    if (!w->is_alive) {
        return;
    }
    is_done = w->step == w->node->cluster->config.total_steps && !w->asked_commit &&
              (w->rank != 0 || w->start_step == w->step);
    if (is_done) {
        leave_with(w, 0);
    } else {
        sim_after(sim, sim_between(sim, 50, 150), on_step, w, w->life);
    }
}

void worker_spawn(struct sim_worker *w, const struct agent_round *round)
{
    struct node *n = w->node;
    struct sim *sim = &n->cluster->sim;
    bool refuses;

    ASSERT(!w->is_alive);
    w->life++;
    w->is_alive = true;
    w->is_leaving = false;
    w->is_hung =
        (n->cluster->config.faults & FAULT_HANG) && sim_chance(sim, HANG_PERCENT);
    w->asked_resume = false;
    w->asked_commit = false;
    w->rank = round->topology.first_rank + w->slot;
    w->world = round->topology.world_size;
    w->job_life = n->conn->job_life;
    w->generation = round->generation;
    w->step = 0;
    worker_close_store(w);
    open_store(w);
    agent_spawned(n->agent, w->slot, 1000 + w->slot, sim->now_ms);
    refuses =
        n->cluster->config.max_world > 0 && w->world > n->cluster->config.max_world;
    sim_after(sim, sim_between(sim, 20, 300), refuses ? on_refuse : on_step, w,
              w->life);
}

/* `tag`: life << 16 | status; a worker that was told to go, goes. */
static void on_going(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;

    if (w->is_alive && tag >> 16 == w->life) {
        worker_die(w, (int)(tag & 0xffff));
    }
}

static void go(struct sim_worker *w, uint64_t within_ms, unsigned code)
{
    struct sim *sim = &w->node->cluster->sim;

    if (!w->is_hung) {
        sim_after(sim, sim_between(sim, 1, within_ms), on_going, w,
                  w->life << 16 | (uint64_t)code << 8);
    }
}

static void on_decision(struct sim_worker *w, const struct control *c)
{
    if (!c->accepted && c->is_commit && c->step <= w->start_step) {
        return; /* ask_again: as it should be */
    }
    if (!c->accepted) {
        go(w, 5, EXIT_LOST_PEER);
    } else if (c->is_commit) {
        w->asked_commit = false;
        w->start_step = c->step; /* what it would resume from */
    }
}

void worker_control(struct sim_worker *w, const struct control *c)
{
    if (!w->is_alive) {
        return;
    }
    switch (c->type) {
    case CONTROL_START:
        w->start_step = c->step;
        w->step = c->step;
        break;
    case CONTROL_ABORT:
        go(w, 50, EXIT_LOST_PEER);
        break;
    case CONTROL_LEAVE:
        go(w, 300, EXIT_LEFT);
        break;
    case CONTROL_DECISION:
        on_decision(w, c);
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
    if (w->is_alive && (signal == SIGKILL || !w->is_hung)) {
        worker_die(w, signal);
    }
}
