#include "tests/lib/cmocka.h"

#include "common/mem.h"
#include "common/options.h"

#include <string.h>

struct values {
    bool verbose, quick, help;
    char name[8];
    uint32_t level;
    unsigned n_listen;
    const char *last_listen;
};

static int on_listen(void *target, const struct option_spec *spec, const char *value,
                     struct errmsg *msg)
{
    struct values *v = target;

    (void)spec;
    if (strcmp(value, "bad") == 0) {
        return errmsg_set(msg, ERR_INVALID, "expects an address");
    }
    v->n_listen++;
    v->last_listen = value;
    return 0;
}

static const struct option_spec specs[] = {
    {.name = "verbose",
     .letter = 'v',
     .help = "Say more.",
     .set = option_set_true,
     .offset = offsetof(struct values, verbose)},
    {.name = "quick",
     .letter = 'q',
     .help =
         "Be quick about it, whatever it is, and do not stop for questions that nobody asks.",
     .set = option_set_true,
     .offset = offsetof(struct values, quick)},
    {.name = "name",
     .letter = 'n',
     .value = "TEXT",
     .help = "The name.",
     .set = option_set_text,
     .offset = offsetof(struct values, name),
     .size = sizeof(((struct values *)0)->name)},
    {.name = "level",
     .value = "N",
     .help = "How much.",
     .set = option_set_u32,
     .offset = offsetof(struct values, level),
     .min = 2,
     .max = 9},
    {.name = "listen-on-these-addresses",
     .value = "ADDR:PORT",
     .help = "May be given more than once.",
     .set = on_listen},
    {.name = "help",
     .letter = 'h',
     .help = "This.",
     .set = option_set_help,
     .offset = offsetof(struct values, help)},
    {.name = "later", .letter = 'l', .value = "X", .remedy = "wait"},
};
static const struct options table = {"tool", specs, sizeof(specs) / sizeof(specs[0])};

struct line {
    const char *args[8];
};

static int parse(const struct line *line, struct values *v, int *ret_next,
                 struct errmsg *msg)
{
    static char *argv[10];
    int argc = 1;

    for (size_t i = 0; i < 8 && line->args[i]; i++) {
        memcpy(&argv[argc], &line->args[i], sizeof(argv[0]));
        argc++;
    }
    *v = (struct values){.level = 0};
    msg->text[0] = '\0';
    return options_parse(&table, argc, argv, v, ret_next, msg);
}

static void letters_stand_together_and_take_values_in_three_ways(void **state)
{
    static const struct line lines[] = {
        {{"-vqn", "a", "rest"}}, {{"-vqna", "rest"}}, {{"-v", "-q", "-n=a", "rest"}}};
    struct errmsg msg;
    struct values v;
    int next;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(parse(&lines[i], &v, &next, &msg), 0);
        assert_true(v.verbose && v.quick);
        assert_string_equal(v.name, "a");
        assert_string_equal(lines[i].args[next - 1], "rest");
    }
}

static void repeated_options_call_back_each_time(void **state)
{
    static const struct line line = {
        {"--listen_on", "a", "--listen-on-these-addresses=b", "--level=9"}};
    struct errmsg msg;
    struct values v;
    int next;

    (void)state;
    assert_int_equal(parse(&line, &v, &next, &msg), 0);
    assert_int_equal(v.n_listen, 2);
    assert_string_equal(v.last_listen, "b");
    assert_int_equal(v.level, 9);
    assert_int_equal(next, 5); /* nothing is left */
}

static void help_stops_before_later_mistakes_but_not_before_earlier_ones(void **state)
{
    static const struct line good = {{"-h", "--nonsense"}};
    static const struct line bad = {{"--nonsense", "-h"}};
    struct errmsg msg;
    struct values v;
    int next;

    (void)state;
    assert_int_equal(parse(&good, &v, &next, &msg), OPTION_STOP);
    assert_true(v.help);
    assert_int_equal(parse(&bad, &v, &next, &msg), ERR_INVALID);
}

static void each_mistake_has_its_own_line(void **state)
{
    static const struct {
        struct line line;
        const char *text;
    } cases[] = {
        {{{"--level=1"}}, "--level: expects a number from 2 to 9, not '1'"},
        {{{"--level=x"}}, "--level: expects a number from 2 to 9, not 'x'"},
        {{{"--level"}}, "--level needs a value: --level=N"},
        {{{"--level", "-v"}}, "--level needs a value: --level=N"},
        {{{"--level", "-5"}}, "--level: expects a number from 2 to 9, not '-5'"},
        {{{"--name=12345678"}}, "--name: is longer than 7 characters"},
        {{{"--name="}}, "--name: needs a value that is not empty"},
        {{{"-n"}}, "--name needs a value: --name=TEXT"},
        {{{"--listen=bad"}}, "--listen-on-these-addresses: expects an address"},
        {{{"--later"}}, "--later is not there yet; wait"},
        {{{"-lx"}}, "--later is not there yet; wait"},
        {{{"--quik"}}, "unknown option --quik; did you mean --quick?"},
        {{{"--="}}, "unknown option --=; 'tool --help' lists them"},
        {{{"-vx"}}, "unknown option -vx; 'tool --help' lists them"},
        {{{"--verbose=1"}}, "--verbose takes no value, but got '1'"},
        {{{"--le=3"}}, "--le=3"},
    };
    struct errmsg msg;
    struct values v;
    int next;

    (void)state;
    for (size_t i = 0; i + 1 < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(&cases[i].line, &v, &next, &msg), ERR_INVALID);
        assert_string_equal(msg.text, cases[i].text);
    }
    assert_int_equal(parse(&cases[15].line, &v, &next, &msg), 0); /* a unique prefix */
    assert_int_equal(v.level, 3);
}

static void options_end_at_the_first_argument_or_two_dashes(void **state)
{
    static const struct line first = {{"-v", "-", "-q"}};
    static const struct line dashes = {{"-v", "--", "-q"}};
    struct errmsg msg;
    struct values v;
    int next;

    (void)state;
    assert_int_equal(parse(&first, &v, &next, &msg), 0);
    assert_int_equal(next, 2);
    assert_false(v.quick);
    assert_int_equal(parse(&dashes, &v, &next, &msg), 0);
    assert_int_equal(next, 3);
    assert_false(v.quick);
}

static void help_has_two_columns_and_leaves_out_what_is_not_there(void **state)
{
    char *text = options_help(&table);

    (void)state;
    assert_string_equal(
        text,
        "  -v, --verbose               Say more.\n"
        "  -q, --quick                 Be quick about it, whatever it is, and do not stop\n"
        "                              for questions that nobody asks.\n"
        "  -n, --name TEXT             The name.\n"
        "  --level N                   How much.\n"
        "  --listen-on-these-addresses ADDR:PORT\n"
        "                              May be given more than once.\n"
        "  -h, --help                  This.\n");
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_stand_together_and_take_values_in_three_ways),
        cmocka_unit_test(repeated_options_call_back_each_time),
        cmocka_unit_test(help_stops_before_later_mistakes_but_not_before_earlier_ones),
        cmocka_unit_test(each_mistake_has_its_own_line),
        cmocka_unit_test(options_end_at_the_first_argument_or_two_dashes),
        cmocka_unit_test(help_has_two_columns_and_leaves_out_what_is_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
