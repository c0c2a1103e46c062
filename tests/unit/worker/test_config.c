#include "tests/lib/cmocka.h"
#include "tests/lib/config_rig.h"
#include "worker/config_table.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

/* Keys, types and whole-config checks; files and overrides: test_config_files.c; what is
 * printed: test_config_print.c. */

static void without_a_file_every_key_has_its_default(void **state)
{
    (void)state;
    const struct train_config *c = must_parse("");

    assert_string_equal(c->run.name, "demo");
    assert_string_equal(c->run.dir, "runs/demo");
    assert_string_equal(c->checkpoint.dir, "runs/demo/ckpt");
    assert_string_equal(c->model.family, "gpt2");
    assert_int_equal(c->model.layers, 12);
    assert_int_equal(c->model.kv_heads, 12);
    assert_int_equal(c->model.vocab, 50257);
    assert_int_equal(c->train.seq_len, 1024);
    assert_int_equal(c->train.seed, 1337);
    assert_true(c->optim.lr == 6.0e-4 && c->optim.min_lr == 6.0e-5);
    assert_true(c->optim.beta1 == 0.9 && c->optim.beta2 == 0.95);
    assert_true(c->optim.eps == 1e-8 && c->parallel.bucket_cap_mb == 25);
    assert_string_equal(c->parallel.dp_replicate, "auto");
    assert_int_equal(c->device.threads, 0);
    assert_int_equal(c->data.train.n, 0);
    assert_string_equal(c->parallel.reshard_after_forward, "true");
    assert_false(c->parallel.find_unused_parameters || c->parallel.static_graph);
    assert_int_equal(c->parallel.check_every, 100);
    assert_string_equal(c->checkpoint.resume, "auto");
    assert_true(c->comm.timeout == 600);
}

static void the_shipped_files_pass_the_checks(void **state)
{
    (void)state;
    struct errmsg msg = {0};

    must_parse("--config-path=configs|--config-name=demo.yaml");
    assert_int_equal(config_check(&config_rig_options.config, &msg), 0);
    assert_int_equal(config_rig_options.config.train.seq_len, 128);
    assert_int_equal(config_rig_options.config.model.kv_heads, 4);
    must_parse("--config-path=configs|--config-name=gpt2-124m");
    assert_int_equal(config_check(&config_rig_options.config, &msg), 0);
    assert_int_equal(config_rig_options.config.model.dim, 768);
}

static void flags_are_known_in_every_spelling(void **state)
{
    (void)state;
    char line[256];

    (void)scratch_text(&config_rig_scratch, "x.yaml", "run: {name: from_file}\n");
    (void)snprintf(line, sizeof(line), "--config_path|%s|--config_name|x.yaml",
                   config_rig_scratch.dir);
    assert_string_equal(must_parse(line)->run.name, "from_file");
    (void)snprintf(line, sizeof(line), "-cp=%s|-cn=x|--dry_run|--cfg=job",
                   config_rig_scratch.dir);
    assert_string_equal(must_parse(line)->run.name, "from_file");
    assert_true(config_rig_options.dry_run);
    assert_string_equal(config_rig_options.cfg, "job");
    (void)snprintf(line, sizeof(line), "--config-name=%s/x.yaml",
                   config_rig_scratch.dir);
    assert_string_equal(must_parse(line)->run.name, "from_file");
    must_parse("--profile=trace.json");
    assert_string_equal(config_rig_options.profile, "trace.json");
    must_parse("--help|this=is|not=looked|at");
    assert_true(config_rig_options.help);
    must_parse("--version");
    assert_true(config_rig_options.version);
}

static void wrong_flags_are_refused(void **state)
{
    (void)state;
    assert_refused("--config-nam=x",
                   "command line: unknown option \"--config-nam=x\"; nearest: "
                   "\"--config-name\"");
    assert_refused("--", "command line: unknown option \"--\"; 'ctrun-worker --help' "
                         "lists them");
    assert_refused("--zzzzzzzz", "command line: unknown option \"--zzzzzzzz\"; "
                                 "'ctrun-worker --help' lists them");
    assert_refused("--nproc_per_node=2",
                   "command line: \"--nproc_per_node=2\" is an option of ctrun: put it "
                   "before ctrun-worker");
    assert_refused("--config-name", "command line: --config-name needs a value");
    assert_refused("--train.steps=5", "command line: \"--train.steps=5\": a key has no "
                                      "dashes: train.steps=VALUE");
    assert_refused("--profile=", "command line: --profile needs a value");
    assert_refused("--dry-run=yes", "command line: --dry-run takes no value");
    assert_refused("--cfg=hydra",
                   "command line: --cfg: \"hydra\" is not one of job, all");
    assert_refused("@|--config-name=none", "@/none.yaml: No such file or directory");
    assert_refused("train.steps", "command line: \"train.steps\": expected key=value; "
                                  "--help lists options and keys");
}

static void the_key_decides_what_a_scalar_means(void **state)
{
    (void)state;
    const struct train_config *c =
        must_parse("run.name=695e0514|model.dropout=1e-1|train.steps=1_000|optim.lr=3|"
                   "sample.prompt=Hello, world: #1 [x]|checkpoint.resume=007");

    assert_string_equal(c->run.name, "695e0514");
    assert_string_equal(c->run.dir, "runs/695e0514");
    assert_true(c->model.dropout == 0.1);
    assert_int_equal(c->train.steps, 1000);
    assert_true(c->optim.lr == 3);
    assert_string_equal(c->sample.prompt, "Hello, world: #1 [x]");
    assert_string_equal(c->checkpoint.resume, "007");
    assert_string_equal(must_parse("sample.prompt='it''s'")->sample.prompt, "it's");
    assert_string_equal(must_parse("sample.prompt=\"a\\nb\"")->sample.prompt, "a\nb");
    assert_string_equal(must_parse("sample.prompt=")->sample.prompt, "");
}

static void lists_are_yaml_or_one_text(void **state)
{
    (void)state;
    const struct train_config *c =
        must_parse("data.train=[a, 'b c', d/*.bin]|data.val=only|optim.betas=[0.5,0]");

    assert_int_equal(c->data.train.n, 3);
    assert_string_equal(c->data.train.item[1], "b c");
    assert_string_equal(c->data.train.item[2], "d/*.bin");
    assert_int_equal(c->data.val.n, 1);
    assert_string_equal(c->data.val.item[0], "only");
    assert_true(c->optim.beta1 == 0.5 && c->optim.beta2 == 0);
}

static void kv_heads_follow_heads_unless_given(void **state)
{
    (void)state;
    assert_int_equal(must_parse("model.heads=4")->model.kv_heads, 4);
    assert_int_equal(must_parse("model.heads=4|model.kv_heads=0")->model.kv_heads, 4);
    assert_int_equal(must_parse("model.heads=4|model.kv_heads=2")->model.kv_heads, 2);
}

static void unknown_keys_name_their_place_and_the_nearest(void **state)
{
    (void)state;
    assert_file_refused("# x\n\noptim:\n  warmup: 1\n\n\n  learning_rate: 3\n",
                        "@/x.yaml:7:3: unknown key \"optim.learning_rate\"; nearest: "
                        "\"optim.lr\"");
    assert_file_refused("train: {stesp: 3}\n", "@/x.yaml:1:9: unknown key "
                                               "\"train.stesp\"; nearest: "
                                               "\"train.steps\"");
    assert_file_refused("trainn: {steps: 3}\n",
                        "@/x.yaml:1:1: unknown key \"trainn\"; nearest: \"train\"");
    assert_file_refused(
        "train.steps: 3\n",
        "@/x.yaml:1:1: \"train.steps\": in a file, keys are nested: write "
        "\"a: {b: …}\"");
    assert_refused("optim.learning_rate=3", "command line: unknown key "
                                            "\"optim.learning_rate\"; nearest: "
                                            "\"optim.lr\"");
    assert_refused("train.lr=3",
                   "command line: unknown key \"train.lr\"; nearest: \"optim.lr\"");
    assert_refused("+model.n_layer=3",
                   "command line: unknown key \"model.n_layer\"; nearest: "
                   "\"model.layers\"");
    assert_refused("~optim.bta", "command line: unknown key \"optim.bta\"; nearest: "
                                 "\"optim.betas\"");
    assert_refused("qqqqqqqqqqqq=3",
                   "command line: unknown key \"qqqqqqqqqqqq\"; --help lists the keys");
}

/* Where nothing is near, the section's own keys say more than a far-fetched name. */
static void far_names_are_not_called_nearest(void **state)
{
    (void)state;
    assert_refused("+foo=1",
                   "command line: unknown key \"foo\"; --help lists the keys");
    assert_refused("foo.bar=1",
                   "command line: unknown key \"foo.bar\"; --help lists the keys");
    assert_refused("eval.foo=1",
                   "command line: unknown key \"eval.foo\"; eval has every, batches");
    assert_refused(
        "~log.foo",
        "command line: unknown key \"log.foo\"; log has every, level, curve");
    assert_refused("trainn.stesp=1",
                   "command line: unknown key \"trainn.stesp\"; nearest: "
                   "\"train.steps\"");
    assert_refused("train.stesp=1",
                   "command line: unknown key \"train.stesp\"; nearest: "
                   "\"train.steps\"");
    assert_refused("train.betass=1", "command line: unknown key \"train.betass\"; "
                                     "nearest: \"optim.betas\"");
    assert_refused(
        "train=5",
        "command line: \"train=5\" chooses the file train/5.yaml, but no "
        "defaults list names the group \"train\": \"+train=5\" adds it; a key "
        "is set as train.KEY=…");
}

static void the_names_of_a_section_are_whole(void **state)
{
    static const struct {
        size_t size;
        const char *text;
    } cases[] = {
        {256, "family, layers, heads, kv_heads"},
        {32, "family, layers, heads, kv_heads"},
        {31, "family, layers, heads"},
        {22, "family, layers, heads"},
        {21, "family, layers"},
        {7, "family"},
        {6, ""},
        {1, ""},
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        config_section_keys("model.foo", text, cases[i].size);
        if (i == 0) {
            text[strlen(cases[0].text)] = '\0'; /* how it begins */
        }
        assert_string_equal(text, cases[i].text);
    }
    config_section_keys("nowhere.foo", text, sizeof(text));
    assert_string_equal(text, "");
}

static void misspelt_sections_are_recognised(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_n_keys(); i++) {
        const char *path = config_key_at(i)->path;
        char section[64];
        char line[128];
        char expected[256];

        (void)snprintf(section, sizeof(section), "%.*s", (int)strcspn(path, "."), path);
        (void)snprintf(line, sizeof(line), "%sq=1", section);
        (void)snprintf(expected, sizeof(expected),
                       "command line: unknown key \"%sq\"; nearest: \"%s\"", section,
                       section);
        assert_refused(line, expected);
    }
}

static void wrong_types_and_ranges_are_refused(void **state)
{
    (void)state;
    assert_file_refused("train:\n  steps: ten\n",
                        "@/x.yaml:2:10: train.steps: \"ten\" is not an integer");
    assert_file_refused(
        "train:\n  steps: 0\n",
        "@/x.yaml:2:10: train.steps: 0 is out of range: 1 … 1000000000");
    assert_file_refused("train: {steps: 1.5}",
                        "@/x.yaml:1:16: train.steps: \"1.5\" is not an integer");
    assert_file_refused("train: {steps: [1]}",
                        "@/x.yaml:1:16: train.steps is an integer, not a list");
    assert_file_refused("train: {steps: {a: 1}}",
                        "@/x.yaml:1:16: train.steps is an integer, not a section");
    assert_file_refused("train: 5",
                        "@/x.yaml:1:8: \"train\" is a section of keys, not a value");
    assert_file_refused(
        "parallel: {find_unused_parameters: yes}",
        "@/x.yaml:1:36: parallel.find_unused_parameters: \"yes\" is not "
        "true or false");
    assert_file_refused("data: {train: [a, {b: 1}]}",
                        "@/x.yaml:1:19: data.train is a list of texts, not a section");
    assert_refused("data.sampler=random",
                   "command line: data.sampler: \"random\" is not "
                   "one of permute, torch");
    assert_refused("data.sampler=per",
                   "command line: data.sampler: \"per\" is not one of "
                   "permute, torch");
    assert_refused("optim.lr=fast", "command line: optim.lr: \"fast\" is not a number");
    assert_refused("optim.lr=nan", "command line: optim.lr: \"nan\" is not a number");
    assert_refused("optim.lr=0x10", "command line: optim.lr: \"0x10\" is not a number");
    assert_refused("optim.lr=-1",
                   "command line: optim.lr: -1 is out of range: 0 … 1000");
    assert_refused("optim.betas=[0.9,1.0]",
                   "command line: optim.betas: \"1.0\" is not a list of two numbers in "
                   "[0, 1)");
    assert_refused("optim.betas=[0.9]",
                   "command line: optim.betas is a list of two numbers in [0, 1), not "
                   "of 1");
    assert_refused("optim.betas=0.9",
                   "command line: optim.betas: \"0.9\" is not a list of two numbers in "
                   "[0, 1)");
    assert_refused("device.threads=-1",
                   "command line: device.threads: -1 is out of range: 1 … 4096");
    assert_refused("device.threads=many",
                   "command line: device.threads: \"many\" is not auto or an integer");
    assert_refused(
        "parallel.dp_replicate=0",
        "command line: parallel.dp_replicate: 0 is out of range: 1 … 1048576");
    assert_refused("run.name=\xff", "command line: run.name: not UTF-8 text");
    assert_refused("data.train=['']", "command line: data.train: an empty item");
    assert_refused(
        "train.seed=9223372036854775808",
        "command line: train.seed: \"9223372036854775808\" is not an integer");
    assert_refused(
        "data.train=[a",
        "command line: \"data.train=[a\": not readable as a [list], {map} or "
        "\"text\"");
}

static void an_interval_is_steps_a_time_or_auto(void **state)
{
    static const struct {
        const char *text;
        struct interval v;
        const char *printed;
    } cases[] = {
        {"0", {0}, "0"},
        {"250", {.steps = 250}, "250"},
        {"1_000", {.steps = 1000}, "1000"},
        {"auto", {.is_auto = true}, "auto"},
        {"30s", {.ms = 30000}, "30s"},
        {"10m", {.ms = 600000}, "10m"},
        {"2h", {.ms = 7200000}, "2h"},
        {"1.5h", {.ms = 5400000}, "90m"},
        {"120s", {.ms = 120000}, "2m"},
        {"24h", {.ms = 86400000}, "1d"},
        {"0.25s", {.ms = 250}, "0.250s"},
    };
    char text[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct interval *seen;
        char *yaml;

        (void)snprintf(text, sizeof(text), "checkpoint.every=%s", cases[i].text);
        seen = &must_parse(text)->checkpoint.every;
        assert_int_equal(seen->steps, cases[i].v.steps);
        assert_int_equal(seen->ms, cases[i].v.ms);
        assert_int_equal(seen->is_auto, cases[i].v.is_auto);
        yaml = config_to_yaml(&config_rig_options.config);
        (void)snprintf(text, sizeof(text), "\n  every: %s\n  keep:", cases[i].printed);
        assert_non_null(strstr(yaml, text));
        mem_free(yaml);
    }
}

static void a_wrong_interval_is_refused(void **state)
{
#define WANTED " is not auto, a number of steps, or a time such as 30s, 10m, 2h"
    (void)state;
    assert_refused("checkpoint.every=10min",
                   "command line: checkpoint.every: \"10min\"" WANTED);
    assert_refused("checkpoint.every=s",
                   "command line: checkpoint.every: \"s\"" WANTED);
    assert_refused("checkpoint.every=nans",
                   "command line: checkpoint.every: \"nans\"" WANTED);
    assert_refused("checkpoint.every=0x1s",
                   "command line: checkpoint.every: \"0x1s\"" WANTED);
    assert_refused("checkpoint.every=1.5",
                   "command line: checkpoint.every: \"1.5\"" WANTED);
    assert_refused("checkpoint.every=-1",
                   "command line: checkpoint.every: -1 is out of "
                   "range: 0 … 1000000000");
    assert_refused("checkpoint.every=-1s", "command line: checkpoint.every: -1s is out "
                                           "of range: 0.001s … 3650d");
    assert_refused("checkpoint.every=0m", "command line: checkpoint.every: 0m is out "
                                          "of range: 0.001s … 3650d");
    assert_refused("checkpoint.every=1e9d", "command line: checkpoint.every: 1e9d is "
                                            "out of range: 0.001s … 3650d");
    assert_refused("checkpoint.every=[1]",
                   "command line: checkpoint.every is auto, a number of steps, or a "
                   "time such as 30s, 10m, 2h, not a list");
#undef WANTED
}

static void long_texts_and_lists_are_refused(void **state)
{
    (void)state;
    char line[1200] = "sample.prompt=";

    memset(line + 14, 'x', CONFIG_TEXT_MAX - 1);
    assert_int_equal(strlen(must_parse(line)->sample.prompt), CONFIG_TEXT_MAX - 1);
    line[strlen(line)] = 'x';
    assert_refused(line, "command line: sample.prompt: longer than 511 bytes");
    (void)snprintf(line, sizeof(line), "data.train=[");
    for (int i = 0; i <= CONFIG_LIST_MAX; i++) {
        size_t used = strlen(line) - (i > 0); /* over the bracket */

        (void)snprintf(line + used, sizeof(line) - used, "x,]");
    }
    assert_refused(line, "command line: data.train: more than 64 items");
}

static void checks_name_keys_values_and_remedies(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int err;
        const char *text;
    } cases[] = {
        {"model.family=llama", ERR_UNSUPPORTED,
         "model.family: \"llama\" is not supported yet; use gpt2"},
        {"model.dropout=0.1|model.heads=16|model.dim=1024|model.context=32769",
         ERR_UNSUPPORTED,
         "model.dropout=0.1: model.heads (16) times the square of train.seq_len "
         "(32769) is above 2^34, more than dropout can number; use shorter sequences, "
         "or model.dropout=0"},
        {"model.kv_heads=4", ERR_UNSUPPORTED,
         "model.kv_heads: 4 is not supported yet; use model.heads (12), or 0"},
        {"model.dim=100", ERR_INVALID,
         "model.dim (100) is not a multiple of model.heads (12)"},
        {"data.format=megatron", ERR_UNSUPPORTED,
         "data.format: \"megatron\" is not supported yet; use auto, text, u16 or llmc"},
        {"data.tokenizer=gpt2", ERR_UNSUPPORTED,
         "data.tokenizer: \"gpt2\" is not supported yet; use bytes"},
        {"data.format=text|model.vocab=255", ERR_INVALID,
         "model.vocab (255) is less than the 256 tokens of data.format=text with "
         "data.tokenizer=bytes"},
        {"train.seq_len=2048", ERR_INVALID,
         "train.seq_len (2048) is larger than model.context (1024)"},
        {"train.global_batch=10", ERR_INVALID,
         "train.global_batch (10) is not a multiple of train.micro_batch (4)"},
        {"train.leaves_in_place=2", ERR_UNSUPPORTED,
         "train.leaves_in_place: 2 is not supported yet; use 1"},
        {"optim.name=sgd", ERR_UNSUPPORTED,
         "optim.name: \"sgd\" is not supported yet; use adamw"},
        {"optim.lr=1e-5", ERR_INVALID,
         "optim.lr (1e-05) is below optim.min_lr (6e-05, which does not follow it): the "
         "rate would rise to the end; set optim.min_lr, too, to 1e-06 for instance, or "
         "optim.schedule=constant"},
        {"optim.lr=0.25|optim.min_lr=0.5|optim.schedule=linear", ERR_INVALID,
         "optim.lr (0.25) is below optim.min_lr (0.5, which does not follow it): the "
         "rate would rise to the end; set optim.min_lr, too, to 0.025 for instance, or "
         "optim.schedule=constant"},
        {"parallel.tp=2", ERR_UNSUPPORTED,
         "parallel.tp: 2 is not supported yet; use 1"},
        {"parallel.pp=2", ERR_UNSUPPORTED,
         "parallel.pp: 2 is not supported yet; use 1"},
        {"parallel.offload=true", ERR_UNSUPPORTED,
         "parallel.offload: \"true\" is not supported yet; use false: the CPU's own memory "
         "is the host's"},
        {"device.kind=cuda", ERR_UNSUPPORTED,
         "device.kind: \"cuda\" is not supported yet; use cpu or auto"},
        {"comm.kind=nccl", ERR_UNSUPPORTED,
         "comm.kind: \"nccl\" is not supported yet; use auto, shm or tcp"},
        {"checkpoint.keep_best=2", ERR_INVALID,
         "checkpoint.keep_best=2 needs a val_loss: set data.val, or keep_best to 0"},
        {"checkpoint.keep_best=2|data.val=x|eval.every=0", ERR_INVALID,
         "checkpoint.keep_best=2 needs a val_loss: set eval.every, or keep_best to 0"},
        {"checkpoint.keep=0|checkpoint.keep_every=5", ERR_INVALID,
         "checkpoint.keep=0 keeps all, so checkpoint.keep_every and keep_best choose "
         "nothing: set keep to 1 or more, or them to 0"},
        {"run.dir=", ERR_INVALID, "run.dir and checkpoint.dir must not be empty"},
        {"run.dir=a\x1b[2J", ERR_INVALID,
         "run.dir and checkpoint.dir must be paths without control characters"},
        {"checkpoint.dir=a\x7f", ERR_INVALID,
         "run.dir and checkpoint.dir must be paths without control characters"},
        {"run.name=a\nb", ERR_INVALID,
         "run.name must be a folder's name without '/' or control characters; run.dir "
         "says where it lies"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct errmsg msg = {0};
        char line[256];

        (void)snprintf(line, sizeof(line), "data.train=[x]|%s", cases[i].line);
        must_parse(line);
        assert_int_equal(config_check(&config_rig_options.config, &msg), cases[i].err);
        assert_string_equal(msg.text, cases[i].text);
    }
}

static void what_goes_together_passes_the_checks(void **state)
{
    static const char *const lines[] = {
        "data.train=[x]",
        "data.train=[x]|optim.lr=1e-5|optim.schedule=constant",
        "data.train=[x]|optim.lr=1e-5|optim.min_lr=1e-5",
        "data.train=[x]|optim.lr=0|optim.min_lr=0",
        "data.train=[x]|parallel.find_unused_parameters=true|parallel.static_graph=true",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        must_parse(lines[i]);
        assert_int_equal(config_check(&config_rig_options.config, NULL), 0);
    }
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, config_rig_open, config_rig_close)
    const struct CMUnitTest tests[] = {
        CASE(without_a_file_every_key_has_its_default),
        CASE(the_shipped_files_pass_the_checks),
        CASE(flags_are_known_in_every_spelling),
        CASE(wrong_flags_are_refused),
        CASE(the_key_decides_what_a_scalar_means),
        CASE(lists_are_yaml_or_one_text),
        CASE(kv_heads_follow_heads_unless_given),
        CASE(unknown_keys_name_their_place_and_the_nearest),
        CASE(far_names_are_not_called_nearest),
        CASE(the_names_of_a_section_are_whole),
        CASE(misspelt_sections_are_recognised),
        CASE(wrong_types_and_ranges_are_refused),
        CASE(an_interval_is_steps_a_time_or_auto),
        CASE(a_wrong_interval_is_refused),
        CASE(long_texts_and_lists_are_refused),
        CASE(checks_name_keys_values_and_remedies),
        CASE(what_goes_together_passes_the_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
