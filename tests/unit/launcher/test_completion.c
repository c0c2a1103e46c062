/* What is made of the options' table for shells and for the man page. */

#include "launcher/options/completion.h"
#include "launcher/verbs/verb_options.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <string.h>

static const struct option_spec specs[] = {
    {.name = "kind",
     .letter = 'k',
     .value = "N|auto|cpu",
     .set = option_set_true,
     .help = "It's a kind: [of] them. Not more (default 1).",
     .more = "See --log-dir, a_b."},
    {.name = "log-dir", .value = "DIR", .set = option_set_true, .help = "Where."},
    {.name = "quick", .set = option_set_true, .help = "Hurry."},
    {.name = "later", .value = "X", .remedy = "wait"},
};
static const struct options table = {"ctrun", specs, sizeof(specs) / sizeof(specs[0])};

static const struct option_spec show_specs[] = {
    {.name = "json", .set = option_set_true, .help = "Print JSON."},
    {.name = "rank",
     .letter = 'r',
     .value = "LOCAL_RANK",
     .set = option_set_true,
     .help = "One rank's."},
};
static const struct verb verb_list[] = {
    {.name = "show",
     .operands = "[JOB]",
     .summary = "Shows it.",
     .options = {"ctrun show", show_specs, ARRAY_LEN(show_specs)}},
    {.name = "end",
     .operands = "JOB",
     .summary = "Ends it.",
     .more = "See --json.",
     .options = {"ctrun end", show_specs, 1}},
};
static const struct verb_list verbs = {verb_list, ARRAY_LEN(verb_list)};

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        print_error("no «%s» in:\n%s", part, text);
    }
    assert_non_null(strstr(text, part));
}

static void bash_knows_names_values_and_folders(void **state)
{
    char *text = completion_bash(&table, verbs);

    (void)state;
    assert_has(text, "    --kind | -k) words='auto cpu' ;;\n");
    assert_has(text, "    --log-dir) folders=1 ;;\n");
    assert_has(text, "options='--kind -k --log-dir --quick'\n");
    assert_has(text, "valued='--kind -k --log-dir'\n");
    assert_null(strstr(text, "later"));
    assert_has(text, "    local verbs='show end run ckpt keygen'\n");
    assert_has(text, "    show) options='--json --rank -r' ;;\n"
                     "    end) options='--json' ;;\n");
    mem_free(text);
}

static void zsh_knows_each_options_first_sentence(void **state)
{
    char *text = completion_zsh(&table, verbs);

    (void)state;
    assert_has(text, "  '(-k --kind)'{-k+,--kind=}'[It'\\''s a kind\\: \\[of\\] them]:"
                     "N|auto|cpu:(auto cpu)' \\\n");
    assert_has(text, "  '--log-dir=[Where]:DIR:_files -/' \\\n");
    assert_has(text, "  '--quick[Hurry]' \\\n");
    assert_has(text, "show)\nwords=(\"${(@)words[2,-1]}\"); (( CURRENT-- ))\n"
                     "_arguments -s -S \\\n  '--json[Print JSON]' \\\n");
    assert_has(text, "compadd -- show end run ckpt keygen;");
    assert_null(strstr(text, "later"));
    mem_free(text);
}

static void man_page_has_help_and_more(void **state)
{
    char *text = completion_man(&table, verbs);

    (void)state;
    assert_string_equal(
        text, "*-k*, *--kind* _N_|*auto*|*cpu*\n"
              "\tIt's a kind: [of] them. Not more (default 1). See *--log-dir*, "
              "a\\_b.\n\n"
              "*--log-dir* _DIR_\n\tWhere.\n\n"
              "*--quick*\n\tHurry.\n\n"
              "# VERBS\n\n"
              "## ctrun show [JOB]\n\nShows it.\n\n"
              "*-r*, *--rank* _LOCAL\\_RANK_\n\tOne rank's.\n\n"
              "## ctrun end JOB\n\nEnds it. See *--json*.\n\n"
              "## Options of these verbs\n\n"
              "*--json*\n\tPrint JSON.\n\n");
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bash_knows_names_values_and_folders),
        cmocka_unit_test(zsh_knows_each_options_first_sentence),
        cmocka_unit_test(man_page_has_help_and_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
