/* A durable server's turns: what it saves is committed a moment later, and what it says
 * waits for that, as does what comes meanwhile. A server that is killed in between has
 * lost the turn, or has it on its disk, and nobody has heard of it. */

#include "tests/lib/cluster.h"

#include "common/mem.h"

#include <string.h>

enum { COMMIT_MAX_MS = 5, SLOW_MS = 200, SLOW_PERCENT = 2, KILLED_PERCENT = 50 };

/* A word of the server that waits for its turn's commit. */
struct said {
    uint64_t conn;
    struct msg *m;     /* owned; NULL: the connection is closed */
    struct msg *asked; /* owned: what it answers; NULL: nothing that matters */
    struct conn *asked_conn;
};

static void free_said(struct said *s)
{
    mem_free(s->m);
    mem_free(s->asked);
}

/* Bytes that it borrows are kept with it. */
static struct msg *copy(const struct msg *m)
{
    struct bytes borrowed = {0};
    struct msg *c;

    if (m->type == MSG_ROUND) {
        borrowed = m->u.round.nodes;
    } else if (m->type == MSG_STORE_REPLY) {
        borrowed = m->u.store_reply.body;
    } else if (m->type == MSG_ANSWER) {
        borrowed = m->u.answer.body;
    }
    c = mem_alloc(sizeof(*c) + borrowed.size);
    *c = *m;
    if (borrowed.size > 0) {
        memcpy(c + 1, borrowed.data, borrowed.size);
    }
    borrowed.data = (const uint8_t *)(c + 1);
    if (m->type == MSG_ROUND) {
        c->u.round.nodes = borrowed;
    } else if (m->type == MSG_STORE_REPLY) {
        c->u.store_reply.body = borrowed;
    } else if (m->type == MSG_ANSWER) {
        c->u.answer.body = borrowed;
    }
    return c;
}

static void queue(struct cluster *c, uint64_t conn, const struct msg *m)
{
    const struct msg *asked = c->at_hand;
    bool matters = asked && (asked->type == MSG_HELLO || asked->type == MSG_COMMIT ||
                             asked->type == MSG_RESUMED);
    struct said *s;

    c->said = mem_grow(c->said, c->n_said + 1, sizeof(*c->said));
    s = &c->said[c->n_said++];
    *s = (struct said){.conn = conn,
                       .m = m ? copy(m) : NULL,
                       .asked = matters ? mem_dup(asked, sizeof(*asked)) : NULL,
                       .asked_conn = c->at_hand_conn};
}

void disk_send(void *arg, uint64_t conn, const struct msg *m)
{
    queue(arg, conn, m);
}

void disk_close(void *arg, uint64_t conn)
{
    struct cluster *c = arg;

    if (conn < OPERATOR_CONN) {
        c->conns[conn - 1]->is_closing = true;
    }
    queue(c, conn, NULL);
}

void disk_save(void *arg, const struct record *r)
{
    struct cluster *c = arg;

    shelf_save(&c->shelf, r);
}

uint64_t disk_kept(void *arg)
{
    const struct cluster *c = arg;

    return shelf_kept(&c->shelf);
}

static void release(struct cluster *c)
{
    for (size_t i = 0; i < c->n_said; i++) {
        struct said *s = &c->said[i];

        c->at_hand = s->asked;
        c->at_hand_conn = s->asked_conn;
        if (s->m) {
            serving_sends(c, s->conn, s->m);
        } else {
            serving_closes(c, s->conn);
        }
        free_said(s);
    }
    c->at_hand = NULL;
    c->n_said = 0;
}

static void forget(struct cluster *c)
{
    for (size_t i = 0; i < c->n_said; i++) {
        free_said(&c->said[i]);
    }
    c->n_said = 0;
}

/* `tag`: the turn. */
static void on_commit(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    if (!c->is_committing || tag != c->turn) {
        return; /* it was killed */
    }
    c->is_committing = false;
    shelf_commit(&c->shelf);
    release(c);
}

static uint64_t commit_ms(struct cluster *c)
{
    return sim_chance(&c->sim, SLOW_PERCENT) ? sim_random(&c->sim, SLOW_MS)
                                             : sim_random(&c->sim, COMMIT_MAX_MS);
}

/* `tag`: the server's life. */
static void on_turn_end(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    if (!c->is_in_turn || tag != c->server_life || !c->service) {
        return; /* it was killed, or the run is over */
    }
    c->is_in_turn = false;
    if (c->shelf.n_turn == 0) {
        release(c);
        return;
    }
    c->turn++;
    if (c->is_doomed) { /* in the midst of it */
        c->is_doomed = false;
        serving_kill(c);
        return;
    }
    c->is_committing = true;
    c->commit_until_ms = c->sim.now_ms + commit_ms(c) + 1;
    sim_at(&c->sim, c->commit_until_ms - 1, on_commit, c, c->turn);
}

/* All that has come at this time is of one turn. */
void disk_take_turn(struct cluster *c)
{
    if (!c->is_in_turn && !c->is_committing) {
        c->is_in_turn = true;
        sim_after(&c->sim, 0, on_turn_end, c, c->server_life);
    }
}

/* They are made, and given, though nobody has heard of them. */
static void note_words(struct cluster *c)
{
    for (size_t i = 0; i < c->n_said; i++) {
        const struct said *s = &c->said[i];

        if (s->m && s->m->type == MSG_DECISION) {
            c->at_hand = s->asked;
            serving_check_decision(c, &s->m->u.decision);
        } else if (s->m && s->m->type == MSG_DRAIN) {
            watch_drain(c->conns[s->conn - 1]->node);
        }
    }
    c->at_hand = NULL;
}

/* The turn at hand is lost, or it is not, but nobody has heard of it. */
void disk_kill(struct cluster *c)
{
    c->is_in_turn = false;
    c->is_committing = false;
    c->is_doomed = false;
    c->commit_until_ms = 0;
    if (sim_chance(&c->sim, KILLED_PERCENT)) {
        sim_note(&c->sim, "a turn of %zu records is lost", c->shelf.n_turn);
        shelf_lose(&c->shelf);
    } else {
        shelf_commit(&c->shelf);
        note_words(c);
    }
    forget(c);
}

void disk_release(struct cluster *c)
{
    forget(c);
    mem_free(c->said);
    shelf_release(&c->shelf);
    copy_release(c);
}
