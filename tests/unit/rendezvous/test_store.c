/* The store's values, counters and limits: one sentence of their semantics a test. */

#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/store_rig.h"

#include "common/err.h"
#include "common/mem.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

/* ---- values ---- */

static void set_says_nothing_and_get_gives_the_value(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_SET, "ss", "/k", "v");
    expect_nothing(rig);
    OK(1, TCPSTORE_GET, "s", "/k");
    expect_text(rig, 1, "v");
    OK(1, TCPSTORE_SET, "ss", "/k", "a longer value than before");
    expect_stored(rig, "/k", "a longer value than before");
    OK(1, TCPSTORE_SET, "ss", "/k", "");
    expect_stored(rig, "/k", "");
    expect_keys(rig, 1);
}

static void keys_and_values_are_any_bytes(void **state)
{
    struct store_rig *rig = *state;
    const uint8_t key[3] = {0, 255, 0};
    const uint8_t value[4] = {0, 1, 0, 254};
    const uint8_t expected[12] = {4, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 254};

    OK(1, TCPSTORE_SET, "bb", key, sizeof(key), value, sizeof(value));
    OK(1, TCPSTORE_GET, "b", key, sizeof(key));
    expect_bytes(rig, 1, expected, sizeof(expected));
    OK(1, TCPSTORE_GET, "b", key, sizeof(key) - 1);
    expect_text(rig, 1, "");
}

static void the_empty_key_is_a_key(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_SET, "ss", "", "v");
    expect_stored(rig, "", "v");
    expect_keys(rig, 1);
}

static void get_of_a_missing_key_is_empty(void **state)
{
    struct store_rig *rig = *state;

    expect_stored(rig, "/k", "");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/k", "only a queue");
    expect_stored(rig, "/k", "");
    expect_keys(rig, 0);
}

static void multi_get_has_no_count_and_empties_for_missing_keys(void **state)
{
    struct store_rig *rig = *state;
    struct buf b;

    OK(1, TCPSTORE_MULTI_SET, "nssss", 2, "/a", "1", "/c", "333");
    expect_nothing(rig);
    OK(1, TCPSTORE_MULTI_GET, "nsss", 3, "/a", "/b", "/c");
    body_make(&b, "sss", "1", "", "333");
    expect_bytes(rig, 1, buf_bytes(&b), buf_len(&b));
    buf_release(&b);
}

static void empty_vectors_are_legal(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_MULTI_SET, "n", 0);
    OK(1, TCPSTORE_CHECK, "n", 0);
    expect_byte(rig, 1, 0);
    OK(1, TCPSTORE_WAIT, "n", 0);
    expect_byte(rig, 1, 0);
    OK(1, TCPSTORE_MULTI_GET, "n", 0);
    expect_bytes(rig, 1, "", 0);
}

static void append_creates_and_extends(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_APPEND, "ss", "/k", "po");
    expect_nothing(rig);
    OK(1, TCPSTORE_APPEND, "ss", "/k", "tato");
    OK(1, TCPSTORE_APPEND, "ss", "/k", "");
    expect_stored(rig, "/k", "potato");
}

static void delete_says_how_many_and_leaves_queues(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_SET, "ss", "/k", "v");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/k", "x");
    OK(1, TCPSTORE_DELETE_KEY, "s", "/k");
    expect_i64(rig, 1, 1);
    OK(1, TCPSTORE_DELETE_KEY, "s", "/k");
    expect_i64(rig, 1, 0);
    OK(1, TCPSTORE_QUEUE_LEN, "s", "/k");
    expect_i64(rig, 1, 1);
    expect_keys(rig, 0);
}

static void num_keys_counts_values_only(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_ADD, "si", "init/", (int64_t)1);
    expect_i64(rig, 1, 1);
    OK(1, TCPSTORE_BARRIER, "si", "/b", (int64_t)1);
    expect_byte(rig, 1, 0);
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "x");
    OK(2, TCPSTORE_WAIT, "ns", 1, "/awaited");
    expect_keys(rig, 2);
}

static void list_keys_has_values_only(void **state)
{
    struct store_rig *rig = *state;
    struct wire_reader r;
    bool seen_k = false;
    bool seen_init = false;

    OK(1, TCPSTORE_SET, "ss", "/k", "v");
    OK(1, TCPSTORE_SET, "ss", "init/", "1");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "x");
    OK(2, TCPSTORE_WAIT, "ns", 1, "/awaited");
    OK(1, TCPSTORE_LIST_KEYS, "");
    assert_int_equal(rig->n_replies, 1);
    wire_reader_init(&r, rig->replies[0].bytes, rig->replies[0].size);
    assert_int_equal(wire_get_u64(&r), 2);
    for (int i = 0; i < 2; i++) {
        size_t size = wire_get_u64(&r);
        const uint8_t *key = wire_get_raw(&r, size);

        assert_non_null(key);
        seen_k = seen_k || (size == 2 && memcmp(key, "/k", 2) == 0);
        seen_init = seen_init || (size == 5 && memcmp(key, "init/", 5) == 0);
    }
    assert_true(seen_k && seen_init && wire_reader_done(&r));
    rig->n_replies = 0;
}

static void thousands_of_keys_are_all_found_again(void **state)
{
    struct store_rig *rig = *state;
    char key[16];
    char value[16];

    for (int i = 0; i < 3000; i++) {
        (void)snprintf(key, sizeof(key), "/key%d", i);
        (void)snprintf(value, sizeof(value), "%d", i * 7);
        OK(1, TCPSTORE_SET, "ss", key, value);
    }
    for (int i = 0; i < 3000; i++) {
        (void)snprintf(key, sizeof(key), "/key%d", i);
        (void)snprintf(value, sizeof(value), "%d", i * 7);
        expect_stored(rig, key, value);
        OK(1, TCPSTORE_DELETE_KEY, "s", key);
        expect_i64(rig, 1, 1);
    }
    assert_int_equal(rig->budget.used, 0);
}

/* ---- COMPARE_SET ---- */

static void compare_set_follows_pytorch(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_COMPARE_SET, "sss", "/k", "wrong", "new");
    expect_text(rig, 1, "wrong"); /* the lie */
    expect_keys(rig, 0);
    OK(1, TCPSTORE_COMPARE_SET, "sss", "/k", "", "first");
    expect_text(rig, 1, "first");
    OK(1, TCPSTORE_COMPARE_SET, "sss", "/k", "wrong", "new");
    expect_text(rig, 1, "first");
    OK(1, TCPSTORE_COMPARE_SET, "sss", "/k", "", "new");
    expect_text(rig, 1, "first");
    OK(1, TCPSTORE_COMPARE_SET, "sss", "/k", "first", "second");
    expect_text(rig, 1, "second");
    OK(1, TCPSTORE_SET, "ss", "/k", "");
    OK(1, TCPSTORE_COMPARE_SET, "sss", "/k", "", "third");
    expect_text(rig, 1, "third");
    expect_stored(rig, "/k", "third");
}

static void compare_set_wakes_only_when_it_stores(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "ns", 1, "/k");
    OK(1, TCPSTORE_COMPARE_SET, "sss", "/k", "wrong", "new");
    expect_text(rig, 1, "wrong");
    expect_nothing(rig);
    OK(1, TCPSTORE_COMPARE_SET, "sss", "/k", "", "new");
    expect_byte(rig, 2, 0);
    expect_text(rig, 1, "new");
}

/* ---- ADD ---- */

static void add_counts_in_decimal_text(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_ADD, "si", "/n", (int64_t)5);
    expect_i64(rig, 1, 5);
    OK(1, TCPSTORE_ADD, "si", "/n", (int64_t)-17);
    expect_i64(rig, 1, -12);
    expect_stored(rig, "/n", "-12");
}

static void add_of_zero_creates_the_key(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_ADD, "si", "/n", (int64_t)0);
    expect_i64(rig, 1, 0);
    expect_stored(rig, "/n", "0");
}

static void add_wraps_around(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_ADD, "si", "/n", INT64_MAX);
    expect_i64(rig, 1, INT64_MAX);
    OK(1, TCPSTORE_ADD, "si", "/n", (int64_t)1);
    expect_i64(rig, 1, INT64_MIN);
    expect_stored(rig, "/n", "-9223372036854775808");
    OK(1, TCPSTORE_ADD, "si", "/n", (int64_t)-1);
    expect_i64(rig, 1, INT64_MAX);
}

static void add_reads_a_value_as_stoll_does(void **state)
{
    static const struct {
        const char *text;
        int64_t expected;
    } cases[] = {
        {"0x10", 0},
        {"1.9", 1},
        {" \t\n\v\f\r7", 7},
        {"+8", 8},
        {"-8x", -8},
        {"007", 7},
        {"9223372036854775807", INT64_MAX},
        {"12 34", 12},
        {"-9223372036854775808", INT64_MIN},
    };
    struct store_rig *rig = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        OK(1, TCPSTORE_SET, "ss", "/n", cases[i].text);
        OK(1, TCPSTORE_ADD, "si", "/n", (int64_t)0);
        expect_i64(rig, 1, cases[i].expected);
    }
}

static void add_refuses_what_is_no_number(void **state)
{
    static const char *const cases[] = {
        "", " ", "x1", "-", "+", "+-1", "9223372036854775808", "-9223372036854775809",
    };
    struct store_rig *rig = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        OK(1, TCPSTORE_SET, "ss", "/n", cases[i]);
        FAILS(ERR_PROTOCOL, 1, TCPSTORE_ADD, "si", "/n", (int64_t)1);
        FAILS(ERR_PROTOCOL, 1, TCPSTORE_BARRIER, "si", "/n", (int64_t)1);
        expect_stored(rig, "/n", cases[i]);
    }
}

/* ---- bounds ---- */

static void the_memory_cap_counts_everything(void **state)
{
    struct store_rig *rig = store_rig_new(10000);
    char big[9000];

    (void)state;
    memset(big, 'x', sizeof(big));
    OK(1, TCPSTORE_SET, "sb", "/k", big, sizeof(big));
    FAILS(ERR_TOO_LARGE, 1, TCPSTORE_SET, "sb", "/l", big, (size_t)1000);
    FAILS(ERR_TOO_LARGE, 1, TCPSTORE_APPEND, "sb", "/k", big, (size_t)1000);
    FAILS(ERR_TOO_LARGE, 1, TCPSTORE_QUEUE_PUSH, "sb", "/q", big, (size_t)1000);
    FAILS(ERR_TOO_LARGE, 1, TCPSTORE_COMPARE_SET, "ssb", "/l", "", big, (size_t)1000);
    FAILS(ERR_TOO_LARGE, 1, TCPSTORE_MULTI_SET, "nsssb", 2, "/l", "1", "/m", big,
          (size_t)1000);
    FAILS(ERR_TOO_LARGE, 2, TCPSTORE_WAIT, "nb", 1, big, (size_t)1000);
    expect_keys(rig, 1);
    OK(1, TCPSTORE_SET, "ss", "/k", "small again");
    OK(1, TCPSTORE_SET, "sb", "/l", big, (size_t)1000);
    expect_keys(rig, 2);
    store_rig_free(rig);
}

/* Whatever fills it: in the end the store is full, below its cap, and works on. */
static void no_op_can_fill_it_past_the_cap(void **state)
{
    static const enum tcpstore_op ops[] = {TCPSTORE_SET, TCPSTORE_APPEND,
                                           TCPSTORE_QUEUE_PUSH};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        struct store_rig *rig = store_rig_new(20000);
        char key[16];
        int n = 0;
        int rv = 0;

        for (; rv == 0 && n < 1000; n++) {
            (void)snprintf(key, sizeof(key), "/%d", n);
            rv = try_op(rig, 1, ops[i], "ss", key, "");
            assert_true(rig->budget.used <= 20000);
        }
        assert_int_equal(rv, ERR_TOO_LARGE);
        OK(1, TCPSTORE_CHECK, "ns", 1, "/0");
        expect_byte(rig, 1, 0);
        store_rig_free(rig);
    }
}

static void waiters_are_bounded(void **state)
{
    struct store_rig *rig = *state;
    char key[16];

    for (uint64_t client = 0; client < STORE_RIG_WAITERS; client++) {
        (void)snprintf(key, sizeof(key), "/%d", (int)client);
        OK(client, TCPSTORE_WAIT, "ns", 1, key);
    }
    FAILS(ERR_TOO_LARGE, STORE_RIG_WAITERS, TCPSTORE_WAIT, "ns", 1, "/k");
    FAILS(ERR_TOO_LARGE, STORE_RIG_WAITERS, TCPSTORE_BARRIER, "si", "/k", (int64_t)2);
    store_drop_client(rig->store, 7);
    OK(STORE_RIG_WAITERS, TCPSTORE_WAIT, "ns", 1, "/k");
    expect_keys(rig, 0);
}

static void a_reply_is_bounded(void **state)
{
    struct store_rig *rig = store_rig_new(64 << 20);
    struct buf body;
    uint8_t *value = mem_zalloc(TCPSTORE_MAX_VALUE);
    int n = STORE_MAX_REPLY / TCPSTORE_MAX_VALUE;

    (void)state;
    OK(1, TCPSTORE_SET, "sb", "/k", value, (size_t)TCPSTORE_MAX_VALUE);
    buf_init(&body, 1 << 20);
    assert_int_equal(wire_put_u64(&body, (uint64_t)n), 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(wire_put_u64(&body, 2), 0);
        assert_int_equal(buf_append(&body, "/k", 2), 0);
    }
    assert_int_equal(
        store_execute(rig->store, 1, 1,
                      &(struct tcpstore_request){TCPSTORE_MULTI_GET, buf_bytes(&body),
                                                 buf_len(&body)}),
        ERR_TOO_LARGE);
    expect_nothing(rig);
    buf_release(&body);
    mem_free(value);
    store_rig_free(rig);
}

static void malformed_bodies_change_nothing(void **state)
{
    struct store_rig *rig = *state;

    FAILS(ERR_PROTOCOL, 1, TCPSTORE_SET, "s", "/k");
    FAILS(ERR_PROTOCOL, 1, TCPSTORE_MULTI_SET, "nss", 2, "/k", "v");
    FAILS(ERR_PROTOCOL, 1, TCPSTORE_GET, "ss", "/k", "more");
    FAILS(ERR_PROTOCOL, 1, TCPSTORE_OP_COUNT, "");
    FAILS(ERR_TOO_LARGE, 1, TCPSTORE_WAIT, "n", -1);
    expect_keys(rig, 0);
    assert_int_equal(rig->budget.used, 0);
}

static void an_appended_value_may_pass_the_limit_of_one_request(void **state)
{
    struct store_rig *rig = store_rig_new(64 << 20);
    uint8_t *value = mem_zalloc(TCPSTORE_MAX_VALUE);

    (void)state;
    OK(1, TCPSTORE_APPEND, "sb", "/k", value, (size_t)TCPSTORE_MAX_VALUE);
    OK(1, TCPSTORE_APPEND, "ss", "/k", "x");
    OK(1, TCPSTORE_GET, "s", "/k");
    assert_int_equal(rig->replies[0].size, 8 + TCPSTORE_MAX_VALUE + 1);
    mem_free(value);
    store_rig_free(rig);
}

#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, store_rig_setup, store_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(set_says_nothing_and_get_gives_the_value),
        CASE(keys_and_values_are_any_bytes),
        CASE(the_empty_key_is_a_key),
        CASE(get_of_a_missing_key_is_empty),
        CASE(multi_get_has_no_count_and_empties_for_missing_keys),
        CASE(empty_vectors_are_legal),
        CASE(append_creates_and_extends),
        CASE(delete_says_how_many_and_leaves_queues),
        CASE(num_keys_counts_values_only),
        CASE(list_keys_has_values_only),
        CASE(thousands_of_keys_are_all_found_again),
        CASE(compare_set_follows_pytorch),
        CASE(compare_set_wakes_only_when_it_stores),
        CASE(add_counts_in_decimal_text),
        CASE(add_of_zero_creates_the_key),
        CASE(add_wraps_around),
        CASE(add_reads_a_value_as_stoll_does),
        CASE(add_refuses_what_is_no_number),
        CASE(the_memory_cap_counts_everything),
        CASE(no_op_can_fill_it_past_the_cap),
        CASE(waiters_are_bounded),
        CASE(a_reply_is_bounded),
        CASE(malformed_bodies_change_nothing),
        CASE(an_appended_value_may_pass_the_limit_of_one_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
