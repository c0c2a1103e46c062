/* The state after a crash between any two calls that change the disk: what was
 * acknowledged is there, of the transaction that was on its way all or nothing, and
 * the next boot number is new. */

#include "rendezvous/state_internal.h"
#include "rendezvous/state_schema.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/state_play.h"

#include "common/mem.h"

#include <sqlite3.h>
#include <stdio.h>

/* The found disk is used for a while, and crashes again. */
static void crash_again(const struct state_play *before, struct simdisk *disk,
                        const char *where, uint64_t seed)
{
    struct state_play *p = state_play_new(disk, seed);
    struct errmsg msg = {""};
    struct simdisk *found;
    struct state_print kept = {0, 0};
    struct state_print after = {0, 0};
    struct state_print ours = {0, 0};
    size_t begun;
    size_t calls;

    p->now_ms = before->now_ms;
    simdisk_use(disk);
    assert_int_equal(state_play_open(p, &p->db, &msg), 0);
    assert_int_equal(state_db_load(p->db, state_print_take, &kept, &msg), 0);
    assert_int_equal(state_db_begin(p->db, &msg), 0);
    begun = simdisk_calls(disk);
    state_play_turn(p);
    assert_int_equal(state_db_load(p->db, state_print_take, &after, &msg), 0);
    calls = state_play_draw(p, simdisk_calls(disk) + 1);
    found = simdisk_crash(disk, calls, seed);
    simdisk_use(found);
    state_db_close(p->db);
    if (state_play_open(p, &p->db, &msg) < 0 ||
        state_db_load(p->db, state_print_take, &ours, &msg) < 0) {
        fail_msg("%s, and again at %zu: refused: %s", where, calls, msg.text);
    }
    assert_true((calls < p->acks[0].calls && state_print_is(ours, kept)) ||
                (calls > begun && state_print_is(ours, after)));
    state_db_close(p->db);
    simdisk_free(found);
    mem_free(p);
}

static void crash(struct state_play *p, size_t calls, uint64_t seed)
{
    struct simdisk *found = simdisk_crash(p->disk, calls, seed);
    struct state_db *db;
    char where[64];

    (void)snprintf(where, sizeof(where), "crash at call %zu, seed %llu", calls,
                   (unsigned long long)seed);
    simdisk_use(found);
    db = state_play_reopen(p, calls, where);
    state_db_close(db);
    if (state_play_draw(p, 4) == 0) {
        crash_again(p, found, where, seed);
    }
    simdisk_free(found);
}

static void nothing_acknowledged_is_lost_wherever_it_crashes(void **unused)
{
    struct state_play *p = state_play_of(state_play_is_soak() ? 150 : 120);
    size_t n_calls = simdisk_calls(p->disk);
    size_t step = state_play_is_soak() ? 1 : n_calls / 250;
    size_t n_points = 0;

    (void)unused;
    for (size_t calls = 0; calls <= n_calls; calls += step) {
        for (uint64_t seed = 0; seed < 2; seed++) {
            crash(p, calls, calls * 7 + seed);
            n_points++;
        }
    }
    print_message("%zu calls, %zu crashes\n", n_calls, n_points);
    assert_true(n_points >= (state_play_is_soak() ? 2000 : 400));
    simdisk_use(p->disk);
    state_play_free(p);
}

/* ---- a schema of before ---- */

static void query(sqlite3 *db, const char *sql)
{
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* What the last version would have written. */
static void make_old(void)
{
    uint64_t fields[STATE_OLD_IDENTITY_FIELDS];
    sqlite3_stmt *s;
    sqlite3 *db;

    assert_int_equal(sqlite3_open_v2("state.db", &db, SQLITE_OPEN_READWRITE, "simdisk"),
                     SQLITE_OK);
    query(db, "pragma locking_mode = exclusive");
    query(db, "drop table curves");
    query(db, "drop table paces");
    query(db, "drop table journal");
    query(db, "alter table identity drop column commits");
    query(db, "alter table identity drop column pieces");
    query(db, "pragma user_version = 1");
    assert_int_equal(sqlite3_prepare_v2(db, "select * from identity", -1, &s, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    for (int i = 0; i < STATE_OLD_IDENTITY_FIELDS; i++) {
        fields[i] = (uint64_t)sqlite3_column_int64(s, i);
    }
    (void)sqlite3_finalize(s);
    assert_int_equal(
        sqlite3_prepare_v2(db, "update identity set own_sum = ?", -1, &s, NULL),
        SQLITE_OK);
    (void)sqlite3_bind_int64(
        s, 1, (int64_t)state_identity_check(fields, STATE_OLD_IDENTITY_FIELDS));
    assert_int_equal(sqlite3_step(s), SQLITE_DONE);
    (void)sqlite3_finalize(s);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* A disk with an older schema, at rest; the model and the boot are those of `before`. */
static struct state_play *play_old(const struct state_play *before)
{
    struct simdisk *disk = simdisk_crash(before->disk, simdisk_calls(before->disk), 1);
    struct state_play *p;
    size_t size;

    simdisk_use(disk);
    make_old();
    if (simdisk_bytes(disk, "state.db-base", &size)) {
        sqlite3_vfs *vfs = sqlite3_vfs_find("simdisk");

        assert_int_equal(vfs->xDelete(vfs, "state.db-base", 1), SQLITE_OK);
    }
    p = state_play_new(simdisk_crash(disk, simdisk_calls(disk), 1), 1);
    simdisk_free(disk);
    p->now_ms = before->now_ms;
    p->model = before->model;
    p->acks[p->n_acks++] = before->acks[before->n_acks - 1];
    p->acks[0].calls = 0;
    return p;
}

static void older_schema_is_taken_over_wherever_it_crashes(void **unused)
{
    struct state_play *before = state_play_of(20);
    int64_t version = 0;
    struct errmsg msg;
    struct state_play *p;

    (void)unused;
    /* it knew no journal */
    assert_int_equal(state_db_tidy(before->db, before->now_ms, UINT64_MAX, &msg), 0);
    p = play_old(before);
    state_play_start(p);
    state_play_turn(p);
    state_db_close(p->db);
    state_play_start(p);
    assert_int_equal(state_db_query(p->db, "pragma user_version", &version, &msg), 0);
    assert_int_equal(version, STATE_SCHEMA);
    for (size_t calls = 0; calls <= simdisk_calls(p->disk); calls++) {
        for (uint64_t seed = 0; seed < (state_play_is_soak() ? 4 : 1); seed++) {
            crash(p, calls, calls * 5 + seed);
        }
    }
    simdisk_use(p->disk);
    state_play_free(p);
    simdisk_use(before->disk);
    state_play_free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_acknowledged_is_lost_wherever_it_crashes),
        cmocka_unit_test(older_schema_is_taken_over_wherever_it_crashes),
    };

    simdisk_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
