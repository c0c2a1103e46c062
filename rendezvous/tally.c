#include "rendezvous/tally.h"

#include "common/err.h"

const uint64_t tally_lease_bounds[TALLY_BUCKETS] = {50,  100, 200, 300, 400,
                                                    500, 600, 700, 800, 900};
const uint64_t tally_time_bounds[TALLY_BUCKETS] = {
    1000, 4000, 16000, 64000, 256000, 1000000, 4000000, 16000000, 64000000, 256000000};

static const char *const refusal_names[TALLY_REFUSAL_COUNT] = {
    [TALLY_PROTOCOL] = "protocol", [TALLY_LIMIT] = "limit",
    [TALLY_CROWD] = "crowd",       [TALLY_STORE_CLIENT] = "store_client",
    [TALLY_SILENCE] = "silence",
};

static const char *const op_names[TCPSTORE_OP_COUNT] = {
    [TCPSTORE_VALIDATE] = "validate",
    [TCPSTORE_SET] = "set",
    [TCPSTORE_COMPARE_SET] = "compare_set",
    [TCPSTORE_GET] = "get",
    [TCPSTORE_ADD] = "add",
    [TCPSTORE_CHECK] = "check",
    [TCPSTORE_WAIT] = "wait",
    [TCPSTORE_GETNUMKEYS] = "num_keys",
    [TCPSTORE_DELETE_KEY] = "delete_key",
    [TCPSTORE_APPEND] = "append",
    [TCPSTORE_MULTI_GET] = "multi_get",
    [TCPSTORE_MULTI_SET] = "multi_set",
    [TCPSTORE_CANCEL_WAIT] = "cancel_wait",
    [TCPSTORE_PING] = "ping",
    [TCPSTORE_QUEUE_PUSH] = "queue_push",
    [TCPSTORE_QUEUE_POP] = "queue_pop",
    [TCPSTORE_QUEUE_LEN] = "queue_len",
    [TCPSTORE_LIST_KEYS] = "list_keys",
    [TCPSTORE_BARRIER] = "barrier",
};

static void count(struct tally_spread *s, const uint64_t *bounds, uint64_t value)
{
    size_t i = 0;

    while (i < TALLY_BUCKETS && value > bounds[i]) {
        i++;
    }
    if (i < TALLY_BUCKETS) {
        s->bucket[i]++;
    }
    s->count++;
    s->sum += value;
}

void tally_end(struct tally *t, int why)
{
    t->refused[TALLY_PROTOCOL] += why == ERR_PROTOCOL;
    t->refused[TALLY_LIMIT] += why == ERR_TOO_LARGE;
    t->refused[TALLY_CROWD] += why == ERR_BUSY;
    t->refused[TALLY_SILENCE] += why == ERR_TIMEOUT;
}

void tally_lease(struct tally *t, uint64_t lease_ms, uint64_t silent_ms)
{
    uint64_t left_ms = lease_ms - MIN(silent_ms, lease_ms);

    count(&t->lease_left, tally_lease_bounds, left_ms * 1000 / MAX(lease_ms, 1));
}

void tally_store(struct tally *t, uint8_t op, uint64_t ns)
{
    if (op < TCPSTORE_OP_COUNT) {
        count(&t->store[op], tally_time_bounds, ns);
    }
}

void tally_commit(struct tally *t, uint64_t ns)
{
    count(&t->commits, tally_time_bounds, ns);
}

const char *tally_refusal_name(enum tally_refusal reason)
{
    ASSERT(reason < TALLY_REFUSAL_COUNT);
    return refusal_names[reason];
}

const char *tally_op_name(enum tcpstore_op op)
{
    ASSERT(op < TCPSTORE_OP_COUNT);
    return op_names[op];
}
