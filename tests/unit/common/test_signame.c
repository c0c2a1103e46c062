/* The names of signals. */

#include "tests/lib/cmocka.h"

#include "common/signame.h"

#include <signal.h>
#include <string.h>

static void every_signal_is_read_as_it_is_written(void **state)
{
    (void)state;
    for (int i = 1; i <= SIGNAME_LAST; i++) {
        char name[SIGNAME_MAX];

        signame_format(i, name);
        if (i == 32 || i == 33) {
            assert_true(strncmp(name, "signal ", 7) == 0); /* the C library's */
        } else {
            assert_true(strncmp(name, "SIG", 3) == 0);
            assert_int_equal(signame_parse(name), i);
            assert_int_equal(signame_parse(name + 3), i);
        }
    }
}

static void names_are_read_in_any_spelling(void **state)
{
    static const struct {
        const char *word;
        int number;
    } cases[] = {
        {"sigTerm", SIGTERM}, {"IO", SIGIO},  {"rtmin+3", 37},  {"SIGRTMAX-1", 63},
        {"RTMAX", 64},        {"9", SIGKILL}, {"RTMIN+31", -1}, {"RTMAX+1", -1},
        {"RTMIN-1", -1},      {"0", -1},      {"65", -1},       {"", -1},
        {"SIG", -1},          {"NOPE", -1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(signame_parse(cases[i].word), cases[i].number);
    }
}

static void number_that_is_none_has_a_name_all_the_same(void **state)
{
    char name[SIGNAME_MAX];

    (void)state;
    signame_format(-2147483647 - 1, name);
    assert_string_equal(name, "signal -2147483648");
    signame_format(65, name);
    assert_string_equal(name, "signal 65");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_signal_is_read_as_it_is_written),
        cmocka_unit_test(names_are_read_in_any_spelling),
        cmocka_unit_test(number_that_is_none_has_a_name_all_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
