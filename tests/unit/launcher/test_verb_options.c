/* The command lines of ctrun's verbs. */

#include "launcher/verbs/verb_options.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <string.h>

enum { MAX_WORDS = 8 };

static int parse(const char *const *words, struct verb_options *ret, struct errmsg *msg)
{
    char *argv[MAX_WORDS + 1] = {NULL};
    int argc = 0;

    for (; words[argc]; argc++) {
        argv[argc] = (char *)(uintptr_t)words[argc]; /* only read */
    }
    return verb_options_parse(verb_find(words[0]), argc, argv, ret, msg);
}

#define WORDS(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

static struct verb_options accept(const char *const *words)
{
    struct verb_options o;
    struct errmsg msg = {""};

    assert_int_equal(parse(words, &o, &msg), 0);
    return o;
}

static void refuse(const char *wanted, const char *const *words)
{
    struct verb_options o;
    struct errmsg msg = {""};

    assert_int_equal(parse(words, &o, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, wanted));
}

static void each_verb_is_found_by_its_name_alone(void **state)
{
    static const char *const names[] = {"status", "ps",    "events", "logs",
                                        "cancel", "drain", "history"};

    (void)state;
    assert_int_equal(ARRAY_LEN(names), VERB_COUNT);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_ptr_equal(verb_find(names[i]), &verb_table[i]);
    }
    assert_null(verb_find("stat"));
    assert_null(verb_find("run"));
    assert_null(verb_find(""));
}

static void a_verb_may_have_been_meant_by_a_word_that_is_near(void **state)
{
    (void)state;
    assert_string_equal(verb_nearest("statu"), "status");
    assert_string_equal(verb_nearest("stauts"), "status");
    assert_string_equal(verb_nearest("log"), "logs");
    assert_string_equal(verb_nearest("keygn"), "keygen");
    assert_string_equal(verb_nearest("chkpt"), "ckpt");
    assert_null(verb_nearest("train2"));
    assert_null(verb_nearest("train.py"));
    assert_null(verb_nearest("p"));
    assert_null(verb_nearest(""));
}

static void options_stand_before_and_behind_the_operands(void **state)
{
    struct verb_options o =
        accept(WORDS("logs", "-f", "train", "--rank", "3", "--last"));

    (void)state;
    assert_true(o.follow && o.last && !o.json);
    assert_int_equal(o.rank, 3);
    assert_string_equal(o.job, "train");
    o = accept(WORDS("drain", "node7", "--json", "train", "--endpoint=node0:29400"));
    assert_true(o.json);
    assert_string_equal(o.node, "node7");
    assert_string_equal(o.job, "train");
    assert_string_equal(o.endpoint, "node0:29400");
    o = accept(WORDS("events", "--after=17"));
    assert_int_equal(o.after, 17);
    assert_int_equal(o.rank, -1);
    assert_true(accept(WORDS("ps", "x", "--help")).help);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    refuse("which node? usage: ctrun drain [options] NODE [JOB]", WORDS("drain"));
    refuse("'c' is one word too many", WORDS("drain", "a", "b", "c"));
    refuse("'b' is one word too many", WORDS("status", "a", "b"));
    refuse("--rank: expects a rank such as 0, not '-1'", WORDS("logs", "--rank=-1"));
    refuse("--after: expects the number of an event", WORDS("events", "--after=x"));
    refuse("unknown option --folow; did you mean --follow?", WORDS("logs", "--folow"));
    refuse("unknown option --follow", WORDS("status", "--follow"));
    refuse("JOB is empty", WORDS("status", ""));
}

/* Characters of UTF-8. */
static size_t longest_line(const char *text)
{
    size_t longest = 0;
    size_t n = 0;

    for (; *text; text++) {
        n = *text == '\n' ? 0 : n + (((unsigned char)*text & 0xc0) != 0x80);
        longest = n > longest ? n : longest;
    }
    return longest;
}

static void help_names_every_option_and_the_exit_codes(void **state)
{
    (void)state;
    for (size_t i = 0; i < VERB_COUNT; i++) {
        char *text = verb_options_help(&verb_table[i]);

        for (size_t k = 0; k < verb_table[i].options.n; k++) {
            assert_non_null(strstr(text, verb_table[i].options.specs[k].name));
        }
        assert_non_null(strstr(text, verb_table[i].operands));
        assert_non_null(strstr(text, "94 no server answers"));
        assert_in_range(longest_line(text), 60, 80); /* a terminal */
        mem_free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_verb_is_found_by_its_name_alone),
        cmocka_unit_test(a_verb_may_have_been_meant_by_a_word_that_is_near),
        cmocka_unit_test(options_stand_before_and_behind_the_operands),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(help_names_every_option_and_the_exit_codes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
