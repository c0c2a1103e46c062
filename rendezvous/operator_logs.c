/* PURE. `ctrun logs`: the lines of ranks, read through the agents that have them. A
 * piece of a stream is asked for when the one before has come and the operator has taken
 * what it was sent; who follows asks again after a while. What an agent still has when a
 * rank ends comes without being asked. A new generation's lines follow the old one's:
 * its agents hear at once that it is followed, its last words are held until it is its
 * turn, and the rest is read from the files of a generation that is over. What cannot be
 * read any more is said. */

#include "rendezvous/job.h"
#include "rendezvous/operator_core.h"
#include "rendezvous/seats.h"

#include "common/exit_code.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_STREAMS = 4096,
    MAX_ASKED = 16,             /* pieces under way for one operator */
    POLL_MS = 200,              /* of a stream that had nothing new … */
    POLL_MORE_MS = 2,           /* … and so much more for each stream */
    PATIENCE_MS = 10 * 1000,    /* with an agent */
    MAX_KEPT = 4 * MAX_STREAMS, /* of all generations that were not told to their end */
};

static const uint8_t kinds[] = {INSPECT_LOG, INSPECT_LOG_ERRORS}; /* in order */

void operator_logs_release(struct asker *op)
{
    for (size_t i = 0; i < op->n_streams; i++) {
        operator_lines_drop(op, &op->stream[i]);
    }
    mem_free(op->stream);
    op->stream = NULL;
    op->n_streams = 0;
    op->n_asked = 0;
}

/* ---- which streams there are ---- */

static int compare_requests(const void *a, const void *b)
{
    const uint64_t *request = a;
    const struct log_stream *s = b;

    return (*request > s->request) - (*request < s->request);
}

struct log_stream *operator_logs_find(const struct asker *op, uint64_t request)
{
    return op->n_streams > 0 ? bsearch(&request, op->stream, op->n_streams,
                                       sizeof(*op->stream), compare_requests)
                             : NULL;
}

static void add_node(struct operators *o, struct asker *op, const struct seat *seat,
                     size_t most, uint64_t now_ms)
{
    for (uint32_t i = 0; i < seat->nproc && op->n_streams < most; i++) {
        uint32_t rank = seat->first_rank + i;

        if (op->rank >= 0 && rank != (uint32_t)op->rank) {
            continue;
        }
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            op->stream[op->n_streams++] = (struct log_stream){
                .generation = op->generation,
                .request = OPERATOR_REQUESTS | ++o->n_requests,
                .session = seat->node->session,
                .rank = rank,
                .what = kinds[k],
                .due_ms = now_ms,
                .offset = op->from_end && !op->has_begun ? UINT64_MAX : 0,
            };
        }
    }
}

/* Those stay that have more to tell. */
static void keep_unended(const struct operators *o, struct asker *op)
{
    size_t n = 0;

    if (op->n_streams > MAX_KEPT - MAX_STREAMS) {
        operator_lines_cut_all(o, op, op->n_streams, "too much else was to be read");
    }
    for (size_t i = 0; i < op->n_streams; i++) {
        if (!op->stream[i].is_ended) {
            op->stream[n++] = op->stream[i];
        }
    }
    op->n_streams = n;
    op->next = 0;
}

/* The streams of the generation at hand, behind those of others before. Nobody can read
 * those of a node that has gone. */
static void plan(struct operators *o, struct asker *op, const struct job *j,
                 uint64_t now_ms)
{
    struct seats seats;
    size_t most;

    seats_find(&seats, j);
    keep_unended(o, op);
    most = op->n_streams + MAX_STREAMS;
    ASSERT((most + ARRAY_LEN(kinds)) * sizeof(*op->stream) <= OPERATOR_MAX_STREAMS);
    op->generation = j->generation;
    op->stream = mem_grow(op->stream, most + ARRAY_LEN(kinds), sizeof(*op->stream));
    op->world = seats.world;
    for (size_t i = 0; i < seats.n; i++) {
        if (seats.seat[i].node) {
            add_node(o, op, &seats.seat[i], most, now_ms);
        }
    }
    seats_release(&seats);
    op->stream = mem_grow(op->stream, MAX(op->n_streams, 1), sizeof(*op->stream));
    op->has_begun = true;
}

static bool is_before(const struct log_stream *s, const struct msg_place *place)
{
    return s->rank < place->rank || (s->rank == place->rank && s->what < place->what);
}

/* Of those that it had lines of when it was here before: both lists are in order. */
static void take_places(struct asker *op, struct bytes places)
{
    struct msg_place place;
    size_t i = 0;

    while (msg_place_take(&places, &place)) {
        while (i < op->n_streams && is_before(&op->stream[i], &place)) {
            i++;
        }
        if (i < op->n_streams && op->stream[i].rank == place.rank &&
            op->stream[i].what == place.what) {
            op->stream[i].offset = place.offset;
        }
    }
}

static uint64_t poll_ms(const struct asker *op)
{
    return POLL_MS + POLL_MORE_MS * op->n_streams;
}

/* ---- asking ---- */

static void inspect(const struct job *j, const struct log_stream *s, uint8_t follow)
{
    struct msg m = {.type = MSG_INSPECT,
                    .u.inspect = {
                        .generation = s->generation,
                        .request = s->request,
                        .rank = s->rank,
                        .what = s->what,
                        .offset = s->offset,
                        .follow = follow,
                    }};

    j->sink.send(j->sink.arg, s->session, &m);
}

static void ask(struct asker *op, const struct job *j, struct log_stream *s,
                uint64_t now_ms)
{
    s->is_asked = true;
    s->asked_ms = now_ms;
    op->n_asked++;
    inspect(j, s, op->follows ? INSPECT_FOLLOWS : INSPECT_ONCE);
}

/* So that the last words of the generation at hand come, however soon that is. */
static void announce(const struct asker *op, const struct job *j)
{
    for (size_t i = 0; i < op->n_streams; i++) {
        const struct log_stream *s = &op->stream[i];

        if (s->generation == op->generation) {
            inspect(j, s, INSPECT_WILL_FOLLOW);
        }
    }
}

/* Its node is gone, or cut off, or its files lie on a disk that hangs: who follows asks
 * again, until the job goes on without it. */
static void give_up(const struct operators *o, struct asker *op, struct log_stream *s,
                    uint64_t now_ms)
{
    if (op->follows && s->generation == op->generation) {
        operator_lines_stop_asking(op, s);
        s->due_ms = now_ms + PATIENCE_MS;
    } else {
        operator_lines_cut(o, op, s, "its node does not answer");
    }
}

static bool is_lost(const struct asker *op, const struct job *j,
                    const struct log_stream *s)
{
    bool is_here = s->generation == op->generation; /* or will be missed */

    for (size_t i = 0; i < j->n_nodes && !is_here; i++) {
        is_here = j->node[i]->session == s->session;
    }
    return !is_here;
}

static void ask_or_wait(const struct operators *o, struct asker *op,
                        const struct job *j, struct log_stream *s, uint64_t now_ms)
{
    if (is_lost(op, j, s)) {
        operator_lines_cut(o, op, s, "its node has gone");
    } else if (s->is_asked && now_ms - s->asked_ms >= PATIENCE_MS) {
        give_up(o, op, s, now_ms);
    } else if (!s->is_asked && s->due_ms <= now_ms && op->n_asked < MAX_ASKED) {
        ask(op, j, s, now_ms);
    }
    if (s->is_asked) {
        op->due_ms = MIN(op->due_ms, s->asked_ms + PATIENCE_MS);
    } else if (s->is_ended || op->n_asked < MAX_ASKED) { /* others' turn has come */
        op->due_ms = MIN(op->due_ms, MAX(s->due_ms, now_ms + 1));
    }
}

static void ask_in_turn(const struct operators *o, struct asker *op,
                        const struct job *j, uint64_t now_ms)
{
    uint64_t turn = operator_lines_turn(o, op);

    op->due_ms = UINT64_MAX;
    for (size_t n = 0; n < op->n_streams; n++) {
        struct log_stream *s = &op->stream[(op->next + n) % op->n_streams];

        if (!s->is_ended && s->generation == turn) {
            ask_or_wait(o, op, j, s, now_ms);
        }
    }
    op->next = op->n_streams > 0 ? (op->next + 1) % op->n_streams : 0;
}

static bool has_ended(const struct asker *op)
{
    return !operator_lines_first(op);
}

static void fail_without_ranks(const struct operators *o, struct asker *op,
                               const struct job *j)
{
    if (j->generation == 0) {
        operator_fail(o, op, EXIT_NO_SUCH,
                      "job %s has not started yet: there is nothing to read (--follow "
                      "waits for it)",
                      j->id);
    } else if (op->rank < 0) {
        operator_fail(
            o, op, EXIT_NO_SUCH,
            "the logs of job %s cannot be read: its nodes have gone (--follow "
            "waits for others)",
            j->id);
    } else if ((uint32_t)op->rank < op->world) {
        operator_fail(o, op, EXIT_NO_SUCH,
                      "rank %d of job %s cannot be read: its node has gone",
                      (int)op->rank, j->id);
    } else {
        operator_fail(o, op, EXIT_NO_SUCH, "job %s has no rank %d: it has %u", j->id,
                      (int)op->rank, op->world);
    }
}

/* For who starts, or comes back; who comes again has seen such a rank. */
static bool may_wait(const struct asker *op, const struct msg_ask *ask)
{
    bool is_none = op->rank >= 0 && (uint32_t)op->rank >= op->world;

    return op->follows && (op->generation == 0 || ask->generation != 0 || !is_none);
}

static bool are_too_many(const struct asker *op)
{
    return op->rank < 0 && op->world > MAX_STREAMS / ARRAY_LEN(kinds);
}

static void fail_with_crowd(const struct operators *o, struct asker *op)
{
    operator_fail(o, op, EXIT_MISTAKE,
                  "job %s has %u ranks, whose logs are too many to read at once (%d): "
                  "choose one by --rank",
                  op->job, op->world, MAX_STREAMS / (int)ARRAY_LEN(kinds));
}

void operator_logs_begin(struct operators *o, struct asker *op,
                         const struct msg_ask *ask, uint64_t now_ms)
{
    const struct job *j = operator_job(o, op, op->job);
    bool is_another = j && ask->generation != 0 && ask->generation != j->generation;

    op->asking = ASKING_LOGS;
    op->rank = ask->rank;
    op->from_end = ask->after != 0;
    op->has_begun = is_another; /* what is new is wanted from its beginning */
    op->due_ms = 0;
    op->generation = 0;
    if (j && j->generation > 0) {
        plan(o, op, j, now_ms);
    }
    if (!is_another) {
        take_places(op, ask->places);
    }
    if (j && op->n_streams == 0 && !may_wait(op, ask)) {
        fail_without_ranks(o, op, j);
    } else if (are_too_many(op)) {
        fail_with_crowd(o, op);
    } else {
        operator_logs_go_on(o, op, now_ms);
    }
}

void operator_logs_go_on(struct operators *o, struct asker *op, uint64_t now_ms)
{
    struct job *j = operator_job(o, op, op->job);
    bool is_next;

    if (operator_job_ended(j) || (!op->follows && has_ended(op))) {
        operator_lines_cut_all(o, op, op->n_streams, "the job has ended");
        operator_finish(o, op);
        return;
    }
    is_next = op->follows && j->generation != op->generation;
    if (now_ms < op->due_ms && !is_next) {
        return;
    }
    if (is_next) {
        plan(o, op, j, now_ms);
        announce(op, j);
    }
    if (are_too_many(op)) { /* it has grown since */
        fail_with_crowd(o, op);
        return;
    }
    if (j->n_away > 0 || o->config.is_behind(o->config.arg, op->conn)) {
        op->due_ms = now_ms + OPERATOR_BEHIND_MS; /* who is away would not hear it */
    } else {
        ask_in_turn(o, op, j, now_ms);
    }
    if (!op->follows && has_ended(op)) {
        operator_finish(o, op); /* the last of them does not answer */
    }
}

static void take_piece(const struct operators *o, struct asker *op,
                       struct log_stream *s, const struct msg_inspected *m)
{
    operator_lines_held(o, op, s); /* it had no time yet */
    operator_lines_piece(o, op, s, m);
    if (strcmp(m->state, INSPECT_NO_LOG) == 0) {
        operator_lines_note(
            o, op, s, "has no log file: ctrun was started with --log-dir=/dev/null");
    } else if (strcmp(m->state, INSPECT_GONE) == 0) {
        operator_lines_cut(o, op, s, "its node has forgotten where it was");
    }
    s->is_ended = m->state[0] != '\0';
}

void operator_logs_take(struct operators *o, struct asker *op,
                        const struct msg_inspected *m, uint64_t now_ms)
{
    struct log_stream *s = operator_logs_find(op, m->request);

    if (!s || s->is_ended || s->is_held_all) {
        return;
    }
    if (operator_lines_is_early(op, s)) {
        operator_lines_hold(o, op, s, m);
    } else {
        take_piece(o, op, s, m);
    }
    if (m->more == 0 && s->is_asked) {
        operator_lines_stop_asking(op, s);
        s->due_ms = m->body.size > 0 ? now_ms : now_ms + poll_ms(op);
    }
    op->due_ms = now_ms;
    operator_logs_go_on(o, op, now_ms);
}
