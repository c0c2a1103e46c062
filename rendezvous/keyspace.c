/* A relay is one worker connection of one agent. Happy path: 1. chunks are put
 * together;
 * 2. the request with the next number is executed by the store; 3. its reply, or an
 * empty acknowledgement, is cut into chunks and sent. Repeated: the last replies are
 * sent again; what only reads is read again instead, so that its reply need not be
 * kept. */

#include "rendezvous/keyspace.h"

#include "rendezvous/keyspace_internal.h"

#include "common/mem.h"

/* ---- replies ---- */

static struct msg_store_reply reply_to(const struct keyspace *k,
                                       const struct msg_store *m)
{
    return (struct msg_store_reply){
        .generation = k->config.generation, .client = m->client, .seq = m->seq};
}

static void send_close(struct keyspace *k, uint64_t session, const struct msg_store *m,
                       enum msg_close why)
{
    struct msg_store_reply reply = reply_to(k, m);

    reply.close = (uint8_t)why;
    k->config.reply(k->config.reply_arg, session, &reply);
}

static void send_ack(struct keyspace *k, uint64_t session, const struct msg_store *m)
{
    struct msg_store_reply reply = reply_to(k, m);

    k->config.reply(k->config.reply_arg, session, &reply);
}

static void send_reply(struct keyspace *k, const struct relay *r, uint64_t seq,
                       struct bytes body)
{
    struct msg_store_reply reply = {
        .generation = k->config.generation, .client = r->client, .seq = seq};

    do {
        reply.body.data = body.data;
        reply.body.size = MIN(body.size, (size_t)MSG_MAX_CHUNK);
        reply.more = body.size > reply.body.size;
        k->config.reply(k->config.reply_arg, r->session, &reply);
        body.size -= reply.body.size;
        body.data = body.size > 0 ? body.data + reply.body.size : NULL;
    } while (body.size > 0);
}

static bool only_reads(enum tcpstore_op op)
{
    return op == TCPSTORE_GET || op == TCPSTORE_MULTI_GET || op == TCPSTORE_CHECK ||
           op == TCPSTORE_GETNUMKEYS || op == TCPSTORE_QUEUE_LEN ||
           op == TCPSTORE_LIST_KEYS || op == TCPSTORE_PING;
}

/* What is kept grows by it. */
static bool adds(enum tcpstore_op op)
{
    return op == TCPSTORE_SET || op == TCPSTORE_COMPARE_SET || op == TCPSTORE_ADD ||
           op == TCPSTORE_APPEND || op == TCPSTORE_MULTI_SET ||
           op == TCPSTORE_QUEUE_PUSH || op == TCPSTORE_BARRIER;
}

/* Parts and kept replies: of the budget, like what the store holds. */
static void charge(struct keyspace *k, size_t size)
{
    k->extra_bytes += size;
    store_budget_take(k->config.budget, size);
}

static void give_back(struct keyspace *k, size_t size)
{
    k->extra_bytes -= size;
    store_budget_return(k->config.budget, size);
}

static void forget_reply(struct keyspace *k, struct kept *kept)
{
    give_back(k, kept->size);
    mem_free(kept->data);
    *kept = (struct kept){0};
}

static void forget_replies(struct keyspace *k, struct relay *r)
{
    for (size_t i = 0; i < KEYSPACE_KEPT; i++) {
        if (r->kept[i].seq != 0) {
            forget_reply(k, &r->kept[i]);
        }
    }
}

static void forget_parts(struct keyspace *k, struct relay *r)
{
    give_back(k, buf_len(&r->parts));
    buf_release(&r->parts);
}

/* In place of the oldest, which the agent has got: it would not have asked on. */
struct kept *keyspace_kept_slot(struct relay *r, uint64_t seq)
{
    struct kept *oldest = &r->kept[0];

    for (size_t i = 0; i < KEYSPACE_KEPT; i++) {
        if (r->kept[i].seq == seq) {
            return &r->kept[i];
        }
        oldest = r->kept[i].seq < oldest->seq ? &r->kept[i] : oldest;
    }
    return oldest;
}

void keyspace_keep_reply(struct keyspace *k, struct relay *r, uint64_t seq,
                         struct bytes body)
{
    struct kept *kept = keyspace_kept_slot(r, seq);

    forget_reply(k, kept);
    kept->seq = seq;
    kept->forgot =
        !k->is_restoring && !store_budget_allows(k->config.budget, body.size);
    if (!kept->forgot) {
        kept->data = mem_dup(body.data, body.size);
        kept->size = body.size;
        charge(k, body.size);
    }
}

static void on_reply(void *arg, uint64_t client, uint64_t seq, const uint8_t *bytes,
                     size_t size)
{
    struct keyspace *k = arg;
    struct relay *r = (struct relay *)(uintptr_t)client; /* lives while it can wait */

    if (seq == r->last_seq) {
        r->state = RELAY_IDLE;
        if (!k->is_reading) {
            keyspace_keep_reply(k, r, seq, (struct bytes){bytes, size});
            keeping_save_reply(k, r, seq);
        }
    }
    if (r->is_forsaken) {
        bytes = NULL;
        size = 0;
    }
    send_reply(k, r, seq, (struct bytes){bytes, size});
}

/* ---- relays ---- */

struct keyspace *keyspace_new(const struct keyspace_config *config)
{
    struct keyspace *k = mem_zalloc(sizeof(*k));
    struct store_config store = {
        .budget = config->budget,
        .max_waiters = config->budget->max, /* each costs more than a byte */
        .seed = config->seed,
        .reply = on_reply,
        .reply_arg = k,
        .changed = config->save ? keeping_on_change : NULL,
        .changed_arg = k,
    };

    k->config = *config;
    k->store = store_new(&store);
    table_init(&k->relays);
    return k;
}

static uint64_t relay_hash(const struct keyspace *k, uint64_t session, uint32_t client)
{
    uint64_t id[2] = {session, client};

    return table_hash(id, sizeof(id), k->config.seed);
}

struct relay *keyspace_find_relay(const struct keyspace *k, uint64_t session,
                                  uint32_t client)
{
    uint64_t hash = relay_hash(k, session, client);
    struct table_node *node;

    for (node = table_bucket(&k->relays, hash); node; node = node->next) {
        struct relay *r = CONTAINER_OF(node, struct relay, node);

        if (r->session == session && r->client == client) {
            return r;
        }
    }
    return NULL;
}

void keyspace_withdraw(struct keyspace *k, struct relay *r)
{
    store_drop_client(k->store, (uint64_t)(uintptr_t)r);
}

/* The client broke a rule, or asks for what is not known any more, or there is no space.
 */
static void condemn(struct keyspace *k, struct relay *r, const struct msg_store *m,
                    enum msg_close why)
{
    keyspace_withdraw(k, r);
    forget_parts(k, r);
    r->state = RELAY_DEAD;
    send_close(k, r->session, m, why);
}

static void unlink_closed(struct keyspace *k, struct relay *r)
{
    *(r->prev_closed ? &r->prev_closed->next_closed : &k->oldest_closed) =
        r->next_closed;
    *(r->next_closed ? &r->next_closed->prev_closed : &k->newest_closed) =
        r->prev_closed;
}

static void relay_free(struct keyspace *k, struct relay *r)
{
    keyspace_withdraw(k, r);
    forget_replies(k, r);
    forget_parts(k, r);
    if (r->state == RELAY_CLOSED) {
        unlink_closed(k, r);
    }
    table_remove(&k->relays, &r->node);
    mem_free(r);
}

struct relay *keyspace_relay_new(struct keyspace *k, uint64_t session, uint32_t client)
{
    struct relay *r;

    if (k->relays.count >= k->config.max_clients && k->oldest_closed) {
        keeping_drop(k, k->oldest_closed);
        relay_free(k, k->oldest_closed);
    }
    if (k->relays.count >= k->config.max_clients) {
        return NULL;
    }
    r = mem_zalloc(sizeof(*r));
    r->session = session;
    r->client = client;
    r->may_skip = k->config.is_restored;
    buf_init(&r->parts, TCPSTORE_MAX_REQUEST);
    table_insert(&k->relays, &r->node, relay_hash(k, session, client));
    return r;
}

void keyspace_free(struct keyspace *k)
{
    struct table_node *node;
    struct table_node *next;

    if (!k) {
        return;
    }
    for (node = table_next(&k->relays, NULL); node; node = next) {
        next = table_next(&k->relays, node);
        relay_free(k, CONTAINER_OF(node, struct relay, node));
    }
    ASSERT(k->extra_bytes == 0);
    store_free(k->store);
    table_release(&k->relays);
    mem_free(k);
}

/* ---- requests ---- */

/* No key comes any more that is not there: who waits for one hears so. */
static bool is_scarce(const struct keyspace *k)
{
    return store_budget_space(k->config.budget) >= SPACE_SCARCE;
}

bool keyspace_is_used(const struct keyspace *k)
{
    return k->is_used;
}

static void condemn_waiting(struct keyspace *k)
{
    struct table_node *node = table_next(&k->relays, NULL);

    for (; node; node = table_next(&k->relays, node)) {
        struct relay *r = CONTAINER_OF(node, struct relay, node);
        const struct msg_store waits = {.client = r->client, .seq = r->last_seq};

        if (r->state == RELAY_WAITING) {
            condemn(k, r, &waits, MSG_CLOSE_FULL);
        }
    }
}

static void apply(struct keyspace *k, struct relay *r, const struct msg_store *m,
                  const struct tcpstore_request *request)
{
    int rv;

    k->is_reading = only_reads(request->op);
    r->last_op = request->op;
    rv = store_execute(k->store, (uint64_t)(uintptr_t)r, m->seq, request);
    k->is_reading = false;
    if (rv < 0) {
        condemn(k, r, m, MSG_CLOSE_BROKEN);
    } else if (r->state == RELAY_WAITING && is_scarce(k)) {
        condemn(k, r, m, MSG_CLOSE_FULL);
    } else if (!tcpstore_has_reply(request->op)) {
        keeping_save_ack(k, r, m->seq);
        send_ack(k, r->session, m);
    } else if (r->state == RELAY_WAITING && request->op == TCPSTORE_BARRIER) {
        keeping_save_barrier(k, r, request);
    }
}

/* The request, whose last chunk is `m`; the others are in `parts`. */
static void execute(struct keyspace *k, struct relay *r, const struct msg_store *m)
{
    struct tcpstore_request request = {(enum tcpstore_op)m->op, m->body.data,
                                       m->body.size};
    struct buf parts = r->parts;
    size_t n_parts = buf_len(&parts);

    if (n_parts > 0) {
        request.body = buf_bytes(&parts);
        request.size = n_parts;
        buf_init(&r->parts, TCPSTORE_MAX_REQUEST);
    }
    if (r->is_forsaken && only_reads(request.op)) {
        send_ack(k, r->session, m);
    } else {
        apply(k, r, m, &request);
    }
    if (n_parts > 0) {
        give_back(k, n_parts);
        buf_release(&parts);
    }
}

/* From the reserve come small values alone: a large one could spend it at once. */
static bool has_space_for(const struct keyspace *k, const struct relay *r,
                          const struct msg_store *m)
{
    enum durable_space space = store_budget_space(k->config.budget);
    size_t size = buf_len(&r->parts) + m->body.size;

    return space == SPACE_FINE || !adds((enum tcpstore_op)m->op) ||
           (space == SPACE_LOW && size <= KEYSPACE_SMALL);
}

/* The request is whole, and its number is the next. */
static void execute_next(struct keyspace *k, struct relay *r, const struct msg_store *m)
{
    k->is_used = k->is_used || adds((enum tcpstore_op)m->op);
    if (!has_space_for(k, r, m)) {
        condemn(k, r, m, MSG_CLOSE_FULL);
        if (is_scarce(k)) {
            condemn_waiting(k); /* for that, perhaps */
        }
        return;
    }
    if (!k->config.save) {
        forget_replies(k, r); /* asked for in vain: who asks on has got it */
    }
    keyspace_withdraw(k, r); /* a client that asks anew has given up waiting */
    r->last_seq = m->seq;
    r->may_skip = false;
    r->state = tcpstore_may_wait((enum tcpstore_op)m->op) ? RELAY_WAITING : RELAY_IDLE;
    execute(k, r, m);
}

/* Adds a chunk to those of the same request that are there. */
static int add_part(struct keyspace *k, struct relay *r, const struct msg_store *m)
{
    int rv;

    if (r->parts_seq != m->seq) {
        forget_parts(k, r);
        r->parts_seq = m->seq;
    }
    if (!m->more && buf_len(&r->parts) == 0) {
        return 0; /* it came whole */
    }
    if (!store_budget_allows(k->config.budget, m->body.size)) {
        return ERR_TOO_LARGE;
    }
    rv = buf_append(&r->parts, m->body.data, m->body.size);
    if (rv == 0) {
        charge(k, m->body.size);
    }
    return rv;
}

/* Once the request is whole, it is executed. */
static void gather(struct keyspace *k, struct relay *r, const struct msg_store *m,
                   void (*execute_whole)(struct keyspace *k, struct relay *r,
                                         const struct msg_store *m))
{
    if (add_part(k, r, m) < 0) {
        condemn(k, r, m, MSG_CLOSE_BROKEN);
    } else if (!m->more) {
        execute_whole(k, r, m);
    }
}

/* The request was executed before; the agent does not know. */
static void answer_again(struct keyspace *k, struct relay *r, const struct msg_store *m)
{
    enum tcpstore_op op = (enum tcpstore_op)m->op;
    bool is_last = m->seq == r->last_seq;
    const struct kept *kept = keyspace_kept_slot(r, m->seq);

    if (only_reads(op) && r->state != RELAY_CLOSED) {
        gather(k, r, m, execute);
    } else if (m->more || (is_last && r->state == RELAY_WAITING)) {
        return; /* its last chunk is answered; it is still parked */
    } else if (r->state == RELAY_CLOSED || !tcpstore_has_reply(op)) {
        send_ack(k, r->session, m);
    } else if (kept->seq == m->seq && m->seq > 0 && !kept->forgot) {
        send_reply(k, r, m->seq, (struct bytes){kept->data, kept->size});
    } else {
        condemn(k, r, m, MSG_CLOSE_BROKEN);
    }
}

void keyspace_store(struct keyspace *k, uint64_t session, const struct msg_store *m)
{
    struct relay *r;

    if (m->generation != k->config.generation) {
        return;
    }
    r = keyspace_find_relay(k, session, m->client);
    r = r ? r : keyspace_relay_new(k, session, m->client);
    if (!r || r->state == RELAY_DEAD ||
        (r->state == RELAY_CLOSED && m->seq > r->last_seq)) {
        send_close(k, session, m, MSG_CLOSE_BROKEN);
    } else if (m->seq <= r->last_seq) {
        answer_again(k, r, m);
    } else if (m->seq == r->last_seq + 1 || r->may_skip) {
        gather(k, r, m, execute_next);
    } else {
        condemn(k, r, m, MSG_CLOSE_BROKEN);
    }
}

void keyspace_close_relay(struct keyspace *k, struct relay *r)
{
    keyspace_withdraw(k, r);
    forget_replies(k, r);
    forget_parts(k, r);
    r->state = RELAY_CLOSED;
    r->prev_closed = k->newest_closed;
    *(k->newest_closed ? &k->newest_closed->next_closed : &k->oldest_closed) = r;
    k->newest_closed = r;
}

void keyspace_close_client(struct keyspace *k, uint64_t session,
                           const struct msg_store_close *m)
{
    struct relay *r = keyspace_find_relay(k, session, m->client);

    if (m->generation != k->config.generation || !r || r->state == RELAY_CLOSED) {
        return;
    }
    if (m->seq == 0) {
        keyspace_close_relay(k, r);
        keeping_save_close(k, r);
    } else if (m->seq == r->last_seq && r->state == RELAY_WAITING) {
        keyspace_withdraw(k, r);
        r->state = RELAY_IDLE; /* and there is no reply to it */
    }
}

void keyspace_forsake(struct keyspace *k, uint64_t session,
                      const struct msg_store_close *m)
{
    struct relay *r;

    if (m->generation != k->config.generation) {
        return;
    }
    r = keyspace_find_relay(k, session, m->client);
    r = r ? r
          : keyspace_relay_new(k, session,
                               m->client); /* its requests may all be waiting */
    if (r) {
        r->is_forsaken = true;
    }
}

/* What to do with each relay of a session. */
static void each_relay(struct keyspace *k, uint64_t session,
                       void (*visit)(struct keyspace *k, struct relay *r))
{
    struct table_node *node;
    struct table_node *next;

    for (node = table_next(&k->relays, NULL); node; node = next) {
        struct relay *r = CONTAINER_OF(node, struct relay, node);

        next = table_next(&k->relays, node);
        if (r->session == session) {
            visit(k, r);
        }
    }
}

void keyspace_reattach(struct keyspace *k, uint64_t session)
{
    each_relay(k, session, forget_parts);
}

void keyspace_drop_session(struct keyspace *k, uint64_t session)
{
    each_relay(k, session, relay_free);
}
