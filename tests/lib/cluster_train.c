/* What workers do: rank 0 resumes, all do their steps together (each computes, then waits
 * for the others), rank 0 commits every fifth step; 0 after the last one, 80 when told to
 * abort or refused. Who is told to leave tells the others at the end of the step: all go
 * after it, with 83, when rank 0 has committed it. Each says where it is. A worker that
 * hangs does nothing of all this, until it goes on. */

#include "tests/lib/cluster.h"

#include "common/exit_code.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    COMMIT_EVERY = 5,
    ASK_AGAIN_PERCENT = 2,
    STEP_SPREAD = 3, /* the slowest takes so much longer */
    REPEAT_MS = 1000,
    LOST_MAX_MS = 1500, /* until it is noticed that a rank is gone */
    NOTICE_MS = 100,
    LOOK_MS = 50,    /* until it is known what a process does */
    STACK_MS = 3000, /* … and where it is */
};

static void begin_step(struct sim_worker *w);

struct sealed *train_sealed(const struct sim_worker *w)
{
    return cluster_sealed(w->node->cluster, w->job_life, w->generation);
}

static struct sim *sim_of(const struct sim_worker *w)
{
    return &w->node->cluster->sim;
}

/* --- to the agent --- */

static void say(struct sim_worker *w, const struct control *c)
{
    if (w->node->agent && w->node->paused_until_ms <= worker_now(w)) {
        agent_control(w->node->agent, w->slot, c, worker_now(w));
        node_after_call(w->node);
    } /* to a stopped agent: what matters is asked again */
}

static const char *phase_of(const struct sim_worker *w)
{
    switch (w->at) {
    case AT_START:
        return "load";
    case AT_WORK:
        return "forward";
    case AT_EXCHANGE:
        return "reduce";
    case AT_SAVE:
        return "save";
    }
    UNREACHABLE();
}

static void on_unsaid(void *arg, uint64_t tag);

/* A stopped agent reads it when it goes on. */
static void report(struct sim_worker *w)
{
    struct control c = {.type = CONTROL_PROGRESS, .step = w->step, .tok_s = 100};

    w->said_ms = worker_now(w);
    if (w->node->paused_until_ms > worker_now(w)) {
        if (!w->is_unsaid) {
            sim_at(sim_of(w), w->node->paused_until_ms + 1, on_unsaid, w, w->life);
        }
        w->is_unsaid = true;
        return;
    }
    c.waits_for = w->at == AT_EXCHANGE ? w->waits_for : 0;
    (void)snprintf(c.phase, sizeof(c.phase), "%s", phase_of(w));
    if (w->rank == 0) {
        (void)snprintf(c.loss, sizeof(c.loss), "%u.5", 1000 / ((unsigned)w->step + 1));
        c.loss_step = w->step;
    }
    say(w, &c);
}

static void on_unsaid(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;

    if (w->is_alive && tag == w->life) {
        w->is_unsaid = false;
        report(w);
    }
}

static void on_repeat(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;

    if (!w->is_alive || tag != w->life) {
        return;
    }
    if (w->hang != HANGS_STOPPED && w->said_ms + REPEAT_MS <= worker_now(w)) {
        report(w);
    }
    if (w->is_alive) {
        sim_after(sim_of(w), REPEAT_MS, on_repeat, w, w->life);
    }
}

/* A stopped agent is asked when it goes on. */
static bool ask(struct sim_worker *w, enum control_type type)
{
    struct control c = {.type = type, .run = (uint32_t)w->generation, .step = w->step};

    if (w->node->paused_until_ms > worker_now(w)) {
        return false;
    }
    (void)snprintf(c.hash, sizeof(c.hash), "%" PRIu64, w->step);
    say(w, &c);
    return true;
}

/* A commit that must be refused: the step is committed, with another manifest. */
static void ask_again(struct sim_worker *w)
{
    struct control c = {.type = CONTROL_COMMIT,
                        .run = (uint32_t)w->generation,
                        .step = w->start_step,
                        .hash = "another"};

    say(w, &c);
}

static void commit(struct sim_worker *w)
{
    w->asked_commit = ask(w, CONTROL_COMMIT);
}

/* --- the end --- */

/* `tag`: life; the last of its steps, or of those before it leaves, is committed. */
static void on_save(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;
    bool is_saved = w->rank != 0 || w->start_step == w->step;

    if (!w->is_alive || tag != w->life || w->hang != HANGS_NOT) {
        return;
    }
    if (is_saved) {
        worker_leave(w,
                     w->step == w->node->cluster->config.total_steps ? 0 : EXIT_LEFT);
        return;
    }
    if (!w->asked_commit) {
        commit(w);
    }
    if (w->is_alive && !w->asked_commit) { /* else its decision comes */
        sim_at(sim_of(w), w->node->paused_until_ms + 1, on_save, w, w->life);
    }
}

static void save_and_go(struct sim_worker *w)
{
    w->at = AT_SAVE;
    report(w);
    if (w->is_alive) {
        sim_after(sim_of(w), sim_between(sim_of(w), 1, 50), on_save, w, w->life);
    }
}

void train_decided(struct sim_worker *w, const struct control *decision)
{
    if (!decision->is_commit) {
        return;
    }
    w->asked_commit = false;
    w->start_step = decision->step; /* what it would resume from */
    if (w->at == AT_SAVE) {
        sim_after(sim_of(w), 1, on_save, w, w->life);
    }
}

/* --- steps --- */

/* All have done the step that this worker was in. */
static void go_on(struct sim_worker *w)
{
    const struct cluster_config *config = &w->node->cluster->config;
    const struct sealed *s = train_sealed(w);
    bool is_last;

    w->step++;
    ASSERT(w->step <= s->step);
    is_last = w->step == config->total_steps || w->step == s->leave_step;
    if (w->rank == 0 && !w->asked_commit && !is_last) {
        if (sim_chance(sim_of(w), ASK_AGAIN_PERCENT)) {
            ask_again(w);
        }
        if (w->is_alive && w->step % COMMIT_EVERY == 0) {
            commit(w);
        }
    }
    if (!w->is_alive) {
        return;
    }
    if (is_last) {
        save_and_go(w);
    } else {
        begin_step(w);
    }
}

static void finish_exchange(struct cluster *c, uint64_t job_life, uint64_t generation)
{
    struct sealed *s = cluster_sealed(c, job_life, generation);
    struct sim_worker *w;

    s->step++;
    s->n_arrived = 0;
    for (size_t i = 0; (w = cluster_worker(c, i)) != NULL; i++) {
        if (w->is_alive && w->job_life == job_life && w->generation == generation &&
            w->at == AT_EXCHANGE && w->hang == HANGS_NOT) {
            go_on(w);
        }
    }
}

static void arrive(struct sim_worker *w)
{
    struct sealed *s = train_sealed(w);

    w->at = AT_EXCHANGE;
    w->waits_for = 0;
    if (w->node->cluster->config.says_for_whom && w->world > 1) {
        w->waits_for = 1 + (w->rank + w->world - 1) % w->world; /* as in a ring */
    }
    report(w);
    if (!w->is_alive) {
        return;
    }
    if (w->is_leaving && s->leave_step == 0) {
        s->leave_step = s->step + 1;
    }
    if (++s->n_arrived == w->world) {
        finish_exchange(w->node->cluster, w->job_life, w->generation);
    }
}

static void on_computed(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;

    if (!w->is_alive || tag != w->life) {
        return;
    }
    if (w->hang != HANGS_NOT) {
        w->is_due = true;
    } else {
        arrive(w);
    }
}

static void begin_step(struct sim_worker *w)
{
    const uint64_t step_ms = w->node->cluster->config.step_ms;

    w->at = AT_WORK;
    report(w);
    if (!w->is_alive) {
        return;
    }
    worker_store_begin(w);
    sim_after(sim_of(w), sim_between(sim_of(w), step_ms, STEP_SPREAD * step_ms),
              on_computed, w, w->life);
}

void train_begin(struct sim_worker *w)
{
    report(w);
    if (w->is_alive && w->rank == 0) {
        (void)ask(w, CONTROL_RESUMED); /* its agent is there: on_begin */
    }
    if (!w->is_alive) {
        return;
    }
    if (w->node->cluster->config.repeats) {
        sim_after(sim_of(w), REPEAT_MS, on_repeat, w, w->life);
    }
    if (w->step == w->node->cluster->config.total_steps) {
        save_and_go(w);
    } else {
        begin_step(w);
    }
}

/* --- it is gone --- */

/* Whoever waits for the others notices; who computes, at the end of that. */
static void on_lost_peer(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;

    if (!w->is_alive || w->life != tag || w->hang != HANGS_NOT || w->at == AT_SAVE) {
        return;
    }
    if (w->at == AT_EXCHANGE) {
        worker_leave(w, EXIT_LOST_PEER);
    } else {
        sim_after(sim_of(w), NOTICE_MS, on_lost_peer, w, tag);
    }
}

void train_break(struct sim_worker *w)
{
    struct cluster *c = w->node->cluster;
    struct sealed *s = train_sealed(w);
    struct sim_worker *peer;

    if (!c->config.loses_peers || s->is_broken) {
        return;
    }
    s->is_broken = true;
    for (size_t i = 0; (peer = cluster_worker(c, i)) != NULL; i++) {
        if (peer->is_alive && peer->job_life == w->job_life &&
            peer->generation == w->generation) {
            sim_after(&c->sim, sim_between(&c->sim, 1, LOST_MAX_MS), on_lost_peer, peer,
                      peer->life);
        }
    }
}

/* --- it hangs --- */

void train_hang(struct sim_worker *w, bool is_stopped)
{
    if (!w->is_alive || w->hang != HANGS_NOT ||
        (!is_stopped && w->at != AT_WORK)) { /* it spins outside of exchanges */
        return;
    }
    w->hang = is_stopped ? HANGS_STOPPED : HANGS_SPINNING;
    w->hung_ms = worker_now(w);
    w->told_ms = 0;
    sim_note(sim_of(w), "node %u: worker %u %s", w->node->index, w->slot,
             is_stopped ? "is stopped" : "spins");
    watch_hang(w);
}

void train_resume(struct sim_worker *w)
{
    if (!w->is_alive || w->hang == HANGS_NOT) {
        return;
    }
    w->hang = HANGS_NOT;
    w->resumed_ms = worker_now(w);
    train_sealed(w)->resumed_ms = worker_now(w);
    sim_note(sim_of(w), "node %u: worker %u goes on", w->node->index, w->slot);
    if (w->at == AT_WORK && w->is_due) {
        w->is_due = false;
        arrive(w);
    } else if (w->at == AT_EXCHANGE && train_sealed(w)->step > w->step) {
        go_on(w);
    } else if (w->at == AT_SAVE) {
        on_save(w, w->life);
    }
}

/* --- what its agent finds out about its process --- */

static const char *state_of(const struct sim_worker *w)
{
    if (!w->is_alive) {
        return "";
    }
    if (w->hang != HANGS_NOT) {
        return w->hang == HANGS_STOPPED ? "T" : "R";
    }
    return w->at == AT_WORK ? "R" : "S futex_wait";
}

/* `tag`: life << 8 | what. */
static void on_found_out(void *arg, uint64_t tag)
{
    static const uint8_t stack[] = "#0 all_reduce";
    struct sim_worker *w = arg;
    struct node *n = w->node;
    struct msg_inspected m = {.generation = w->asked.generation,
                              .request = w->asked.request,
                              .rank = w->asked.rank,
                              .what = (uint8_t)tag};

    if (!n->agent || tag >> 8 != w->life) {
        return;
    }
    if (n->paused_until_ms > worker_now(w)) {
        sim_put_off(sim_of(w), &n->cluster->event, n->paused_until_ms);
        return;
    }
    if (m.what == INSPECT_STACK) {
        m.body = (struct bytes){stack, sizeof(stack) - 1};
    } else {
        (void)snprintf(m.state, sizeof(m.state), "%s", state_of(w));
    }
    agent_inspected(n->agent, &m);
}

enum { LOG_LINE = 16, LOG_END = 10, LOG_PIECE = 1024 };

/* One line of 16 bytes for each step of this life; all of it is an engine's, which has
 * no other output. */
static void tell_log(struct sim_worker *w, const struct msg_inspect *m)
{
    struct msg_inspected answer = {.generation = m->generation,
                                   .request = m->request,
                                   .rank = m->rank,
                                   .what = INSPECT_LOG};
    uint64_t first = train_sealed(w)->start_step;
    uint64_t end = (w->step + 1 - MIN(first, w->step + 1)) * LOG_LINE;
    char text[LOG_PIECE + 1] = "";
    uint64_t size = 0;

    if (m->follow == INSPECT_WILL_FOLLOW) {
        return;
    }
    if (m->generation != w->generation) { /* its file is gone */
        (void)snprintf(answer.state, sizeof(answer.state), "%s", INSPECT_GONE);
        agent_inspected(w->node->agent, &answer);
        return;
    }
    answer.offset = m->offset;
    if (m->offset == UINT64_MAX) {
        answer.offset = end - MIN(end, (uint64_t)LOG_END * LOG_LINE);
    }
    while (m->what == INSPECT_LOG && answer.offset + size < end && size < LOG_PIECE) {
        (void)snprintf(text + size, LOG_LINE + 1, "%15u\n",
                       (unsigned)((answer.offset + size) / LOG_LINE));
        size += LOG_LINE;
    }
    if (m->what == INSPECT_LOG_ERRORS || (!m->follow && answer.offset + size == end)) {
        (void)snprintf(answer.state, sizeof(answer.state), "%s", INSPECT_ENDED);
    }
    answer.body = (struct bytes){(const uint8_t *)text, size};
    agent_inspected(w->node->agent, &answer);
}

void train_inspect(struct sim_worker *w, const struct msg_inspect *m)
{
    bool is_stack = m->what == INSPECT_STACK;

    if (m->what == INSPECT_LOG || m->what == INSPECT_LOG_ERRORS) {
        tell_log(w, m);
        return;
    }
    if (!w->is_alive) {
        return; /* as supervisor_inspect.c has it */
    }
    w->asked = *m;
    sim_after(sim_of(w), sim_between(sim_of(w), 1, is_stack ? STACK_MS : LOOK_MS),
              on_found_out, w, w->life << 8 | m->what);
}
