/* The state after a crash between any two calls that change the disk: what was
 * acknowledged is there, of the transaction that was on its way all or nothing, and
 * the next boot number is new. And after a disk has changed a bit by itself, or somebody
 * has taken the log away. */

#include "rendezvous/state_batch.h"
#include "rendezvous/state_internal.h"
#include "rendezvous/state_schema.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/simdisk.h"

#include "common/buf.h"
#include "common/mem.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ACKS = 2048,
    MAX_MODEL = 512,
    JOBS = 2,
    KEYS = 12,
    VALUE_MAX = 9000, /* more than a page, at times */
};

/* What is kept, as one number: the order means nothing. */
struct print {
    uint64_t sum;
    size_t n;
};

struct row {
    char job[8];
    enum record_kind kind;
    uint64_t generation;
    uint8_t key[16];
    size_t key_size;
    uint64_t sum;
};

struct model {
    struct row rows[MAX_MODEL];
    size_t n;
};

struct ack {
    size_t calls;       /* of the disk, when it was given */
    struct print print; /* what is kept from here on */
    uint64_t boot;
};

struct play {
    struct simdisk *disk;
    struct state_db *db;
    struct model model;
    struct ack acks[MAX_ACKS];
    size_t n_acks;
    uint64_t chance;
    uint64_t now_ms;
};

static bool is_soak(void)
{
    return getenv("CTRUN_SOAK") != NULL; /* NOLINT(concurrency-mt-unsafe) */
}

static uint64_t draw(struct play *p, uint64_t below)
{
    p->chance = p->chance * 6364136223846793005 + 1442695040888963407;
    return (p->chance >> 33) % below;
}

/* ---- the model ---- */

static struct print print_of(const struct model *m)
{
    struct print print = {0, m->n};

    for (size_t i = 0; i < m->n; i++) {
        print.sum ^= m->rows[i].sum;
    }
    return print;
}

static bool is_named(const struct row *row, const struct record *r)
{
    return row->kind == r->kind && row->generation == r->generation &&
           strcmp(row->job, r->job) == 0 && row->key_size == r->key.size &&
           memcmp(row->key, r->key.data, r->key.size) == 0;
}

static bool is_hit(const struct row *row, const struct record *r)
{
    bool is_of_generation = row->kind == RECORD_END || row->kind == RECORD_KEY ||
                            row->kind == RECORD_QUEUE || row->kind == RECORD_CLIENT;
    bool is_history = row->kind == RECORD_FINISHED || row->kind == RECORD_COMMIT ||
                      row->kind == RECORD_EVENT || row->kind == RECORD_CURVE;

    switch (r->act) {
    case RECORD_PUT:
    case RECORD_DROP:
        return is_named(row, r);
    case RECORD_DROP_GENERATION:
        return is_of_generation && row->generation == r->generation &&
               strcmp(row->job, r->job) == 0;
    case RECORD_DROP_JOB:
        return !is_history && strcmp(row->job, r->job) == 0;
    }
    UNREACHABLE();
}

static void model_apply(struct model *m, const struct record *r)
{
    size_t left = 0;

    for (size_t i = 0; i < m->n; i++) {
        if (!is_hit(&m->rows[i], r)) {
            m->rows[left++] = m->rows[i];
        }
    }
    m->n = left;
    if (r->act == RECORD_PUT) {
        struct row *row = &m->rows[m->n++];

        assert_true(m->n <= MAX_MODEL && r->key.size <= sizeof(row->key));
        *row = (struct row){.kind = r->kind,
                            .generation = r->generation,
                            .key_size = r->key.size,
                            .sum = state_row_sum(r)};
        (void)snprintf(row->job, sizeof(row->job), "%s", r->job);
        memcpy(row->key, r->key.data, r->key.size);
    }
}

/* ---- the workload ---- */

static void save(struct play *p, struct buf *batch, const struct record *r)
{
    state_batch_add(batch, r);
    model_apply(&p->model, r);
}

static void save_some(struct play *p, struct buf *batch, enum record_act act,
                      enum record_kind kind, uint64_t generation, const void *key,
                      size_t key_size)
{
    static uint8_t value[VALUE_MAX];
    char job[8];
    uint64_t size = draw(p, draw(p, 8) == 0 ? VALUE_MAX : 100) + 1;

    for (size_t i = 0; i < size; i++) {
        value[i] = (uint8_t)draw(p, 256);
    }
    (void)snprintf(job, sizeof(job), "job%d", (int)draw(p, JOBS));
    save(p, batch,
         &(struct record){act, kind, job, generation, {key, key_size}, {value, size}});
}

/* What workers ask of the store, which may wait in the journal: a key and its client's
 * reply; at times a key goes, an item of a queue comes or goes. */
static void save_request(struct play *p, struct buf *batch)
{
    char key[16];
    uint8_t client[13] = {[0] = (uint8_t)draw(p, 2) * 0x80, [7] = (uint8_t)draw(p, 6)};
    uint8_t item[9] = {'q', [8] = (uint8_t)draw(p, 6)};
    uint64_t what = draw(p, 8);

    (void)snprintf(key, sizeof(key), "key%d", (int)draw(p, KEYS));
    save_some(p, batch, what == 0 ? RECORD_DROP : RECORD_PUT, RECORD_KEY, 1, key,
              strlen(key));
    save_some(p, batch, RECORD_PUT, RECORD_CLIENT, 1, client, 13);
    if (what < 4) {
        save_some(p, batch, what < 2 ? RECORD_DROP : RECORD_PUT, RECORD_QUEUE, 1, item,
                  9);
    }
}

/* … and what else a turn of the loop may bring: a node, a rank's end, a commit, an
 * event; at times a generation or a job is over. */
static void save_turn(struct play *p, struct buf *batch)
{
    char key[16];
    uint8_t number[13] = {[0] = (uint8_t)draw(p, 2) * 0x80, [7] = (uint8_t)draw(p, 6)};
    uint64_t what = draw(p, 27);

    (void)snprintf(key, sizeof(key), "key%d", (int)draw(p, KEYS));
    save_request(p, batch);
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

static int open_db(uint64_t now_ms, struct state_db **ret, struct errmsg *msg)
{
    return state_db_open(
        &(struct state_db_config){
            .path = "state.db",
            .vfs = "simdisk",
            .clock_ms = now_ms,
            .clock_name = 1,
            .seed = 5,
            .history_ms = 1000000,
            .history_bytes = 1000000,
        },
        ret, msg);
}

static void acknowledge(struct play *p)
{
    assert_true(p->n_acks < MAX_ACKS);
    p->acks[p->n_acks++] = (struct ack){
        .calls = simdisk_calls(p->disk),
        .print = print_of(&p->model),
        .boot = state_db_identity(p->db)->boot,
    };
}

static void start(struct play *p)
{
    struct errmsg msg = {""};

    simdisk_use(p->disk);
    assert_int_equal(open_db(p->now_ms, &p->db, &msg), 0);
    assert_int_equal(state_db_load(p->db, take_nothing, NULL, &msg), 0);
    assert_int_equal(state_db_begin(p->db, &msg), 0);
    acknowledge(p);
}

static void turn(struct play *p)
{
    struct errmsg msg = {""};
    struct buf batch;
    bool is_plain = draw(p, 3) < 2;
    uint64_t n = draw(p, 3) + 1;

    buf_init(&batch, SIZE_MAX);
    for (uint64_t i = 0; i < n; i++) {
        (is_plain ? save_request : save_turn)(p, &batch);
    }
    p->now_ms += draw(p, 100);
    assert_int_equal(state_db_commit(p->db,
                                     (struct bytes){buf_bytes(&batch), buf_len(&batch)},
                                     p->now_ms, &msg),
                     0);
    buf_release(&batch);
    acknowledge(p);
    if (draw(p, 10) == 0) {
        assert_int_equal(state_db_tidy(p->db, p->now_ms, UINT64_MAX, &msg), 0);
    }
}

static struct play *play_new(struct simdisk *disk, uint64_t seed)
{
    struct play *p = mem_zalloc(sizeof(*p));

    p->disk = disk;
    p->chance = seed;
    p->now_ms = 1000;
    return p;
}

static struct play *play(unsigned n_turns)
{
    struct play *p = play_new(simdisk_new(), 1);

    start(p);
    for (unsigned i = 0; i < n_turns; i++) {
        turn(p);
        if (i % 37 == 36) {
            state_db_close(p->db);
            start(p);
        }
    }
    return p;
}

static void play_free(struct play *p)
{
    state_db_close(p->db);
    simdisk_free(p->disk);
    mem_free(p);
}

/* ---- after a crash ---- */

static int take_print(void *arg, const struct record *r, struct errmsg *msg)
{
    struct print *print = arg;

    (void)msg;
    print->sum ^= state_row_sum(r);
    print->n++;
    return 0;
}

static bool same(struct print a, struct print b)
{
    return a.sum == b.sum && a.n == b.n;
}

/* The last acknowledged state behind so many calls; MAX_ACKS: none. */
static size_t last_ack(const struct play *p, size_t calls)
{
    size_t last = MAX_ACKS;

    for (size_t i = 0; i < p->n_acks && p->acks[i].calls <= calls; i++) {
        last = i;
    }
    return last;
}

/* Opens what was found, which is one of two states. */
static struct state_db *reopen(const struct play *p, size_t calls, const char *where)
{
    size_t ack = last_ack(p, calls);
    size_t next = ack == MAX_ACKS ? 0 : MIN(ack + 1, p->n_acks - 1);
    struct print none = {0, 0};
    struct print found = {0, 0};
    struct state_db *db = NULL;
    struct errmsg msg = {""};

    if (open_db(p->now_ms, &db, &msg) < 0 ||
        state_db_load(db, take_print, &found, &msg) < 0) {
        fail_msg("%s: refused: %s", where, msg.text);
    }
    if (!same(found, ack == MAX_ACKS ? none : p->acks[ack].print) &&
        !same(found, p->acks[next].print)) {
        fail_msg("%s: neither what was acknowledged (%zu) nor what was on its way",
                 where, ack);
    }
    if (ack != MAX_ACKS) {
        assert_true(state_db_identity(db)->boot > p->acks[ack].boot);
    }
    return db;
}

/* The found disk is used for a while, and crashes again. */
static void crash_again(const struct play *before, struct simdisk *disk,
                        const char *where, uint64_t seed)
{
    struct play *p = play_new(disk, seed);
    struct errmsg msg = {""};
    struct simdisk *found;
    struct print kept = {0, 0};
    struct print after = {0, 0};
    struct print ours = {0, 0};
    size_t begun;
    size_t calls;

    p->now_ms = before->now_ms;
    simdisk_use(disk);
    assert_int_equal(open_db(p->now_ms, &p->db, &msg), 0);
    assert_int_equal(state_db_load(p->db, take_print, &kept, &msg), 0);
    assert_int_equal(state_db_begin(p->db, &msg), 0);
    begun = simdisk_calls(disk);
    turn(p);
    assert_int_equal(state_db_load(p->db, take_print, &after, &msg), 0);
    calls = draw(p, simdisk_calls(disk) + 1);
    found = simdisk_crash(disk, calls, seed);
    simdisk_use(found);
    state_db_close(p->db);
    if (open_db(p->now_ms, &p->db, &msg) < 0 ||
        state_db_load(p->db, take_print, &ours, &msg) < 0) {
        fail_msg("%s, and again at %zu: refused: %s", where, calls, msg.text);
    }
    assert_true((calls < p->acks[0].calls && same(ours, kept)) ||
                (calls > begun && same(ours, after)));
    state_db_close(p->db);
    simdisk_free(found);
    mem_free(p);
}

static void crash(struct play *p, size_t calls, uint64_t seed)
{
    struct simdisk *found = simdisk_crash(p->disk, calls, seed);
    struct state_db *db;
    char where[64];

    (void)snprintf(where, sizeof(where), "crash at call %zu, seed %llu", calls,
                   (unsigned long long)seed);
    simdisk_use(found);
    db = reopen(p, calls, where);
    state_db_close(db);
    if (draw(p, 4) == 0) {
        crash_again(p, found, where, seed);
    }
    simdisk_free(found);
}

static void nothing_acknowledged_is_lost_wherever_it_crashes(void **unused)
{
    struct play *p = play(is_soak() ? 150 : 120);
    size_t n_calls = simdisk_calls(p->disk);
    size_t step = is_soak() ? 1 : n_calls / 250;
    size_t n_points = 0;

    (void)unused;
    for (size_t calls = 0; calls <= n_calls; calls += step) {
        for (uint64_t seed = 0; seed < 2; seed++) {
            crash(p, calls, calls * 7 + seed);
            n_points++;
        }
    }
    print_message("%zu calls, %zu crashes\n", n_calls, n_points);
    assert_true(n_points >= (is_soak() ? 2000 : 400));
    simdisk_use(p->disk);
    play_free(p);
}

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
static bool open_without_log(const struct play *p, struct simdisk *disk, size_t calls)
{
    size_t ack = last_ack(p, calls);
    size_t next = ack == MAX_ACKS ? 0 : MIN(ack + 1, p->n_acks - 1);
    struct print found = {0, 0};
    struct print none = {0, 0};
    struct state_db *db = NULL;
    struct errmsg msg = {""};
    int rv;

    simdisk_use(disk);
    rv = open_db(p->now_ms, &db, &msg);
    if (rv < 0) {
        assert_int_equal(rv, ERR_CORRUPT);
        return true;
    }
    rv = state_db_load(db, take_print, &found, &msg);
    if (rv == 0 && !same(found, ack == MAX_ACKS ? none : p->acks[ack].print) &&
        !same(found, p->acks[next].print)) {
        fail_msg("crash at call %zu: an older state came back", calls);
    }
    if (rv == 0 && ack != MAX_ACKS) {
        assert_true(state_db_identity(db)->boot > p->acks[ack].boot);
    }
    state_db_close(db);
    return rv < 0;
}

static void log_that_is_taken_away_is_noticed_whenever_it_was(void **unused)
{
    struct play *p = play(is_soak() ? 150 : 60);
    size_t n_calls = simdisk_calls(p->disk);
    size_t step = is_soak() ? 1 : n_calls / 120;
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
    play_free(p);
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
    struct play *p = play(60);
    size_t n_calls = simdisk_calls(p->disk);

    (void)unused;
    for (size_t calls = n_calls / 4; calls <= n_calls; calls += n_calls / 60) {
        struct simdisk *found = simdisk_crash(p->disk, calls, calls);
        size_t size;

        simdisk_use(found);
        copy_log_as_others_do();
        assert_null(simdisk_bytes(found, "state.db-wal", &size));
        state_db_close(reopen(p, calls, "behind another program"));
        simdisk_free(found);
    }
    simdisk_use(p->disk);
    play_free(p);
}

/* It is named as the way out: a database without its log may be a whole copy. */
static void without_its_base_the_database_is_taken_as_it_is(void **unused)
{
    struct play *p = play(10);
    struct simdisk *found = simdisk_crash(p->disk, simdisk_calls(p->disk), 1);
    sqlite3_vfs *vfs = sqlite3_vfs_find("simdisk");
    struct errmsg msg = {""};

    (void)unused;
    remove_log(found);
    state_db_close(p->db);
    assert_int_equal(open_db(p->now_ms, &p->db, &msg), ERR_CORRUPT);
    assert_non_null(strstr(msg.text, "remove state.db-base"));
    assert_int_equal(vfs->xDelete(vfs, "state.db-base", 1), SQLITE_OK);
    assert_int_equal(open_db(p->now_ms, &p->db, &msg), 0);
    play_free(p);
    simdisk_free(found);
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
static struct play *play_old(const struct play *before)
{
    struct simdisk *disk = simdisk_crash(before->disk, simdisk_calls(before->disk), 1);
    struct play *p;
    size_t size;

    simdisk_use(disk);
    make_old();
    if (simdisk_bytes(disk, "state.db-base", &size)) {
        sqlite3_vfs *vfs = sqlite3_vfs_find("simdisk");

        assert_int_equal(vfs->xDelete(vfs, "state.db-base", 1), SQLITE_OK);
    }
    p = play_new(simdisk_crash(disk, simdisk_calls(disk), 1), 1);
    simdisk_free(disk);
    p->now_ms = before->now_ms;
    p->model = before->model;
    p->acks[p->n_acks++] = before->acks[before->n_acks - 1];
    p->acks[0].calls = 0;
    return p;
}

static void older_schema_is_taken_over_wherever_it_crashes(void **unused)
{
    struct play *before = play(20);
    int64_t version = 0;
    struct errmsg msg;
    struct play *p;

    (void)unused;
    /* it knew no journal */
    assert_int_equal(state_db_tidy(before->db, before->now_ms, UINT64_MAX, &msg), 0);
    p = play_old(before);
    start(p);
    turn(p);
    state_db_close(p->db);
    start(p);
    assert_int_equal(state_db_query(p->db, "pragma user_version", &version, &msg), 0);
    assert_int_equal(version, STATE_SCHEMA);
    for (size_t calls = 0; calls <= simdisk_calls(p->disk); calls++) {
        for (uint64_t seed = 0; seed < (is_soak() ? 4 : 1); seed++) {
            crash(p, calls, calls * 5 + seed);
        }
    }
    simdisk_use(p->disk);
    play_free(p);
    simdisk_use(before->disk);
    play_free(before);
}

/* ---- a bit ---- */

/* How the flipped state is taken: as it was, or not at all. */
static bool is_refused(const struct play *p, struct simdisk *disk, const char *where)
{
    struct print found = {0, 0};
    struct state_db *db = NULL;
    struct errmsg msg = {""};
    int rv;

    simdisk_use(disk);
    rv = open_db(p->now_ms, &db, &msg);
    if (rv == 0) {
        rv = state_db_load(db, take_print, &found, &msg);
        state_db_close(db);
    }
    if (rv == 0 && !same(found, p->acks[p->n_acks - 1].print)) {
        fail_msg("%s: something else was found", where);
    }
    return rv < 0;
}

static size_t flip_bits(struct play *p, const char *name, size_t among)
{
    size_t n_refused = 0;

    for (unsigned i = 0; i < (is_soak() ? 3000 : 200); i++) {
        struct simdisk *found = simdisk_crash(p->disk, simdisk_calls(p->disk), 1);
        char where[64];
        uint8_t *bytes;
        size_t size;
        size_t at;

        bytes = simdisk_bytes(found, name, &size);
        assert_true(size >= among);
        at = draw(p, among);
        bytes[at] ^= (uint8_t)(1U << draw(p, 8));
        (void)snprintf(where, sizeof(where), "byte %zu of %s", at, name);
        n_refused += is_refused(p, found, where);
        simdisk_free(found);
    }
    return n_refused;
}

/* The last transaction of the log may have been half written, for all one can see. */
static void a_bit_that_the_disk_turned_is_noticed(void **unused)
{
    struct play *p = play(60);
    size_t size;
    size_t in_db;
    size_t in_log;

    (void)unused;
    (void)simdisk_bytes(p->disk, "state.db", &size);
    in_db = flip_bits(p, "state.db", size);
    simdisk_use(p->disk);
    state_db_close(p->db);
    start(p); /* the log is empty */
    turn(p);
    turn(p);
    (void)simdisk_bytes(p->disk, "state.db-wal", &size);
    turn(p);
    in_log = flip_bits(p, "state.db-wal", size);
    print_message("refused %zu flips in the database, %zu in the log\n", in_db, in_log);
    assert_true(in_db > 5 && in_log > 100); /* much of the database is empty */
    simdisk_use(p->disk);
    play_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_acknowledged_is_lost_wherever_it_crashes),
        cmocka_unit_test(log_that_is_taken_away_is_noticed_whenever_it_was),
        cmocka_unit_test(log_that_somebody_else_has_copied_is_not_missed),
        cmocka_unit_test(without_its_base_the_database_is_taken_as_it_is),
        cmocka_unit_test(older_schema_is_taken_over_wherever_it_crashes),
        cmocka_unit_test(a_bit_that_the_disk_turned_is_noticed),
    };

    simdisk_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
