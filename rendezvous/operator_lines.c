/* PURE. `ctrun logs`: what an operator is told of the streams that are read for it
 * (operator_logs.c), in the order of their generations: last words that come before
 * their turn are held, and what cannot be read any more is said. */

#include "rendezvous/operator_core.h"

#include "common/mem.h"
#include "common/utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_HELD = 4 * 1024 * 1024, /* bytes, of those whose turn has not come, of one … */
    HELD_PIECE = 64 * 1024,     /* … operator; told in pieces, as they came */
};

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

static json_t *begin_line(const struct log_stream *s)
{
    return json_pack("{s:I, s:i, s:s}", "generation", (json_int_t)s->generation, "rank",
                     (int)s->rank, "stream",
                     s->what == INSPECT_LOG ? "stdout" : "stderr");
}

void operator_lines_note(const struct operators *o, const struct asker *op,
                         const struct log_stream *s, const char *note)
{
    json_t *line = begin_line(s);

    (void)json_object_set_new(line, "note", json_string(note)); /* out of memory only */
    put_line(o, op, line);
}

/* `next`: the place behind it. */
static void put_text(const struct operators *o, const struct asker *op,
                     const struct log_stream *s, struct bytes text, uint64_t next)
{
    json_t *line = begin_line(s);
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
        operator_lines_note(o, op, s, note);
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

void operator_lines_piece(const struct operators *o, const struct asker *op,
                          struct log_stream *s, const struct msg_inspected *m)
{
    uint64_t end = m->offset + m->body.size;

    note_gap(o, op, s, m);
    put_lines(o, op, s, m);
    s->offset = s->offset == UINT64_MAX ? end : MAX(s->offset, end);
}

/* ---- what comes before its turn ---- */

void operator_lines_drop(struct asker *op, struct log_stream *s)
{
    if (s->is_held) {
        op->n_held -= buf_len(&s->held);
        buf_release(&s->held);
        s->is_held = false;
        s->is_held_all = false;
    }
}

const struct log_stream *operator_lines_first(const struct asker *op)
{
    for (size_t i = 0; i < op->n_streams; i++) {
        if (!op->stream[i].is_ended) {
            return &op->stream[i];
        }
    }
    return NULL;
}

bool operator_lines_is_early(const struct asker *op, const struct log_stream *s)
{
    return s->generation !=
           operator_lines_first(op)->generation; /* it has not ended itself */
}

static size_t held_by_all(const struct operators *o)
{
    size_t n = 0;

    for (size_t i = 0; i < o->n; i++) {
        n += o->list[i].n_held;
    }
    return n;
}

static bool has_room(const struct operators *o, const struct asker *op, size_t size)
{
    return op->n_held + size <= MAX_HELD && held_by_all(o) + size <= OPERATORS_MAX_HELD;
}

/* What another generation has said can be read later, unless the job ends with this
 * one. */
static bool make_room(const struct operators *o, struct asker *op,
                      const struct log_stream *s, size_t size)
{
    for (size_t i = 0; i < op->n_streams && !has_room(o, op, size); i++) {
        if (op->stream[i].generation != s->generation) {
            operator_lines_drop(op, &op->stream[i]);
        }
    }
    return has_room(o, op, size);
}

/* In one piece, from some place to its end: what does not fit is read in its turn. */
void operator_lines_hold(const struct operators *o, struct asker *op,
                         struct log_stream *s, const struct msg_inspected *m)
{
    if (!s->is_held) {
        buf_init(&s->held, MAX_HELD);
        s->held_at = m->offset;
        s->is_held = true;
    }
    if (m->offset != s->held_at + buf_len(&s->held) ||
        !make_room(o, op, s, m->body.size) ||
        buf_append(&s->held, m->body.data, m->body.size) < 0) {
        return;
    }
    op->n_held += m->body.size;
    s->is_held_all = strcmp(m->state, INSPECT_ENDED) == 0;
}

static size_t next_piece(struct bytes left)
{
    size_t size = MIN(left.size, (size_t)HELD_PIECE);
    const uint8_t *end = memrchr(left.data, '\n', size);

    return end && size < left.size ? (size_t)(end - left.data) + 1 : size;
}

void operator_lines_held(const struct operators *o, struct asker *op,
                         struct log_stream *s)
{
    struct msg_inspected m = {.offset = s->held_at};
    struct bytes left = {NULL, 0};

    if (s->is_held) {
        left = (struct bytes){buf_bytes(&s->held), buf_len(&s->held)};
    }
    while (left.size > 0) {
        m.body = (struct bytes){left.data, next_piece(left)};
        operator_lines_piece(o, op, s, &m);
        m.offset += m.body.size;
        left = (struct bytes){left.data + m.body.size, left.size - m.body.size};
    }
    s->is_ended = s->is_ended || s->is_held_all;
    operator_lines_drop(op, s);
}

uint64_t operator_lines_turn(const struct operators *o, struct asker *op)
{
    uint64_t turn = 0;

    for (size_t i = 0; i < op->n_streams; i++) {
        struct log_stream *s = &op->stream[i];

        if (s->is_ended) {
            continue;
        }
        if (turn != 0 && s->generation != turn) {
            break;
        }
        operator_lines_held(o, op, s);
        turn = s->is_ended ? turn : s->generation;
    }
    return turn;
}

/* ---- what cannot be read ---- */

void operator_lines_stop_asking(struct asker *op, struct log_stream *s)
{
    op->n_asked -= s->is_asked;
    s->is_asked = false;
}

/* Of a rank's two streams the first has the word for both. */
static bool is_said(const struct asker *op, const struct log_stream *s)
{
    return s > op->stream && s[-1].is_cut && s[-1].rank == s->rank &&
           s[-1].generation == s->generation;
}

void operator_lines_cut(const struct operators *o, struct asker *op,
                        struct log_stream *s, const char *why)
{
    char note[160];

    operator_lines_held(o, op, s);
    operator_lines_stop_asking(op, s);
    if (s->is_ended) {
        return;
    }
    s->is_cut = true;
    s->is_ended = true;
    (void)snprintf(note, sizeof(note),
                   "what else it said in generation %llu is in its log files only: %s",
                   (unsigned long long)s->generation, why);
    if (!is_said(op, s)) {
        operator_lines_note(o, op, s, note);
    }
}

/* The first so many. */
void operator_lines_cut_all(const struct operators *o, struct asker *op, size_t n,
                            const char *why)
{
    for (size_t i = 0; i < n; i++) {
        operator_lines_cut(o, op, &op->stream[i], why);
    }
}
