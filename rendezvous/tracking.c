#include "rendezvous/tracking.h"

#include "rendezvous/draining.h"

#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    STACK_MS = 11000, /* the agents' limits, and some */
    STACK_MAX = MSG_TAIL_MAX / 2,
    OTHERS_MS = 1500, /* after the others an agent says that its rank goes on */
};

/* By rank; NULL where one is not here (after a restart of the service, say). Owned. */
static const struct job_node **members_in_order(const struct job *j)
{
    const struct job_node **members =
        mem_array(MAX(j->n_members, 1), sizeof(struct job_node *));

    for (size_t i = 0; i < j->n_nodes; i++) {
        const struct job_node *node = j->node[i];
        bool is_member = node_is_member(node->state);

        if (is_member && node->group_rank >= 0 &&
            (size_t)node->group_rank < j->n_members) {
            members[node->group_rank] = node;
        }
    }
    return members;
}

static void forget_hung(struct job *j)
{
    mem_free(j->hung.stack);
    j->hung = (struct hung){0};
}

/* --- the table --- */

/* The node's, where the table has one of it. */
static const struct progress_node *find_entry(const struct job *j,
                                              const struct job_node *node)
{
    const struct progress *p = &j->progress;
    bool has_place = node->group_rank >= 0 && (uint32_t)node->group_rank < p->n_nodes;
    const struct progress_node *entry = has_place ? &p->node[node->group_rank] : NULL;

    return entry && entry->session == node->session ? entry : NULL;
}

static void return_ranks(struct job *j, uint64_t n)
{
    j->n_ranks -= n;
    j->ranks->used -= n;
}

static void return_gone(struct job *j)
{
    return_ranks(j, j->n_gone_ranks);
    j->n_gone_ranks = 0;
    j->n_gone = 0;
}

void tracking_take_room(struct job *j, const struct job_node *node)
{
    j->n_ranks += node->hello.nproc;
    j->ranks->used += node->hello.nproc;
}

void tracking_return_room(struct job *j, const struct job_node *node)
{
    uint32_t kept = 0;

    if (find_entry(j, node)) {
        kept = j->progress.is_over ? 1 : node->hello.nproc;
        j->n_gone_ranks += kept;
        j->n_gone++;
    }
    return_ranks(j, node->hello.nproc - kept);
}

void tracking_end(struct job *j)
{
    progress_fold(&j->progress);
    return_ranks(j, j->n_gone_ranks - j->n_gone);
    j->n_gone_ranks = j->n_gone;
    if (j->n_nodes == 0) {
        progress_fold_nodes(&j->progress);
        return_gone(j);
    }
}

void tracking_release(struct job *j)
{
    forget_hung(j);
    progress_release(&j->progress);
    return_ranks(j, j->n_ranks);
}

void tracking_begin(struct job *j)
{
    const struct job_node **members = members_in_order(j);

    return_gone(j);
    progress_begin(&j->progress, j->generation, (uint32_t)j->n_members);
    for (size_t i = 0; i < j->n_members && members[i]; i++) {
        progress_add_node(&j->progress, members[i]->session, members[i]->hello.host,
                          members[i]->hello.nproc);
    }
    progress_start(&j->progress);
    mem_free(members);
    if (j->saving.pace_generation == j->generation) {
        progress_know(&j->progress, j->saving.pace_ms);
    }
    hang_begin(&j->hang, j->now_ms);
    forget_hung(j);
}

/* --- words --- */

/* Of what its agent has found: "T", "S futex_wait", "t gdb, pid 77". */
static void describe_process(const char *state, char *ret, size_t size)
{
    const char *more = state[0] != '\0' && state[1] == ' ' ? state + 2 : "";
    const char *in = *more != '\0' ? " in " : "";
    const char *who = *more != '\0' ? more : "a debugger";

    switch (state[0]) {
    case 'T':
        (void)snprintf(ret, size, "its process is stopped (T)");
        break;
    case 't':
        (void)snprintf(ret, size, "its process is stopped by its tracer (%.28s)", who);
        break;
    case 'P':
        (void)snprintf(ret, size, "its process is traced (%.28s)", who);
        break;
    case 'O':
        (void)snprintf(
            ret, size,
            "its process waits for its output to be read, or for somebody at "
            "its terminal (%.24s)",
            more);
        break;
    case 'R':
        (void)snprintf(ret, size, "its process computes (R)");
        break;
    case 'D':
        (void)snprintf(ret, size, "its process waits for a device (D)%s%.24s", in,
                       more);
        break;
    case 'S':
        (void)snprintf(ret, size, "its process sleeps (S)%s%.24s", in, more);
        break;
    default:
        (void)snprintf(ret, size, "nothing is known of its process");
        break;
    }
}

static void describe_place(const struct progress_rank *r, char *ret, size_t size)
{
    (void)snprintf(ret, size, "step %llu%s%s", (unsigned long long)r->step,
                   r->phase[0] != '\0' ? ", " : "", r->phase);
}

static void describe_waiting(const struct hang_verdict *v, char *ret, size_t size)
{
    if (v->n_waiting == 0) {
        (void)snprintf(ret, size, "and no other rank goes on");
    } else {
        (void)snprintf(ret, size, "and %u rank%s for it", v->n_waiting,
                       v->n_waiting == 1 ? " waits" : "s wait");
    }
}

static void describe(const struct job *j, const struct hang_verdict *v, char *ret,
                     size_t size)
{
    const struct progress_rank *r = &j->progress.rank[v->rank];
    const struct progress_node *node = progress_node_of(&j->progress, v->rank);
    char process[160];
    char place[96];
    char waiting[64];

    describe_process(v->state, process, sizeof(process));
    describe_place(r, place, sizeof(place));
    describe_waiting(v, waiting, sizeof(waiting));
    (void)snprintf(
        ret, size,
        "rank %u on %s (local rank %u, pid %u) hangs: at %s, for %llu.%llu s, "
        "%s; %s",
        v->rank, node->host, v->rank - node->first_rank, r->pid, place,
        (unsigned long long)v->for_ms / 1000,
        (unsigned long long)v->for_ms % 1000 / 100, waiting, process);
}

static void describe_unclear(const struct job *j, const struct hang_verdict *v,
                             char *ret, size_t size)
{
    (void)snprintf(ret, size,
                   "no rank has made progress for %llu s, %u of %u wait, and it is not "
                   "clear for whom",
                   (unsigned long long)v->for_ms / 1000, v->n_waiting,
                   j->progress.world);
}

static bool is_current(const struct job *j)
{
    return j->state == JOB_RUNNING && j->progress.generation == j->generation;
}

const struct hung *tracking_hung(const struct job *j)
{
    return j->hung.lasts && is_current(j) && j->progress.n_ended == 0 ? &j->hung : NULL;
}

void tracking_describe(const struct job *j, uint64_t now_ms, char *ret, size_t size)
{
    const struct hung *hung = &j->hung;
    struct hang_verdict v = hung->verdict;

    v.for_ms = now_ms - MIN(now_ms, hung->moved_ms);
    (hung->has_rank ? describe : describe_unclear)(j, &v, ret, size);
}

/* --- to the nodes --- */

static void notify(const struct job *j, const char *text, const char *detail)
{
    struct msg *m = mem_zalloc(sizeof(*m));

    m->type = MSG_NOTICE;
    (void)snprintf(m->u.notice.text, sizeof(m->u.notice.text), "%s", text);
    (void)snprintf(m->u.notice.detail, sizeof(m->u.notice.detail), "%s", detail);
    for (size_t i = 0; i < j->n_nodes; i++) {
        j->sink.send(j->sink.arg, j->node[i]->session, m);
    }
    mem_free(m);
}

static void inspect(struct job *j, uint32_t rank, enum inspect_what what)
{
    const struct progress_node *node = progress_node_of(&j->progress, rank);
    struct msg m = {.type = MSG_INSPECT,
                    .u.inspect = {.generation = j->generation,
                                  .rank = rank,
                                  .what = (uint8_t)what}};

    j->sink.send(j->sink.arg, node->session, &m);
}

/* `has_rank`: it is about the one that hangs, or has. */
static void note(const struct job *j, enum job_event_kind kind, bool has_rank,
                 const char *text)
{
    struct job_event e = {.kind = kind, .why = text};

    notify(j, text, "");
    if (has_rank) {
        e.has_rank = true;
        e.rank = j->hung.verdict.rank;
        e.node = progress_node_of(&j->progress, e.rank)->host;
    }
    job_note(j, e);
}

/* --- verdicts --- */

/* It was told of this rank, which has not gone on since: others have moved. */
static bool is_same_case(const struct job *j, bool is_held,
                         const struct hang_verdict *v)
{
    const struct hung *hung = tracking_hung(j);

    return hung && hung->has_rank && hung->is_held == is_held &&
           hung->verdict.rank == v->rank;
}

/* `policy`: what it means for the job where that is not what was asked for, or "". */
static void open_case(struct job *j, bool has_rank, const struct hang_verdict *v,
                      const char *policy)
{
    struct hung *hung = &j->hung;
    size_t len;

    forget_hung(j);
    *hung = (struct hung){.lasts = true,
                          .has_rank = has_rank,
                          .moved_ms = j->progress.moved_ms,
                          .verdict = *v};
    (has_rank ? describe : describe_unclear)(j, v, hung->text, sizeof(hung->text));
    len = strlen(hung->text);
    (void)snprintf(hung->text + len, sizeof(hung->text) - len, "%s", policy);
    note(j, JOB_HANGS, has_rank, hung->text);
}

static void on_held(struct job *j, const struct hang_verdict *v)
{
    if (!is_same_case(j, true, v)) {
        open_case(j, true, v,
                  j->shape.on_hang == ON_HANG_RESTART ? "; it is left alone" : "");
        j->hung.is_held = true;
    }
}

/* The rank that was named may hang all the same: then it will be named again. */
static void tell_moved(struct job *j, bool is_it)
{
    uint64_t for_ms = j->hung.on_ms - MIN(j->hung.on_ms, j->hung.moved_ms);
    char who[MSG_ID_MAX + 64] = "";
    char text[MSG_ID_MAX + 128];

    if (is_it) {
        uint32_t rank = j->hung.verdict.rank;

        (void)snprintf(who, sizeof(who), ": rank %u on %s hangs no more", rank,
                       progress_node_of(&j->progress, rank)->host);
    }
    (void)snprintf(text, sizeof(text), "the ranks go on, after %llu.%llu s%s",
                   (unsigned long long)for_ms / 1000,
                   (unsigned long long)for_ms % 1000 / 100, who);
    note(j, JOB_HANGS_NO_MORE, is_it, text);
    j->hung.lasts = false;
    j->hung.on_ms = 0;
}

/* Whether a rank went on with the one that was named: it is through where they were to
 * meet, or further. Who only comes late to where the others wait says nothing of that.
 * One that was stopped where it waits may have done its part of that exchange: without
 * it the others go on to the next. */
static bool is_past(const struct job *j, const struct progress_rank *before,
                    const struct progress_rank *r)
{
    const struct progress_rank *its = &j->progress.rank[j->hung.verdict.rank];
    uint64_t step = its->step + progress_is_waiting(its);
    bool has_waited = before->waits_for == (int32_t)j->hung.verdict.rank ||
                      (before->waits_for < 0 && progress_is_waiting(before));

    return r->step > MAX(step, before->step) || (before->step >= step && has_waited);
}

/* A rank has told of another step or phase. When the one that was named goes on the
 * others do so too, and their agents may say so first. */
static void on_moved(struct job *j, const struct progress_rank *before,
                     const struct progress_rank *r)
{
    struct hung *hung = &j->hung;
    bool is_it = hung->has_rank && r == &j->progress.rank[hung->verdict.rank];

    if (hung->on_ms == 0) {
        hung->on_ms = MAX(j->now_ms, 1);
        hung->are_past = false;
    }
    hung->are_past = hung->are_past || is_past(j, before, r);
    if (is_it || !hung->has_rank) {
        tell_moved(j, is_it);
    }
}

/* The service has been started anew meanwhile? */
static void make_table(struct job *j)
{
    bool are_here = job_members(j) == j->n_members;

    if (j->progress.generation != j->generation ||
        (are_here && j->progress.n_nodes < j->n_members)) {
        tracking_begin(j);
    }
}

/* Who only says again where it is, maybe after gdb had stopped it, has not moved. */
static bool is_elsewhere(const struct progress_rank *before,
                         const struct progress_rank *r)
{
    return r->step != before->step || strcmp(r->phase, before->phase) != 0;
}

void tracking_note(struct job *j, const struct job_node *node,
                   const struct msg_progress *m)
{
    const struct progress_rank *r = NULL;
    struct progress_rank before = {0};

    make_table(j);
    if (j->progress.rank && m->rank < j->progress.world) {
        r = &j->progress.rank[m->rank];
        before = *r;
    }
    if (progress_note(&j->progress, node->session, m, j->now_ms) && tracking_hung(j) &&
        r && is_elsewhere(&before, r) && r->since_ms > j->hung.moved_ms) {
        on_moved(j, &before, r);
    }
}

/* Behind a node that was lost before the service's start nobody knows which ranks are
 * whose, only that they are none of those before. */
bool tracking_ended(struct job *j, const struct job_node *node, uint32_t rank)
{
    const struct progress_node *its;

    make_table(j);
    its = progress_node_of(&j->progress, rank);
    if (its ? its->session != node->session
            : rank >= MSG_MAX_WORLD || find_entry(j, node) != NULL) {
        return false;
    }
    progress_end(&j->progress, node->session, rank);
    return true;
}

/* The rank has ended, as it were, when the others went on without it. */
static void end_generation(struct job *j)
{
    const struct progress_rank *r = &j->progress.rank[j->hung.verdict.rank];
    const struct progress_node *node =
        progress_node_of(&j->progress, j->hung.verdict.rank);
    struct msg_rank_ended *end = mem_zalloc(sizeof(*end));

    end->generation = j->generation;
    end->rank = j->hung.verdict.rank;
    end->local_rank = j->hung.verdict.rank - node->first_rank;
    end->pid = r->pid;
    end->signal = SIGKILL;
    end->step = r->step;
    end->ended_ms = j->now_ms;
    (void)snprintf(end->message, sizeof(end->message), "%s\n%s", j->hung.text,
                   j->hung.stack);
    draining_hang(j, end, node->host);
    mem_free(end);
}

static bool has_other_news(const struct job *j)
{
    return j->state != JOB_RUNNING || j->progress.n_ended > 0;
}

/* What is had at once comes first, C's stack, by gdb, behind it. */
static void add_stack(struct job *j, const char *piece)
{
    struct hung *hung = &j->hung;
    size_t used = hung->stack ? strlen(hung->stack) : 0;
    char where[64];

    if (has_other_news(j) || piece[0] == '\0') {
        return;
    }
    (void)snprintf(where, sizeof(where), "where rank %u is%s", hung->verdict.rank,
                   hung->stack ? " in C" : "");
    notify(j, where, piece);
    if (!hung->stack) {
        hung->stack = mem_zalloc(STACK_MAX);
    }
    (void)snprintf(hung->stack + used, STACK_MAX - used, "%s", piece);
}

/* No more of the stack comes but this. */
static void close_case(struct job *j, const char *last)
{
    struct hung *hung = &j->hung;

    hung->due_ms = 0;
    add_stack(j, last);
    if (!hung->stack) {
        add_stack(j, "(nobody may look: gdb is not there, or not allowed to)");
    }
    if (!has_other_news(j) && hung->lasts && hung->on_ms == 0 &&
        j->shape.on_hang == ON_HANG_RESTART) {
        end_generation(j);
    }
}

static void on_found(struct job *j, const struct hang_verdict *v)
{
    if (!is_same_case(j, false, v)) {
        open_case(j, true, v, "");
        j->hung.due_ms = j->now_ms + STACK_MS;
        inspect(j, v->rank, INSPECT_STACK);
        return;
    }
    j->hung.on_ms = 0;
    if (j->hung.due_ms == 0) { /* else its stack is still to come */
        close_case(j, "");
    }
}

/* One piece, and the last. */
static void take_stack(struct job *j, const struct msg_inspected *m)
{
    char text[STACK_MAX];

    (void)snprintf(text, sizeof(text), "%.*s", (int)MIN(m->body.size, sizeof(text) - 1),
                   (const char *)m->body.data);
    if (!m->more) {
        close_case(j, text);
    } else if (!j->hung.stack) {
        add_stack(j, text);
    }
}

static void ask(struct job *j)
{
    for (uint32_t i = 0; i < j->hang.n_suspects; i++) {
        inspect(j, j->hang.suspect[i].rank, INSPECT_HANG);
    }
}

void tracking_tick(struct job *j)
{
    struct hang_verdict v;

    if (!is_current(j)) {
        return;
    }
    if (j->hung.due_ms != 0 && j->now_ms >= j->hung.due_ms) {
        close_case(j, "(its agent has not answered in time)");
    }
    if (j->hung.on_ms != 0 && j->now_ms >= j->hung.on_ms + OTHERS_MS) {
        if (tracking_hung(j) && j->hung.are_past) {
            tell_moved(j, false);
        }
        j->hung.on_ms = 0;
    }
    switch (hang_look(&j->hang, &j->progress, j->now_ms, &v)) {
    case HANG_QUIET:
        break;
    case HANG_ASK:
        ask(j);
        break;
    case HANG_FOUND:
        on_found(j, &v);
        break;
    case HANG_HELD:
        on_held(j, &v);
        break;
    case HANG_UNCLEAR:
        open_case(j, false, &v, "");
        break;
    }
}

void tracking_inspected(struct job *j, const struct job_node *node,
                        const struct msg_inspected *m)
{
    const struct progress_node *its = progress_node_of(&j->progress, m->rank);

    if (!its || its->session != node->session) {
        return;
    }
    if (m->what == INSPECT_HANG) {
        hang_answer(&j->hang, m->rank, m->state, j->now_ms);
        tracking_tick(j);
    } else if (m->what == INSPECT_STACK && j->hung.due_ms != 0 &&
               m->rank == j->hung.verdict.rank) {
        take_stack(j, m);
    }
}

uint64_t tracking_deadline(const struct job *j)
{
    uint64_t due_ms = j->hung.due_ms != 0 ? j->hung.due_ms : UINT64_MAX;

    if (j->hung.on_ms != 0) {
        due_ms = MIN(due_ms, j->hung.on_ms + OTHERS_MS);
    }
    return is_current(j) ? MIN(due_ms, hang_deadline(&j->hang, &j->progress))
                         : UINT64_MAX;
}
