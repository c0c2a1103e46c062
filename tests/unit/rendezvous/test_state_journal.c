/* The database's journal and its tables: one is settled into the others, early enough or
 * when there is no room left; a bit of it counts; and on a disk that is full for a while
 * what does not fit is not there, and all else is as it was. */

#include "rendezvous/state_batch.h"
#include "rendezvous/state_db.h"
#include "rendezvous/state_schema.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/simdisk.h"

#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { EVENTS = 40, KEYS = 300, VALUE = 400, RESERVE = 1 << 20 };

struct rig {
    struct simdisk *disk;
    struct state_db *db;
    uint64_t reserve;
    uint64_t n_keys, n_events; /* kept, as it was found at the start */
};

static int take(void *arg, const struct record *r, struct errmsg *msg)
{
    struct rig *rig = arg;

    (void)msg;
    rig->n_keys += r->kind == RECORD_KEY;
    rig->n_events += r->kind == RECORD_EVENT;
    return 0;
}

static void start(struct rig *r)
{
    struct errmsg msg = {""};
    int rv = state_db_open(&(struct state_db_config){.path = "state.db",
                                                     .vfs = "simdisk",
                                                     .clock_ms = 1000,
                                                     .clock_name = 1,
                                                     .history_ms = 100000,
                                                     .history_bytes = 1000000,
                                                     .reserve_bytes = r->reserve},
                           &r->db, &msg);

    r->n_keys = 0;
    r->n_events = 0;
    rv = rv == 0 ? state_db_load(r->db, take, r, &msg) : rv;
    if (rv < 0) {
        fail_msg("refused: %s", msg.text);
    }
    assert_int_equal(state_db_begin(r->db, &msg), 0);
}

static struct rig *rig_new(void)
{
    struct rig *r = mem_zalloc(sizeof(*r));

    r->disk = simdisk_new();
    simdisk_use(r->disk);
    start(r);
    return r;
}

static void rig_free(struct rig *r)
{
    state_db_close(r->db);
    simdisk_free(r->disk);
    mem_free(r);
}

static void restart(struct rig *r)
{
    state_db_close(r->db);
    start(r);
}

/* Records of one kind, numbered, as one transaction. */
static int commit(struct rig *r, enum record_kind kind, unsigned first, unsigned n)
{
    static const uint8_t value[VALUE];
    struct errmsg msg = {""};
    struct buf batch;
    int rv;

    buf_init(&batch, SIZE_MAX);
    for (unsigned i = first; i < first + n; i++) {
        const uint8_t number[8] = {[6] = (uint8_t)(i >> 8), [7] = (uint8_t)i};

        state_batch_add(
            &batch,
            &(struct record){RECORD_PUT, kind, "job", 1, {number, 8}, {value, VALUE}});
    }
    rv = state_db_commit(r->db, (struct bytes){buf_bytes(&batch), buf_len(&batch)},
                         1000, &msg);
    buf_release(&batch);
    return rv;
}

static int tidy(struct rig *r, uint64_t now_ms)
{
    struct errmsg msg = {""};

    return state_db_tidy(r->db, now_ms, UINT64_MAX, &msg);
}

static void fill_disk_but(struct rig *r, uint64_t left)
{
    static const char *const names[] = {"state.db", "state.db-wal", "state.db-base"};
    uint64_t sum = 0;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t size = 0;

        sum += simdisk_bytes(r->disk, names[i], &size) ? size : 0;
    }
    simdisk_set_limit(r->disk, sum + left);
}

static void fill_disk(struct rig *r)
{
    fill_disk_but(r, 1000);
}

/* ---- a full disk ---- */

static void sync_that_fails_is_no_full_disk_whatever_it_says(void **unused)
{
    struct rig *r = rig_new();

    (void)unused;
    simdisk_fail_syncs(r->disk, true);
    assert_int_equal(commit(r, RECORD_KEY, 0, 1), -EIO);
    assert_int_equal(commit(r, RECORD_EVENT, 0, 1), -EIO);
    simdisk_fail_syncs(r->disk, false);
    rig_free(r);
}

static void transaction_that_did_not_fit_is_done_once_there_is_space(void **unused)
{
    static const struct {
        enum record_kind kind;
        unsigned n; /* of a transaction that waits in the journal, or does not */
    } cases[] = {{RECORD_KEY, 20}, {RECORD_KEY, KEYS}, {RECORD_EVENT, EVENTS}};

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig *r = rig_new();

        assert_int_equal(commit(r, RECORD_KEY, KEYS, 10), 0);
        fill_disk(r);
        for (int again = 0; again < 3; again++) {
            assert_int_equal(commit(r, cases[i].kind, 0, cases[i].n), -ENOSPC);
        }
        simdisk_set_limit(r->disk, 0);
        restart(r);
        assert_int_equal(r->n_keys + r->n_events, 10);
        fill_disk(r);
        assert_int_equal(commit(r, cases[i].kind, 0, cases[i].n), -ENOSPC);
        simdisk_set_limit(r->disk, 0);
        assert_int_equal(commit(r, cases[i].kind, 0, cases[i].n), 0);
        restart(r);
        assert_int_equal(r->n_keys + r->n_events, 10 + cases[i].n);
        rig_free(r);
    }
}

/* What the tables do not have yet is in the journal still. */
static void tidying_that_did_not_fit_has_changed_nothing(void **unused)
{
    struct rig *r = rig_new();

    (void)unused;
    assert_int_equal(commit(r, RECORD_EVENT, 0, EVENTS), 0);
    assert_int_equal(commit(r, RECORD_KEY, 0, 100), 0);
    fill_disk(r);
    assert_int_equal(tidy(r, 500000), -ENOSPC); /* the events are old */
    simdisk_set_limit(r->disk, 0);
    assert_int_equal(commit(r, RECORD_KEY, 100, 10), 0);
    restart(r);
    assert_int_equal(r->n_keys, 110);
    assert_int_equal(r->n_events, EVENTS);
    assert_int_equal(tidy(r, 500000), 1);
    restart(r);
    assert_int_equal(r->n_keys, 110);
    assert_int_equal(r->n_events, 0);
    rig_free(r);
}

/* It needs no room for what waits, and does not push it out. */
static void event_is_written_where_there_is_no_room_to_settle(void **unused)
{
    struct rig *r = rig_new();

    (void)unused;
    for (unsigned i = 0; i < 100; i++) { /* far more than a page of names */
        assert_int_equal(commit(r, RECORD_KEY, 20 * i, 20), 0);
    }
    fill_disk_but(r, UINT64_C(64) * 1024);
    assert_int_equal(tidy(r, 1000), -ENOSPC);
    assert_int_equal(commit(r, RECORD_EVENT, 0, 1), 0);
    assert_int_equal(tidy(r, 1000), -ENOSPC);
    simdisk_set_limit(r->disk, 0);
    restart(r);
    assert_int_equal(r->n_keys, 2000);
    assert_int_equal(r->n_events, 1);
    assert_int_equal(tidy(r, 1000), 0);
    restart(r);
    assert_int_equal(r->n_keys, 2000);
    assert_int_equal(r->n_events, 1);
    rig_free(r);
}

/* A generation goes, and the store's keys of it. */
static int drop_generation(struct rig *r, uint64_t generation)
{
    struct errmsg msg = {""};
    struct buf batch;
    int rv;

    buf_init(&batch, SIZE_MAX);
    state_batch_add(&batch, &(struct record){.act = RECORD_DROP_GENERATION,
                                             .kind = RECORD_KEY,
                                             .job = "job",
                                             .generation = generation});
    rv = state_db_commit(r->db, (struct bytes){buf_bytes(&batch), buf_len(&batch)},
                         1000, &msg);
    buf_release(&batch);
    return rv;
}

/* Whatever the disk was filled by, and how much waits: each name on a page of its own. */
static void what_waits_can_be_settled_in_the_reserve(void **unused)
{
    static const unsigned counts[] = {60, 70, 130, 300};

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        struct rig *r = rig_new();

        for (unsigned key = 0; key < 10 * KEYS; key += KEYS) {
            assert_int_equal(commit(r, RECORD_KEY, key, KEYS), 0);
        }
        r->reserve = RESERVE;
        restart(r);
        for (unsigned n = 0; n < counts[i]; n++) {
            assert_int_equal(commit(r, RECORD_KEY, 10 * n, 1), 0);
        }
        fill_disk_but(r, RESERVE);
        assert_int_equal(drop_generation(r, 2), 0);
        simdisk_set_limit(r->disk, 0);
        restart(r);
        assert_int_equal(r->n_keys, 10 * KEYS);
        rig_free(r);
    }
}

/* They are counted by their names: so much does not wait, but to be written over. */
static void small_reserve_lets_the_same_names_wait(void **unused)
{
    struct rig *r = rig_new();
    unsigned n_long = 0;

    (void)unused;
    r->reserve = RESERVE;
    restart(r);
    for (unsigned i = 0; i < 14; i++) { /* of two pages each */
        assert_int_equal(commit(r, RECORD_KEY, 0, 15), 0);
        n_long += state_db_is_untidy(r->db);
    }
    assert_in_range(n_long, 1, 4); /* it is as many pages as may be, no sooner */
    rig_free(r);
}

static void journal_that_grows_long_is_settled_in_time_or_by_the_next(void **unused)
{
    (void)unused;
    for (int tidies = 0; tidies < 2; tidies++) {
        struct rig *r = rig_new();
        unsigned n_long = 0;

        for (unsigned i = 0; i < 600; i++) {
            assert_int_equal(commit(r, RECORD_KEY, i, 20), 0);
            n_long += state_db_is_untidy(r->db);
            if (tidies && state_db_is_untidy(r->db)) {
                assert_int_equal(tidy(r, 1000), 0);
                assert_false(state_db_is_untidy(r->db));
            }
        }
        assert_true(n_long > 1);
        restart(r);
        assert_int_equal(r->n_keys, 619);
        rig_free(r);
    }
}

static void bit_of_the_journal_is_noticed_if_it_counts(void **unused)
{
    /* a record's generation and job, as no table has them (state_batch.h) */
    static const char name[] = {1, 0, 0, 0, 0, 0, 0, 0, 'j', 'o', 'b', 0};
    struct errmsg msg = {""};

    (void)unused;
    for (int is_settled = 0; is_settled < 2; is_settled++) {
        struct rig *r = rig_new();
        uint8_t *bytes;
        uint8_t *at;
        size_t size;

        assert_int_equal(commit(r, RECORD_KEY, 0, 2), 0);
        assert_int_equal(is_settled ? tidy(r, 1000) : 0, 0);
        restart(r); /* it is in the database's own file */
        state_db_close(r->db);
        bytes = simdisk_bytes(r->disk, "state.db", &size);
        at = memmem(bytes, size, name, sizeof(name));
        assert_non_null(at);
        at[sizeof(name)] ^= 1;
        assert_int_equal(state_db_open(&(struct state_db_config){.path = "state.db",
                                                                 .vfs = "simdisk"},
                                       &r->db, &msg),
                         is_settled ? 0 : ERR_CORRUPT);
        if (is_settled) {
            state_db_close(r->db);
        }
        simdisk_free(r->disk);
        mem_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(journal_that_grows_long_is_settled_in_time_or_by_the_next),
        cmocka_unit_test(bit_of_the_journal_is_noticed_if_it_counts),
        cmocka_unit_test(sync_that_fails_is_no_full_disk_whatever_it_says),
        cmocka_unit_test(transaction_that_did_not_fit_is_done_once_there_is_space),
        cmocka_unit_test(event_is_written_where_there_is_no_room_to_settle),
        cmocka_unit_test(what_waits_can_be_settled_in_the_reserve),
        cmocka_unit_test(small_reserve_lets_the_same_names_wait),
        cmocka_unit_test(tidying_that_did_not_fit_has_changed_nothing),
    };

    simdisk_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
