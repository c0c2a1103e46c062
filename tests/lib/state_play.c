#include "tests/lib/state_play.h"

#include "rendezvous/state_batch.h"
#include "tests/lib/cmocka.h"

#include "common/buf.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    JOBS = 2,
    KEYS = 12,
    VALUE_MAX = 9000, /* more than a page, at times */
};

bool state_play_is_soak(void)
{
    return getenv("CTRUN_SOAK") != NULL; /* NOLINT(concurrency-mt-unsafe) */
}

uint64_t state_play_draw(struct state_play *p, uint64_t below)
{
    p->chance = p->chance * 6364136223846793005 + 1442695040888963407;
    return (p->chance >> 33) % below;
}

/* ---- the workload ---- */

static void save(struct state_play *p, struct buf *batch, const struct record *r)
{
    state_batch_add(batch, r);
    state_model_apply(&p->model, r);
}

static void save_some(struct state_play *p, struct buf *batch, enum record_act act,
                      enum record_kind kind, uint64_t generation, const void *key,
                      size_t key_size)
{
    static uint8_t value[VALUE_MAX];
    char job[8];
    uint64_t size =
        state_play_draw(p, state_play_draw(p, 8) == 0 ? VALUE_MAX : 100) + 1;

    for (size_t i = 0; i < size; i++) {
        value[i] = (uint8_t)state_play_draw(p, 256);
    }
    (void)snprintf(job, sizeof(job), "job%d", (int)state_play_draw(p, JOBS));
    save(p, batch,
         &(struct record){act, kind, job, generation, {key, key_size}, {value, size}});
}

/* What workers ask of the store, which may wait in the journal: a key and its client's
 * reply; at times a key goes, an item of a queue comes or goes. */
static void save_request(struct state_play *p, struct buf *batch)
{
    char key[16];
    uint8_t client[13] = {[0] = (uint8_t)state_play_draw(p, 2) * 0x80,
                          [7] = (uint8_t)state_play_draw(p, 6)};
    uint8_t item[9] = {'q', [8] = (uint8_t)state_play_draw(p, 6)};
    uint64_t what = state_play_draw(p, 8);

    (void)snprintf(key, sizeof(key), "key%d", (int)state_play_draw(p, KEYS));
    save_some(p, batch, what == 0 ? RECORD_DROP : RECORD_PUT, RECORD_KEY, 1, key,
              strlen(key));
    save_some(p, batch, RECORD_PUT, RECORD_CLIENT, 1, client, 13);
    if (what < 4) {
        save_some(p, batch, what < 2 ? RECORD_DROP : RECORD_PUT, RECORD_QUEUE, 1, item,
                  9);
    }
}

/* … and what else a turn of the loop may bring, with such a request or without: a node, a
 * rank's end, a commit, an event; at times a generation or a job is over. */
static void save_turn(struct state_play *p, struct buf *batch)
{
    char key[16];
    uint8_t number[13] = {[0] = (uint8_t)state_play_draw(p, 2) * 0x80,
                          [7] = (uint8_t)state_play_draw(p, 6)};
    uint64_t what = state_play_draw(p, 27);

    (void)snprintf(key, sizeof(key), "key%d", (int)state_play_draw(p, KEYS));
    if (state_play_draw(p, 2) == 0) {
        save_request(p, batch);
    }
    if (what < 10) {
        save_some(p, batch, RECORD_PUT, RECORD_NODE, 0, number, 8);
        save_some(p, batch, RECORD_PUT, RECORD_JOB, 0, "", 0);
    } else if (what < 15) {
        save_some(p, batch, RECORD_PUT, RECORD_END, 1, number + 4, 4);
        save_some(p, batch, RECORD_DROP, RECORD_NODE, 0, number, 8);
    } else if (what < 25) {
        save_some(p, batch, RECORD_PUT, RECORD_COMMIT, 1, number + 1, 12);
        save_some(p, batch, RECORD_PUT, RECORD_EVENT, 1, number, 8);
        save_some(p, batch, RECORD_DROP, RECORD_KEY, 1, key, strlen(key));
    } else if (what == 25) {
        save_some(p, batch, RECORD_DROP_GENERATION, RECORD_KEY, 1, "", 0);
    } else {
        save_some(p, batch, RECORD_DROP_JOB, RECORD_KEY, 0, "", 0);
        save_some(p, batch, RECORD_PUT, RECORD_FINISHED, 0, "", 0);
    }
}

static int take_nothing(void *arg, const struct record *r, struct errmsg *msg)
{
    (void)arg;
    (void)r;
    (void)msg;
    return 0;
}

int state_play_open(const struct state_play *p, struct state_db **ret,
                    struct errmsg *msg)
{
    return state_db_open(
        &(struct state_db_config){
            .path = "state.db",
            .vfs = "simdisk",
            .clock_ms = p->now_ms,
            .clock_name = 1,
            .seed = 5,
            .start = 6,
            .history_ms = 1000000,
            .history_bytes = 1000000,
        },
        ret, msg);
}

static void acknowledge(struct state_play *p)
{
    assert_true(p->n_acks < STATE_PLAY_ACKS);
    p->acks[p->n_acks++] = (struct state_ack){
        .calls = simdisk_calls(p->disk),
        .print = state_model_print(&p->model),
        .boot = state_db_identity(p->db)->boot,
    };
}

void state_play_start(struct state_play *p)
{
    struct errmsg msg = {""};

    simdisk_use(p->disk);
    assert_int_equal(state_play_open(p, &p->db, &msg), 0);
    assert_int_equal(state_db_load(p->db, take_nothing, NULL, &msg), 0);
    assert_int_equal(state_db_begin(p->db, &msg), 0);
    acknowledge(p);
}

void state_play_turn(struct state_play *p)
{
    struct errmsg msg = {""};
    struct buf batch;
    bool is_plain = state_play_draw(p, 3) < 2;
    uint64_t n = state_play_draw(p, 3) + 1;

    buf_init(&batch, SIZE_MAX);
    for (uint64_t i = 0; i < n; i++) {
        (is_plain ? save_request : save_turn)(p, &batch);
    }
    p->now_ms += state_play_draw(p, 100);
    assert_int_equal(state_db_commit(p->db,
                                     (struct bytes){buf_bytes(&batch), buf_len(&batch)},
                                     p->now_ms, &msg),
                     0);
    buf_release(&batch);
    acknowledge(p);
    if (state_play_draw(p, 10) == 0) {
        assert_int_equal(state_db_tidy(p->db, p->now_ms, UINT64_MAX, &msg), 0);
    }
}

struct state_play *state_play_new(struct simdisk *disk, uint64_t seed)
{
    struct state_play *p = mem_zalloc(sizeof(*p));

    p->disk = disk;
    p->chance = seed;
    p->now_ms = 1000;
    return p;
}

struct state_play *state_play_of(unsigned n_turns)
{
    struct state_play *p = state_play_new(simdisk_new(), 1);

    state_play_start(p);
    for (unsigned i = 0; i < n_turns; i++) {
        state_play_turn(p);
        if (i % 37 == 36) {
            state_db_close(p->db);
            state_play_start(p);
        }
    }
    return p;
}

void state_play_free(struct state_play *p)
{
    state_db_close(p->db);
    simdisk_free(p->disk);
    mem_free(p);
}

/* ---- after a crash ---- */

size_t state_play_last_ack(const struct state_play *p, size_t calls)
{
    size_t last = STATE_PLAY_ACKS;

    for (size_t i = 0; i < p->n_acks && p->acks[i].calls <= calls; i++) {
        last = i;
    }
    return last;
}

bool state_play_is_whole(const struct state_play *p, size_t calls,
                         struct state_print found)
{
    size_t ack = state_play_last_ack(p, calls);
    size_t next = ack == STATE_PLAY_ACKS ? 0 : MIN(ack + 1, p->n_acks - 1);
    struct state_print none = {0, 0};

    return state_print_is(found, ack == STATE_PLAY_ACKS ? none : p->acks[ack].print) ||
           state_print_is(found, p->acks[next].print);
}

struct state_db *state_play_reopen(const struct state_play *p, size_t calls,
                                   const char *where)
{
    size_t ack = state_play_last_ack(p, calls);
    struct state_print found = {0, 0};
    struct state_db *db = NULL;
    struct errmsg msg = {""};

    if (state_play_open(p, &db, &msg) < 0 ||
        state_db_load(db, state_print_take, &found, &msg) < 0) {
        fail_msg("%s: refused: %s", where, msg.text);
    }
    if (!state_play_is_whole(p, calls, found)) {
        fail_msg("%s: neither what was acknowledged (%zu) nor what was on its way",
                 where, ack);
    }
    if (ack != STATE_PLAY_ACKS) {
        assert_true(state_db_identity(db)->boot > p->acks[ack].boot);
    }
    return db;
}
