/* Tables for terminals: widths, colours, and texts of others. */

#include "launcher/verbs/table.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static const struct table_column columns[] = {{"JOB", TABLE_LEFT, false, 12},
                                              {"GEN", TABLE_RIGHT, false, 0},
                                              {"CAUSE", TABLE_LEFT, false, 12}};

static struct text_table *make(const char *job, const char *gen, const char *cause)
{
    struct text_table *t = table_new(columns, ARRAY_LEN(columns));

    table_put(t, job, TABLE_PLAIN);
    table_put(t, gen, TABLE_GREEN);
    table_put(t, cause, TABLE_PLAIN);
    return t;
}

static void expect(struct text_table *t, size_t width, bool has_colours,
                   const char *wanted)
{
    struct buf out;

    buf_init(&out, 1 << 20);
    table_write(t, width, has_colours, &out);
    assert_int_equal(buf_append(&out, "", 1), 0);
    assert_string_equal((const char *)buf_bytes(&out), wanted);
    buf_release(&out);
    table_free(t);
}

static void columns_are_as_wide_as_what_is_in_them(void **state)
{
    (void)state;
    expect(make("train", "7", "a node was lost"), 0, false,
           "JOB    GEN  CAUSE\n"
           "train    7  a node was lost\n");
    expect(make("Größe", "12345", "x"), 0, false,
           "JOB      GEN  CAUSE\n"
           "Größe  12345  x\n");
}

static void what_is_not_known_is_a_dash(void **state)
{
    (void)state;
    expect(make(NULL, "", "x"), 0, false,
           "JOB  GEN  CAUSE\n"
           "-      -  x\n");
}

static void last_column_that_may_shrink_is_cut_to_the_terminal(void **state)
{
    (void)state;
    expect(make("train", "7", "a node was lost: silent for 3000 ms"), 30, false,
           "JOB    GEN  CAUSE\n"
           "train    7  a node was lost: …\n");
    expect(make("a-job-of-a-very-long-name", "7", "a node was lost"), 30, false,
           "JOB           GEN  CAUSE\n"
           "a-job-of-a-…    7  a node was…\n");
}

static void columns_that_may_go_are_left_out_those_that_say_nothing_first(void **state)
{
    static const struct table_column many[] = {{"JOB", TABLE_LEFT, false, 4},
                                               {"STEP", TABLE_RIGHT, true, 0},
                                               {"LOSS", TABLE_RIGHT, true, 0},
                                               {"AGE", TABLE_RIGHT, true, 0},
                                               {"WHY", TABLE_LEFT, false, 6}};
    static const char *const wanted[] = {
        [30] = "JOB   STEP  LOSS  AGE  WHY\n"
               "long     7     -    8  because\n",
        [29] = "JOB   STEP  LOSS  AGE  WHY\n"
               "long     7     -    8  becau…\n",
        [28] = "JOB   STEP  AGE  WHY\n"
               "long     7    8  because\n",
        [22] = "JOB   STEP  WHY\n"
               "long     7  because\n",
        [16] = "JOB   WHY\n"
               "long  because\n",
        [12] = "JOB   WHY\n"
               "long  becau…\n",
        [11] = "JOB\n"
               "long\n",
        [3] = "JOB\n"
              "lo…\n",
    };

    (void)state;
    for (size_t width = 0; width < ARRAY_LEN(wanted); width++) {
        struct text_table *t;

        if (!wanted[width]) {
            continue;
        }
        t = table_new(many, ARRAY_LEN(many));
        table_put(t, "long", TABLE_PLAIN);
        table_put(t, "7", TABLE_PLAIN);
        table_put(t, "", TABLE_PLAIN);
        table_put(t, "8", TABLE_PLAIN);
        table_put(t, "because", TABLE_PLAIN);
        expect(t, width, false, wanted[width]);
    }
}

/* Of a server that has no more than two columns to say, too. */
static void no_line_is_wider_than_the_terminal(void **state)
{
    (void)state;
    expect(make("a-job-of-a-very-long-name", "12345678", "a node was lost"), 20, false,
           "JOB              GEN\n"
           "a-job-of-…  12345678\n");
    expect(make("a-job-of-a-very-long-name", "7", "a node was lost"), 10, false,
           "JOB    GEN\n"
           "a-jo…    7\n");
    expect(make("train", "7", "x"), 4, false, "…  …\n…  7\n");
}

static void colours_are_added_where_they_are_wanted(void **state)
{
    (void)state;
    expect(make("a", "7", "b"), 0, true,
           "\033[2mJOB\033[0m  \033[2mGEN\033[0m  \033[2mCAUSE\033[0m\n"
           "a      \033[32m7\033[0m  b\n");
}

static void escape_sequences_of_others_are_no_such_any_more(void **state)
{
    struct buf out;

    (void)state;
    expect(make("\033[2J\033]0;x\007", "7", "a\nb\tc"), 0, true,
           "\033[2mJOB\033[0m         \033[2mGEN\033[0m  \033[2mCAUSE\033[0m\n"
           "?[2J?]0;x?    \033[32m7\033[0m  a b c\n");
    buf_init(&out, 100);
    table_write_text(&out, "\033[31mred", TABLE_RED, false);
    assert_int_equal(buf_len(&out), strlen("?[31mred"));
    assert_memory_equal(buf_bytes(&out), "?[31mred", buf_len(&out));
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_as_wide_as_what_is_in_them),
        cmocka_unit_test(what_is_not_known_is_a_dash),
        cmocka_unit_test(last_column_that_may_shrink_is_cut_to_the_terminal),
        cmocka_unit_test(columns_that_may_go_are_left_out_those_that_say_nothing_first),
        cmocka_unit_test(no_line_is_wider_than_the_terminal),
        cmocka_unit_test(colours_are_added_where_they_are_wanted),
        cmocka_unit_test(escape_sequences_of_others_are_no_such_any_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
