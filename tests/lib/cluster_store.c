/* A worker's store: at each step a SET of its own key, an ADD to its own counter, an
 * APPEND to its own text and a GET of a neighbour's key; and, where keys are shared, an
 * operation on one that all ranks use, which is written down for linear.h. */

#include "tests/lib/cluster.h"

#include "common/mem.h"
#include "common/tcpstore.h"
#include "common/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BUF_MAX = 65536, VALUE_SIZE = 8, SHARED_OPS = 40, LATE_MS = 40000 };

/* What all ranks of a generation did to one key: a text, or a counter. */
struct shared_key {
    uint64_t job_life, generation;
    uint32_t number;
    bool is_counter;
    size_t n;
    struct linear_op op[SHARED_OPS];
};

void worker_store_close(struct sim_worker *w)
{
    relay_flow_free(w->flow);
    w->flow = NULL;
    buf_release(&w->to_relay);
    buf_release(&w->from_relay);
}

static void on_flow_send(void *arg, const struct msg *m)
{
    const struct sim_worker *w = arg;

    if (w->node->agent) { /* else it is being buried */
        agent_relay(w->node->agent, m);
    }
}

static void on_flow_reply(void *arg, const uint8_t *bytes, size_t size)
{
    struct sim_worker *w = arg;

    if (w->is_alive && buf_append(&w->from_relay, bytes, size) < 0) {
        UNREACHABLE();
    }
}

static void put_u64(struct buf *b, uint64_t v)
{
    if (wire_put_u64(b, v) < 0) {
        UNREACHABLE();
    }
}

static void put_key(struct buf *b, enum tcpstore_op op, char kind, uint32_t rank)
{
    char key[16];
    int n = snprintf(key, sizeof(key), "/%c%u", kind, rank);

    if (wire_put_u8(b, (uint8_t)op) < 0) {
        UNREACHABLE();
    }
    put_u64(b, (uint64_t)n);
    if (buf_append(b, key, (size_t)n) < 0) {
        UNREACHABLE();
    }
}

static void pump(struct sim_worker *w)
{
    if (relay_flow_input(w->flow, &w->to_relay) < 0) {
        UNREACHABLE();
    }
}

static void begin_set(struct sim_worker *w)
{
    w->store = STORE_SET;
    w->set_value = w->step + 1;
    put_key(&w->to_relay, TCPSTORE_SET, 'k', w->rank);
    put_u64(&w->to_relay, VALUE_SIZE);
    put_u64(&w->to_relay, w->set_value);
    pump(w);
}

static void begin_add(struct sim_worker *w)
{
    w->store = STORE_ADD;
    put_key(&w->to_relay, TCPSTORE_ADD, 'n', w->rank);
    put_u64(&w->to_relay, 1);
    pump(w);
}

/* Neither lost nor done twice. */
static void check_add(struct sim_worker *w)
{
    struct wire_reader r;
    uint64_t value;

    wire_reader_init(&r, buf_bytes(&w->from_relay), buf_len(&w->from_relay));
    value = wire_get_u64(&r);
    buf_clear(&w->from_relay);
    w->n_added++;
    if (r.bad || value != w->n_added) {
        cluster_violate(w->node->cluster,
                        "generation %" PRIu64 ": the counter of rank %u is %" PRIu64
                        " after %" PRIu64 " times 1",
                        w->generation, w->rank, value, w->n_added);
    }
}

static void begin_append(struct sim_worker *w)
{
    w->store = STORE_APPEND;
    put_key(&w->to_relay, TCPSTORE_APPEND, 't', w->rank);
    put_u64(&w->to_relay, 1);
    if (wire_put_u8(&w->to_relay, 'x') < 0) {
        UNREACHABLE();
    }
    pump(w);
}

static void begin_length(struct sim_worker *w)
{
    w->store = STORE_LENGTH;
    put_key(&w->to_relay, TCPSTORE_GET, 't', w->rank);
    pump(w);
}

static void check_length(struct sim_worker *w)
{
    struct wire_reader r;
    uint64_t size;

    wire_reader_init(&r, buf_bytes(&w->from_relay), buf_len(&w->from_relay));
    size = wire_get_u64(&r);
    buf_clear(&w->from_relay);
    if (r.bad || size != w->n_added) {
        cluster_violate(w->node->cluster,
                        "generation %" PRIu64 ": the text of rank %u has %" PRIu64
                        " bytes after %" PRIu64 " times one",
                        w->generation, w->rank, size, w->n_added);
    }
}

static void begin_get(struct sim_worker *w)
{
    struct sim *sim = &w->node->cluster->sim;

    w->store = STORE_GET;
    w->target = (uint32_t)sim_random(sim, w->world);
    w->floor = train_sealed(w)->rank[w->target].acked;
    put_key(&w->to_relay, TCPSTORE_GET, 'k', w->target);
    pump(w);
}

/* A write that was acknowledged is read by everybody after. */
static void check_get(struct sim_worker *w)
{
    struct wire_reader r;
    uint64_t size;
    uint64_t value;

    wire_reader_init(&r, buf_bytes(&w->from_relay), buf_len(&w->from_relay));
    size = wire_get_u64(&r);
    value = size == VALUE_SIZE ? wire_get_u64(&r) : 0;
    buf_clear(&w->from_relay);
    if (r.bad || value < w->floor) {
        cluster_violate(w->node->cluster,
                        "generation %" PRIu64 ": rank %u read %" PRIu64
                        " of rank %u after %" PRIu64 " was acknowledged",
                        w->generation, w->rank, value, w->target, w->floor);
    }
}

/* --- shared keys --- */

static struct shared_key *take_key(struct sim_worker *w)
{
    struct cluster *c = w->node->cluster;
    struct shared_key *last = NULL;

    for (size_t i = c->n_keys; i > 0 && !last; i--) {
        struct shared_key *k = c->keys[i - 1];

        last = k->job_life == w->job_life && k->generation == w->generation ? k : NULL;
    }
    if (last && last->n < SHARED_OPS) {
        return last;
    }
    c->keys = mem_grow(c->keys, c->n_keys + 1, sizeof(struct shared_key *));
    c->keys[c->n_keys] = mem_zalloc(sizeof(struct shared_key));
    *c->keys[c->n_keys] = (struct shared_key){
        .job_life = w->job_life,
        .generation = w->generation,
        .number = last ? last->number + 1 : 1,
        .is_counter = last && !last->is_counter,
    };
    return c->keys[c->n_keys++];
}

/* Who has not written to a text yet does so first: a GET of what is not there hangs. */
static enum linear_kind choose_kind(struct sim_worker *w, const struct shared_key *key)
{
    struct sim *sim = &w->node->cluster->sim;

    if (key->is_counter) {
        return LINEAR_ADD;
    }
    return (enum linear_kind)sim_random(
        sim, w->shared_written == key->number ? LINEAR_GET + 1 : LINEAR_APPEND + 1);
}

static void put_text(struct buf *b, const uint8_t *text, size_t size)
{
    put_u64(b, size);
    if (buf_append(b, text, size) < 0) {
        UNREACHABLE();
    }
}

static void send_shared(struct sim_worker *w, const struct linear_op *op,
                        const uint8_t value[8])
{
    static const enum tcpstore_op ops[] = {
        [LINEAR_SET] = TCPSTORE_SET,         [LINEAR_APPEND] = TCPSTORE_APPEND,
        [LINEAR_CAS] = TCPSTORE_COMPARE_SET, [LINEAR_GET] = TCPSTORE_GET,
        [LINEAR_ADD] = TCPSTORE_ADD,
    };

    put_key(&w->to_relay, ops[op->kind], 's', w->shared->number);
    if (op->kind == LINEAR_CAS) {
        put_text(&w->to_relay, w->seen.data, w->seen.size);
    }
    if (op->kind == LINEAR_ADD) {
        put_u64(&w->to_relay, op->value);
    } else if (op->kind != LINEAR_GET) {
        put_text(&w->to_relay, value, VALUE_SIZE);
    }
    pump(w);
}

static void begin_shared(struct sim_worker *w)
{
    struct cluster *c = w->node->cluster;
    struct shared_key *key = take_key(w);
    struct linear_op *op = &key->op[key->n];
    uint8_t value[VALUE_SIZE];

    w->store = STORE_SHARED;
    w->shared = key;
    w->shared_op = key->n++;
    *op = (struct linear_op){
        .kind = choose_kind(w, key), .called = ++c->n_stamps, .returned = LINEAR_NEVER};
    memcpy(value, &op->called, sizeof(value)); /* nobody else writes that */
    memcpy(op->more, value, sizeof(value));
    op->expected = linear_hash(LINEAR_EMPTY, w->seen.data, w->seen.size);
    op->value = op->kind == LINEAR_ADD
                    ? 1 + op->called % 9
                    : linear_hash(LINEAR_EMPTY, value, sizeof(value));
    send_shared(w, op, value);
}

/* CAS and GET tell what is there, ADD what it has become. */
static uint64_t take_result(struct sim_worker *w, const struct linear_op *op)
{
    struct wire_reader r;
    uint64_t number;

    wire_reader_init(&r, buf_bytes(&w->from_relay), buf_len(&w->from_relay));
    number = wire_get_u64(&r);
    if (op->kind != LINEAR_ADD) {
        ASSERT(!r.bad && number <= sizeof(w->seen.data));
        w->seen.size = number;
        memcpy(w->seen.data, wire_get_raw(&r, number), number);
        number = linear_hash(LINEAR_EMPTY, w->seen.data, w->seen.size);
    }
    ASSERT(!r.bad);
    return number;
}

static void end_shared(struct sim_worker *w)
{
    struct linear_op *op = &w->shared->op[w->shared_op];

    op->returned = ++w->node->cluster->n_stamps;
    if (op->kind == LINEAR_SET || op->kind == LINEAR_APPEND) {
        w->shared_written = w->shared->number;
    } else {
        op->result = take_result(w, op);
    }
    buf_clear(&w->from_relay);
    w->store = STORE_IDLE;
}

void histories_check_end(struct cluster *c)
{
    for (size_t i = 0; i < c->n_keys; i++) {
        const struct shared_key *k = c->keys[i];

        if (!linear_check(k->op, k->n, k->is_counter ? 0 : LINEAR_EMPTY)) {
            cluster_violate(c,
                            "generation %" PRIu64 ": what ranks saw of key /s%u (%s) "
                            "cannot have been",
                            k->generation, k->number, k->is_counter ? "ADD" : "text");
        }
        c->result->n_histories++;
    }
}

void histories_release(struct cluster *c)
{
    for (size_t i = 0; i < c->n_keys; i++) {
        mem_free(c->keys[i]);
    }
    mem_free(c->keys);
}

/* --- one after the other --- */

void worker_store_begin(struct sim_worker *w)
{
    if (w->flow && w->store == STORE_IDLE) {
        begin_set(w);
    }
}

static void on_done(struct sim_worker *w)
{
    struct sealed *s;

    switch (w->store) {
    case STORE_IDLE:
        break;
    case STORE_SET:
        s = train_sealed(w);
        s->rank[w->rank].acked = MAX(s->rank[w->rank].acked, w->set_value);
        begin_add(w);
        break;
    case STORE_ADD:
        check_add(w);
        begin_append(w);
        break;
    case STORE_APPEND:
        begin_length(w);
        break;
    case STORE_LENGTH:
        check_length(w);
        begin_get(w);
        break;
    case STORE_GET:
        check_get(w);
        w->store = STORE_IDLE;
        if (w->node->cluster->config.shares_keys) {
            begin_shared(w);
        }
        break;
    case STORE_SHARED:
        end_shared(w);
        break;
    }
}

void worker_store_reply(struct sim_worker *w, const struct msg_store_reply *m)
{
    struct cluster *c = w->node->cluster;

    if (!w->flow || m->client != (uint32_t)w->life) {
        return;
    }
    if (relay_flow_reply(w->flow, m) < 0) {
        if (c->scarce_until_ms == 0 ||
            c->sim.now_ms > c->scarce_until_ms + LATE_MS) { /* it may be cut off */
            cluster_violate(c, "the service closes a store connection");
        }
        worker_store_close(w);
        return;
    }
    if (w->is_alive && relay_flow_is_idle(w->flow)) {
        on_done(w);
    }
}

void worker_store_open(struct sim_worker *w)
{
    static const uint8_t hello[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};

    w->flow = relay_flow_new(&(struct relay_flow_config){
        .generation = w->generation,
        .client = (uint32_t)w->life,
        .max_held = BUF_MAX,
        .arg = w,
        .send = on_flow_send,
        .reply = on_flow_reply,
    });
    buf_init(&w->to_relay, BUF_MAX);
    buf_init(&w->from_relay, BUF_MAX);
    if (buf_append(&w->to_relay, hello, sizeof(hello)) < 0) {
        UNREACHABLE();
    }
    w->store = STORE_IDLE;
    w->n_added = 0;
}
