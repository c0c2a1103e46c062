/* The state when somebody has taken its log away, or the disk has changed a bit by
 * itself: it is as it was, or refused. */

#include "tests/lib/cmocka.h"
#include "tests/lib/state_play.h"

#include "common/mem.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

/* ---- a log that is taken away ---- */

static void remove_log(struct simdisk *disk)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find("simdisk");

    simdisk_use(disk);
    (void)vfs->xDelete(vfs, "state.db-wal", 0); /* or there was none */
}

static void empty_log(struct simdisk *disk)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find("simdisk");
    sqlite3_file *file = mem_zalloc((size_t)vfs->szOsFile);

    simdisk_use(disk);
    if (vfs->xOpen(vfs, "state.db-wal", file, SQLITE_OPEN_WAL, NULL) == SQLITE_OK) {
        assert_int_equal(file->pMethods->xTruncate(file, 0), SQLITE_OK);
    }
    mem_free(file);
}

/* True when it is refused. Else nothing was lost. */
static bool open_without_log(const struct state_play *p, struct simdisk *disk,
                             size_t calls)
{
    size_t ack = state_play_last_ack(p, calls);
    struct state_print found = {0, 0};
    struct state_db *db = NULL;
    struct errmsg msg = {""};
    int rv;

    simdisk_use(disk);
    rv = state_play_open(p, &db, &msg);
    if (rv < 0) {
        assert_int_equal(rv, ERR_CORRUPT);
        return true;
    }
    rv = state_db_load(db, state_print_take, &found, &msg);
    if (rv == 0 && !state_play_is_whole(p, calls, found)) {
        fail_msg("crash at call %zu: an older state came back", calls);
    }
    if (rv == 0 && ack != STATE_PLAY_ACKS) {
        assert_true(state_db_identity(db)->boot > p->acks[ack].boot);
    }
    state_db_close(db);
    return rv < 0;
}

static void log_that_is_taken_away_is_noticed_whenever_it_was(void **unused)
{
    struct state_play *p = state_play_of(state_play_is_soak() ? 150 : 60);
    size_t n_calls = simdisk_calls(p->disk);
    size_t step = state_play_is_soak() ? 1 : n_calls / 120;
    size_t n_refused = 0;
    size_t n = 0;

    (void)unused;
    for (size_t calls = 0; calls <= n_calls; calls += step) {
        for (uint64_t seed = 0; seed < 2; seed++, n++) {
            struct simdisk *found = simdisk_crash(p->disk, calls, calls * 7 + seed);

            if (seed == 0) {
                remove_log(found);
            } else {
                empty_log(found);
            }
            n_refused += open_without_log(p, found, calls);
            simdisk_free(found);
        }
    }
    print_message("%zu times, refused %zu\n", n, n_refused);
    assert_true(n_refused > n / 2);
    simdisk_use(p->disk);
    state_play_free(p);
}

/* As sqlite3(1) does when somebody has looked: the log is copied, and goes. */
static void copy_log_as_others_do(void)
{
    sqlite3 *db;

    assert_int_equal(sqlite3_open_v2("state.db", &db, SQLITE_OPEN_READWRITE, "simdisk"),
                     SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "pragma locking_mode = exclusive; "
                                  "select count(*) from identity",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void log_that_somebody_else_has_copied_is_not_missed(void **unused)
{
    struct state_play *p = state_play_of(60);
    size_t n_calls = simdisk_calls(p->disk);

    (void)unused;
    for (size_t calls = n_calls / 4; calls <= n_calls; calls += n_calls / 60) {
        struct simdisk *found = simdisk_crash(p->disk, calls, calls);
        size_t size;

        simdisk_use(found);
        copy_log_as_others_do();
        assert_null(simdisk_bytes(found, "state.db-wal", &size));
        state_db_close(state_play_reopen(p, calls, "behind another program"));
        simdisk_free(found);
    }
    simdisk_use(p->disk);
    state_play_free(p);
}

/* It is named as the way out: a database without its log may be a whole copy. */
static void without_its_base_the_database_is_taken_as_it_is(void **unused)
{
    struct state_play *p = state_play_of(10);
    struct simdisk *found = simdisk_crash(p->disk, simdisk_calls(p->disk), 1);
    sqlite3_vfs *vfs = sqlite3_vfs_find("simdisk");
    struct errmsg msg = {""};

    (void)unused;
    remove_log(found);
    state_db_close(p->db);
    assert_int_equal(state_play_open(p, &p->db, &msg), ERR_CORRUPT);
    assert_non_null(strstr(msg.text, "remove state.db-base"));
    assert_int_equal(vfs->xDelete(vfs, "state.db-base", 1), SQLITE_OK);
    assert_int_equal(state_play_open(p, &p->db, &msg), 0);
    state_play_free(p);
    simdisk_free(found);
}

/* ---- a bit ---- */

/* How the flipped state is taken: as it was, or not at all. */
static bool is_refused(const struct state_play *p, struct simdisk *disk,
                       const char *where)
{
    struct state_print found = {0, 0};
    struct state_db *db = NULL;
    struct errmsg msg = {""};
    int rv;

    simdisk_use(disk);
    rv = state_play_open(p, &db, &msg);
    if (rv == 0) {
        rv = state_db_load(db, state_print_take, &found, &msg);
        state_db_close(db);
    }
    if (rv == 0 && !state_print_is(found, p->acks[p->n_acks - 1].print)) {
        fail_msg("%s: something else was found", where);
    }
    return rv < 0;
}

static size_t flip_bits(struct state_play *p, const char *name, size_t among)
{
    size_t n_refused = 0;

    for (unsigned i = 0; i < (state_play_is_soak() ? 3000 : 200); i++) {
        struct simdisk *found = simdisk_crash(p->disk, simdisk_calls(p->disk), 1);
        char where[64];
        uint8_t *bytes;
        size_t size;
        size_t at;

        bytes = simdisk_bytes(found, name, &size);
        assert_true(size >= among);
        at = state_play_draw(p, among);
        bytes[at] ^= (uint8_t)(1U << state_play_draw(p, 8));
        (void)snprintf(where, sizeof(where), "byte %zu of %s", at, name);
        n_refused += is_refused(p, found, where);
        simdisk_free(found);
    }
    return n_refused;
}

/* The last transaction of the log may have been half written, for all one can see. */
static void a_bit_that_the_disk_turned_is_noticed(void **unused)
{
    struct state_play *p = state_play_of(60);
    size_t size;
    size_t in_db;
    size_t in_log;

    (void)unused;
    (void)simdisk_bytes(p->disk, "state.db", &size);
    in_db = flip_bits(p, "state.db", size);
    simdisk_use(p->disk);
    state_db_close(p->db);
    state_play_start(p); /* the log is empty */
    state_play_turn(p);
    state_play_turn(p);
    (void)simdisk_bytes(p->disk, "state.db-wal", &size);
    state_play_turn(p);
    in_log = flip_bits(p, "state.db-wal", size);
    print_message("refused %zu flips in the database, %zu in the log\n", in_db, in_log);
    assert_true(in_db > 5 && in_log > 100); /* much of the database is empty */
    simdisk_use(p->disk);
    state_play_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_that_is_taken_away_is_noticed_whenever_it_was),
        cmocka_unit_test(log_that_somebody_else_has_copied_is_not_missed),
        cmocka_unit_test(without_its_base_the_database_is_taken_as_it_is),
        cmocka_unit_test(a_bit_that_the_disk_turned_is_noticed),
    };

    simdisk_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
