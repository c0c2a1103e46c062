/* PURE. The workers of one generation: started together, told to stop together, each
 * one's end reported at once, again with its last words, and after a reconnect. */

#include "launcher/agent_core.h"

#include "common/err.h"
#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum {
    EXIT_NOT_STARTED = 127,
};

static void forget(struct agent *a)
{
    for (uint32_t i = 0; i < a->config.nproc; i++) {
        mem_free(a->workers[i].ended);
        a->workers[i] = (struct worker){0};
    }
    memset(a->requests, 0, sizeof(a->requests));
    a->has_refused = false;
}

void workers_release(struct agent *a)
{
    forget(a);
}

/* --- start --- */

static void send_start(struct agent *a, uint32_t slot)
{
    struct control c = {
        .type = CONTROL_START,
        .cluster = a->cluster,
        .run = a->commit_run,
        .step = a->commit_step,
    };

    memcpy(c.hash, a->commit_hash, sizeof(c.hash));
    a->config.actions.control(a->config.actions.arg, slot, &c);
}

/* Of several nodes most are silent otherwise: rank 0 speaks for all. One that is alone
 * may have named itself as the endpoint, as others may have themselves. */
static void say_place(struct agent *a, const struct topology *t)
{
    const struct agent_config *c = &a->config;
    char ranks[32] = "";

    if (t->group_world < 2) {
        if (c->max_nodes > 1) {
            agent_say(a, LOG_LEVEL_INFO,
                      "runs on this node alone, of %u to %u; others may join job %s "
                      "at %s",
                      c->min_nodes, c->max_nodes, c->job, c->endpoint);
        }
        return;
    }
    if (t->nproc > 1) {
        (void)snprintf(ranks, sizeof(ranks), "s %u–%u", t->first_rank,
                       t->first_rank + t->nproc - 1);
    } else {
        (void)snprintf(ranks, sizeof(ranks), " %u", t->first_rank);
    }
    agent_say(a, LOG_LEVEL_INFO, "joined as node %u of %u, rank%s", t->group_rank,
              t->group_world, ranks);
}

static void start_all(struct agent *a, const struct agent_round *round)
{
    forget(a);
    inspect_note_past(a);
    a->generation = round->generation;
    a->failures = round->failures;
    a->group_rank = (int32_t)round->topology.group_rank;
    a->first_rank = round->topology.first_rank;
    say_place(a, &round->topology);
    for (uint32_t i = 0; i < a->config.nproc; i++) {
        a->workers[i].state = WORKER_LIVE;
        a->workers[i].is_engine = a->config.maybe_engine;
        a->workers[i].started_ms = a->now_ms;
    }
    a->config.actions.spawn(a->config.actions.arg, round);
    for (uint32_t i = 0; i < a->config.nproc; i++) {
        send_start(a, i);
    }
}

int workers_start(struct agent *a, const struct msg_round *m)
{
    struct agent_round round = {.generation = m->generation,
                                .failures = m->failures,
                                .n_nodes = msg_round_nodes(m)};
    struct msg_node *nodes;
    int rv = topology_make(m, a->config.nproc, &round.topology);

    if (rv < 0 || m->nodes.size / MSG_NODE_SIZE < round.n_nodes) {
        return ERR_PROTOCOL;
    }
    nodes = mem_array(round.n_nodes, sizeof(*nodes));
    rv = msg_nodes_decode(m->nodes, nodes, round.n_nodes);
    if (rv == 0) {
        round.nodes = nodes;
        a->commit_run = m->commit_run;
        a->commit_step = m->commit_step;
        memcpy(a->commit_hash, m->commit_hash, sizeof(a->commit_hash));
        start_all(a, &round);
    }
    mem_free(nodes);
    return rv;
}

void agent_spawned(struct agent *a, uint32_t slot, uint32_t pid, uint64_t now_ms)
{
    a->now_ms = now_ms;
    ASSERT(slot < a->config.nproc);
    a->workers[slot].pid = pid;
    progress_send(a, slot);
}

/* --- stop --- */

static void note_told(struct agent *a, struct worker *w)
{
    w->told_ms = w->is_told ? w->told_ms : a->now_ms;
    w->is_told = true;
}

/* Whoever is healthy may take the time that the user gave; survivors of a failure may
 * hang for ever in what they wait for, and the restart waits for them. */
static uint64_t grace_ms(const struct agent *a, bool is_engine, enum stop_mode mode)
{
    uint64_t at_most = mode == STOP_LEAVE ? UINT64_MAX
                       : is_engine        ? AGENT_GRACE_ENGINE_MS
                                          : AGENT_GRACE_FAILED_MS;

    return MIN(a->config.shutdown_ms, at_most);
}

static void tell(struct agent *a, uint32_t slot, enum stop_mode mode, int signal)
{
    struct worker *w = &a->workers[slot];
    struct control c = {.type = mode == STOP_LEAVE ? CONTROL_LEAVE : CONTROL_ABORT};
    uint64_t kill_ms = a->now_ms + grace_ms(a, w->is_engine, mode);

    w->kill_ms = w->is_told ? MIN(w->kill_ms, kill_ms) : kill_ms;
    note_told(a, w);
    if (w->is_engine) {
        a->config.actions.control(a->config.actions.arg, slot, &c);
    } else {
        a->config.actions.kill(a->config.actions.arg, slot, signal);
    }
}

/* A worker that is told twice is told twice only when the second is harder. */
void workers_stop(struct agent *a, enum stop_mode mode, int signal)
{
    for (uint32_t i = 0; i < a->config.nproc; i++) {
        struct worker *w = &a->workers[i];
        bool is_news =
            !w->is_told || (w->is_engine && mode == STOP_ABORT && !w->is_aborted);

        if (w->state == WORKER_LIVE && is_news) {
            w->is_aborted = mode == STOP_ABORT;
            tell(a, i, mode, signal);
        }
    }
}

uint32_t workers_tell_again(struct agent *a, int signal)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < a->config.nproc; i++) {
        struct worker *w = &a->workers[i];

        if (w->state == WORKER_LIVE && !w->is_engine && !w->is_killed) {
            w->kill_ms = a->now_ms + a->config.shutdown_ms;
            a->config.actions.kill(a->config.actions.arg, i, signal);
            n++;
        }
    }
    return n;
}

static void kill_one(struct agent *a, uint32_t slot)
{
    a->workers[slot].kill_ms = 0;
    a->workers[slot].is_killed = true;
    note_told(a, &a->workers[slot]);
    a->config.actions.kill(a->config.actions.arg, slot, SIGKILL);
}

uint32_t workers_kill(struct agent *a)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < a->config.nproc; i++) {
        if (a->workers[i].state == WORKER_LIVE && !a->workers[i].is_killed) {
            kill_one(a, i);
            n++;
        }
    }
    return n;
}

void workers_kill_hung(struct agent *a, uint32_t rank)
{
    uint32_t slot = rank - a->first_rank; /* of a rank before ours: too large */

    if (slot < a->config.nproc && a->workers[slot].state == WORKER_LIVE &&
        !a->workers[slot].is_killed) {
        a->workers[slot].is_aborted = true; /* there is no harder word */
        kill_one(a, slot);
    }
}

uint32_t workers_live(const struct agent *a, bool are_engines)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < a->config.nproc; i++) {
        const struct worker *w = &a->workers[i];

        n += w->state == WORKER_LIVE && w->is_engine == are_engines;
    }
    return n;
}

/* What becomes of other programs, which got a signal, is told with the KILL. */
static void say_unsaved(struct agent *a, uint32_t n_engines)
{
    if (n_engines > 0) {
        agent_say(
            a, LOG_LEVEL_WARN,
            "the workers have not saved and left within %llu s%s: killed; what "
            "they have done since the last checkpoint is lost",
            (unsigned long long)a->config.shutdown_ms / 1000,
            a->link == LINK_UP ? "" : " (without the rendezvous nothing is committed)");
    }
}

void workers_tick(struct agent *a)
{
    uint32_t n_engines = 0;

    for (uint32_t i = 0; i < a->config.nproc; i++) {
        struct worker *w = &a->workers[i];

        progress_tick(a, i);
        if (w->state == WORKER_LIVE && w->kill_ms != 0 && w->kill_ms <= a->now_ms) {
            n_engines += w->is_engine && !w->is_aborted;
            kill_one(a, i);
        }
    }
    say_unsaved(a, n_engines);
}

uint64_t workers_deadline(const struct agent *a)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = 0; i < a->config.nproc; i++) {
        const struct worker *w = &a->workers[i];

        if (w->state == WORKER_LIVE && w->kill_ms != 0) {
            first = MIN(first, w->kill_ms);
        }
        first = MIN(first, progress_deadline(w));
    }
    return first;
}

/* --- the end --- */

/* An engine's 0 means that training is complete, also when it was told to stop; another
 * program's only when it was not. */
bool workers_are_done(const struct agent *a)
{
    for (uint32_t i = 0; i < a->config.nproc; i++) {
        const struct worker *w = &a->workers[i];

        if (w->code != 0 || w->signal != 0 || (w->is_told && !w->is_engine)) {
            return false;
        }
    }
    return true;
}

static bool are_gone(const struct agent *a)
{
    for (uint32_t i = 0; i < a->config.nproc; i++) {
        if (a->workers[i].state != WORKER_ENDED) {
            return false;
        }
    }
    return true;
}

static void send_ended(struct agent *a, uint32_t slot, const struct agent_end *end)
{
    struct worker *w = &a->workers[slot];
    struct msg *m = mem_zalloc(sizeof(*m));
    struct msg_rank_ended *e = &m->u.rank_ended;

    m->type = MSG_RANK_ENDED;
    e->generation = a->generation;
    e->rank = a->first_rank + slot;
    e->local_rank = slot;
    e->pid = w->pid;
    e->exit_code = w->code;
    e->signal = w->signal;
    e->stopped = w->is_told && !w->has_failed;
    e->engine = w->is_engine;
    e->step = w->step;
    e->ended_ms = link_service_ms(a, w->ended_ms);
    e->wall_ms = end->wall_ms;
    (void)snprintf(e->program, sizeof(e->program), "%s", a->config.program);
    (void)snprintf(e->log_path, sizeof(e->log_path), "%s", end->log_path);
    (void)snprintf(e->message, sizeof(e->message), "%s", end->message);
    (void)snprintf(e->tail, sizeof(e->tail), "%s", end->tail);
    (void)snprintf(e->error, sizeof(e->error), "%s", end->error ? end->error : "");
    (void)snprintf(e->error_file, sizeof(e->error_file), "%s",
                   end->error_file ? end->error_file : "");
    mem_free(w->ended);
    w->ended = m;
    if (!a->is_over) {
        agent_send(a, m);
    }
}

/* A worker that ended by itself, and not well, takes its siblings with it at once, and
 * the service hears of it before its output has found its way to wherever that goes. */
static void ended(struct agent *a, uint32_t slot, const struct agent_end *end)
{
    struct worker *w = &a->workers[slot];

    w->state = WORKER_EXITED;
    w->kill_ms = 0;
    if (!a->is_over) {
        progress_flush(a, slot); /* what comes behind its end may find the job over */
    }
    send_ended(a, slot, end);
    if (!w->is_told && (w->code != 0 || w->signal != 0)) {
        agent_fire(a, EVENT_FAILED, w);
    }
}

static void is_through(struct agent *a, uint32_t slot)
{
    a->workers[slot].state = WORKER_ENDED;
    if (are_gone(a)) {
        agent_fire(a, EVENT_EMPTY, NULL);
    }
}

/* Its end was not ours to cause: it came before we had said a word (the news of it may
 * be held up by the worker's own children, and by other workers'), or by a KILL that we
 * had not sent. */
static bool has_failed_by_itself(const struct worker *w)
{
    bool is_foreign_kill = w->signal == SIGKILL && !w->is_killed;

    return w->is_told && (w->ended_ms < w->told_ms || is_foreign_kill);
}

void agent_exited(struct agent *a, uint32_t slot, const struct agent_exit *exited,
                  uint64_t now_ms)
{
    struct agent_end end = {
        .message = "", .tail = "", .log_path = "", .wall_ms = exited->wall_ms};
    struct worker *w = &a->workers[slot];
    int status = exited->status;

    ASSERT(slot < a->config.nproc);
    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || w->state != WORKER_LIVE) {
        return;
    }
    w->code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    w->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    w->ended_ms = MIN(exited->ended_ms, now_ms);
    w->has_failed = has_failed_by_itself(w);
    ended(a, slot, &end);
}

/* A worker that wrote down why it failed had failed then: its way out takes time, in
 * which others miss it, fail too and may be gone before it is. */
static void date_back(struct worker *w, uint64_t failed_ms)
{
    bool was_told = w->is_told && !w->has_failed;

    if (failed_ms == 0 || failed_ms >= w->ended_ms ||
        (w->code == 0 && w->signal == 0) ||
        failed_ms < w->started_ms) { /* a wall clock was set meanwhile */
        return;
    }
    w->ended_ms = failed_ms;
    w->has_failed = w->has_failed || (w->is_told && failed_ms < w->told_ms);
    if (w->has_failed && was_told && w->signal != 0) {
        w->code = 1; /* as of an exception; the signal was ours */
        w->signal = 0;
    }
}

void agent_drained(struct agent *a, uint32_t slot, const struct agent_end *end,
                   uint64_t now_ms)
{
    struct worker *w = &a->workers[slot];
    struct agent_end dated = *end;
    uint64_t ended_ms;

    ASSERT(slot < a->config.nproc);
    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || w->state != WORKER_EXITED) {
        return;
    }
    ended_ms = w->ended_ms;
    date_back(w, end->failed_ms);
    dated.wall_ms -= MIN(dated.wall_ms, ended_ms - w->ended_ms);
    send_ended(a, slot, &dated);
    is_through(a, slot);
}

void agent_spawn_failed(struct agent *a, uint32_t slot, const struct agent_end *end,
                        uint64_t now_ms)
{
    ASSERT(slot < a->config.nproc);
    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || a->workers[slot].state != WORKER_LIVE) {
        return;
    }
    a->workers[slot].code = EXIT_NOT_STARTED;
    a->workers[slot].ended_ms = now_ms;
    ended(a, slot, end);
    is_through(a, slot);
}

/* --- what workers say --- */

static void send_refuse(struct agent *a)
{
    struct msg m = {.type = MSG_REFUSE, .u.refuse = a->refuse};

    agent_send(a, &m);
}

/* All ranks say the same; the first is enough. */
static void on_refuse(struct agent *a, uint32_t slot, const struct control *c)
{
    if (a->has_refused) {
        return;
    }
    a->has_refused = true;
    a->refuse = (struct msg_refuse){
        .generation = a->generation,
        .rank = a->first_rank + slot,
        .exit_code = c->code,
        .max_world = c->max_world,
    };
    if (c->max_world > 0) {
        a->max_world = c->max_world; /* as a hello would have said */
    }
    memcpy(a->refuse.text, c->text, sizeof(a->refuse.text));
    send_refuse(a);
}

static void on_hello(struct agent *a, uint32_t slot, const struct control *c)
{
    a->workers[slot].is_engine = true;
    a->max_world = c->max_world;
    a->config.actions.engine(a->config.actions.arg, slot, c->path);
}

void agent_control(struct agent *a, uint32_t slot, const struct control *c,
                   uint64_t now_ms)
{
    ASSERT(slot < a->config.nproc);
    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || a->is_over ||
        (a->workers[slot].state != WORKER_LIVE &&
         a->workers[slot].state != WORKER_EXITED)) {
        return;
    }
    switch (c->type) {
    case CONTROL_HELLO:
        on_hello(a, slot, c);
        break;
    case CONTROL_REFUSE:
        on_refuse(a, slot, c);
        break;
    case CONTROL_RESUMED:
    case CONTROL_COMMIT:
        requests_take(a, slot, c);
        break;
    case CONTROL_PROGRESS:
        progress_take(a, slot, c);
        break;
    case CONTROL_START:
    case CONTROL_ABORT:
    case CONTROL_LEAVE:
    case CONTROL_DECISION:
        break; /* ours to send; a confused program */
    }
}

void workers_resend(struct agent *a)
{
    for (uint32_t i = 0; i < a->config.nproc; i++) {
        const struct worker *w = &a->workers[i];

        if (w->ended ? w->report.said_ms != 0 : w->pid != 0) {
            progress_send(a, i); /* before its end, as in ended() */
        }
        if (w->ended) {
            agent_send(a, w->ended);
        }
    }
    if (a->has_refused) {
        send_refuse(a);
    }
    requests_resend(a);
}
