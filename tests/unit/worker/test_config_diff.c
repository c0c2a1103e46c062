#include "tests/lib/cmocka.h"
#include "tests/lib/config_rig.h"
#include "worker/config_diff.h"

#include "common/check.h"
#include "common/mem.h"

#include <string.h>

static void the_keys_that_differ_are_listed_in_the_order_of_the_second(void **state)
{
    static const struct {
        const char *before, *now;
        size_t n;
        const char *keys;
    } cases[] = {
        {"{}", "{}", 0, ""},
        {"{\"a.b\": \"1\"}", "{\"a.b\": \"1\"}", 0, ""},
        {"{\"a.b\": \"1\"}", "{\"a.b\": \"2\"}", 1, "a.b"},
        {"{\"a.b\": \"1\", \"c.d\": \"1\"}", "{\"c.d\": \"2\", \"a.b\": \"2\"}", 2,
         "c.d, a.b"},
        {"{}", "{\"a.b\": \"1\"}", 1, "a.b"}, /* a key of a newer version */
        {"{\"a.b\": \"1\"}", "{}", 0, ""},    /* of an older one: nothing uses it */
        {"{\"a.b\": [1, 2]}", "{\"a.b\": [1, 3]}", 1, "a.b"},
        {"{\"a.b\": [1, 2]}", "{\"a.b\":[1,2]}", 0, ""},
        {"{\"a.b\": \"1\"}", "{\"a.b\": 1}", 1, "a.b"},
    };
    char text[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(config_diff(cases[i].before, cases[i].now, text, sizeof(text)),
                         cases[i].n);
        assert_string_equal(text, cases[i].keys);
    }
}

static void keys_about_the_machine_do_not_count(void **state)
{
    static const struct {
        const char *now;
        const char *keys;
    } cases[] = {
        {"{\"run.name\": \"2\"}", ""},
        {"{\"checkpoint.every\": \"2\"}", ""},
        {"{\"log.every\": \"2\"}", ""},
        {"{\"device.threads\": \"2\"}", ""},
        {"{\"comm.kind\": \"2\"}", ""},
        {"{\"sample.every\": \"2\"}", ""},
        {"{\"train.activation_checkpointing\": \"block\"}", ""},
        {"{\"run.name\": \"2\", \"train.seed\": \"2\"}", "train.seed"},
        {"{\"running.name\": \"2\"}", "running.name"}, /* the whole group's name */
        {"{\"logs.x\": \"2\"}", "logs.x"},
    };
    char text[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(config_diff("{}", cases[i].now, text, sizeof(text)),
                         cases[i].keys[0] != '\0');
        assert_string_equal(text, cases[i].keys);
    }
}

static void what_is_no_json_object_differs_in_nothing(void **state)
{
    static const char *const texts[] = {
        "", "{", "[]", "1", "nonsense", "{\"a.b\": \"1\", \"a.b\": \"2\"}", "{} x"};
    const char *const good = "{\"a.b\": \"3\"}";
    char text[8];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        memset(text, 'x', sizeof(text));
        assert_int_equal(config_diff(texts[i], good, text, sizeof(text)), 0);
        assert_string_equal(text, "");
        assert_int_equal(config_diff(good, texts[i], text, sizeof(text)), 0);
    }
}

static void all_are_counted_where_not_all_fit(void **state)
{
    static const char now[] = "{\"a.b\": 1, \"long.name\": 1, \"c\": 1}";
    static const struct {
        size_t size;
        const char *keys;
    } cases[] = {
        {1, ""},
        {2, "c"},
        {3, "c"},
        {4, "a.b"},
        {6, "a.b"},
        {7, "a.b, c"},
        {14, "a.b, c"},
        {15, "a.b, long.name"},
        {17, "a.b, long.name"},
        {18, "a.b, long.name, c"},
    };
    char text[32];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        memset(text, 'x', sizeof(text));
        assert_int_equal(config_diff("{}", now, text, cases[i].size), 3);
        assert_string_equal(text, cases[i].keys);
    }
}

static void two_real_configurations_differ_in_what_was_set(void **state)
{
    char *before;
    char *now;
    char text[128];

    (void)state;
    before = config_to_json(must_parse("data.train=a"));
    now = config_to_json(
        must_parse("data.train=a|optim.lr=0.25|run.name=other|train.seed=7"));
    assert_int_equal(config_diff(before, before, text, sizeof(text)), 0);
    assert_int_equal(config_diff(before, now, text, sizeof(text)), 2);
    assert_string_equal(text, "train.seed, optim.lr");
    mem_free(before);
    mem_free(now);
}

#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, config_rig_open, config_rig_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_keys_that_differ_are_listed_in_the_order_of_the_second),
        cmocka_unit_test(keys_about_the_machine_do_not_count),
        cmocka_unit_test(what_is_no_json_object_differs_in_nothing),
        cmocka_unit_test(all_are_counted_where_not_all_fit),
        CASE(two_real_configurations_differ_in_what_was_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
