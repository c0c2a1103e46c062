/* PURE. `ctrun logs`: the lines of ranks, read through the agents that have them. A
 * piece of a stream is asked for when the one before has come and the operator has taken
 * what it was sent; who follows asks again after a while. A new generation's logs follow
 * the old one's; what an agent still has when a rank ends comes without being asked. */

#include "rendezvous/job.h"
#include "rendezvous/operator_core.h"
#include "rendezvous/seats.h"

#include "common/exit_code.h"
#include "common/mem.h"
#include "common/utf8.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_STREAMS = 4096,
    MAX_ASKED = 16,          /* pieces under way for one operator */
    POLL_MS = 200,           /* of a stream that had nothing new … */
    POLL_MORE_MS = 2,        /* … and so much more for each stream */
    PATIENCE_MS = 10 * 1000, /* with an agent */
};

static const uint8_t kinds[] = {INSPECT_LOG, INSPECT_LOG_ERRORS}; /* in order */

void operator_logs_release(struct asker *op)
{
    mem_free(op->stream);
    op->stream = NULL;
    op->n_streams = 0;
    op->n_asked = 0;
}

/* ---- what is said to the operator ---- */

static void put_line(const struct operators *o, const struct asker *op, json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT);

    json_decref(line);
    if (text) {
        size_t len = strlen(text);

        text[len] = '\n'; /* where its end was */
        operator_answer(o, op, text, len + 1);
        free(text); /* NOLINT: jansson's */
    }
}

static json_t *begin_line(const struct asker *op, const struct log_stream *s)
{
    return json_pack("{s:I, s:i, s:s}", "generation", (json_int_t)op->generation,
                     "rank", (int)s->rank, "stream",
                     s->what == INSPECT_LOG ? "stdout" : "stderr");
}

static void put_note(const struct operators *o, const struct asker *op,
                     const struct log_stream *s, const char *note)
{
    json_t *line = begin_line(op, s);

    (void)json_object_set_new(line, "note", json_string(note)); /* out of memory only */
    put_line(o, op, line);
}

/* `next`: the place behind it. */
static void put_text(const struct operators *o, const struct asker *op,
                     const struct log_stream *s, struct bytes text, uint64_t next)
{
    json_t *line = begin_line(op, s);
    struct buf clean;
    int rv;

    buf_init(&clean, 3 * (size_t)MSG_MAX_FRAME);
    rv = utf8_clean(&clean, text.data, text.size);
    rv = rv < 0 ? rv : buf_append(&clean, "", 1);
    ASSERT(rv == 0); /* it was a frame's */
    (void)json_object_set_new(line, "text",
                              json_string((const char *)buf_bytes(&clean)));
    (void)json_object_set_new(line, "next", json_integer((json_int_t)next));
    buf_release(&clean);
    put_line(o, op, line);
}

/* How much of a piece was there already: who was given up and asked again may answer
 * both times. */
static size_t known_bytes(const struct log_stream *s, uint64_t offset, size_t size)
{
    bool is_late = s->offset != UINT64_MAX && offset < s->offset;

    return is_late ? MIN(s->offset - offset, (uint64_t)size) : 0;
}

/* The last words of a rank that has said much at once are its last ones. */
static void note_gap(const struct operators *o, const struct asker *op,
                     const struct log_stream *s, const struct msg_inspected *m)
{
    char note[128];

    if (s->offset < m->offset && m->body.size > 0) { /* UINT64_MAX: it has none yet */
        (void)snprintf(note, sizeof(note),
                       "has said %llu bytes more before this: they are in its log file",
                       (unsigned long long)(m->offset - s->offset));
        put_note(o, op, s, note);
    }
}

/* An agent sends whole lines, but for those that are longer than a piece. */
static void put_lines(const struct operators *o, const struct asker *op,
                      const struct log_stream *s, const struct msg_inspected *m)
{
    size_t known = known_bytes(s, m->offset, m->body.size);
    const uint8_t *at = m->body.data + known;
    size_t left = m->body.size - known;

    while (left > 0) {
        const uint8_t *end = memchr(at, '\n', left);
        struct bytes text = {at, end ? (size_t)(end - at) : left};
        size_t taken = text.size + (end != NULL);

        left -= taken;
        put_text(o, op, s, text, m->offset + m->body.size - left);
        at += taken;
    }
}

/* ---- which streams there are ---- */

static void add_node(struct asker *op, const struct seat *seat, uint64_t now_ms)
{
    for (uint32_t i = 0; i < seat->nproc && op->n_streams < MAX_STREAMS; i++) {
        uint32_t rank = seat->first_rank + i;

        if (op->rank >= 0 && rank != (uint32_t)op->rank) {
            continue;
        }
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            op->stream[op->n_streams++] = (struct log_stream){
                .session = seat->node->session,
                .rank = rank,
                .what = kinds[k],
                .due_ms = now_ms,
                .offset = op->from_end && !op->has_begun ? UINT64_MAX : 0,
            };
        }
    }
}

/* The streams of the generation at hand, none of the one before. Nobody can read those of
 * a node that has gone. */
static void plan(struct operators *o, struct asker *op, const struct job *j,
                 uint64_t now_ms)
{
    struct seats seats;

    seats_find(&seats, j);
    operator_logs_release(op);
    op->generation = j->generation;
    op->stream = mem_array(MAX_STREAMS + ARRAY_LEN(kinds), sizeof(*op->stream));
    op->world = seats.world;
    for (size_t i = 0; i < seats.n; i++) {
        if (seats.seat[i].node) {
            add_node(op, &seats.seat[i], now_ms);
        }
    }
    seats_release(&seats);
    op->stream = mem_grow(op->stream, MAX(op->n_streams, 1), sizeof(*op->stream));
    op->first_request = OPERATOR_REQUESTS | (o->n_requests + 1);
    o->n_requests += op->n_streams;
    op->next = 0;
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

static void ask(const struct asker *op, struct job *j, size_t i, uint64_t now_ms)
{
    struct log_stream *s = &op->stream[i];
    struct msg m = {.type = MSG_INSPECT,
                    .u.inspect = {
                        .generation = op->generation,
                        .request = op->first_request + i,
                        .rank = s->rank,
                        .what = s->what,
                        .offset = s->offset,
                        .follow = op->follows,
                    }};

    s->is_asked = true;
    s->asked_ms = now_ms;
    j->sink.send(j->sink.arg, s->session, &m);
}

/* Its node is gone, or cut off, or its files lie on a disk that hangs: who follows asks
 * again, until the job goes on without it. */
static void give_up(const struct operators *o, struct asker *op, struct log_stream *s,
                    uint64_t now_ms)
{
    s->is_asked = false;
    op->n_asked--;
    if (op->follows) {
        s->due_ms = now_ms + PATIENCE_MS;
    } else {
        put_note(o, op, s, "its node does not answer");
        s->is_ended = true;
    }
}

static void ask_in_turn(const struct operators *o, struct asker *op, struct job *j,
                        uint64_t now_ms)
{
    op->due_ms = UINT64_MAX;
    for (size_t n = 0; n < op->n_streams; n++) {
        size_t i = (op->next + n) % op->n_streams;
        struct log_stream *s = &op->stream[i];

        if (s->is_asked && now_ms - s->asked_ms >= PATIENCE_MS) {
            give_up(o, op, s, now_ms);
        } else if (!s->is_asked && !s->is_ended && s->due_ms <= now_ms &&
                   op->n_asked < MAX_ASKED) {
            ask(op, j, i, now_ms);
            op->n_asked++;
        }
        if (s->is_asked) {
            op->due_ms = MIN(op->due_ms, s->asked_ms + PATIENCE_MS);
        } else if (!s->is_ended && op->n_asked < MAX_ASKED) {
            op->due_ms = MIN(op->due_ms, MAX(s->due_ms, now_ms + 1));
        }
    }
    op->next = op->n_streams > 0 ? (op->next + 1) % op->n_streams : 0;
}

static bool has_ended(const struct asker *op)
{
    for (size_t i = 0; i < op->n_streams; i++) {
        if (!op->stream[i].is_ended) {
            return false;
        }
    }
    return true;
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

/* For who starts, or comes back. */
static bool may_wait(const struct asker *op)
{
    bool is_none = op->rank >= 0 && (uint32_t)op->rank >= op->world;

    return op->follows && (op->generation == 0 || !is_none);
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
    if (j && op->n_streams == 0 && !may_wait(op)) {
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
        operator_finish(o, op);
        return;
    }
    is_next = op->follows && j->generation != op->generation;
    if (now_ms < op->due_ms && !is_next) {
        return;
    }
    if (is_next) {
        plan(o, op, j, now_ms);
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

void operator_logs_take(struct operators *o, struct asker *op,
                        const struct msg_inspected *m, uint64_t now_ms)
{
    struct log_stream *s = &op->stream[m->request - op->first_request];

    if (s->is_ended) {
        return;
    }
    note_gap(o, op, s, m);
    put_lines(o, op, s, m);
    s->offset = s->offset == UINT64_MAX ? m->offset + m->body.size
                                        : MAX(s->offset, m->offset + m->body.size);
    if (strcmp(m->state, INSPECT_NO_LOG) == 0) {
        put_note(o, op, s,
                 "has no log file: ctrun was started with --log-dir=/dev/null");
    }
    s->is_ended = m->state[0] != '\0';
    if (m->more == 0 && s->is_asked) {
        s->is_asked = false;
        op->n_asked--;
        s->due_ms = m->body.size > 0 ? now_ms : now_ms + poll_ms(op);
    }
    op->due_ms = now_ms;
    operator_logs_go_on(o, op, now_ms);
}
