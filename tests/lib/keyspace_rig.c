#include "tests/lib/keyspace_rig.h"

#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <string.h>

static void on_reply(void *arg, uint64_t session, const struct msg_store_reply *m)
{
    struct keyspace_rig *rig = arg;
    struct keyspace_reply *r = &rig->replies[rig->n_replies];

    ASSERT(rig->n_replies < MAX_REPLIES && m->generation == GENERATION);
    ASSERT(m->body.size <= MSG_MAX_CHUNK);
    if (!rig->in_parts) {
        *r = (struct keyspace_reply){session, m->client, m->seq, m->close, 0, {0}};
        buf_init(&r->body, 512 << 20);
    }
    ASSERT(r->seq == m->seq && r->client == m->client);
    ASSERT(buf_append(&r->body, m->body.data, m->body.size) == 0);
    r->n_chunks++;
    rig->in_parts = m->more;
    rig->n_replies += !m->more;
}

static void on_save(void *arg, struct record *r)
{
    struct keyspace_rig *rig = arg;

    r->job = "job";
    shelf_save(&rig->shelf, r);
}

static struct keyspace *new_keyspace(struct keyspace_rig *rig, bool is_restored)
{
    return keyspace_new(&(struct keyspace_config){.generation = GENERATION,
                                                  .budget = &rig->budget,
                                                  .max_clients = MAX_CLIENTS,
                                                  .seed = 3,
                                                  .reply = on_reply,
                                                  .reply_arg = rig,
                                                  .save = rig->is_kept ? on_save : NULL,
                                                  .save_arg = rig,
                                                  .is_restored = is_restored});
}

struct keyspace_rig *keyspace_rig_new(size_t max_bytes)
{
    struct keyspace_rig *rig = mem_zalloc(sizeof(*rig));

    rig->budget.max = max_bytes;
    rig->k = new_keyspace(rig, false);
    return rig;
}

struct keyspace_rig *keyspace_rig_new_kept(size_t max_bytes)
{
    struct keyspace_rig *rig = mem_zalloc(sizeof(*rig));

    rig->budget.max = max_bytes;
    rig->is_kept = true;
    rig->k = new_keyspace(rig, false);
    return rig;
}

void keyspace_rig_restart(struct keyspace_rig *rig)
{
    const struct record *r;

    keyspace_free(rig->k);
    ASSERT(rig->budget.used == 0);
    shelf_commit(&rig->shelf);
    rig->k = new_keyspace(rig, true);
    for (size_t i = 0; (r = shelf_at(&rig->shelf, i)) != NULL; i++) {
        ASSERT(keyspace_restore(rig->k, r) == 0);
    }
}

void keyspace_rig_free(struct keyspace_rig *rig)
{
    keyspace_free(rig->k);
    ASSERT(rig->budget.used == 0);
    shelf_release(&rig->shelf);
    for (size_t i = 0; i < rig->n_replies; i++) {
        buf_release(&rig->replies[i].body);
    }
    mem_free(rig);
}

int keyspace_rig_setup(void **state)
{
    *state = keyspace_rig_new(64 << 20);
    return 0;
}

int keyspace_rig_teardown(void **state)
{
    struct keyspace_rig *rig = *state;
    size_t left = rig->n_replies;

    keyspace_rig_free(rig);
    return left == 0 ? 0 : -1;
}

void ask_chunk(struct keyspace_rig *rig, uint32_t client, uint64_t seq,
               enum tcpstore_op op, bool more, struct bytes body)
{
    keyspace_store(rig->k, SESSION,
                   &(struct msg_store){.generation = GENERATION,
                                       .client = client,
                                       .seq = seq,
                                       .op = (uint8_t)op,
                                       .more = more,
                                       .body = body});
}

void ask(struct keyspace_rig *rig, uint32_t client, uint64_t seq, enum tcpstore_op op,
         const char *format, ...)
{
    struct buf body;
    va_list args;

    va_start(args, format);
    body_vmake(&body, format, args);
    va_end(args);
    ask_chunk(rig, client, seq, op, false, (struct bytes){body.data, buf_len(&body)});
    buf_release(&body);
}

void ask_to_close(struct keyspace_rig *rig, uint32_t client, uint64_t seq)
{
    keyspace_close_client(rig->k, SESSION,
                          &(struct msg_store_close){GENERATION, client, seq});
}

void take_keyspace_reply(struct keyspace_rig *rig)
{
    buf_release(&rig->replies[0].body);
    rig->n_replies--;
    memmove(rig->replies, rig->replies + 1, rig->n_replies * sizeof(rig->replies[0]));
}

void replied(struct keyspace_rig *rig, uint32_t client, uint64_t seq, const void *bytes,
             size_t size)
{
    struct keyspace_reply *r = &rig->replies[0];

    assert_true(rig->n_replies > 0);
    assert_int_equal(r->session, SESSION);
    assert_int_equal(r->client, client);
    assert_int_equal(r->seq, seq);
    assert_false(r->close);
    assert_int_equal(buf_len(&r->body), size);
    if (size > 0) {
        assert_memory_equal(buf_bytes(&r->body), bytes, size);
    }
    take_keyspace_reply(rig);
}

void replied_ack(struct keyspace_rig *rig, uint32_t client, uint64_t seq)
{
    replied(rig, client, seq, NULL, 0);
}

void replied_byte(struct keyspace_rig *rig, uint32_t client, uint64_t seq, uint8_t byte)
{
    replied(rig, client, seq, &byte, 1);
}

void replied_i64(struct keyspace_rig *rig, uint32_t client, uint64_t seq, int64_t v)
{
    struct buf b;

    body_make(&b, "i", v);
    replied(rig, client, seq, buf_bytes(&b), buf_len(&b));
    buf_release(&b);
}

void replied_text(struct keyspace_rig *rig, uint32_t client, uint64_t seq,
                  const char *text)
{
    struct buf b;

    body_make(&b, "s", text);
    replied(rig, client, seq, buf_bytes(&b), buf_len(&b));
    buf_release(&b);
}

static void replied_end(struct keyspace_rig *rig, uint32_t client, uint64_t seq,
                        enum msg_close why)
{
    assert_true(rig->n_replies > 0);
    assert_int_equal(rig->replies[0].close, why);
    assert_int_equal(rig->replies[0].client, client);
    assert_int_equal(rig->replies[0].seq, seq);
    take_keyspace_reply(rig);
}

void replied_close(struct keyspace_rig *rig, uint32_t client, uint64_t seq)
{
    replied_end(rig, client, seq, MSG_CLOSE_BROKEN);
}

void replied_full(struct keyspace_rig *rig, uint32_t client, uint64_t seq)
{
    replied_end(rig, client, seq, MSG_CLOSE_FULL);
}

void replied_nothing(struct keyspace_rig *rig)
{
    assert_int_equal(rig->n_replies, 0);
}
