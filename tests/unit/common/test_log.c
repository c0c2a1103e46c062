/* Lines of the log. */

#include "tests/lib/cmocka.h"

#include "common/log.h"

#include <stdlib.h>
#include <string.h>

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

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(line_has_its_level_pairs_and_context),
        CASE(line_that_is_too_long_is_cut_and_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
