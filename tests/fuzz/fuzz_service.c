/* Bytes as what several agents say to one service, in any order, with time passing:
 * nothing may break an assertion, leak, or keep the service's timer spinning, and what
 * was saved meanwhile is what the next service takes up. Each
 * command is an opcode and a few bytes; messages come from a template with the fields
 * that matter set from the input, so that jobs run, drain and form again. */

#include "rendezvous/service.h"
#include "tests/lib/shelf.h"

#include "common/check.h"
#include "common/err.h"
#include "common/mem.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    CONNS = 6, /* from 1 on: 0 is none */
    HEAD = 5,  /* of a frame: its length and type */
};

struct input {
    const uint8_t *data;
    size_t size;
};

struct world {
    struct service *service;
    struct shelf shelf;
    bool is_open[CONNS + 1];
    uint64_t generation[CONNS + 1]; /* the last ROUND's */
    uint64_t now_ms;
};

static uint8_t take(struct input *in)
{
    if (in->size == 0) {
        return 0;
    }
    in->size--;
    return *in->data++;
}

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    struct world *w = arg;

    ASSERT(conn <= CONNS && w->is_open[conn]);
    if (m->type == MSG_ROUND) {
        ASSERT(m->u.round.generation > w->generation[conn]);
        ASSERT(m->u.round.group_rank < m->u.round.group_world);
        w->generation[conn] = m->u.round.generation;
    }
}

static void on_close(void *arg, uint64_t conn)
{
    struct world *w = arg;

    ASSERT(conn <= CONNS && w->is_open[conn]);
    w->is_open[conn] = false;
}

static void on_save(void *arg, const struct record *r)
{
    struct world *w = arg;

    shelf_save(&w->shelf, r);
}

/* As no agent says it. */
static void make_odd(struct msg_hello *h, uint8_t bits)
{
    h->version = bits == 255 ? MSG_VERSION + 1 : MSG_VERSION;
    h->on_hang = bits == 254 ? 9 : ON_HANG_RESTART;
    h->group_rank = bits == 253 ? -9 : h->group_rank;
    h->node_rank = bits == 252 ? -9 : h->node_rank;
    h->start = bits == 251 ? 5 : 0; /* of another service */
    h->job[0] = bits == 251 ? '\0' : h->job[0];
    h->host[0] = bits == 250 ? '\0' : h->host[0];
}

static void make_hello(struct msg_hello *h, struct input *in)
{
    uint8_t bits = take(in);

    h->job[0] = bits & 1 ? 'x' : 'y';
    h->host[0] = (char)('a' + (bits >> 1) % 4);
    h->agent_id = (bits >> 1) % 4;
    h->min_nodes = 1 + (bits >> 3) % 2;
    h->max_nodes = h->min_nodes + (bits >> 4) % 3;
    h->nproc = 1;
    h->max_restarts = 2;
    h->last_call_ms = 1000;
    h->node_rank = bits & 64 ? (bits >> 1) % 2 : -1;
    h->group_rank = bits & 128 ? 1 : -1;
    h->generation = bits & 128 ? take(in) : 0;
    h->commit_step = bits & 128 ? 5 : 0;
    h->commit_hash[0] = bits & 128 ? 'h' : '\0';
    make_odd(h, bits);
}

static void make_join(struct msg_join *join, struct input *in)
{
    uint8_t bits = take(in);

    join->max_world = bits & 3;
    join->after = bits >> 2;
    join->addr[0] = '1';
    join->role[0] = bits & 4 ? 'a' : 'b';
}

static void make_ended(struct msg_rank_ended *e, struct input *in, uint64_t now_ms)
{
    uint8_t bits = take(in);

    e->rank = bits & 3;
    e->exit_code = bits & 4 ? 80 + ((bits >> 3) & 3) : (bits >> 3) & 3;
    e->signal = bits & 32 ? 11 : 0;
    e->engine = bits & 64;
    e->stopped = bits & 128;
    e->step = 3;
    e->ended_ms = now_ms - 1000 + 4 * (uint64_t)take(in);
}

static void make_store(struct msg_store *store, struct input *in)
{
    uint8_t bits = take(in);
    size_t wanted = take(in) % 32;

    store->client = bits & 3;
    store->seq = 1 + (bits >> 2) % 8;
    store->more = bits >> 7;
    store->op = take(in);
    store->body.size = MIN(in->size, wanted);
    store->body.data = in->data;
    in->data += store->body.size;
    in->size -= store->body.size;
}

/* About the connection's generation, mostly. */
static uint64_t some_generation(const struct world *w, uint64_t conn, struct input *in)
{
    uint8_t bits = take(in);

    return bits < 240 ? w->generation[conn] : w->generation[conn] + bits - 247;
}

static void make_message(const struct world *w, uint64_t conn, struct input *in,
                         struct msg *m)
{
    m->type = (enum msg_type)(1 + take(in) % MSG_CLOSED);
    if (m->type == MSG_HELLO) {
        make_hello(&m->u.hello, in);
    } else if (m->type == MSG_JOIN) {
        make_join(&m->u.join, in);
        m->u.join.after = some_generation(w, conn, in);
    } else if (m->type == MSG_RANK_ENDED) {
        make_ended(&m->u.rank_ended, in, w->now_ms);
        m->u.rank_ended.generation = some_generation(w, conn, in);
    } else if (m->type == MSG_STOPPED) {
        m->u.stopped.generation = some_generation(w, conn, in);
        m->u.stopped.done = take(in) & 1;
    } else if (m->type == MSG_REFUSE) {
        m->u.refuse.generation = some_generation(w, conn, in);
        m->u.refuse.exit_code = take(in);
        m->u.refuse.max_world = take(in) & 7;
    } else if (m->type == MSG_RESUMED) {
        m->u.resumed.generation = some_generation(w, conn, in);
        m->u.resumed.step = take(in);
    } else if (m->type == MSG_COMMIT) {
        m->u.commit.generation = some_generation(w, conn, in);
        m->u.commit.step = take(in);
        m->u.commit.hash[0] = 'h';
    } else if (m->type == MSG_STORE) {
        make_store(&m->u.store, in);
        m->u.store.generation = some_generation(w, conn, in);
    } else if (m->type == MSG_STORE_CLOSE) {
        m->u.store_close.generation = some_generation(w, conn, in);
        m->u.store_close.client = take(in) & 3;
        m->u.store_close.seq = take(in) & 3;
    }
}

static void close_conn(struct world *w, uint64_t conn)
{
    w->is_open[conn] = false;
    service_closed(w->service, conn, w->now_ms);
}

static void open_conn(struct world *w, uint64_t conn)
{
    w->is_open[conn] = true;
    w->generation[conn] = 0;
    service_opened(w->service, conn, "10.0.0.1", w->now_ms);
}

static void send(struct world *w, uint64_t conn, const struct msg *m)
{
    if (!w->is_open[conn]) {
        open_conn(w, conn);
    }
    if (service_message(w->service, conn, m, w->now_ms) < 0) {
        close_conn(w, conn);
    }
}

/* HELLO and JOIN, as an honest agent begins. */
static void enter(struct world *w, uint64_t conn, struct input *in)
{
    struct msg m = {.type = MSG_HELLO};

    make_hello(&m.u.hello, in);
    send(w, conn, &m);
    m = (struct msg){.type = MSG_JOIN};
    make_join(&m.u.join, in);
    send(w, conn, &m);
}

static void say(struct world *w, uint64_t conn, struct input *in)
{
    struct msg m = {0};

    make_message(w, conn, in, &m);
    send(w, conn, &m);
}

/* Some bytes of it are others, wherever they lie: a field has what no agent gives it. */
static void say_crooked(struct world *w, uint64_t conn, struct input *in)
{
    static struct msg crooked; /* large */
    struct msg m = {0};
    struct buf out;
    uint8_t *frame;
    size_t size;

    make_message(w, conn, in, &m);
    buf_init(&out, MSG_MAX_FRAME);
    size = msg_encode(&m, &out) < 0 ? 0 : buf_len(&out);
    frame = mem_alloc(MAX(size, 1));
    memcpy(frame, buf_bytes(&out), size);
    buf_release(&out);
    for (unsigned n = 1 + take(in) % 4; n > 0 && size > HEAD; n--) {
        size_t where = take(in) + 256 * (size_t)(take(in) & 1);

        frame[HEAD + where % (size - HEAD)] = take(in);
    }
    if (msg_decode(frame, size, &crooked) > 0) {
        send(w, conn, &crooked);
    }
    mem_free(frame);
}

static void pass_time(struct world *w, uint8_t much)
{
    w->now_ms += 20 * (uint64_t)much;
    service_tick(w->service, w->now_ms);
    ASSERT(service_deadline(w->service) > w->now_ms);
}

static void play(struct world *w, struct input *in)
{
    while (in->size > 0) {
        uint8_t command = take(in);
        uint64_t conn = 1 + command % CONNS;

        if (command >= 248) {
            pass_time(w, take(in));
        } else if (command >= 240 && w->is_open[conn]) {
            close_conn(w, conn);
        } else if (command >= 232) {
            say_crooked(w, conn, in);
        } else if (command >= 200) {
            enter(w, conn, in);
        } else {
            say(w, conn, in);
        }
    }
}

static struct service *new_service(struct world *w)
{
    return service_new(&(struct service_config){
        .cluster = 1,
        .lease_ms = 3000,
        .seed = 3,
        .sink = {.arg = w, .send = on_send, .close = on_close, .save = on_save}});
}

/* No peer can bring about a state that is refused. */
static void check_saved(struct world *w)
{
    struct world next = {.now_ms = w->now_ms};
    struct errmsg msg;

    shelf_commit(&w->shelf);
    next.service = new_service(&next);
    ASSERT(shelf_restore(&w->shelf, next.service, NULL, next.now_ms, &msg) == 0);
    service_free(next.service);
    shelf_release(&next.shelf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world w = {.now_ms = 5000};
    struct input in = {data, size};

    w.service = new_service(&w);
    play(&w, &in);
    check_saved(&w);
    for (uint64_t conn = 1; conn <= CONNS; conn++) {
        if (w.is_open[conn]) {
            close_conn(&w, conn);
        }
    }
    ASSERT(service_sessions(w.service) == 0);
    service_free(w.service);
    shelf_release(&w.shelf);
    return 0;
}
