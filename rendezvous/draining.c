#include "rendezvous/draining.h"

#include "rendezvous/round.h"

#include "common/exit_code.h"
#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    LOSS_WINDOW_MS = 1000, /* a node lost so soon after a failure explains it */
    CLOCKS_MS = 100,       /* by which the clocks of two hosts may differ */
    WORD_MS = 10000, /* until all agents have been told that a node leaves, at most */
};

/* --- to the nodes --- */

static void stop_members(struct job *j, enum stop_mode mode, const char *why)
{
    struct msg m = {.type = MSG_STOP,
                    .u.stop = {.generation = j->generation,
                               .mode = (uint8_t)mode,
                               .hung = j->ending.hung}};

    (void)snprintf(m.u.stop.text, sizeof(m.u.stop.text), "%s", why);
    for (size_t i = 0; i < j->n_nodes; i++) {
        const struct job_node *node = j->node[i];
        bool is_member = node_is_member(node->state);
        bool goes_already = mode == STOP_LEAVE && node->is_leaving;

        if (is_member && !goes_already) {
            j->sink.send(j->sink.arg, node->session, &m);
        }
    }
    memcpy(j->ending.stop_text, m.u.stop.text, sizeof(j->ending.stop_text));
}

static void send_all(struct job *j, const struct msg *m)
{
    for (size_t i = 0; i < j->n_nodes; i++) {
        j->sink.send(j->sink.arg, j->node[i]->session, m);
    }
}

static enum restart_cause restart_cause(const struct job *j)
{
    const struct ending *e = &j->ending;
    bool is_hang = cause_is_hang(&j->cause);

    return e->has_refused                       ? RESTART_REFUSAL
           : e->has_failed && is_hang           ? RESTART_HANG
           : e->has_failed && j->cause.has_rank ? RESTART_FAILURE
           : e->has_lost                        ? RESTART_NODE_LOST
           : e->has_failed                      ? RESTART_FAILURE
                                                : e->left_for;
}

/* The same, in one line for the service's own log. */
static void note_report(const struct job *j, const struct msg_report *report)
{
    char why[MSG_TEXT_MAX];
    char rank[MSG_ID_MAX + 64] = "";

    if (report->rank >= 0 && !cause_is_hang(&j->cause)) { /* its signal is ours */
        (void)snprintf(rank, sizeof(rank), "rank %d on %s: %s %d; ", report->rank,
                       report->host, report->signal ? "signal" : "exit code",
                       report->signal ? report->signal : report->code);
    }
    (void)snprintf(why, sizeof(why), "%s%.600s", rank, report->text);
    job_note(j,
             (struct job_event){.kind = report->final ? JOB_HAS_FAILED : JOB_RESTARTS,
                                .exit_code = report->exit_code,
                                .cause = restart_cause(j),
                                .node = report->rank >= 0 ? report->host : NULL,
                                .has_rank = report->rank >= 0,
                                .rank = (uint32_t)MAX(report->rank, 0),
                                .why = why});
}

/* A rank has failed by itself: a node that was lost, or has left, besides is not why. */
static bool is_beside_cause(const struct job *j)
{
    return j->cause.has_rank && !cause_is_reaction(&j->cause) &&
           !cause_is_hang(&j->cause) && (j->ending.has_lost || j->ending.has_left);
}

static void put_text(const struct job *j, const char *decision, struct msg_report *ret)
{
    const char *why = j->ending.text;

    if (*why != '\0' && is_beside_cause(j)) {
        (void)snprintf(ret->text, sizeof(ret->text), "%.500s; meanwhile %.500s",
                       decision, why);
    } else {
        (void)snprintf(ret->text, sizeof(ret->text), "%.500s%s%.500s", why,
                       *why ? "; " : "", decision);
    }
}

/* Why the generation ended and what happens next. */
static void send_report(struct job *j, bool final, uint32_t exit_code,
                        const char *decision)
{
    struct msg *m = mem_zalloc(sizeof(*m));
    struct msg_report *report = &m->u.report;

    m->type = MSG_REPORT;
    cause_report(&j->cause, report);
    put_text(j, decision, report);
    report->generation = j->generation;
    report->final = final;
    report->failures = j->failures;
    report->max_restarts = j->shape.max_restarts;
    report->exit_code = exit_code;
    report->commit_run = j->fence.last.run;
    report->commit_step = j->fence.last.step;
    memcpy(report->commit_hash, j->fence.last.hash, sizeof(report->commit_hash));
    send_all(j, m);
    saving_report(j, m);
    note_report(j, report);
    mem_free(m);
}

void draining_close(struct job *j, enum job_state state, uint32_t exit_code,
                    const char *text)
{
    struct msg m = {.type = MSG_CLOSED, .u.closed = {.exit_code = exit_code}};

    job_move(j, state);
    if (state == JOB_DONE) {
        job_note(j, (struct job_event){.kind = JOB_IS_DONE});
    }
    job_end_keys(j);
    j->exit_code = exit_code;
    (void)snprintf(m.u.closed.text, sizeof(m.u.closed.text), "%s", text);
    send_all(j, &m);
}

/* --- facts --- */

/* Every member is told once, and once more when it has to go faster. */
static void begin(struct job *j, enum stop_mode mode, const char *why)
{
    if (j->state == JOB_RUNNING) {
        job_move(j, JOB_DRAINING);
    } else if (mode == STOP_LEAVE || j->ending.is_aborting) {
        return;
    }
    j->ending.is_aborting = mode == STOP_ABORT;
    stop_members(j, mode, why);
}

static void set_text(struct job *j, const char *text)
{
    (void)snprintf(j->ending.text, sizeof(j->ending.text), "%s", text);
}

void draining_leave(struct job *j, enum restart_cause cause, const char *why)
{
    if (j->state == JOB_RUNNING) {
        j->ending.left_for = cause;
        set_text(j, why);
    }
    begin(j, STOP_LEAVE, why);
}

/* A scheduler's signals, and the service's word, are a preemption; a terminal's are its
 * user's. */
static bool is_users_signal(int32_t signal)
{
    return signal == SIGINT || signal == SIGQUIT || signal == SIGHUP;
}

static void describe_leaving(int32_t signal, char *ret, size_t size)
{
    const char *name = sigabbrev_np(signal);

    if (signal == 0) {
        (void)snprintf(ret, size, "drained");
    } else if (name) {
        (void)snprintf(ret, size, "%sSIG%s",
                       is_users_signal(signal) ? "" : "preempted by ", name);
    } else {
        (void)snprintf(ret, size, "preempted by signal %d", signal);
    }
}

void draining_preempt(struct job *j, const struct job_node *node,
                      const struct msg_leave *m)
{
    int32_t signal = m->signal;
    uint64_t told_ms = m->told_ms > 0 ? MIN(m->told_ms, j->now_ms) : j->now_ms;
    char name[JOB_NODE_NAME_MAX];
    char text[MSG_TEXT_MAX];
    char how[64];

    describe_leaving(signal, how, sizeof(how));
    (void)snprintf(name, sizeof(name), "%s", node->hello.host);
    if (!j->ending.has_left) { /* of those that follow nobody hears */
        job_name_node(j, node, name, sizeof(name));
    }
    (void)snprintf(text, sizeof(text), "node %s leaves: %s", name, how);
    j->ending.left_ms = j->ending.has_left ? MIN(j->ending.left_ms, told_ms) : told_ms;
    j->ending.heard_ms = j->now_ms;
    j->ending.has_left = true;
    if (j->ending.text[0] == '\0') {
        set_text(j, text); /* a rank's end may have overtaken the word */
    }
    draining_leave(j, is_users_signal(signal) ? RESTART_NODE_LEFT : RESTART_PREEMPTION,
                   text);
}

static bool has_unseen_member(const struct job *j)
{
    for (size_t i = 0; i < j->n_nodes; i++) {
        const struct job_node *node = j->node[i];

        if (node->is_away && node_is_member(node->state)) {
            return true;
        }
    }
    return false;
}

/* Another first cause than before: who is not seen may have been lost earlier. */
void draining_add_end(struct job *j, const struct msg_rank_ended *end, const char *host)
{
    bool had_first = j->cause.has_rank;
    uint32_t before = j->cause.first.rank;

    cause_add(&j->cause, end, host);
    if (!j->ending.has_lost && j->cause.has_rank &&
        (!had_first || j->cause.first.rank != before)) {
        j->ending.was_unseen = has_unseen_member(j);
    }
}

void draining_fail(struct job *j, const struct msg_rank_ended *end, const char *host)
{
    char why[MSG_TEXT_MAX];

    (void)snprintf(why, sizeof(why), "rank %u on %s failed", end->rank, host);
    j->ending.has_failed = true;
    begin(j, STOP_ABORT, why);
}

void draining_hang(struct job *j, const struct msg_rank_ended *end, const char *host)
{
    char why[MSG_TEXT_MAX];

    (void)snprintf(why, sizeof(why), "rank %u on %s hangs", end->rank, host);
    cause_hang(&j->cause, end, host);
    j->ending.has_failed = true;
    j->ending.hung = end->rank + 1;
    set_text(j, why);
    begin(j, STOP_ABORT, why);
}

void draining_lose(struct job *j, bool counts, uint64_t since_ms, const char *why)
{
    struct ending *e = &j->ending;

    if (!e->has_lost && !e->has_refused && !e->is_cancelled) {
        set_text(j, why);
    }
    e->lost_ms = e->has_lost ? MIN(e->lost_ms, since_ms) : since_ms;
    e->has_lost = true;
    e->was_unseen = false;
    e->loss_counts = e->loss_counts || counts;
    begin(j, STOP_ABORT, why);
}

void draining_refuse(struct job *j, const struct msg_refuse *refuse)
{
    struct ending *e = &j->ending;

    if (e->has_refused) {
        return;
    }
    e->has_refused = true;
    e->refusal_code = refuse->exit_code >= 1 && refuse->exit_code <= 255
                          ? refuse->exit_code
                          : EXIT_MISTAKE;
    if (refuse->max_world > 0 && refuse->max_world < j->known_world) {
        e->max_world = refuse->max_world;
    }
    set_text(j, refuse->text);
    begin(j, STOP_ABORT, refuse->text);
}

void draining_describe_cancel(const struct job *j, char *ret, size_t size)
{
    (void)snprintf(ret, size, "job %s was %.500s", j->id, j->ending.text);
}

bool draining_was_cancelled(const struct job *j)
{
    return j->state == JOB_FAILED && j->ending.is_cancelled && !j->ending.has_refused;
}

/* Nobody is left that runs: the end. */
static void end_cancelled(struct job *j)
{
    char text[MSG_TEXT_MAX];
    uint32_t exit_code = EXIT_SIGNAL + SIGTERM;

    draining_describe_cancel(j, text, sizeof(text));
    job_note(j, (struct job_event){.kind = JOB_IS_CANCELLED,
                                   .exit_code = exit_code,
                                   .why = j->ending.text});
    draining_close(j, JOB_FAILED, exit_code, text);
}

void draining_cancel(struct job *j, const char *why)
{
    job_note(j, (struct job_event){.kind = OPERATOR_ACTS, .why = why});
    j->ending.is_cancelled = true;
    if (!j->ending.has_refused) {
        set_text(j, why);
    }
    if (j->state == JOB_FORMING) {
        end_cancelled(j);
    } else {
        begin(j, STOP_LEAVE, why);
    }
}

void draining_finish(struct job *j, const char *why, uint64_t now_ms)
{
    j->now_ms = now_ms;
    j->is_last = true;
    if (j->state == JOB_RUNNING) {
        draining_leave(j, RESTART_NODE_LEFT, why);
    }
    saving_end_of_event(j);
}

/* --- judgement --- */

static bool is_explained_by_loss(const struct job *j)
{
    return j->ending.has_lost &&
           (cause_is_consequence(&j->cause) ||
            j->ending.lost_ms < j->cause.first.ended_ms + LOSS_WINDOW_MS);
}

/* ctrun-worker's ranks agree on the step after which they go; others see a peer vanish,
 * before the word to go has reached their own agent: after it their ends are its doing.
 * That may be soon, or, where the service is away, long after the node was told. */
static bool is_explained_by_leave(const struct job *j)
{
    const struct msg_rank_ended *first = &j->cause.first;

    return j->ending.has_left && j->cause.has_rank && !first->engine &&
           first->ended_ms + CLOCKS_MS >= j->ending.left_ms &&
           first->ended_ms < j->ending.heard_ms + WORD_MS;
}

/* What was refused is the size of the world, and MIN nodes would not have it. */
static bool goes_on_smaller(const struct job *j)
{
    return j->ending.max_world > 0 && round_fits(j, j->ending.max_world);
}

static void fail(struct job *j, uint32_t exit_code, const char *decision)
{
    send_report(j, true, exit_code, decision);
    draining_close(j, JOB_FAILED, exit_code, "");
}

static void settle_failure(struct job *j)
{
    uint32_t max_restarts = j->shape.max_restarts;
    char decision[128];

    j->failures++;
    if (cause_is_reaction(&j->cause) && j->ending.text[0] == '\0') {
        set_text(j, cause_reaction_text(&j->cause));
    }
    if (cause_is_crash_loop(&j->cause)) {
        fail(j, EXIT_CRASH_LOOP,
             "the same rank ended the same way at the same step three times running: "
             "not restarting");
    } else if (max_restarts == 0) {
        fail(j, cause_exit_code(&j->cause), "not restarting: --max-restarts is 0");
    } else if (j->failures > max_restarts) {
        (void)snprintf(decision, sizeof(decision),
                       "not restarting: --max-restarts=%u is used up", max_restarts);
        fail(j, cause_exit_code(&j->cause), decision);
    } else {
        (void)snprintf(decision, sizeof(decision), "restarting (%u of %u)", j->failures,
                       max_restarts);
        send_report(j, false, 0, decision);
        job_move(j, JOB_FORMING);
    }
}

static void settle_uncounted(struct job *j)
{
    char decision[128] = "re-forming (not counted as a failure)";

    if (j->ending.max_world > 0) {
        (void)snprintf(decision, sizeof(decision),
                       "going on with at most %u rank%s, surplus nodes stand by (not "
                       "counted as a failure)",
                       j->ending.max_world, j->ending.max_world == 1 ? "" : "s");
    }
    send_report(j, false, 0, decision);
    job_move(j, JOB_FORMING);
}

void draining_settle(struct job *j)
{
    const struct ending *e = &j->ending;
    bool has_failed = e->has_failed && !e->has_refused && !is_explained_by_loss(j) &&
                      !is_explained_by_leave(j);

    if (job_members(j) > 0) {
        return; /* still stopping its workers */
    }
    j->join_ms = j->now_ms; /* those that wait since long wait for the others */
    job_end_keys(j);
    j->knows_living = j->count[NODE_PRESENT] + j->count[NODE_JOINED] > 0;
    j->cause.has_changed = j->cause.has_changed || (j->cause.has_rank && !has_failed);
    j->cause.has_rank = j->cause.has_rank && has_failed;
    if (e->has_refused && !goes_on_smaller(j)) {
        job_note(j, (struct job_event){.kind = JOB_HAS_FAILED,
                                       .exit_code = e->refusal_code,
                                       .why = e->text});
        draining_close(j, JOB_FAILED, e->refusal_code, e->text);
    } else if (e->n_undone == 0 && !e->has_failed) {
        draining_close(j, JOB_DONE, 0, "");
    } else if (e->is_cancelled) {
        end_cancelled(j);
    } else if (has_failed || (e->loss_counts && !e->has_refused)) {
        settle_failure(j);
    } else {
        settle_uncounted(j);
    }
}
