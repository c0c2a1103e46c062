/* The state with its thread, on a loop and a real folder. */

#include "rendezvous/record.h"
#include "rendezvous/record_fields.h"
#include "rendezvous/starts.h"
#include "rendezvous/state.h"
#include "rendezvous/state_batch.h"
#include "rendezvous/state_db.h"
#include "rendezvous/state_schema.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/exit_code.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <uv.h>

enum { MAX_TAKEN = 512, MAX_STARTS = 8 };

struct rig {
    struct scratch scratch;
    uv_loop_t loop;
    struct state *state;
    const struct durable *durable;
    char taken[MAX_TAKEN][64]; /* "kind job generation value" */
    size_t n_taken;
    struct start starts[MAX_STARTS];
    size_t n_starts;
    unsigned n_committed;
    uint32_t tidy_ms; /* of the next start */
};

static void on_committed(void *arg)
{
    struct rig *r = arg;

    r->n_committed++;
}

static void on_space(void *arg, enum durable_space space)
{
    (void)arg;
    (void)space;
}

static struct start start_of(const struct record *r)
{
    struct record_start value;
    struct bytes key = r->key;
    uint64_t boot;

    assert_int_equal(record_take_number(&key, sizeof(boot), &boot), 0);
    assert_int_equal(record_get_start(r->value, &value), 0);
    return (struct start){boot, value.id, value.found};
}

static int take(void *taker, const struct record *r, struct errmsg *msg)
{
    struct rig *rig = taker;

    (void)msg;
    if (r->kind == RECORD_START) { /* the state's own */
        assert_true(rig->n_starts < MAX_STARTS);
        rig->starts[rig->n_starts++] = start_of(r);
        return 0;
    }
    assert_true(rig->n_taken < MAX_TAKEN);
    (void)snprintf(rig->taken[rig->n_taken++], sizeof(rig->taken[0]), "%s %s %llu %.*s",
                   state_table(r->kind)->name, r->job,
                   (unsigned long long)r->generation, (int)r->value.size,
                   (const char *)r->value.data);
    return 0;
}

static int rig_try(struct rig *r, struct errmsg *msg)
{
    const struct state_config config = {.loop = &r->loop,
                                        .dir = r->scratch.path,
                                        .reserve_bytes = 65536,
                                        .history_ms = 1000000,
                                        .history_bytes = 40000,
                                        .tidy_ms = r->tidy_ms};

    (void)scratch_path(&r->scratch, "state");
    return state_open(&config, &r->state, msg);
}

static void rig_start(struct rig *r)
{
    const struct durable_user user = {r, on_committed, on_space};
    struct errmsg msg = {""};

    assert_int_equal(uv_loop_init(&r->loop), 0);
    if (rig_try(r, &msg) < 0) {
        fail_msg("%s", msg.text);
    }
    r->durable = state_durable(r->state);
    r->n_taken = 0;
    r->n_starts = 0;
    assert_int_equal(r->durable->load(r->durable->arg, take, r, &msg), 0);
    r->durable->use(r->durable->arg, &user);
}

static void rig_stop(struct rig *r)
{
    state_close(r->state);
    (void)uv_run(&r->loop, UV_RUN_DEFAULT); /* what is left open fails uv_loop_close */
    assert_int_equal(uv_loop_close(&r->loop), 0);
}

static struct rig *rig_new(void)
{
    struct rig *r = mem_zalloc(sizeof(*r));

    scratch_open(&r->scratch);
    rig_start(r);
    return r;
}

static void rig_free(struct rig *r)
{
    rig_stop(r);
    scratch_close(&r->scratch);
    mem_free(r);
}

static void save(struct rig *r, enum record_act act, enum record_kind kind,
                 const char *key, size_t key_size, const char *value)
{
    r->durable->save(r->durable->arg,
                     &(struct record){act,
                                      kind,
                                      "job",
                                      kind == RECORD_KEY ? 3 : 0,
                                      {(const uint8_t *)key, key_size},
                                      {(const uint8_t *)value, strlen(value)}});
}

static void commit(struct rig *r)
{
    unsigned before = r->n_committed;

    assert_true(r->durable->commit(r->durable->arg));
    while (r->n_committed == before) {
        (void)uv_run(&r->loop, UV_RUN_ONCE); /* whether something is left to do */
    }
}

static void what_was_committed_is_there_at_the_next_start_in_order(void **unused)
{
    struct rig *r = rig_new();
    uint64_t cluster = r->durable->cluster;

    (void)unused;
    assert_int_equal(r->durable->boot, 1);
    save(r, RECORD_PUT, RECORD_KEY, "b", 1, "two");
    save(r, RECORD_PUT, RECORD_KEY, "a", 1, "one");
    save(r, RECORD_PUT, RECORD_KEY, "ab", 2, "between");
    save(r, RECORD_PUT, RECORD_NODE, "\x80\0\0\0\0\0\0\1", 8, "late");
    save(r, RECORD_PUT, RECORD_NODE, "\0\0\0\0\0\0\0\2", 8, "early");
    save(r, RECORD_PUT, RECORD_JOB, "", 0, "job");
    commit(r);
    save(r, RECORD_PUT, RECORD_KEY, "b", 1, "three");
    save(r, RECORD_DROP, RECORD_KEY, "a", 1, "");
    commit(r);
    rig_stop(r);
    rig_start(r);
    assert_true(r->durable->cluster == cluster && r->durable->boot == 2);
    assert_int_equal(r->n_taken, 5);
    assert_string_equal(r->taken[0], "jobs job 0 job");
    assert_string_equal(r->taken[1], "nodes job 0 early");
    assert_string_equal(r->taken[2], "nodes job 0 late");
    assert_string_equal(r->taken[3], "keys job 3 between");
    assert_string_equal(r->taken[4], "keys job 3 three");
    rig_free(r);
}

/* Each with a number of its own, and where it began. */
static void state_knows_its_starts(void **unused)
{
    struct rig *r = rig_new();
    struct start past[3] = {{0}};

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(past); i++) {
        past[i] =
            (struct start){r->durable->boot, r->durable->start, r->durable->found};
        assert_int_equal(past[i].boot, i + 1);
        assert_true(past[i].id != 0 && (i == 0 || past[i].id != past[i - 1].id));
        save(r, RECORD_PUT, RECORD_KEY, "a", 1, "1");
        commit(r);
        assert_true(r->durable->kept(r->durable->arg) >= past[i].found + 2);
        rig_stop(r);
        rig_start(r);
        assert_true(r->durable->found >= past[i].found + 2);
        assert_int_equal(r->n_starts, i + 1);
        assert_memory_equal(r->starts, past, (i + 1) * sizeof(past[0]));
    }
    rig_free(r);
}

static void history_comes_in_the_order_of_its_names_too(void **unused)
{
    static const char *const jobs[] = {"late", "early", "middle"};
    struct rig *r = rig_new();

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        r->durable->save(r->durable->arg, &(struct record){.act = RECORD_PUT,
                                                           .kind = RECORD_FINISHED,
                                                           .job = jobs[i]});
    }
    commit(r);
    rig_stop(r);
    rig_start(r);
    assert_int_equal(r->n_taken, 3);
    assert_string_equal(r->taken[0], "finished early 0 ");
    assert_string_equal(r->taken[1], "finished late 0 ");
    assert_string_equal(r->taken[2], "finished middle 0 ");
    rig_free(r);
}

static void what_comes_while_a_transaction_is_on_its_way_is_the_next(void **unused)
{
    struct rig *r = rig_new();

    (void)unused;
    assert_false(r->durable->commit(r->durable->arg));
    save(r, RECORD_PUT, RECORD_KEY, "a", 1, "1");
    assert_true(r->durable->commit(r->durable->arg));
    save(r, RECORD_PUT, RECORD_KEY, "b", 1, "2");
    assert_true(r->durable->has_saved(r->durable->arg));
    assert_true(r->durable->commit(r->durable->arg)); /* still the first */
    while (r->n_committed < 1) {
        (void)uv_run(&r->loop, UV_RUN_ONCE); /* whether something is left to do */
    }
    assert_true(r->durable->has_saved(r->durable->arg));
    commit(r);
    assert_false(r->durable->has_saved(r->durable->arg));
    rig_free(r);
}

static void who_sleeps_until_it_is_on_the_disk_needs_no_turn_of_the_loop(void **unused)
{
    struct rig *r = rig_new();

    (void)unused;
    r->durable->await(r->durable->arg, 1); /* nothing is on its way */
    for (unsigned i = 0; i < 30; i++) {
        save(r, RECORD_PUT, RECORD_KEY, "a", 1, "1");
        assert_true(r->durable->commit(r->durable->arg));
        r->durable->await(r->durable->arg,
                          0); /* too short, mostly: the loop is woken */
        while (r->n_committed == 2 * i) {
            (void)uv_run(&r->loop, UV_RUN_ONCE); /* whether something is left to do */
        }
        save(r, RECORD_PUT, RECORD_KEY, "a", 1, "2");
        assert_true(r->durable->commit(r->durable->arg));
        r->durable->await(r->durable->arg, 60000);
        assert_int_equal(r->n_committed, 2 * i + 2);
    }
    rig_free(r);
}

/* The thread tidies all the time, and the loop is idle for as long as that may take. */
static void what_comes_while_the_thread_tidies_is_written_too(void **unused)
{
    enum { TURNS = 3000 };
    struct rig *r = rig_new();

    (void)unused;
    rig_stop(r);
    r->tidy_ms = 1;
    rig_start(r);
    for (unsigned i = 0; i < TURNS; i++) {
        const struct timespec pause = {.tv_nsec = (long)(i * 37 % 1500) * 1000};

        if (i % 2) { /* the other one leaves something in the log */
            (void)nanosleep(&pause, NULL);
        }
        save(r, RECORD_PUT, RECORD_KEY, "k", 1, i % 2 ? "one" : "two");
        commit(r); /* or the test's time runs out */
    }
    assert_int_equal(r->n_committed, TURNS);
    rig_free(r);
}

static void what_was_saved_last_is_written_when_it_is_closed(void **unused)
{
    struct rig *r = rig_new();

    (void)unused;
    save(r, RECORD_PUT, RECORD_KEY, "a", 1, "1");
    assert_true(r->durable->commit(r->durable->arg));
    save(r, RECORD_PUT, RECORD_KEY, "b", 1, "2");
    rig_stop(r);
    rig_start(r);
    assert_int_equal(r->n_taken, 2);
    rig_free(r);
}

static void end_of_a_generation_takes_its_keys_along_and_nothing_else(void **unused)
{
    struct rig *r = rig_new();

    (void)unused;
    save(r, RECORD_PUT, RECORD_JOB, "", 0, "job");
    save(r, RECORD_PUT, RECORD_KEY, "a", 1, "1");
    r->durable->save(
        r->durable->arg,
        &(struct record){.act = RECORD_DROP_GENERATION, .job = "job", .generation = 3});
    commit(r);
    rig_stop(r);
    rig_start(r);
    assert_int_equal(r->n_taken, 1);
    assert_string_equal(r->taken[0], "jobs job 0 job");
    rig_free(r);
}

static int count(void *taker, const struct record *r, struct errmsg *msg)
{
    size_t *counts = taker;

    (void)msg;
    counts[r->kind]++;
    return 0;
}

/* Events from `first` on, so many, and one commit. */
static void commit_history(struct state_db *db, int first, int n, uint64_t now_ms)
{
    static const uint8_t value[500];
    struct errmsg msg = {""};
    struct buf batch;

    buf_init(&batch, SIZE_MAX);
    for (int i = first; i < first + n; i++) {
        const uint8_t number[12] = {[6] = (uint8_t)(i >> 8), [7] = (uint8_t)i};

        state_batch_add(&batch, &(struct record){RECORD_PUT,
                                                 RECORD_EVENT,
                                                 "job",
                                                 0,
                                                 {number, 8},
                                                 {value, sizeof(value)}});
    }
    state_batch_add(
        &batch,
        &(struct record){
            RECORD_PUT, RECORD_COMMIT, "job", 0, {value, 12}, {value, sizeof(value)}});
    assert_int_equal(state_db_commit(db,
                                     (struct bytes){buf_bytes(&batch), buf_len(&batch)},
                                     now_ms, &msg),
                     0);
    buf_release(&batch);
}

static void history_goes_that_is_too_much_or_too_old(void **unused)
{
    size_t counts[RECORD_KIND_COUNT] = {0};
    struct errmsg msg = {""};
    struct scratch scratch;
    struct state_db *db;

    (void)unused;
    scratch_open(&scratch);
    assert_int_equal(state_db_open(&(struct state_db_config){.path = scratch_path(
                                                                 &scratch, "state.db"),
                                                             .history_ms = 1000,
                                                             .history_bytes = 40000},
                                   &db, &msg),
                     0);
    commit_history(db, 0, 400, 1);
    while (state_db_tidy(db, 2, UINT64_MAX, &msg) == 1) { /* there is more to do */
    }
    assert_int_equal(state_db_load(db, count, counts, &msg), 0);
    assert_in_range(counts[RECORD_EVENT], 20, 40); /* half of what may be kept */
    assert_int_equal(counts[RECORD_COMMIT], 1);
    commit_history(db, 400, 2, 1500);
    while (state_db_tidy(db, 1600, UINT64_MAX, &msg) == 1) {
    }
    memset(counts, 0, sizeof(counts));
    assert_int_equal(state_db_load(db, count, counts, &msg), 0);
    assert_int_equal(counts[RECORD_EVENT], 2);
    assert_int_equal(counts[RECORD_COMMIT], 1);
    state_db_close(db);
    scratch_close(&scratch);
}

/* So many transactions, each of which writes the same key over. */
static void write_over(struct state_db *db, unsigned n, struct bytes value)
{
    struct errmsg msg = {""};
    struct buf batch;

    buf_init(&batch, SIZE_MAX);
    state_batch_add(
        &batch,
        &(struct record){
            RECORD_PUT, RECORD_KEY, "job", 3, {(const uint8_t *)"k", 1}, value});
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(
            state_db_commit(db, (struct bytes){buf_bytes(&batch), buf_len(&batch)}, 1,
                            &msg),
            0);
    }
    buf_release(&batch);
}

/* What is written over needs no space at all, so that a reserve suffices for long. */
static void log_does_not_grow_on_a_full_disk_by_what_is_written_over(void **unused)
{
    enum { COMMITS = 100 };
    static const uint64_t size = 1 << 20;
    const struct bytes large = {mem_zalloc(size), size};
    const struct bytes small = {large.data, 100};
    struct errmsg msg = {""};
    struct scratch scratch;
    struct state_db *db;
    struct stat st;
    off_t first;

    (void)unused;
    scratch_open(&scratch);
    assert_int_equal(state_db_open(&(struct state_db_config){.path = scratch_path(
                                                                 &scratch, "state.db"),
                                                             .history_ms = 1000,
                                                             .history_bytes = 40000},
                                   &db, &msg),
                     0);
    write_over(db, COMMITS, small);
    assert_int_equal(state_db_tidy(db, 2, UINT64_MAX, &msg), 0);
    write_over(db, COMMITS, small);
    assert_int_equal(stat(scratch_path(&scratch, "state.db-wal"), &st), 0);
    first = st.st_size;
    for (int round = 0; round < 10; round++) {
        assert_int_equal(state_db_tidy(db, 2, 0, &msg), 0);
        write_over(db, COMMITS, small);
    }
    assert_int_equal(stat(scratch_path(&scratch, "state.db-wal"), &st), 0);
    assert_in_range(st.st_size, 1, first + first / 4);
    write_over(db, 1, large);
    assert_in_range(state_db_free_bytes(db, 4 * size), size, 3 * size);
    assert_int_equal(state_db_tidy(db, 2, size / 2, &msg), -ENOSPC);
    assert_int_equal(state_db_tidy(db, 2, 2 * size, &msg), 0);
    state_db_close(db);
    scratch_close(&scratch);
    mem_free((void *)(uintptr_t)large.data);
}

/* Each may want a page of its own, once it is settled. */
static void what_the_journal_holds_is_owed_before_it_is_looked_into(void **unused)
{
    enum { NAMES = 500 };
    static const uint64_t on_disk = 1 << 30;
    struct errmsg msg = {""};
    struct scratch scratch;
    struct state_db *db;
    struct buf batch;
    uint64_t before;

    (void)unused;
    scratch_open(&scratch);
    buf_init(&batch, SIZE_MAX);
    assert_int_equal(state_db_open(&(struct state_db_config){.path = scratch_path(
                                                                 &scratch, "state.db"),
                                                             .history_ms = 1000,
                                                             .history_bytes = 40000},
                                   &db, &msg),
                     0);
    before = state_db_free_bytes(db, on_disk);
    for (unsigned i = 0; i < NAMES; i++) {
        const uint8_t key[2] = {(uint8_t)(i >> 8), (uint8_t)i};

        state_batch_add(
            &batch, &(struct record){RECORD_PUT, RECORD_KEY, "job", 3, {key, 2}, {0}});
    }
    assert_int_equal(state_db_commit(db,
                                     (struct bytes){buf_bytes(&batch), buf_len(&batch)},
                                     1, &msg),
                     0);
    assert_true(state_db_free_bytes(db, on_disk) + NAMES * 4096 <= before);
    buf_release(&batch);
    state_db_close(db);
    scratch_close(&scratch);
}

static void folder_is_for_one_service_at_a_time(void **unused)
{
    struct rig *r = rig_new();
    struct state *first = r->state;
    struct errmsg msg = {""};
    int rv = rig_try(r, &msg);

    (void)unused;
    assert_int_equal(rv, ERR_BUSY);
    assert_int_equal(state_exit_code(rv), EXIT_FAILURE); /* which may pass */
    r->state = first;
    rig_free(r);
}

static void service_clock_goes_on_and_never_back(void **unused)
{
    struct scratch scratch;
    uint64_t last_ms = 0;
    /* the machine's clock, and its name: started anew, moved, started anew again */
    const uint64_t starts[][2] = {{5000, 1}, {9000, 1},  {100, 2}, {31000, 2},
                                  {50, 3},   {90000, 4}, {10, 0},  {20, 0}};

    (void)unused;
    scratch_open(&scratch);
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        struct state_db_config config = {.path = scratch_path(&scratch, "state.db"),
                                         .clock_ms = starts[i][0],
                                         .clock_name = starts[i][1],
                                         .history_ms = 1,
                                         .history_bytes = 1};
        struct errmsg msg = {""};
        struct state_db *db;
        uint64_t now_ms;

        assert_int_equal(state_db_open(&config, &db, &msg), 0);
        now_ms = starts[i][0] + state_db_identity(db)->clock_offset_ms;
        assert_true(now_ms >= last_ms);
        if (i == 1) {
            assert_int_equal(now_ms, 9000); /* the same clock: nothing is added */
        }
        assert_int_equal(state_db_begin(db, &msg), 0);
        last_ms = now_ms + 30000; /* it runs for half a minute */
        assert_int_equal(state_db_tidy(db, last_ms, UINT64_MAX, &msg), 0);
        state_db_close(db);
        if (i == 0) {
            last_ms = 9000;
        }
    }
    scratch_close(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_committed_is_there_at_the_next_start_in_order),
        cmocka_unit_test(state_knows_its_starts),
        cmocka_unit_test(history_comes_in_the_order_of_its_names_too),
        cmocka_unit_test(what_comes_while_a_transaction_is_on_its_way_is_the_next),
        cmocka_unit_test(who_sleeps_until_it_is_on_the_disk_needs_no_turn_of_the_loop),
        cmocka_unit_test(what_comes_while_the_thread_tidies_is_written_too),
        cmocka_unit_test(what_was_saved_last_is_written_when_it_is_closed),
        cmocka_unit_test(end_of_a_generation_takes_its_keys_along_and_nothing_else),
        cmocka_unit_test(history_goes_that_is_too_much_or_too_old),
        cmocka_unit_test(log_does_not_grow_on_a_full_disk_by_what_is_written_over),
        cmocka_unit_test(what_the_journal_holds_is_owed_before_it_is_looked_into),
        cmocka_unit_test(folder_is_for_one_service_at_a_time),
        cmocka_unit_test(service_clock_goes_on_and_never_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
