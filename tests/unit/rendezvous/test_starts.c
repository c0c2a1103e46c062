/* Which starts a state has had, and what it had at the end of each: copies of a state are
 * told from it, however often they are started. */

#include "rendezvous/record_fields.h"
#include "rendezvous/starts.h"
#include "tests/lib/cmocka.h"

#include "common/buf.h"
#include "common/err.h"

#include <string.h>

enum { ROWS = STARTS_MAX + 8 };

/* A state's rows of START, as it is started again and again. */
struct table {
    struct start row[ROWS];
    size_t n;
    uint64_t boot, commits;
};

static struct start start_of(const struct record *r)
{
    struct start s = {0};
    struct record_start value;
    struct bytes key = r->key;

    assert_int_equal(record_take_number(&key, sizeof(s.boot), &s.boot), 0);
    if (r->act == RECORD_PUT) {
        assert_int_equal(record_get_start(r->value, &value), 0);
        s.id = value.id;
        s.found = value.found;
    }
    return s;
}

static void on_save(void *arg, const struct record *r)
{
    struct table *t = arg;
    struct start s = start_of(r);

    assert_int_equal(r->kind, RECORD_START);
    if (r->act == RECORD_PUT) {
        assert_true(t->n < ROWS);
        t->row[t->n++] = s;
        return;
    }
    assert_int_equal(r->act, RECORD_DROP);
    for (size_t i = 0; i < t->n; i++) {
        if (t->row[i].boot == s.boot) {
            memmove(&t->row[i], &t->row[i + 1], (--t->n - i) * sizeof(t->row[0]));
            return;
        }
    }
}

struct given {
    struct starts *starts;
    int rv;
};

static void on_given(void *arg, const struct record *r)
{
    struct given *g = arg;

    if (r->act == RECORD_PUT && g->rv == 0) {
        g->rv = starts_restore(g->starts, r);
    }
}

static int give(struct starts *s, const struct start *past)
{
    struct given g = {s, 0};

    starts_save(past, on_given, &g);
    return g.rv;
}

/* Started, as a number of its own; it does `n` transactions beside the start's. */
static void start(struct table *t, struct starts *s, uint64_t id, uint64_t n)
{
    struct start now = {++t->boot, id, t->commits};

    starts_init(s, &now);
    for (size_t i = 0; i < t->n; i++) {
        assert_int_equal(give(s, &t->row[i]), 0);
    }
    starts_save(&now, on_save, t);
    t->commits += 1 + n;
}

/* For one whose name does not matter. */
static void start_again(struct table *t, uint64_t id, uint64_t n)
{
    struct starts s;

    start(t, &s, id, n);
    starts_release(&s);
}

static bool has(const struct table *t, const struct starts *s, uint64_t boot,
                uint64_t id, uint64_t *ret)
{
    return starts_have(s, boot, id, t->commits, ret);
}

static void each_start_ended_where_the_next_began(void **state)
{
    static struct table t;
    struct starts s;
    uint64_t had;

    (void)state;
    t = (struct table){0};
    start_again(&t, 11, 99);
    start_again(&t, 12, 49);
    start(&t, &s, 13, 9);
    assert_true(has(&t, &s, 1, 11, &had) && had == 100);
    assert_true(has(&t, &s, 2, 12, &had) && had == 150);
    assert_true(has(&t, &s, 3, 13, &had) && had == 160); /* by now */
    t.commits++;
    assert_true(has(&t, &s, 3, 13, &had) && had == 161);
    assert_false(has(&t, &s, 4, 14, &had)); /* it is to come */
    assert_false(has(&t, &s, 2, 11, &had));
    starts_release(&s);
}

/* A copy of boot 1 is started, as the right one was: both are at boot 2. Then the copy is
 * started again, and does more than the right one has done. */
static void copy_never_gets_what_it_lacks(void **state)
{
    static struct table right;
    static struct table copied;
    struct starts s;
    uint64_t had;

    (void)state;
    right = (struct table){0};
    start_again(&right, 11, 99);
    copied = right;
    start_again(&right, 12, 49);
    for (uint64_t i = 0; i < STARTS_MAX - 2; i++) {
        start(&copied, &s, 500 + i, 1000);
        assert_false(has(&copied, &s, 2, 12, &had));
        assert_true(has(&copied, &s, 1, 11, &had) && had == 100);
        starts_release(&s);
    }
}

/* … nor one that was made of a start in the midst of it. */
static void copy_has_what_was_there_when_it_was_made(void **state)
{
    static struct table copied;
    struct starts s;
    uint64_t had;

    (void)state;
    copied = (struct table){0};
    start_again(&copied, 11, 102); /* of 110 */
    for (uint64_t i = 0; i < 100; i++) {
        start(&copied, &s, 500 + i, 1000);
        assert_true(has(&copied, &s, 1, 11, &had) && had == 103);
        starts_release(&s);
    }
}

static void those_before_the_last_thousand_are_known_by_their_numbers(void **state)
{
    static struct table t;
    struct starts s;
    uint64_t had;

    (void)state;
    t = (struct table){0};
    for (uint64_t i = 1; i < STARTS_MAX + 5; i++) {
        start_again(&t, 1000 + i, 9);
    }
    assert_int_equal(t.n, STARTS_MAX);
    start(&t, &s, 7777, 9);
    assert_int_equal(t.n, STARTS_MAX);
    assert_int_equal(t.row[0].boot, 6);
    /* it knows what it has found: the rows from 5 on */
    assert_true(has(&t, &s, 5, 1005, &had) && had == 50);
    assert_false(has(&t, &s, 5, 1006, &had));
    assert_true(has(&t, &s, 4, 1004, &had) && had == 40);
    assert_true(has(&t, &s, 4, 9999, &had) && had == 40);
    starts_release(&s);
}

/* An older schema's state has no rows. */
static void state_without_starts_knows_them_by_their_numbers(void **state)
{
    struct starts s;
    uint64_t had;

    (void)state;
    starts_init(&s, &(struct start){9, 77, 300});
    assert_true(starts_have(&s, 8, 66, 301, &had) && had == 300);
    assert_false(starts_have(&s, 9, 66, 301, &had));
    assert_false(starts_have(&s, 10, 66, 301, &had));
    assert_true(starts_have(&s, 9, 77, 301, &had) && had == 301);
    starts_release(&s);
}

static void what_no_service_has_written_is_refused(void **state)
{
    static const struct start wrong[] = {
        {2, 0, 12},  /* no name */
        {1, 22, 12}, /* no later one */
        {2, 22, 10}, /* no more transactions, though it has taken one itself … */
        {2, 22, 31}, /* … or more than were found */
        {3, 22, 12}, /* it is the one at hand */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct starts s;

        starts_init(&s, &(struct start){3, 33, 30});
        assert_int_equal(give(&s, &(struct start){1, 11, 10}), 0);
        assert_int_equal(give(&s, &wrong[i]), ERR_CORRUPT);
        assert_int_equal(give(&s, &(struct start){2, 22, 12}), 0);
        starts_release(&s);
    }
}

static void record_of_another_form_is_refused(void **state)
{
    uint8_t key[9] = {[7] = 1};
    uint8_t value[17] = {RECORD_START_VERSION, 1};
    const struct record right = {.kind = RECORD_START,
                                 .job = "",
                                 .key = {key, 8},
                                 .value = {value, sizeof(value)}};
    struct record wrong[] = {right, right, right, right, right};
    struct starts s;

    (void)state;
    wrong[0].job = "j";
    wrong[1].generation = 1;
    wrong[2].key.size = 7;
    wrong[3].key.size = 9;
    wrong[4].value.size--;
    starts_init(&s, &(struct start){3, 33, 30});
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        assert_int_equal(starts_restore(&s, &wrong[i]), ERR_CORRUPT);
    }
    value[0]++;
    assert_int_equal(starts_restore(&s, &right), ERR_UNSUPPORTED);
    value[0]--;
    assert_int_equal(starts_restore(&s, &right), 0);
    starts_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_start_ended_where_the_next_began),
        cmocka_unit_test(copy_never_gets_what_it_lacks),
        cmocka_unit_test(copy_has_what_was_there_when_it_was_made),
        cmocka_unit_test(those_before_the_last_thousand_are_known_by_their_numbers),
        cmocka_unit_test(state_without_starts_knows_them_by_their_numbers),
        cmocka_unit_test(what_no_service_has_written_is_refused),
        cmocka_unit_test(record_of_another_form_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
