/* The state after a crash between any two calls that change the disk: what was
 * acknowledged is there, of the transaction that was on its way all or nothing, and
 * the next boot number is new. */

#include "rendezvous/record_fields.h"
#include "rendezvous/state_internal.h"
#include "rendezvous/state_schema.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/state_play.h"

#include "common/mem.h"
#include "common/wire.h"

#include <errno.h>
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

/* What a report was before: of its fields, all but the first were in a frame. */
static void put_old(const struct buf *value, struct buf *old)
{
    size_t size = buf_len(value) - 9;
    int rv = wire_put_u8(old, 1);

    rv |= buf_append(old, buf_bytes(value) + 1, 8);
    rv |= wire_put_u32(old, (uint32_t)size + 5);
    rv |= wire_put_u32(old, (uint32_t)size + 1);
    rv |= wire_put_u8(old, 21);
    rv |= buf_append(old, buf_bytes(value) + 9, size);
    assert_int_equal(rv, 0);
}

/* Puts a report as that schema had it into the database, and as it is now into the model.
 * Returns the row's sum. */
static uint64_t add_report(sqlite3 *db, int schema, struct state_model *model)
{
    struct record_report *report = mem_zalloc(sizeof(*report));
    static const uint8_t no_key;
    struct record r = {
        .act = RECORD_PUT, .kind = RECORD_REPORT, .job = "old", .key = {&no_key, 0}};
    struct buf value;
    struct buf old;
    sqlite3_stmt *s;
    uint64_t sum;

    buf_init(&value, RECORD_VALUE_MAX);
    buf_init(&old, RECORD_VALUE_MAX);
    (void)snprintf(report->text, sizeof(report->text), "a node was lost");
    assert_int_equal(record_put_report(report, &value), 0);
    r.value = record_bytes(&value);
    state_model_apply(model, &r);
    if (schema <= STATE_OF_FRAMES) {
        put_old(&value, &old);
        r.value = record_bytes(&old);
    }
    sum = state_row_sum(&r);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "insert into reports values ('old', 0, ?, ?)",
                                        -1, &s, NULL),
                     SQLITE_OK);
    (void)sqlite3_bind_blob64(s, 1, r.value.data, r.value.size, SQLITE_STATIC);
    (void)sqlite3_bind_int64(s, 2, (int64_t)sum);
    assert_int_equal(sqlite3_step(s), SQLITE_DONE);
    (void)sqlite3_finalize(s);
    buf_release(&value);
    buf_release(&old);
    mem_free(report);
    return sum;
}

/* With rows of that sum more, or less. */
static void write_identity(sqlite3 *db, int n, uint64_t change)
{
    uint64_t fields[STATE_IDENTITY_FIELDS];
    sqlite3_stmt *s;

    assert_int_equal(sqlite3_prepare_v2(db, "select * from identity", -1, &s, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    for (int i = 0; i < n; i++) {
        fields[i] = (uint64_t)sqlite3_column_int64(s, i);
    }
    (void)sqlite3_finalize(s);
    fields[2] ^= change;
    assert_int_equal(sqlite3_prepare_v2(db, "update identity set sum = ?, own_sum = ?",
                                        -1, &s, NULL),
                     SQLITE_OK);
    (void)sqlite3_bind_int64(s, 1, (int64_t)fields[2]);
    (void)sqlite3_bind_int64(s, 2, (int64_t)state_identity_check(fields, (size_t)n));
    assert_int_equal(sqlite3_step(s), SQLITE_DONE);
    (void)sqlite3_finalize(s);
}

/* Drops it. Returns the sum of its rows' sums. */
static uint64_t drop_starts(sqlite3 *db)
{
    uint64_t sum = 0;
    sqlite3_stmt *s;

    assert_int_equal(sqlite3_prepare_v2(db, "select sum from starts", -1, &s, NULL),
                     SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW) {
        sum ^= (uint64_t)sqlite3_column_int64(s, 0);
    }
    (void)sqlite3_finalize(s);
    query(db, "drop table starts");
    return sum;
}

/* What the versions before would have written. */
static void make_old(int schema, struct state_model *model)
{
    int n = schema == STATE_OLDEST ? STATE_OLD_IDENTITY_FIELDS : STATE_IDENTITY_FIELDS;
    char sql[64];
    sqlite3 *db;

    assert_int_equal(sqlite3_open_v2("state.db", &db, SQLITE_OPEN_READWRITE, "simdisk"),
                     SQLITE_OK);
    query(db, "pragma locking_mode = exclusive");
    if (schema == STATE_OLDEST) {
        query(db, "drop table curves");
        query(db, "drop table paces");
        query(db, "drop table journal");
        query(db, "alter table identity drop column commits");
        query(db, "alter table identity drop column pieces");
    }
    (void)snprintf(sql, sizeof(sql), "pragma user_version = %d", schema);
    query(db, sql);
    write_identity(db, n, drop_starts(db) ^ add_report(db, schema, model));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* A disk with an older schema, at rest; the model and the boot are those of `before`. */
static struct state_play *play_old(const struct state_play *before, int schema)
{
    struct simdisk *disk = simdisk_crash(before->disk, simdisk_calls(before->disk), 1);
    struct state_model model = before->model;
    struct state_play *p;
    size_t size;

    simdisk_use(disk);
    make_old(schema, &model);
    if (schema == STATE_OLDEST && simdisk_bytes(disk, "state.db-base", &size)) {
        sqlite3_vfs *vfs = sqlite3_vfs_find("simdisk");

        assert_int_equal(vfs->xDelete(vfs, "state.db-base", 1), SQLITE_OK);
    }
    p = state_play_new(simdisk_crash(disk, simdisk_calls(disk), 1), 1);
    simdisk_free(disk);
    p->now_ms = before->now_ms;
    p->model = model;
    p->acks[p->n_acks++] = before->acks[before->n_acks - 1];
    p->acks[0].calls = 0;
    p->acks[0].print = state_model_print(&p->model);
    return p;
}

/* The oldest knew no journal. */
static struct state_play *play_before(void)
{
    struct state_play *before = state_play_of(20);
    struct errmsg msg;

    assert_int_equal(state_db_tidy(before->db, before->now_ms, UINT64_MAX, &msg), 0);
    return before;
}

static int64_t schema_of(const struct state_play *p)
{
    struct errmsg msg;
    int64_t version = 0;

    assert_int_equal(state_db_query(p->db, "pragma user_version", &version, &msg), 0);
    return version;
}

static void crash_everywhere(struct state_play *p)
{
    for (size_t calls = 0; calls <= simdisk_calls(p->disk); calls++) {
        for (uint64_t seed = 0; seed < (state_play_is_soak() ? 4 : 1); seed++) {
            crash(p, calls, calls * 5 + seed);
        }
    }
}

static void older_schema_is_taken_over_wherever_it_crashes(void **unused)
{
    (void)unused;
    for (int schema = STATE_OLDEST; schema < STATE_SCHEMA; schema++) {
        struct state_play *before = play_before();
        struct state_play *p = play_old(before, schema);

        state_play_start(p);
        state_play_turn(p);
        state_db_close(p->db);
        state_play_start(p);
        assert_int_equal(schema_of(p), STATE_SCHEMA);
        crash_everywhere(p);
        simdisk_use(p->disk);
        state_play_free(p);
        simdisk_use(before->disk);
        state_play_free(before);
    }
}

static void fill_disk(struct simdisk *disk)
{
    static const char *const names[] = {"state.db", "state.db-wal", "state.db-base"};
    uint64_t sum = 1000;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t size = 0;

        sum += simdisk_bytes(disk, names[i], &size) ? size : 0;
    }
    simdisk_set_limit(disk, sum);
}

static void older_schema_that_has_no_room_is_taken_over_once_there_is(void **unused)
{
    (void)unused;
    for (int schema = STATE_OLDEST; schema < STATE_SCHEMA; schema++) {
        struct state_play *before = play_before();
        struct state_play *p = play_old(before, schema);
        struct state_print found = {0, 0};
        struct errmsg msg = {""};

        simdisk_use(p->disk);
        assert_int_equal(state_play_open(p, &p->db, &msg), 0);
        assert_int_equal(state_db_load(p->db, state_print_take, &found, &msg), 0);
        fill_disk(p->disk);
        for (int again = 0; again < 3; again++) {
            assert_int_equal(state_db_begin(p->db, &msg), -ENOSPC);
            assert_int_equal(schema_of(p), schema);
        }
        simdisk_set_limit(p->disk, 0);
        assert_int_equal(state_db_begin(p->db, &msg), 0);
        state_db_close(p->db);
        assert_int_equal(state_play_open(p, &p->db, &msg), 0);
        assert_int_equal(schema_of(p), STATE_SCHEMA);
        found = (struct state_print){0, 0};
        assert_int_equal(state_db_load(p->db, state_print_take, &found, &msg), 0);
        assert_true(state_print_is(found, state_model_print(&p->model)));
        state_play_free(p);
        simdisk_use(before->disk);
        state_play_free(before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_acknowledged_is_lost_wherever_it_crashes),
        cmocka_unit_test(older_schema_is_taken_over_wherever_it_crashes),
        cmocka_unit_test(older_schema_that_has_no_room_is_taken_over_once_there_is),
    };

    simdisk_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
