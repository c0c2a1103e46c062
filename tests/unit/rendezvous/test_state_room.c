/* What is left of the reserve, and what makes room, on a disk that is full. */

#include "rendezvous/record.h"
#include "rendezvous/state_batch.h"
#include "rendezvous/state_db.h"
#include "rendezvous/state_dir.h"
#include "rendezvous/state_room.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { RESERVE = 4 << 20, EIGHTH = RESERVE / 8 };

struct rig {
    struct scratch scratch;
    struct state_db *db;
    struct state_dir dir;
};

static struct rig *rig_new(void)
{
    struct rig *r = mem_zalloc(sizeof(*r));
    struct errmsg msg = {""};

    scratch_open(&r->scratch);
    assert_int_equal(
        state_db_open(
            &(struct state_db_config){.path = scratch_path(&r->scratch, "state.db"),
                                      .history_ms = 1000,
                                      .history_bytes = 40000},
            &r->db, &msg),
        0);
    r->dir.fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* is always full */
    r->dir.lock_fd = open(scratch_path(&r->scratch, "lock"), O_RDWR | O_CREAT, 0600);
    assert_true(r->dir.fd >= 0 && r->dir.lock_fd >= 0);
    r->dir.reserve_bytes = RESERVE;
    return r;
}

static void rig_free(struct rig *r)
{
    (void)close(r->dir.fd);
    (void)close(r->dir.lock_fd);
    state_db_close(r->db);
    scratch_close(&r->scratch);
    mem_free(r);
}

/* Keys that are new: the database is to grow by so much. */
static void store(struct rig *r, size_t bytes)
{
    const struct bytes value = {mem_zalloc(bytes), bytes};
    struct errmsg msg = {""};
    struct buf batch;

    buf_init(&batch, SIZE_MAX);
    state_batch_add(
        &batch,
        &(struct record){
            RECORD_PUT, RECORD_KEY, "job", 3, {(const uint8_t *)"k", 1}, value});
    assert_int_equal(state_db_commit(r->db,
                                     (struct bytes){buf_bytes(&batch), buf_len(&batch)},
                                     1, &msg),
                     0);
    buf_release(&batch);
    mem_free((void *)(uintptr_t)value.data);
}

static enum durable_space look(struct rig *r, uint64_t left)
{
    enum durable_space space;

    r->dir.reserve_left = left;
    assert_int_equal(state_room_look(&r->dir, r->db, SPACE_FINE, &space), 0);
    return space;
}

static void what_the_database_is_to_grow_by_is_paid_by_the_reserve(void **unused)
{
    struct rig *r = rig_new();
    struct errmsg msg = {""};

    (void)unused;
    assert_int_equal(state_db_copy_log(r->db, &msg), 0);
    assert_int_equal(look(r, RESERVE), SPACE_LOW);
    assert_int_equal(look(r, 5 * EIGHTH), SPACE_LOW);
    assert_int_equal(look(r, 3 * EIGHTH), SPACE_SCARCE);
    store(r, 2 * EIGHTH);
    assert_in_range(state_db_growth(r->db), 2 * EIGHTH, 3 * EIGHTH);
    assert_int_equal(look(r, 7 * EIGHTH), SPACE_LOW);
    assert_int_equal(look(r, 5 * EIGHTH), SPACE_SCARCE);
    assert_int_equal(look(r, 3 * EIGHTH), SPACE_SPENT);
    assert_int_equal(look(r, EIGHTH), SPACE_SPENT);
    assert_int_equal(state_db_copy_log(r->db, &msg), 0); /* now it is paid */
    assert_int_equal(look(r, 5 * EIGHTH), SPACE_LOW);
    rig_free(r);
}

static void log_is_copied_before_any_of_the_reserve_is_given_up(void **unused)
{
    struct rig *r = rig_new();
    struct errmsg msg = {""};

    (void)unused;
    r->dir.reserve_left = RESERVE;
    store(r, 100);
    assert_true(state_db_log_pages(r->db) > 0);
    assert_int_equal(state_room_make(&r->dir, r->db, 100, &msg), 0);
    assert_int_equal(state_db_log_pages(r->db), 0);
    assert_int_equal(r->dir.reserve_left, RESERVE);
    rig_free(r);
}

/* It would take all that is left, and come to no end. */
static void log_that_the_reserve_does_not_pay_is_not_copied(void **unused)
{
    struct rig *r = rig_new();
    struct errmsg msg = {""};
    uint64_t left = EIGHTH;

    (void)unused;
    r->dir.reserve_left = left;
    store(r, 2 * EIGHTH);
    assert_int_equal(state_room_make(&r->dir, r->db, 0, &msg), -ENOSPC);
    assert_int_equal(r->dir.reserve_left, left);
    assert_true(state_db_log_pages(r->db) > 0);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_database_is_to_grow_by_is_paid_by_the_reserve),
        cmocka_unit_test(log_is_copied_before_any_of_the_reserve_is_given_up),
        cmocka_unit_test(log_that_the_reserve_does_not_pay_is_not_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
