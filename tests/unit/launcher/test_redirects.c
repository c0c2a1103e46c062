/* Which stream goes where. */

#include "launcher/output/redirects.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <string.h>

/* What becomes of a stream: F file, C console, P with the prefix. */
static const char *route(const struct redirects *r, bool is_engine, uint32_t rank,
                         uint32_t local_rank, unsigned number)
{
    struct redirects_stream stream = {is_engine, rank, local_rank, number};
    struct redirects_route route = redirects_route(r, &stream);
    static char text[4];
    size_t n = 0;

    text[n] = 'F';
    n += route.to_file ? 1 : 0;
    text[n] = 'C';
    n += route.to_console ? 1 : 0;
    text[n] = 'P';
    n += route.is_teed ? 1 : 0;
    text[n] = '\0';
    return text;
}

/* Both streams of local ranks 0 and 1 (ranks 4 and 5), as "0out 0err 1out 1err". */
static void check(const struct redirects *r, bool is_engine, const char *expected)
{
    char text[32] = "";

    for (unsigned i = 0; i < 4; i++) {
        (void)strcat(text, i > 0 ? " " : "");
        (void)strcat(text, route(r, is_engine, 4 + i / 2, i / 2, i % 2));
    }
    assert_string_equal(text, expected);
}

#define ROUTES(expected, ...) \
    check(&(const struct redirects){__VA_ARGS__}, false, expected)

static void without_options_all_goes_to_file_and_console(void **state)
{
    (void)state;
    ROUTES("FC FC FC FC", .console = NULL);
    ROUTES("FC FC FC FC", .redirects = "0");
    ROUTES("FC FC FC FC", .redirects = "0", .tee = "0");
}

static void redirected_stream_is_on_no_console(void **state)
{
    (void)state;
    ROUTES("F FC F FC", .redirects = "1");
    ROUTES("FC F FC F", .redirects = "2");
    ROUTES("F F F F", .redirects = "3");
    ROUTES("F FC FC F", .redirects = "0:1,1:2");
    ROUTES("FC FC F F", .redirects = "1:3");
    ROUTES("FC FC F F", .redirects = "1:3,");      /* torchrun takes it */
    ROUTES("FC F FC FC", .redirects = "0:1, 0:2"); /* the last word */
}

static void teed_stream_has_the_prefix(void **state)
{
    (void)state;
    ROUTES("FCP FC FCP FC", .tee = "1");
    ROUTES("FCP FCP FC FC", .tee = "0:3");
    ROUTES("FCP F F F", .tee = "0:1", .redirects = "3"); /* tee is the stronger */
}

static void ranks_of_two_digits_can_be_named(void **state)
{
    const struct redirects r = {.redirects = "10:1,11:2,128:3"};

    (void)state;
    assert_string_equal(route(&r, false, 0, 10, 0), "F");
    assert_string_equal(route(&r, false, 0, 10, 1), "FC");
    assert_string_equal(route(&r, false, 0, 11, 1), "F");
    assert_string_equal(route(&r, false, 0, 128, 0), "F");
    assert_string_equal(route(&r, false, 0, 1, 0), "FC");
}

static void filters_keep_a_rank_off_the_console_alone(void **state)
{
    (void)state;
    ROUTES("FC FC F F", .local_ranks = "0");
    ROUTES("F F FC FC", .ranks = "5,9");
    ROUTES("F F F F", .ranks = "5", .local_ranks = "0");
    ROUTES("FCP FCP F F", .local_ranks = "0", .tee = "3");
    ROUTES("FC FC FC FC", .ranks = "0-7");
    ROUTES("F F FC FC", .ranks = "0-3, 5 - 6");
}

static void console_names_global_ranks(void **state)
{
    (void)state;
    ROUTES("FC FC FC FC", .console = "all");
    ROUTES("F F F F", .console = "none");
    ROUTES("FP FP FP FP", .console = "none", .tee = "3");
    ROUTES("F F F F", .console = "0");
    ROUTES("FC FC F F", .console = "4");
    ROUTES("F FC F F", .console = "4", .redirects = "1");
}

static void without_files_redirecting_and_teeing_have_no_meaning(void **state)
{
    (void)state;
    ROUTES("C C C C", .has_no_files = true, .redirects = "3");
    ROUTES("C C C C", .has_no_files = true, .tee = "3");
    ROUTES("C C  ", .has_no_files = true, .local_ranks = "0"); /* torchrun dies of it */
}

static void engine_speaks_from_rank_0_until_somebody_says_otherwise(void **state)
{
    const struct redirects nothing = {.console = NULL};
    const struct redirects file_only = {.redirects = "3"};

    (void)state;
    check(&nothing, true, "F F F F");
    assert_string_equal(route(&nothing, true, 0, 0, 0), "FC");
    assert_string_equal(route(&file_only, true, 0, 0, 0), "F");
    check(&(const struct redirects){.console = "all"}, true, "FC FC FC FC");
    check(&(const struct redirects){.ranks = "5"}, true, "F F FC FC");
    check(&(const struct redirects){.local_ranks = "0"}, true, "FC FC F F");
    check(&(const struct redirects){.tee = "1:1"}, true, "F F FCP F");
}

static void masks_are_checked(void **state)
{
    static const char *const good[] = {"0", "3", "0:1", "0:1,1:2", "10:3", "0:0,"};
    static const char *const bad[] = {
        "",     "4",    "x",   "0:", "0:4",      ":1",
        "0:1;", "0:1x", "1,2", "-1", "0:1,,1:2", "99999999999999999999:1"};
    struct errmsg msg;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(redirects_check_mask(good[i], &msg), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(redirects_check_mask(bad[i], &msg), ERR_INVALID);
    }
    assert_string_equal(msg.text,
                        "expects 0 (neither), 1 (stdout), 2 (stderr) or 3 (both), or "
                        "LOCAL_RANK:MASK,… as 0:3,1:2; not '99999999999999999999:1'");
}

static void lists_of_ranks_are_checked(void **state)
{
    static const char *const bad[] = {"", "x", "0,", ",0", "3-1", "-1", "0 1", "1-"};
    struct errmsg msg;

    (void)state;
    assert_int_equal(redirects_check_ranks("0,2,10-12", &msg), 0);
    assert_int_equal(redirects_check_console("all", &msg), 0);
    assert_int_equal(redirects_check_console("none", &msg), 0);
    assert_int_equal(redirects_check_console("0", &msg), 0);
    assert_int_equal(redirects_check_ranks("all", &msg), ERR_INVALID);
    assert_string_equal(msg.text, "expects ranks as 0,2 or 0-3,8; not 'all'");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(redirects_check_ranks(bad[i], &msg), ERR_INVALID);
        assert_int_equal(redirects_check_console(bad[i], &msg), ERR_INVALID);
    }
    assert_string_equal(msg.text,
                        "expects all, none, or ranks as 0,2 or 0-3,8; not '1-'");
}

static const char *explain(const struct redirects *r, uint32_t n_world,
                           uint32_t n_local)
{
    struct redirects_ranks ranks = {n_world, n_local};
    static char text[256];

    return redirects_explain(r, &ranks, text, sizeof(text)) ? text : "";
}

static void list_that_names_no_rank_there_is_is_explained(void **state)
{
    const struct redirects console = {.console = "9"};
    const struct redirects no_files = {.ranks = "4-5,8", .has_no_files = true};
    const struct redirects local = {.local_ranks = "2"};

    (void)state;
    assert_string_equal(explain(&console, 1, 1),
                        "--console=9 names none of the job's ranks, which are 0 to 0: "
                        "nothing that the workers say is shown (their files have it)");
    assert_string_equal(explain(&console, 10, 1), "");
    assert_string_equal(
        explain(&no_files, 4, 2),
        "--ranks-filter=4-5,8 names none of the job's ranks, which are 0 "
        "to 3: nothing that the workers say is shown");
    assert_string_equal(explain(&no_files, 5, 2), "");
    assert_string_equal(
        explain(&local, 8, 2),
        "--local-ranks-filter=2 names none of the local ranks here, which "
        "are 0 to 1: nothing that the workers say is shown (their files "
        "have it)");
}

static void console_that_is_to_be_empty_needs_no_word(void **state)
{
    const struct redirects none = {.console = "none"};
    const struct redirects all = {.console = "all"};
    const struct redirects nothing = {.console = NULL};

    (void)state;
    assert_string_equal(explain(&none, 1, 1), "");
    assert_string_equal(explain(&all, 1, 1), "");
    assert_string_equal(explain(&nothing, 1, 1), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_options_all_goes_to_file_and_console),
        cmocka_unit_test(redirected_stream_is_on_no_console),
        cmocka_unit_test(teed_stream_has_the_prefix),
        cmocka_unit_test(ranks_of_two_digits_can_be_named),
        cmocka_unit_test(filters_keep_a_rank_off_the_console_alone),
        cmocka_unit_test(console_names_global_ranks),
        cmocka_unit_test(without_files_redirecting_and_teeing_have_no_meaning),
        cmocka_unit_test(engine_speaks_from_rank_0_until_somebody_says_otherwise),
        cmocka_unit_test(masks_are_checked),
        cmocka_unit_test(lists_of_ranks_are_checked),
        cmocka_unit_test(list_that_names_no_rank_there_is_is_explained),
        cmocka_unit_test(console_that_is_to_be_empty_needs_no_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
