/* A store, bytes as requests of several clients over a few names. At each step: the cap
 * holds, an answer comes exactly when it should, and only to who asked or waits. */

#include "rendezvous/store.h"

#include "common/buf.h"
#include "common/check.h"
#include "common/err.h"
#include "common/wire.h"

#include <string.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CLIENTS = 4, MAX_BYTES = 4096, MAX_WAITERS = 16 };

struct rig {
    struct store_budget budget;
    struct store *store;
    uint64_t waits[CLIENTS]; /* number of the parked request; 0: none */
    uint64_t seq;            /* of the request being executed */
    uint64_t client;
    unsigned n_answers; /* to it */
};

static void on_reply(void *arg, uint64_t client, uint64_t seq, const uint8_t *bytes,
                     size_t size)
{
    struct rig *rig = arg;

    ASSERT(client < CLIENTS && (size == 0 || bytes));
    if (seq == rig->seq) {
        ASSERT(client == rig->client);
        rig->n_answers++;
        return;
    }
    ASSERT(rig->waits[client] == seq && size == 1 && bytes[0] == 0);
    rig->waits[client] = 0;
}

/* A name of one letter, a value of up to 255 bytes, or anything. */
static void put_string(struct buf *b, struct wire_reader *r, bool is_key)
{
    static const uint8_t zeros[256];
    uint8_t choice = wire_get_u8(r);
    int rv = wire_put_u64(b, is_key ? 1 : choice);

    ASSERT(rv == 0);
    choice = is_key ? choice % 4 : choice;
    rv = is_key ? wire_put_u8(b, choice) : buf_append(b, zeros, choice);
    ASSERT(rv == 0);
}

static void put_body(struct buf *b, enum tcpstore_op op, struct wire_reader *r)
{
    bool is_vector = op == TCPSTORE_CHECK || op == TCPSTORE_WAIT ||
                     op == TCPSTORE_MULTI_GET || op == TCPSTORE_MULTI_SET;
    bool has_value = op == TCPSTORE_SET || op == TCPSTORE_APPEND ||
                     op == TCPSTORE_MULTI_SET || op == TCPSTORE_QUEUE_PUSH ||
                     op == TCPSTORE_COMPARE_SET;
    bool has_number = op == TCPSTORE_ADD || op == TCPSTORE_BARRIER;
    bool is_empty = op == TCPSTORE_GETNUMKEYS || op == TCPSTORE_CANCEL_WAIT ||
                    op == TCPSTORE_LIST_KEYS;
    unsigned n = is_vector ? wire_get_u8(r) % 6 : 1;
    int rv = is_vector ? wire_put_u64(b, n) : 0;

    for (unsigned i = 0; i < n && !is_empty; i++) {
        put_string(b, r, true);
        if (has_value) {
            put_string(b, r, false);
        }
    }
    if (op == TCPSTORE_COMPARE_SET) {
        put_string(b, r, false);
    }
    if (has_number && rv == 0) {
        rv = wire_put_u64(b, (uint64_t)(int8_t)wire_get_u8(r));
    }
    ASSERT(rv == 0);
}

static void step(struct rig *rig, struct wire_reader *r)
{
    uint8_t choice = wire_get_u8(r);
    struct tcpstore_request request = {.op = (enum tcpstore_op)(choice & 31)};
    size_t before = rig->budget.used;
    struct buf body;
    int rv;

    buf_init(&body, 1 << 16);
    rig->client = (choice >> 5) % CLIENTS;
    rig->seq++;
    rig->n_answers = 0;
    if (choice >> 7) {
        put_body(&body, request.op, r);
    } else {
        size_t raw = wire_get_u8(r);

        raw = MIN(raw, r->left);
        ASSERT(raw == 0 || buf_append(&body, wire_get_raw(r, raw), raw) == 0);
    }
    request.body = body.data;
    request.size = buf_len(&body);
    rv = store_execute(rig->store, rig->client, rig->seq, &request);
    if (rv < 0) {
        ASSERT(rig->n_answers == 0 && rig->budget.used == before);
        store_drop_client(rig->store, rig->client);
        rig->waits[rig->client] = 0;
    } else if (request.op == TCPSTORE_CANCEL_WAIT) {
        rig->waits[rig->client] = 0;
    } else if (tcpstore_may_wait(request.op) && rig->n_answers == 0) {
        ASSERT(rig->waits[rig->client] == 0);
        rig->waits[rig->client] = rig->seq;
    }
    ASSERT(rv < 0 || rig->waits[rig->client] == rig->seq ||
           rig->n_answers == tcpstore_has_reply(request.op));
    ASSERT(rig->budget.used <= MAX_BYTES);
    buf_release(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig rig = {0};
    struct wire_reader r;

    rig.budget.max = MAX_BYTES;
    rig.store = store_new(&(struct store_config){.budget = &rig.budget,
                                                 .max_waiters = MAX_WAITERS,
                                                 .reply = on_reply,
                                                 .reply_arg = &rig});
    wire_reader_init(&r, data, size);
    while (r.left > 0) {
        step(&rig, &r);
    }
    store_free(rig.store); /* asserts that all bytes were given back */
    return 0;
}
