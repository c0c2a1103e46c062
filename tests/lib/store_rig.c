#include "tests/lib/store_rig.h"

#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <string.h>

static void on_reply(void *arg, uint64_t client, uint64_t seq, const uint8_t *bytes,
                     size_t size)
{
    struct store_rig *rig = arg;
    struct store_reply *r = &rig->replies[rig->n_replies++];

    ASSERT(rig->n_replies <= STORE_RIG_REPLIES);
    *r = (struct store_reply){.client = client, .seq = seq, .size = size};
    memcpy(r->bytes, bytes, MIN(size, (size_t)STORE_RIG_KEEP));
}

struct store_rig *store_rig_new(size_t max_bytes)
{
    struct store_rig *rig = mem_zalloc(sizeof(*rig));

    rig->budget.max = max_bytes;
    rig->store = store_new(&(struct store_config){.budget = &rig->budget,
                                                  .max_waiters = STORE_RIG_WAITERS,
                                                  .seed = 7,
                                                  .reply = on_reply,
                                                  .reply_arg = rig});
    return rig;
}

void store_rig_free(struct store_rig *rig)
{
    store_free(rig->store);
    mem_free(rig);
}

int store_rig_setup(void **state)
{
    *state = store_rig_new(1 << 20);
    return 0;
}

int store_rig_teardown(void **state)
{
    struct store_rig *rig = *state;
    size_t left = rig->n_replies;

    store_rig_free(rig);
    return left == 0 ? 0 : -1;
}

int try_op(struct store_rig *rig, uint64_t client, enum tcpstore_op op,
           const char *format, ...)
{
    struct buf body;
    va_list args;
    int rv;

    va_start(args, format);
    body_vmake(&body, format, args);
    va_end(args);
    rv = store_execute(rig->store, client, ++rig->seq,
                       &(struct tcpstore_request){op, body.data, buf_len(&body)});
    buf_release(&body);
    return rv;
}

void expect_bytes(struct store_rig *rig, uint64_t client, const void *bytes,
                  size_t size)
{
    struct store_reply *r = &rig->replies[0];

    assert_true(rig->n_replies > 0);
    assert_int_equal(r->client, client);
    assert_int_equal(r->size, size);
    assert_memory_equal(r->bytes, bytes, size);
    rig->n_replies--;
    memmove(r, r + 1, rig->n_replies * sizeof(*r));
}

void expect_byte(struct store_rig *rig, uint64_t client, uint8_t byte)
{
    expect_bytes(rig, client, &byte, 1);
}

void expect_i64(struct store_rig *rig, uint64_t client, int64_t v)
{
    struct buf b;

    body_make(&b, "i", v);
    expect_bytes(rig, client, buf_bytes(&b), buf_len(&b));
    buf_release(&b);
}

void expect_text(struct store_rig *rig, uint64_t client, const char *text)
{
    struct buf b;

    body_make(&b, "s", text);
    expect_bytes(rig, client, buf_bytes(&b), buf_len(&b));
    buf_release(&b);
}

void expect_nothing(struct store_rig *rig)
{
    assert_int_equal(rig->n_replies, 0);
}

void expect_stored(struct store_rig *rig, const char *key, const char *value)
{
    OK(99, TCPSTORE_GET, "s", key);
    expect_text(rig, 99, value);
}

void expect_keys(struct store_rig *rig, int64_t n)
{
    OK(99, TCPSTORE_GETNUMKEYS, "");
    expect_i64(rig, 99, n);
}
