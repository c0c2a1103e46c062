/* What waits in the journal: the last record of each name, in order; and batches as
 * bytes, whole or not. */

#include "rendezvous/record_fields.h"
#include "rendezvous/state_batch.h"
#include "rendezvous/state_pending.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/mem.h"

#include <string.h>

struct rig {
    struct state_pending pending;
    struct buf batch;
};

static struct rig rig_new(void)
{
    struct rig r;

    state_pending_init(&r.pending, 42);
    buf_init(&r.batch, SIZE_MAX);
    return r;
}

static void rig_release(struct rig *r)
{
    state_pending_release(&r->pending);
    buf_release(&r->batch);
}

static void save(struct rig *r, enum record_act act, const char *job,
                 uint64_t generation, const char *key, const char *value)
{
    state_batch_add(&r->batch,
                    &(struct record){act,
                                     RECORD_KEY,
                                     job,
                                     generation,
                                     {(const uint8_t *)key, strlen(key)},
                                     {(const uint8_t *)value, strlen(value)}});
}

static struct bytes batch_of(const struct rig *r)
{
    return (struct bytes){buf_bytes(&r->batch), buf_len(&r->batch)};
}

static void add(struct rig *r)
{
    size_t n;

    assert_true(state_pending_may_wait(batch_of(r), &n));
    state_pending_add(&r->pending, batch_of(r), n);
    buf_clear(&r->batch); /* it has a copy */
}

static void is_next(const struct record ***at, enum record_act act, const char *job,
                    uint64_t generation, const char *key, const char *value)
{
    const struct record *r = *(*at)++;

    assert_non_null(r);
    assert_int_equal(r->act, act);
    assert_string_equal(r->job, job);
    assert_int_equal(r->generation, generation);
    assert_int_equal(r->key.size, strlen(key));
    assert_memory_equal(r->key.data, key, strlen(key));
    if (act == RECORD_PUT) {
        assert_int_equal(r->value.size, strlen(value));
        assert_memory_equal(r->value.data, value, strlen(value));
    }
}

static void last_record_of_each_name_counts_in_their_order(void **unused)
{
    struct rig r = rig_new();
    const struct record **sorted;
    const struct record **at;

    (void)unused;
    save(&r, RECORD_PUT, "job", 2, "b", "one");
    save(&r, RECORD_PUT, "job", 2, "ab", "two");
    save(&r, RECORD_PUT, "job", 1, "b", "other");
    add(&r);
    save(&r, RECORD_DROP, "job", 2, "ab", "");
    save(&r, RECORD_PUT, "job", 2, "b", "three");
    save(&r, RECORD_PUT, "hob", 2, "b", "four");
    save(&r, RECORD_PUT, "job", 2, "b", "five");
    add(&r);
    at = sorted = state_pending_sorted(&r.pending);
    assert_int_equal(state_pending_count(&r.pending), 4);
    is_next(&at, RECORD_PUT, "hob", 2, "b", "four");
    is_next(&at, RECORD_PUT, "job", 1, "b", "other");
    is_next(&at, RECORD_DROP, "job", 2, "ab", "");
    is_next(&at, RECORD_PUT, "job", 2, "b", "five");
    assert_null(*at);
    mem_free(sorted);
    state_pending_clear(&r.pending);
    at = sorted = state_pending_sorted(&r.pending);
    assert_null(*at);
    mem_free(sorted);
    rig_release(&r);
}

/* Each wants a page of the tables, whether it was looked into or not. */
static void names_are_never_more_than_were_counted(void **unused)
{
    static const char value[1000] = "value";
    struct rig r = rig_new();
    const struct record **sorted;

    (void)unused;
    for (unsigned i = 0; i < 3000; i++) {
        const uint8_t key[2] = {(uint8_t)(i % 1000 >> 8), (uint8_t)(i % 1000)};

        state_batch_add(&r.batch, &(struct record){RECORD_PUT,
                                                   RECORD_KEY,
                                                   "job",
                                                   1,
                                                   {key, 2},
                                                   {(const uint8_t *)value, 100}});
        add(&r);
        assert_in_range(state_pending_count(&r.pending), MIN(i + 1, 1000), 1600);
    }
    sorted = state_pending_sorted(&r.pending);
    assert_int_equal(state_pending_count(&r.pending), 1000);
    for (unsigned i = 1; i < 1000; i++) {
        assert_true(record_compare(sorted[i - 1], sorted[i]) < 0);
    }
    mem_free(sorted);
    rig_release(&r);
}

static void names_are_few_however_often_they_are_written(void **unused)
{
    struct rig r = rig_new();

    (void)unused;
    for (unsigned i = 0; i < 100; i++) {
        save(&r, RECORD_PUT, "job", 1, "a", "one");
        save(&r, RECORD_PUT, "job", 1, "b", "two");
        add(&r);
        assert_true(state_pending_are_few(&r.pending, 2));
    }
    save(&r, RECORD_PUT, "job", 1, "c", "three");
    add(&r);
    assert_false(state_pending_are_few(&r.pending, 2));
    assert_true(state_pending_are_few(&r.pending, 3));
    rig_release(&r);
}

static void what_is_more_than_a_key_or_a_client_does_not_wait(void **unused)
{
    static const struct record others[] = {
        {.act = RECORD_PUT, .kind = RECORD_JOB, .job = "job"},
        {.act = RECORD_DROP_GENERATION, .job = "job", .generation = 1},
        {.act = RECORD_DROP_JOB, .job = "job"},
        {.act = RECORD_PUT, .kind = RECORD_FINISHED, .job = "job"},
    };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct rig r = rig_new();
        size_t n;

        save(&r, RECORD_PUT, "job", 1, "a", "one");
        assert_true(state_pending_may_wait(batch_of(&r), &n));
        state_batch_add(&r.batch, &others[i]);
        assert_false(state_pending_may_wait(batch_of(&r), &n));
        rig_release(&r);
    }
}

static void what_neither_waits_nor_drops_what_waits_may_pass_it(void **unused)
{
    static const struct {
        struct record record;
        bool may_pass;
    } cases[] = {
        {{.act = RECORD_PUT, .kind = RECORD_JOB, .job = "job"}, true},
        {{.act = RECORD_DROP, .kind = RECORD_FINISHED, .job = "job"}, true},
        {{.act = RECORD_PUT, .kind = RECORD_KEY, .job = "job"}, false},
        {{.act = RECORD_DROP, .kind = RECORD_QUEUE, .job = "job"}, false},
        {{.act = RECORD_DROP_GENERATION, .job = "job", .generation = 1}, false},
        {{.act = RECORD_DROP_JOB, .job = "job"}, false},
    };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r = rig_new();

        state_batch_add(&r.batch, &cases[0].record);
        state_batch_add(&r.batch, &cases[i].record);
        assert_int_equal(state_pending_may_pass(batch_of(&r)), cases[i].may_pass);
        rig_release(&r);
    }
}

static void bytes_that_are_no_batch_are_refused_wherever_they_end(void **unused)
{
    struct rig r = rig_new();
    struct record record;
    size_t n;

    (void)unused;
    save(&r, RECORD_PUT, "job", 1, "a", "one");
    for (size_t size = 1; size < buf_len(&r.batch); size++) {
        struct bytes part = {buf_bytes(&r.batch), size};

        assert_false(state_pending_may_wait(part, &n));
        assert_int_equal(state_batch_next(&part, &record), ERR_CORRUPT);
        assert_int_equal(part.size, size);
    }
    for (size_t i = 0; i < 2; i++) { /* act, kind */
        uint8_t *copy = mem_dup(buf_bytes(&r.batch), buf_len(&r.batch));
        struct bytes other = {copy, buf_len(&r.batch)};

        copy[i] = 0xff;
        assert_false(
            state_pending_may_wait((struct bytes){copy, 18}, &n)); /* its head */
        assert_int_equal(state_batch_next(&other, &record), ERR_CORRUPT);
        mem_free(copy);
    }
    rig_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_record_of_each_name_counts_in_their_order),
        cmocka_unit_test(names_are_never_more_than_were_counted),
        cmocka_unit_test(names_are_few_however_often_they_are_written),
        cmocka_unit_test(what_is_more_than_a_key_or_a_client_does_not_wait),
        cmocka_unit_test(what_neither_waits_nor_drops_what_waits_may_pass_it),
        cmocka_unit_test(bytes_that_are_no_batch_are_refused_wherever_they_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
