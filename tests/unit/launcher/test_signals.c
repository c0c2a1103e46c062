/* The list of --signals-to-handle, word by word. */

#include "launcher/options/signals.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void list_names_signals_in_any_spelling_once_each(void **state)
{
    static const struct {
        const char *list;
        const char *text;
    } cases[] = {
        {SIGNALS_DEFAULT, "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
        {"SIGUSR1", "SIGUSR1"},
        {"usr1,SigTerm", "SIGUSR1,SIGTERM"},
        {" TERM , 10,USR1,15", "SIGTERM,SIGUSR1"},
        {"RTMIN,SIGRTMIN+3,64,RTMAX-30,34", "SIGRTMIN,SIGRTMIN+3,SIGRTMIN+30"},
        {"IO,POLL", "SIGPOLL"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct signal_set set;

        signals_parse(cases[i].list, &set);
        assert_string_equal(set.text, cases[i].text);
        assert_string_equal(set.trouble, "");
    }
}

static void what_cannot_be_handled_is_told_and_left_out(void **state)
{
    struct signal_set set;

    (void)state;
    signals_parse("SIGNOPE,TERM,KILL,SIGSTOP,0,65,33,SEGV,,RTMIN+31,INT", &set);
    assert_string_equal(set.text, "SIGTERM,SIGINT");
    assert_true(signals_has(&set, SIGTERM) && signals_has(&set, SIGINT));
    assert_false(signals_has(&set, SIGKILL) || signals_has(&set, SIGHUP));
    assert_string_equal(
        set.trouble, "--signals-to-handle: not known, or not to be handled, and left "
                     "out: SIGNOPE, KILL, SIGSTOP, 0, 65, 33, SEGV, '', RTMIN+31");
    signals_parse("", &set);
    assert_true(set.mask == 0);
    assert_non_null(strstr(set.trouble, "left out: ''"));
}

static void list_of_any_length_is_taken(void **state)
{
    static char list[8192];
    struct signal_set set;

    (void)state;
    memset(list, 'x', sizeof(list) - 1);
    signals_parse(list, &set);
    assert_true(set.mask == 0 && strlen(set.trouble) < sizeof(set.trouble));
    for (size_t i = 0; i + 3 < sizeof(list); i += 3) {
        memcpy(list + i, "+9,", 3);
    }
    list[sizeof(list) - 1] = '\0';
    signals_parse(list, &set);
    assert_true(set.mask == 0 && strlen(set.trouble) < sizeof(set.trouble));
}

static void every_signal_that_can_be_handled_fits(void **state)
{
    static char list[SIGNALS_TEXT_MAX];
    struct signal_set set;
    struct signal_set again;
    size_t n = 0;

    (void)state;
    for (int i = 1; i <= 64; i++) {
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%d", i > 1 ? "," : "", i);
    }
    signals_parse(list, &set);
    signals_parse(set.text, &again);
    assert_true(set.mask == again.mask);
    assert_string_equal(set.text, again.text);
    assert_string_equal(again.trouble, "");
    assert_true(signals_has(&set, 64) && signals_has(&set, SIGUSR2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_names_signals_in_any_spelling_once_each),
        cmocka_unit_test(what_cannot_be_handled_is_told_and_left_out),
        cmocka_unit_test(list_of_any_length_is_taken),
        cmocka_unit_test(every_signal_that_can_be_handled_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
