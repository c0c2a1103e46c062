#include "tests/lib/cmocka.h"
#include "tests/lib/config_rig.h"
#include "worker/config_table.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

/* The configuration as text: YAML, JSON, help. */

static void base_yaml_holds_every_key_with_its_default(void **state)
{
    (void)state;
    static struct train_config defaults;
    struct yaml_tree *tree = yaml_tree_new();
    struct yaml_node *root = NULL;

    defaults = *must_parse("");
    assert_memory_equal(must_parse("--config-path=configs|--config-name=base"),
                        &defaults, sizeof(defaults));
    assert_int_equal(yaml_read_file(tree, "configs/base.yaml", &root, NULL), 0);
    for (size_t i = 0; i < config_n_keys(); i++) {
        assert_non_null(yaml_node_at(root, config_key_at(i)->path));
    }
    yaml_tree_free(tree);
}

static void printed_files_have_sections_and_points(void **state)
{
    (void)state;
    char *yaml = config_to_yaml(must_parse(""));

    assert_non_null(strstr(yaml, "\noptim:\n  name: adamw\n  lr: 0.0006\n"));
    assert_non_null(strstr(yaml, "  betas: [0.9, 0.95]\n  eps: 1.0e-08\n"));
    mem_free(yaml);
}

static void round_trip(const char *line)
{
    static struct train_config before;
    char *yaml;

    before = *must_parse(line);
    yaml = config_to_yaml(&before);
    (void)scratch_text(&config_rig_scratch, "config.yaml", yaml);
    mem_free(yaml);
    assert_memory_equal(must_parse("@|--config-name=config.yaml"), &before,
                        sizeof(before));
}

static void what_is_printed_reads_back_the_same(void **state)
{
    (void)state;
    round_trip("");
    round_trip("--config-path=configs|--config-name=demo");
    round_trip("run.name='null'|run.dir=\\${x}|sample.prompt=\\\\\\${a}\\n\xc3\xa9|"
               "checkpoint.resume=true|model.init_from=1e5");
    round_trip(
        "sample.prompt=\"\\x01\\x7f\\u0085\\u2028\\uFEFF\\U0001F600\\t\\\"\\\\\"|"
        "run.name='a: b #c'|data.train=[' x', '-', '[', 'y,z', \"'\", '~', '?']");
    round_trip("optim.lr=0.1|optim.eps=4.9e-324|optim.min_lr=0.30000000000000004|"
               "optim.betas=[0.1,0.7]|train.seed=9200000000000000000|device.threads=3|"
               "parallel.dp_replicate=2|parallel.find_unused_parameters=true|"
               "parallel.reshard_after_forward=8");
    round_trip("parallel.reshard_after_forward=false");
}

static void json_is_flat_text(void **state)
{
    (void)state;
    char *json =
        config_to_json(must_parse("run.name=a\"b|data.train=[x, 'y z']|model.dim=64"));

    assert_non_null(strstr(json, "\"run.name\":\"a\\\"b\""));
    assert_non_null(strstr(json, "\"model.dim\":\"64\""));
    assert_non_null(strstr(json, "\"optim.betas\":\"[0.9, 0.95]\""));
    assert_non_null(strstr(json, "\"data.train\":\"[x, \\\"y z\\\"]\""));
    assert_non_null(strstr(json, "\"parallel.reshard_after_forward\":\"true\""));
    mem_free(json);
}

static void help_lists_every_key(void **state)
{
    (void)state;
    char *help = config_help();

    for (size_t i = 0; i < config_n_keys(); i++) {
        const struct config_key *key = config_key_at(i);

        assert_non_null(strstr(help, key->path));
        assert_true(strlen(key->help) > 0 && key->min <= key->max);
    }
    assert_non_null(strstr(help, "one of permute, torch; default permute\n"));
    assert_non_null(strstr(help, "an integer from 1 to 1024; default 12\n"));
    assert_non_null(strstr(help, "auto or an integer from 1 to 4096; default auto\n"));
    assert_non_null(strstr(help, "a number from 0.1 to 1000000; default 600\n"));
    mem_free(help);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, config_rig_open, config_rig_close)
    const struct CMUnitTest tests[] = {
        CASE(base_yaml_holds_every_key_with_its_default),
        CASE(printed_files_have_sections_and_points),
        CASE(what_is_printed_reads_back_the_same),
        CASE(json_is_flat_text),
        CASE(help_lists_every_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
