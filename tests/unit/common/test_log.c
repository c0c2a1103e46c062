/* Lines of the log. */

#include "tests/lib/cmocka.h"

#include "common/log.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char seen[8192];
static size_t n_seen;

static void sink(const char *line, size_t size)
{
    assert_true(n_seen + size < sizeof(seen));
    memcpy(seen + n_seen, line, size);
    n_seen += size;
    seen[n_seen] = '\0';
}

static int set_up(void **state)
{
    (void)state;
    n_seen = 0;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    assert_int_equal(unsetenv("JOURNAL_STREAM"), 0); /* else lines begin with <N> */
    log_setup("name", "rank=3", LOG_LEVEL_INFO);
    log_set_sink(sink);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    log_set_sink(NULL);
    return 0;
}

static void line_has_its_level_pairs_and_context(void **state)
{
    (void)state;
    log_info("sealed", "%s", "");
    log_warn("late", "ms=%d", 7);
    log_debug("never", "%s", "");
    assert_string_equal(seen, "name: sealed rank=3\nname: warn: late ms=7 rank=3\n");
}

static void a_value_of_others_is_one_value(void **state)
{
    char text[16];

    (void)state;
    assert_string_equal(log_value("job-7_\u00fc", text, sizeof(text)), "job-7_\u00fc");
    assert_string_equal(log_value("", text, sizeof(text)), "\"\"");
    assert_string_equal(log_value("a b", text, sizeof(text)), "\"a b\"");
    assert_string_equal(log_value("a=b", text, sizeof(text)), "\"a=b\"");
    assert_string_equal(log_value("x\" y\n=", text, sizeof(text)), "\"x' y =\"");
    assert_string_equal(log_value("0123456789abcdefg", text, sizeof(text)),
                        "0123456789abcde");
    assert_string_equal(log_value("0123456789 abcdefg", text, sizeof(text)),
                        "\"0123456789 ab\"");
}

static void line_that_is_too_long_is_cut_and_ended(void **state)
{
    static char sentence[4096];

    (void)state;
    memset(sentence, 'x', sizeof(sentence) - 1);
    log_info(sentence, "%s", "");
    assert_ptr_equal(strchr(seen, '\n'), seen + n_seen - 1);
    log_info("next", "%s", "");
    assert_non_null(strstr(seen, "x\nname: next rank=3\n"));
}

static void what_a_terminal_would_obey_is_not_in_a_line(void **state)
{
    (void)state;
    log_info("said", "by=\"%s\"", "a\nb\x1b[2J\r\x7f é");
    assert_string_equal(seen, "name: said by=\"a?b?[2J?? é\" rank=3\n");
    n_seen = 0;
    log_info("said", "by=\"%s\"",
             "\xc2\x9b"
             "2J\xc2\xa0\xc2");
    assert_string_equal(seen, "name: said by=\"??2J\xc2\xa0\xc2\" rank=3\n");
    n_seen = 0;
    log_info("said", "by=\"%s\"", "\u202egnp\u2028x\u2067");
    assert_string_equal(seen, "name: said by=\"???gnp???x???\" rank=3\n");
}

/* Runs log_setup, and a line of each level, with stderr in a file that JOURNAL_STREAM
 * names (or not); what came there. */
static void log_to_journal(bool is_named, char *text, size_t size)
{
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    char name[64] = "1:1";
    struct stat st;
    size_t n;

    assert_non_null(file);
    assert_true(before >= 0 && fstat(fileno(file), &st) == 0);
    if (is_named) {
        (void)snprintf(name, sizeof(name), "%llu:%llu", (unsigned long long)st.st_dev,
                       (unsigned long long)st.st_ino);
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    assert_int_equal(setenv("JOURNAL_STREAM", name, 1), 0);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    log_set_sink(NULL);
    log_setup("name", "", LOG_LEVEL_DEBUG);
    log_error("a", "%s", "");
    log_warn("b", "%s", "");
    log_info("c", "%s", "");
    log_debug("d", "%s", "");
    assert_true(dup2(before, STDERR_FILENO) >= 0 && close(before) == 0);
    rewind(file);
    n = fread(text, 1, size - 1, file);
    text[n] = '\0';
    assert_int_equal(fclose(file), 0);
}

static void journal_gets_the_priority_of_a_line(void **state)
{
    char text[512];

    (void)state;
    log_to_journal(true, text, sizeof(text));
    assert_string_equal(text, "<3>name: error: a\n<4>name: warn: b\n<6>name: c\n"
                              "<7>name: debug: d\n");
    assert_string_equal(log_prefix(LOG_LEVEL_ERROR), "<3>");
}

static void file_that_is_not_the_journal_gets_none(void **state)
{
    char text[512];

    (void)state;
    log_to_journal(false, text, sizeof(text));
    assert_non_null(strstr(text, "\nname: c\n"));
    assert_null(strchr(text, '<'));
    assert_string_equal(log_prefix(LOG_LEVEL_ERROR), "");
}

static void level_may_change_later(void **state)
{
    (void)state;
    log_set_level(LOG_LEVEL_ERROR);
    log_info("never", "%s", "");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("now", "%s", "");
    assert_string_equal(seen, "name: debug: now rank=3\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(line_has_its_level_pairs_and_context),
        CASE(a_value_of_others_is_one_value),
        CASE(line_that_is_too_long_is_cut_and_ended),
        CASE(what_a_terminal_would_obey_is_not_in_a_line),
        CASE(journal_gets_the_priority_of_a_line),
        CASE(file_that_is_not_the_journal_gets_none),
        CASE(level_may_change_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
