#include "tests/lib/cmocka.h"
#include "tests/lib/config_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Defaults lists, overrides and references. */

static void overrides_set_add_and_remove(void **state)
{
    (void)state;
    (void)scratch_text(&config_rig_scratch, "x.yaml", "train: {steps: 7, seed: 9}\n");
    assert_int_equal(must_parse("@|-cn=x|train.steps=8|train.steps=9")->train.steps, 9);
    assert_int_equal(must_parse("@|-cn=x|~train.seed")->train.seed, 1337);
    assert_int_equal(must_parse("@|-cn=x|~train.seed=9")->train.seed, 1337);
    assert_int_equal(must_parse("@|-cn=x|~train")->train.steps, 1000);
    assert_int_equal(must_parse("@|-cn=x|+train.micro_batch=2")->train.micro_batch, 2);
    assert_int_equal(must_parse("@|-cn=x|++train.steps=3")->train.steps, 3);
    assert_int_equal(must_parse("@|-cn=x|train={steps: 5}")->train.steps, 5);
    assert_int_equal(config_rig_options.config.train.seed, 9);
    assert_refused(
        "@|-cn=x|+train.steps=3",
        "command line: \"+train.steps=3\": it is set already; leave the + out "
        "or write ++");
    assert_refused("@|-cn=x|~train.micro_batch",
                   "command line: \"~train.micro_batch\": nothing sets it");
    assert_refused("@|-cn=x|~train.seed=8",
                   "command line: \"~train.seed=8\": it has another value");
}

/* Null may stand where nothing is a value: for a section, and for a list. */
static void null_is_no_value_of_a_key(void **state)
{
    (void)state;
    assert_file_refused("train: {steps: ~}\n",
                        "@/x.yaml:1:16: train.steps: null is not an integer; leave the "
                        "key out for its default (1000)");
    assert_file_refused("run:\n  name:\n",
                        "@/x.yaml:2:8: run.name: null is not a text; leave the key out "
                        "for its default (demo)");
    assert_file_refused("optim: {betas: null}\n",
                        "@/x.yaml:1:16: optim.betas: null is not a list of two numbers "
                        "in [0, 1); leave the key out for its default ([0.9, 0.95])");
    assert_refused(
        "train.seed=null",
        "command line: train.seed: null is not an integer; leave the key out "
        "for its default (1337)");
    (void)scratch_text(&config_rig_scratch, "x.yaml", "data: {val: ~}\nmodel:\n");
    assert_int_equal(must_parse("@|-cn=x")->data.val.n, 0);
    assert_int_equal(config_rig_options.config.model.dim, 768);
    assert_string_equal(must_parse("run.name='null'")->run.name, "null");
}

static void a_folder_and_a_file_in_it_are_told_apart(void **state)
{
    (void)state;
    char line[256];
    char expected[512];
    const char *dir = config_rig_scratch.dir;

    (void)scratch_text(&config_rig_scratch, "x.yaml", "run: {name: a}\n");
    (void)snprintf(line, sizeof(line), "--config-path=%s/x.yaml", dir);
    (void)snprintf(expected, sizeof(expected),
                   "--config-path: %s/x.yaml is a file, not a folder: use "
                   "--config-path=DIR --config-name=NAME",
                   dir);
    assert_refused(line, expected);
    (void)snprintf(line, sizeof(line), "--config-path=%s/none|-cn=x", dir);
    assert_refused(line, "--config-path: @/none: No such file or directory");
    assert_refused("@", "--config-path=@ names a folder, but no file is chosen: add "
                        "--config-name=NAME");
    assert_refused("x.yaml", "command line: \"x.yaml\": a file is named with "
                             "--config-path=DIR --config-name=NAME");
}

static void an_ending_is_taken_as_given(void **state)
{
    (void)state;
    (void)scratch_text(&config_rig_scratch, "x.yml", "run: {name: short}\n");
    assert_string_equal(must_parse("@|-cn=x.yml")->run.name, "short");
    assert_refused("@|-cn=x.yaml",
                   "@/x.yaml: No such file or directory; the folder has x.yml");
    assert_refused("@|-cn=x",
                   "@/x.yaml: No such file or directory; the folder has x.yml");
    (void)scratch_text(&config_rig_scratch, "x.yaml", "run: {name: long}\n");
    assert_string_equal(must_parse("@|-cn=x")->run.name, "long");
    assert_string_equal(must_parse("@|-cn=x.yaml")->run.name, "long");
}

static void a_missing_file_is_told_with_those_that_are_there(void **state)
{
    (void)state;
    char name[16];

    (void)scratch_text(&config_rig_scratch, ".hidden.yaml", "");
    (void)scratch_text(&config_rig_scratch, "notes.txt", "");
    (void)scratch_text(&config_rig_scratch, "two\nlines.yaml", "");
    assert_refused("@|-cn=x", "@/x.yaml: No such file or directory");
    for (char c = 'i'; c >= 'a'; c--) {
        (void)snprintf(name, sizeof(name), "%c.yaml", c);
        (void)scratch_text(&config_rig_scratch, name, "");
    }
    assert_refused("@|-cn=x",
                   "@/x.yaml: No such file or directory; the folder has a, b, c, "
                   "d, e, f, g, h …");
}

/* The default folder is "configs", where the program is started. */
static void a_missing_default_folder_is_named(void **state)
{
    (void)state;
    char *here = getcwd(NULL, 0);

    assert_non_null(here);
    assert_int_equal(chdir(config_rig_scratch.dir), 0);
    assert_refused("-cn=x", "--config-name=x: there is no folder \"configs\" here; "
                            "--config-path=DIR says where the file lies");
    (void)scratch_text(&config_rig_scratch, "configs/x.yaml", "run: {name: a}\n");
    assert_string_equal(must_parse("-cn=x")->run.name, "a");
    assert_int_equal(chdir(here), 0);
    free(here);
}

static void defaults_lists_compose_files(void **state)
{
    (void)state;
    (void)scratch_text(&config_rig_scratch, "x.yaml",
                       "defaults:\n  - other\n  - model: small\n"
                       "train: {steps: 1}\n");
    (void)scratch_text(&config_rig_scratch, "other.yaml",
                       "train: {steps: 2, seed: 2}\nmodel: {layers: 9, heads: 9}\n");
    (void)scratch_text(&config_rig_scratch, "model/small.yaml",
                       "defaults: [tiny]\nlayers: 3\ndim: 32\n");
    (void)scratch_text(&config_rig_scratch, "model/tiny.yaml", "vocab: 99\ndim: 16\n");
    must_parse("@|-cn=x");
    assert_int_equal(config_rig_options.config.train.steps, 1); /* its own comes last */
    assert_int_equal(config_rig_options.config.train.seed, 2);
    assert_int_equal(config_rig_options.config.model.layers,
                     3); /* later items over earlier ones */
    assert_int_equal(config_rig_options.config.model.heads, 9);
    assert_int_equal(config_rig_options.config.model.dim, 32);
    assert_int_equal(config_rig_options.config.model.vocab,
                     99); /* a list in a folder stays there */
}

static void self_says_where_the_own_content_comes(void **state)
{
    (void)state;
    (void)scratch_text(&config_rig_scratch, "x.yaml",
                       "defaults: [_self_, other]\ntrain: {steps: 1, seed: 1}\n");
    (void)scratch_text(&config_rig_scratch, "other.yaml", "train: {steps: 2}\n");
    must_parse("@|-cn=x");
    assert_int_equal(config_rig_options.config.train.steps, 2);
    assert_int_equal(config_rig_options.config.train.seed, 1);
}

static void groups_are_chosen_on_the_command_line(void **state)
{
    (void)state;
    (void)scratch_text(&config_rig_scratch, "x.yaml",
                       "defaults:\n  - model: a\n  - optim: null\n");
    (void)scratch_text(&config_rig_scratch, "y.yaml", "train: {steps: 1}\n");
    (void)scratch_text(&config_rig_scratch, "model/a.yaml", "layers: 1\n");
    (void)scratch_text(&config_rig_scratch, "model/b.yaml", "layers: 2\n");
    (void)scratch_text(&config_rig_scratch, "optim/fast.yaml", "lr: 1\n");
    assert_int_equal(must_parse("@|-cn=x")->model.layers, 1);
    assert_int_equal(must_parse("@|-cn=x|model=b")->model.layers, 2);
    assert_int_equal(must_parse("@|-cn=x|model=null")->model.layers, 12);
    assert_true(must_parse("@|-cn=x|optim=fast")->optim.lr == 1);
    assert_int_equal(must_parse("@|-cn=y|+model=b")->model.layers, 2);
    assert_int_equal(must_parse("@|+model=b|model.layers=5")->model.layers, 5);
    assert_refused(
        "@|-cn=y|model=b",
        "command line: \"model=b\" chooses the file model/b.yaml, but no defaults list "
        "names the group \"model\": \"+model=b\" adds it; a key is set as "
        "model.KEY=…");
    assert_refused("@|-cn=x|model=c",
                   "command line: @/model/c.yaml: no such file; the folder has a, b");
}

static void several_and_optional_files_of_a_group(void **state)
{
    (void)state;
    (void)scratch_text(&config_rig_scratch, "x.yaml",
                       "defaults:\n  - model: [a, b]\n  - optional optim: none\n");
    (void)scratch_text(&config_rig_scratch, "model/a.yaml", "layers: 1\nheads: 1\n");
    (void)scratch_text(&config_rig_scratch, "model/b.yaml", "layers: 2\n");
    must_parse("@|-cn=x");
    assert_int_equal(config_rig_options.config.model.layers, 2);
    assert_int_equal(config_rig_options.config.model.heads, 1);
}

static void wrong_defaults_lists_are_refused(void **state)
{
    (void)state;
    (void)scratch_text(&config_rig_scratch, "y.yaml", "defaults: [x]\n");
    assert_file_refused("defaults:\n  - y\n",
                        "@/y.yaml:1:12: defaults: @/x.yaml includes itself");
    assert_file_refused("defaults: [nowhere]\n",
                        "@/x.yaml:1:12: defaults: @/nowhere.yaml: no such file; the "
                        "folder has x, y");
    assert_file_refused("defaults: [../../etc/passwd]\n",
                        "@/x.yaml:1:12: defaults: not the name of a file");
    assert_file_refused("defaults: x\n",
                        "@/x.yaml:1:11: defaults: expected a list: \"- "
                        "file\" or \"- group: file\"");
    assert_file_refused("defaults: [{a: b, c: d}]\n",
                        "@/x.yaml:1:22: defaults: one \"group: file\" for each item");
    assert_file_refused(
        "defaults: [{override model: b}]\n",
        "@/x.yaml:1:29: defaults: \"override\" and \"@package\" are not "
        "supported");
}

static void set_environment(void)
{
    /* one thread: NOLINTBEGIN(concurrency-mt-unsafe) */
    assert_int_equal(setenv("CTRUN_TEST_LR", "2e-3", 1), 0);
    assert_int_equal(unsetenv("CTRUN_TEST_NONE"), 0);
    /* NOLINTEND(concurrency-mt-unsafe) */
}

static void references_are_resolved(void **state)
{
    (void)state;
    set_environment();
    (void)scratch_text(&config_rig_scratch, "x.yaml",
                       "run: {name: a, dir: \"/r/${run.name}-${train.seed}\"}\n"
                       "optim: {lr: \"${env:CTRUN_TEST_LR}\", min_lr: "
                       "\"${oc.env:CTRUN_TEST_NONE, 1e-5}\"}\n"
                       "data: {train: [a, \"${run.name}/b\"], val: \"${data.train}\"}\n"
                       "sample: {prompt: '\\${run.name} \\\\${run.name} $x \\y'}\n");
    must_parse("@|-cn=x|run.name=z|train.seed=${train.steps}");
    assert_string_equal(config_rig_options.config.run.dir, "/r/z-1000");
    assert_string_equal(config_rig_options.config.checkpoint.dir, "/r/z-1000/ckpt");
    assert_true(config_rig_options.config.optim.lr == 2e-3 &&
                config_rig_options.config.optim.min_lr == 1e-5);
    assert_int_equal(config_rig_options.config.data.val.n, 2);
    assert_string_equal(config_rig_options.config.data.val.item[1], "z/b");
    assert_string_equal(config_rig_options.config.sample.prompt,
                        "${run.name} \\z $x \\y");
}

static void wrong_references_are_refused(void **state)
{
    (void)state;
    set_environment();
    assert_file_refused("run:\n  name: ${run.dir}\n",
                        "default of run.dir: ${run.name} refers to itself");
    assert_file_refused("run: {name: \"${run.name}\"}",
                        "@/x.yaml:1:13: ${run.name} refers to itself");
    assert_file_refused("data: {train: [\"${data.train}\"]}",
                        "@/x.yaml:1:16: ${data.train} refers to itself");
    assert_file_refused(
        "run: {name: \"${run.nme}\"}",
        "@/x.yaml:1:13: ${run.nme}: no such key; nearest: \"run.name\"");
    assert_file_refused("run: {name: \"${run}\"}",
                        "@/x.yaml:1:13: ${run} is a section, not a value");
    assert_file_refused("run: {name: \"x${data.train}\"}",
                        "@/x.yaml:1:13: ${data.train} is a list inside a text");
    assert_file_refused("run: {name: \"${env:CTRUN_TEST_NONE}\"}",
                        "@/x.yaml:1:13: ${env:CTRUN_TEST_NONE}: not set in the "
                        "environment, and no default: ${env:CTRUN_TEST_NONE,default}");
    assert_file_refused("run: {name: \"${run.dir\"}",
                        "@/x.yaml:1:13: \"${run.dir\": ${ without }");
    assert_file_refused("run: {name: \"${a${b}}\"}",
                        "@/x.yaml:1:13: \"${a${b}}\": expected ${section.key} or "
                        "${env:NAME,default}");
}

static void doubling_references_hit_a_limit(void **state)
{
    (void)state;
    assert_file_refused(
        "run: {name: \"${run.dir}${run.dir}${run.dir}${run.dir}${run.dir}\", dir: "
        "\"${data.tokenizer}${data.tokenizer}${data.tokenizer}${data.tokenizer}\"}\n"
        "data: {tokenizer: \"${optim.name}${optim.name}${optim.name}${optim.name}\"}\n"
        "optim: {name: "
        "\"0123456789012345678901234567890123456789012345678901234567890123\"}\n",
        "@/x.yaml:1:13: longer than 4096 bytes");
}

static void hostile_files_are_refused_in_one_line(void **state)
{
    (void)state;
    char *text = calloc(100001, 1);

    assert_non_null(text);
    memset(text, '[', 100000);
    text[0] = 'a';
    text[1] = ':';
    text[2] = ' ';
    assert_file_refused(text, "@/x.yaml:1:35: more than 32 levels of nesting");
    free(text);
    assert_file_refused("a: &a [x]\nb: [*a, *a]\n",
                        "@/x.yaml:2:5: aliases (*name) are not known here; use ${a.b}");
    assert_file_refused("train: {steps: 1, steps: 2}\n",
                        "@/x.yaml:1:19: \"steps\" is given twice; first in line 1");
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, config_rig_open, config_rig_close)
    const struct CMUnitTest tests[] = {
        CASE(overrides_set_add_and_remove),
        CASE(null_is_no_value_of_a_key),
        CASE(a_folder_and_a_file_in_it_are_told_apart),
        CASE(an_ending_is_taken_as_given),
        CASE(a_missing_file_is_told_with_those_that_are_there),
        CASE(a_missing_default_folder_is_named),
        CASE(defaults_lists_compose_files),
        CASE(self_says_where_the_own_content_comes),
        CASE(groups_are_chosen_on_the_command_line),
        CASE(several_and_optional_files_of_a_group),
        CASE(wrong_defaults_lists_are_refused),
        CASE(references_are_resolved),
        CASE(wrong_references_are_refused),
        CASE(doubling_references_hit_a_limit),
        CASE(hostile_files_are_refused_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
