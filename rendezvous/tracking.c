#include "rendezvous/tracking.h"

#include "rendezvous/draining.h"

#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { STACK_MS = 9500 }; /* the agents' limit, and some */

/* By rank; NULL where one is not here (after a restart of the service, say). Owned. */
static const struct job_node **members_in_order(const struct job *j)
{
    const struct job_node **members =
        mem_array(MAX(j->n_members, 1), sizeof(struct job_node *));

    for (size_t i = 0; i < j->n_nodes; i++) {
        const struct job_node *node = j->node[i];
        bool is_member = node->state == NODE_RUNNING || node->state == NODE_DONE;

        if (is_member && node->group_rank >= 0 &&
            (size_t)node->group_rank < j->n_members) {
            members[node->group_rank] = node;
        }
    }
    return members;
}

void tracking_begin(struct job *j)
{
    const struct job_node **members = members_in_order(j);

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
    j->hung.due_ms = 0;
}

void tracking_note(struct job *j, const struct job_node *node,
                   const struct msg_progress *m)
{
    bool are_here = job_members(j) == j->n_members;

    if (j->progress.generation != j->generation ||
        (are_here && j->progress.n_nodes < j->n_members)) {
        tracking_begin(j); /* the service has been started anew meanwhile */
    }
    (void)progress_note(&j->progress, node->session, m, j->now_ms); /* a stranger's */
}

/* --- words --- */

/* Of what its agent has found: "T", "S futex_wait", "R 98 %". */
static void describe_process(const char *state, char *ret, size_t size)
{
    const char *more = state[0] != '\0' && state[1] == ' ' ? state + 2 : "";
    const char *in = *more != '\0' ? " in " : "";

    switch (state[0]) {
    case 'T':
        (void)snprintf(ret, size, "its process is stopped (T)");
        break;
    case 't':
        (void)snprintf(ret, size, "a debugger holds its process (t)");
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

/* `rank` -1: nobody knows which. */
static void tell(struct job *j, int64_t rank, const char *text)
{
    struct job_event e = {.kind = JOB_HANGS, .why = text, .has_rank = rank >= 0};

    notify(j, text, "");
    if (rank >= 0) {
        e.rank = (uint32_t)rank;
        e.node = progress_node_of(&j->progress, e.rank)->host;
    }
    job_note(j, e);
}

/* --- verdicts --- */

static void on_found(struct job *j, const struct hang_verdict *v)
{
    struct hung *hung = &j->hung;

    describe(j, v, hung->text, sizeof(hung->text));
    tell(j, v->rank, hung->text);
    hung->rank = v->rank;
    hung->moved_ms = j->progress.moved_ms;
    hung->due_ms = j->now_ms + STACK_MS;
    inspect(j, v->rank, INSPECT_STACK);
}

static void on_held(struct job *j, const struct hang_verdict *v)
{
    char text[MSG_TEXT_MAX];

    describe(j, v, text, sizeof(text));
    tell(j, v->rank, text);
}

static void on_unclear(struct job *j, const struct hang_verdict *v)
{
    char text[MSG_TEXT_MAX];

    (void)snprintf(text, sizeof(text),
                   "no rank has made progress for %llu s, %u of %u wait, and it is not "
                   "clear for whom",
                   (unsigned long long)v->for_ms / 1000, v->n_waiting,
                   j->progress.world);
    tell(j, -1, text);
}

/* The rank has ended, as it were, when the others went on without it. */
static void end_generation(struct job *j, const char *stack)
{
    const struct progress_rank *r = &j->progress.rank[j->hung.rank];
    const struct progress_node *node = progress_node_of(&j->progress, j->hung.rank);
    struct msg_rank_ended *end = mem_zalloc(sizeof(*end));

    end->generation = j->generation;
    end->rank = j->hung.rank;
    end->local_rank = j->hung.rank - node->first_rank;
    end->pid = r->pid;
    end->signal = SIGKILL;
    end->step = r->step;
    end->ended_ms = j->now_ms;
    (void)snprintf(end->message, sizeof(end->message), "%s%s%s", j->hung.text,
                   stack[0] != '\0' ? "\n" : "", stack);
    draining_hang(j, end, node->host);
    mem_free(end);
}

/* The stack is here, or does not come. */
static void close_case(struct job *j, const char *stack)
{
    char text[64];

    j->hung.due_ms = 0;
    if (j->state != JOB_RUNNING || j->progress.n_ended > 0) {
        return; /* there are other news */
    }
    if (stack[0] != '\0') {
        (void)snprintf(text, sizeof(text), "where rank %u is", j->hung.rank);
        notify(j, text, stack);
    }
    if (j->progress.moved_ms > j->hung.moved_ms) {
        (void)snprintf(text, sizeof(text), "the ranks go on: rank %u hangs no more",
                       j->hung.rank);
        notify(j, text, "");
    } else if (j->shape.on_hang == ON_HANG_RESTART) {
        end_generation(j, stack);
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

    if (j->state != JOB_RUNNING || j->progress.generation != j->generation) {
        return;
    }
    if (j->hung.due_ms != 0 && j->now_ms >= j->hung.due_ms) {
        close_case(j, "");
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
        on_unclear(j, &v);
        break;
    }
}

void tracking_inspected(struct job *j, const struct job_node *node,
                        const struct msg_inspected *m)
{
    const struct progress_node *its = progress_node_of(&j->progress, m->rank);
    char stack[MSG_TAIL_MAX / 2];

    if (!its || its->session != node->session) {
        return;
    }
    if (m->what == INSPECT_HANG) {
        hang_answer(&j->hang, m->rank, m->state, j->now_ms);
        tracking_tick(j);
    } else if (m->what == INSPECT_STACK && j->hung.due_ms != 0 &&
               m->rank == j->hung.rank) {
        (void)snprintf(stack, sizeof(stack), "%.*s",
                       (int)MIN(m->body.size, sizeof(stack) - 1),
                       (const char *)m->body.data);
        close_case(j, stack);
    }
}

uint64_t tracking_deadline(const struct job *j)
{
    uint64_t due_ms = j->hung.due_ms != 0 ? j->hung.due_ms : UINT64_MAX;

    return j->state != JOB_RUNNING || j->progress.generation != j->generation
               ? UINT64_MAX
               : MIN(due_ms, hang_deadline(&j->hang, &j->progress));
}
