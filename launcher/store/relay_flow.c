#include "launcher/store/relay_flow.h"

#include "common/err.h"
#include "common/mem.h"
#include "common/tcpstore.h"

#include <string.h>

enum { REQUEST_COST = 64 }; /* what a request without a body counts as held */

static const uint8_t cancelled = 1; /* the reply to CANCEL_WAIT */

/* A request that the service has not acknowledged. */
struct held {
    struct held *next;
    uint64_t seq;
    enum tcpstore_op op;
    bool is_begun;      /* a part of its reply was passed on … */
    struct buf waiting; /* … or waits here, so that it can be asked again */
    size_t size;
    uint8_t body[];
};

struct relay_flow {
    struct relay_flow_config config;
    struct tcpstore_parser parser;
    uint64_t last_seq;
    struct held *first, *last; /* owned, in order */
    size_t held;
    unsigned n_due; /* held ones whose replies the worker gets soon: all but waits */
};

struct relay_flow *relay_flow_new(const struct relay_flow_config *config)
{
    struct relay_flow *f = mem_zalloc(sizeof(*f));

    f->config = *config;
    tcpstore_parser_init(&f->parser, false);
    return f;
}

static void free_held(struct held *h)
{
    if (h) {
        buf_release(&h->waiting);
        mem_free(h);
    }
}

static void drop_all(struct relay_flow *f)
{
    while (f->first) {
        struct held *h = f->first;

        f->first = h->next;
        free_held(h);
    }
    f->last = NULL;
    f->held = 0;
    f->n_due = 0;
}

void relay_flow_free(struct relay_flow *f)
{
    if (!f) {
        return;
    }
    drop_all(f);
    mem_free(f);
}

bool relay_flow_is_known(const struct relay_flow *f)
{
    return f->last_seq > 0;
}

size_t relay_flow_held(const struct relay_flow *f)
{
    return f->held;
}

bool relay_flow_is_full(const struct relay_flow *f)
{
    return f->held >= f->config.max_held || f->n_due >= RELAY_FLOW_MAX_DUE;
}

bool relay_flow_is_idle(const struct relay_flow *f)
{
    return f->first == NULL;
}

static bool is_due(enum tcpstore_op op)
{
    return tcpstore_has_reply(op) && !tcpstore_may_wait(op);
}

/* --- towards the service --- */

static void send_request(const struct relay_flow *f, const struct held *h)
{
    struct msg m = {.type = MSG_STORE,
                    .u.store = {.generation = f->config.generation,
                                .client = f->config.client,
                                .seq = h->seq,
                                .op = (uint8_t)h->op}};
    size_t sent = 0;

    do {
        m.u.store.body.data = h->body + sent;
        m.u.store.body.size = MIN(h->size - sent, (size_t)MSG_MAX_CHUNK);
        sent += m.u.store.body.size;
        m.u.store.more = sent < h->size;
        f->config.send(f->config.arg, &m);
    } while (sent < h->size);
}

static void send_close(const struct relay_flow *f, uint64_t seq)
{
    struct msg m = {.type = MSG_STORE_CLOSE,
                    .u.store_close = {.generation = f->config.generation,
                                      .client = f->config.client,
                                      .seq = seq}};

    f->config.send(f->config.arg, &m);
}

/* Takes the first held request that `seq` (or, with 0, a parked wait) names off the
 * list. */
static struct held *take(struct relay_flow *f, uint64_t seq)
{
    struct held *before = NULL;
    struct held *h = f->first;

    while (h && !(seq ? h->seq == seq : tcpstore_may_wait(h->op))) {
        before = h;
        h = h->next;
    }
    if (!h) {
        return NULL;
    }
    *(before ? &before->next : &f->first) = h->next;
    f->last = f->last == h ? before : f->last;
    f->held -= h->size + REQUEST_COST;
    f->n_due -= is_due(h->op);
    return h;
}

static void forward(struct relay_flow *f, const struct tcpstore_request *request)
{
    struct held *h = mem_alloc(sizeof(*h) + request->size);

    free_held(take(f, 0)); /* a client that asks anew has given up waiting */
    *h = (struct held){.seq = ++f->last_seq, .op = request->op, .size = request->size};
    buf_init(&h->waiting, RELAY_FLOW_WHOLE);
    if (request->size > 0) {
        memcpy(h->body, request->body, request->size);
    }
    *(f->last ? &f->last->next : &f->first) = h;
    f->last = h;
    f->held += h->size + REQUEST_COST;
    f->n_due += is_due(h->op);
    send_request(f, h);
}

/* Answered here, unless replies are due that must come first. */
static void cancel_wait(struct relay_flow *f, const struct tcpstore_request *request)
{
    struct held *wait;

    if (f->n_due > 0) {
        forward(f, request);
        return;
    }
    wait = take(f, 0);
    if (wait) {
        send_close(f, wait->seq);
    }
    free_held(wait);
    f->config.reply(f->config.arg, &cancelled, 1);
}

static void handle(struct relay_flow *f, const struct tcpstore_request *request)
{
    if (request->op == TCPSTORE_VALIDATE) {
        return; /* the parser has checked it; there is no reply */
    }
    if (request->op == TCPSTORE_CANCEL_WAIT) {
        cancel_wait(f, request);
    } else if (request->op == TCPSTORE_PING && f->n_due == 0) {
        f->config.reply(f->config.arg, request->body, request->size);
    } else {
        forward(f, request);
    }
}

int relay_flow_input(struct relay_flow *f, struct buf *in)
{
    struct tcpstore_request request;
    int n;

    while (buf_len(in) > 0 && !relay_flow_is_full(f)) {
        n = tcpstore_parse(&f->parser, buf_bytes(in), buf_len(in), &request);
        if (n <= 0) {
            return n;
        }
        handle(f, &request);
        buf_consume(in, (size_t)n);
    }
    return 0;
}

int relay_flow_resend(struct relay_flow *f)
{
    int rv = 0;

    for (struct held *h = f->first, *next; h; h = next) {
        next = h->next;
        if (h->is_begun) {
            rv = ERR_CLOSED; /* what was written behind it goes all the same */
            free_held(take(f, h->seq));
        } else {
            buf_release(&h->waiting);
            send_request(f, h);
        }
    }
    return rv;
}

void relay_flow_end(struct relay_flow *f)
{
    free_held(take(f, 0));
    if (relay_flow_is_known(f)) {
        send_close(f, 0);
    }
}

/* --- towards the worker --- */

static struct held *find(const struct relay_flow *f, uint64_t seq)
{
    struct held *h = f->first;

    while (h && h->seq != seq) {
        h = h->next;
    }
    return h;
}

static void pass_on(const struct relay_flow *f, const struct buf *b)
{
    if (buf_len(b) > 0) {
        f->config.reply(f->config.arg, buf_bytes(b), buf_len(b));
    }
}

/* A part of a reply: whole, or of one that is too large to wait for its end. */
static void take_part(const struct relay_flow *f, struct held *h,
                      const struct msg_store_reply *m)
{
    bool is_some = m->more || buf_len(&h->waiting) > 0;

    if (is_some && !h->is_begun &&
        buf_append(&h->waiting, m->body.data, m->body.size) == 0) {
        if (!m->more) {
            pass_on(f, &h->waiting);
        }
        return;
    }
    pass_on(f, &h->waiting);
    buf_release(&h->waiting);
    h->is_begun = true;
    f->config.reply(f->config.arg, m->body.data, m->body.size);
}

int relay_flow_reply(struct relay_flow *f, const struct msg_store_reply *m)
{
    struct held *h = find(f, m->seq);

    if (m->generation != f->config.generation || !h) {
        return 0; /* the late wake-up of a wait that was cancelled */
    }
    if (m->close) {
        drop_all(f); /* the service takes nothing more of this client */
        return ERR_CLOSED;
    }
    if (m->body.size > 0) {
        take_part(f, h, m);
    }
    if (!m->more) {
        free_held(take(f, m->seq));
    }
    return 0;
}
