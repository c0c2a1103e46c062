#include "tests/lib/cmocka.h"
#include "tests/lib/tiny_checkpoint.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/verbs.h"

#include "common/mem.h"
#include "common/str.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUTPUT_MAX = 16384, ARGS_MAX = 8 };

#define SHARD_1 "shard-00001-model-00001-of-00001.safetensors"
#define SHARD_2 "shard-00002-model-00001-of-00001.safetensors"

struct fixture {
    char run[256]; /* of a run; its ckpt/ has the three checkpoints below */
    char dir[CHECKPOINT_PATH_MAX]; /* RUN/ckpt */
    char newest[CHECKPOINT_PATH_MAX];
    char out[OUTPUT_MAX];
    char err[OUTPUT_MAX];
    struct tiny tiny;
};

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    tiny_make_dir(f->run, sizeof(f->run));
    assert_true(str_format(f->dir, sizeof(f->dir), "%s/ckpt", f->run));
    tiny_init(&f->tiny, 0);
    tiny_commit(&f->tiny, f->dir, 900, 1, 1);
    tiny_commit(&f->tiny, f->dir, 10, 2, 2);
    tiny_commit(&f->tiny, f->dir, 20, 2, 3);
    checkpoint_path(f->newest, sizeof(f->newest), f->dir, 20, 2, false);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    tiny_release(&f->tiny);
    tiny_remove_dir(f->run);
    mem_free(f);
    return 0;
}

/* Points a stream at a fresh file; returns the stream's own descriptor, kept aside. */
static int divert(FILE *stream, const char *path)
{
    int keep;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    assert_true(fd >= 0);
    assert_int_equal(fflush(stream), 0);
    keep = dup(fileno(stream));
    assert_true(keep >= 0);
    assert_true(dup2(fd, fileno(stream)) >= 0);
    assert_int_equal(close(fd), 0);
    return keep;
}

static void restore(FILE *stream, int keep, const char *path, char *text)
{
    ssize_t n;
    int fd;

    assert_int_equal(fflush(stream), 0);
    assert_true(dup2(keep, fileno(stream)) >= 0);
    assert_int_equal(close(keep), 0);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = read(fd, text, OUTPUT_MAX - 1);
    assert_true(n >= 0);
    text[n] = '\0';
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
}

/* Runs "ckpt WORDS…" (NULL-terminated) and captures what it prints. */
static int run(struct fixture *f, const char *const *words)
{
    char *argv[ARGS_MAX + 2] = {mem_strdup("ckpt")};
    char out[512];
    char err[512];
    int keep_out;
    int keep_err;
    int argc = 1;
    int rv;

    for (; words[argc - 1]; argc++) {
        assert_true(argc <= ARGS_MAX);
        argv[argc] = mem_strdup(words[argc - 1]);
    }
    assert_true(str_format(out, sizeof(out), "%s/out", f->run));
    assert_true(str_format(err, sizeof(err), "%s/err", f->run));
    keep_out = divert(stdout, out);
    keep_err = divert(stderr, err);
    rv = ckpt_main(argc, argv);
    restore(stdout, keep_out, out, f->out);
    restore(stderr, keep_err, err, f->err);
    for (int i = 0; i < argc; i++) {
        mem_free(argv[i]);
    }
    return rv;
}

#define RUN(f, ...) run((f), (const char *const[]){__VA_ARGS__, NULL})

static json_t *parse(const struct fixture *f)
{
    json_error_t error;
    json_t *json = json_loads(f->out, JSON_REJECT_DUPLICATES, &error);

    if (!json) {
        fail_msg("%s in: %s", error.text, f->out);
    }
    return json;
}

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));

    return text ? text : "";
}

static json_int_t number_of(const json_t *json, const char *key)
{
    return json_integer_value(json_object_get(json, key));
}

static void flip(const char *dir, const char *name)
{
    char path[CHECKPOINT_PATH_MAX];
    int fd;

    assert_true(str_format(path, sizeof(path), "%s/%s", dir, name));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\xff", 1, 100), 1);
    assert_int_equal(close(fd), 0);
}

/* --- list --- */

static void list_shows_the_newest_first(void **state)
{
    struct fixture *f = *state;
    const char *first;
    const char *last;

    assert_int_equal(RUN(f, "list", f->dir), 0);
    first = strstr(f->out, "step-00000020-g2");
    last = strstr(f->out, "step-00000900-g1");
    assert_true(first && last && first < last);
    assert_int_equal(RUN(f, "list", f->run), 0); /* a run's directory does too */
    assert_non_null(strstr(f->out, "step-00000020-g2"));
}

static void list_gives_json(void **state)
{
    struct fixture *f = *state;
    json_t *json;
    json_t *first;

    flip(f->dir, "step-00000010-g2/manifest.json");
    assert_int_equal(RUN(f, "list", f->dir, "--json"), 1);
    json = parse(f);
    assert_int_equal(json_array_size(json), 3);
    first = json_array_get(json, 0);
    assert_string_equal(text_of(first, "name"), "step-00000020-g2");
    assert_int_equal(number_of(first, "step"), 20);
    assert_int_equal(number_of(first, "run_generation"), 2);
    assert_int_equal(number_of(first, "world_size"), 3);
    assert_int_equal(number_of(first, "position"), 640);
    assert_int_equal(number_of(first, "files"), 3);
    assert_true(json_real_value(json_object_get(first, "val_loss")) ==
                tiny_val_loss(20));
    assert_non_null(strstr(text_of(json_array_get(json, 1), "error"), "manifest.json"));
    json_decref(json);
}

static void list_of_an_empty_folder_says_so(void **state)
{
    struct fixture *f = *state;
    char empty[CHECKPOINT_PATH_MAX];

    assert_true(str_format(empty, sizeof(empty), "%s/empty", f->run));
    assert_int_equal(mkdir(empty, 0777), 0);
    assert_int_equal(RUN(f, "list", empty), 0);
    assert_non_null(strstr(f->out, "no checkpoint in"));
    assert_int_equal(RUN(f, "list", empty, "--json"), 0);
    assert_string_equal(f->out, "[]\n");
    assert_int_equal(RUN(f, "verify", empty), 1);
    assert_int_equal(RUN(f, "show", empty), 1);
}

/* --- verify --- */

static void verify_of_good_ones_is_0(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(RUN(f, "verify", f->newest), 0);
    assert_non_null(strstr(f->out, "step-00000020-g2: ok"));
    assert_int_equal(RUN(f, "verify", f->dir), 0);
    assert_non_null(strstr(f->out, "step-00000900-g1: ok"));
    assert_int_equal(RUN(f, "verify", f->run), 0);
}

static void verify_names_every_wrong_file(void **state)
{
    struct fixture *f = *state;
    json_t *json;
    json_t *one;

    flip(f->newest, SHARD_1);
    flip(f->newest, SHARD_2);
    assert_int_equal(RUN(f, "verify", f->newest), 1);
    assert_non_null(strstr(f->out, SHARD_1));
    assert_non_null(strstr(f->out, SHARD_2));
    assert_int_equal(RUN(f, "verify", f->dir), 1);
    assert_non_null(strstr(f->out, "step-00000010-g2: ok"));
    assert_int_equal(RUN(f, "verify", "--json", f->dir), 1);
    json = parse(f);
    assert_true(json_is_false(json_object_get(json, "ok")));
    one = json_array_get(json_object_get(json, "checkpoints"), 0);
    assert_true(json_is_false(json_object_get(one, "ok")));
    one = json_array_get(json_object_get(one, "problems"), 1);
    assert_string_equal(text_of(one, "file"), SHARD_2);
    json_decref(json);
}

static void verify_knows_a_checkpoint_that_lost_its_manifest(void **state)
{
    struct fixture *f = *state;
    char from[CHECKPOINT_PATH_MAX];
    char to[CHECKPOINT_PATH_MAX];

    assert_true(str_format(from, sizeof(from), "%s/manifest.json", f->newest));
    assert_int_equal(unlink(from), 0);
    assert_int_equal(RUN(f, "verify", f->newest), 1);
    assert_non_null(strstr(f->out, "manifest.json: missing"));
    assert_true(str_format(to, sizeof(to), "%s/best", f->run));
    assert_int_equal(rename(f->newest, to), 0); /* under any name */
    assert_int_equal(RUN(f, "verify", to), 1);
    assert_non_null(strstr(f->out, "manifest.json: missing"));
}

/* --- show --- */

static void show_has_step_and_state_hash_at_the_top(void **state)
{
    struct fixture *f = *state;
    char hash[CHECKPOINT_HASH_HEX];
    struct errmsg msg;
    json_t *json;
    json_t *tensor;

    assert_int_equal(checkpoint_state_hash(f->newest, hash, &msg), 0);
    assert_int_equal(RUN(f, "show", f->newest, "--json"), 0);
    json = parse(f);
    assert_int_equal(number_of(json, "step"), 20);
    assert_string_equal(text_of(json, "state_hash"), hash);
    assert_int_equal(number_of(json, "run_generation"), 2);
    assert_int_equal(number_of(json, "world_size"), 3);
    assert_int_equal(number_of(json_object_get(json, "mesh"), "dp_replicate"), 3);
    assert_true((float)json_real_value(json_object_get(json_object_get(json, "scaler"),
                                                       "scale")) == 1000.1F);
    assert_int_equal(number_of(json_object_get(json, "scaler"), "growth_tracker"), 1);
    assert_int_equal(number_of(json_object_get(json, "scaler"), "updates"), 18);
    assert_int_equal(number_of(json_object_get(json, "scaler"), "skipped"), 2);
    assert_int_equal(number_of(json, "seed"), -1);
    assert_string_equal(text_of(json_object_get(json, "model"), "family"), "gpt2");
    assert_string_equal(text_of(json_object_get(json, "config"), "model.dim"), "3");
    assert_int_equal(json_array_size(json_object_get(json, "files")), 3);
    assert_int_equal(json_array_size(json_object_get(json, "tensors")), TINY_TENSORS);
    tensor = json_array_get(json_object_get(json, "tensors"), 0);
    assert_string_equal(text_of(tensor, "name"), "h.0.ln_1.weight");
    assert_string_equal(text_of(tensor, "dtype"), "F32");
    json_decref(json);
    assert_int_equal(RUN(f, "show", f->run), 0); /* the newest; for people */
    assert_non_null(strstr(f->out,
                           "grad scaler     scale 1000.09998, growth tracker 1, "
                           "18 updates, 2 skipped\n"));
    assert_non_null(strstr(f->out, hash));
    assert_non_null(strstr(f->out, "step-00000020-g2"));
}

/* The last line of a terminal is the answer; a model's hundreds of tensors are asked
 * for. */
static void show_ends_with_the_state_hash(void **state)
{
    struct fixture *f = *state;
    char hash[CHECKPOINT_HASH_HEX];
    struct errmsg msg;
    const char *last;

    assert_int_equal(checkpoint_state_hash(f->newest, hash, &msg), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(RUN(f, "show", f->newest, i > 0 ? "--tensors" : NULL), 0);
        last = strstr(f->out, "\n  state_hash ");
        assert_non_null(last);
        assert_ptr_equal(strchr(last + 1, '\n'), f->out + strlen(f->out) - 1);
        assert_non_null(strstr(last, hash));
        assert_non_null(strstr(f->out, "\n  step            20\n"));
        assert_non_null(strstr(f->out, "ddp, dp_replicate=3 dp_shard=1"));
        assert_int_equal(strstr(f->out, "h.0.ln_1.weight") != NULL, i);
    }
    assert_int_equal(RUN(f, "list", f->dir, "--tensors"), 2);
}

static void show_refuses_damaged_ones(void **state)
{
    struct fixture *f = *state;

    flip(f->newest, SHARD_2);
    assert_int_equal(RUN(f, "show", f->newest, "--json"), 1);
    assert_string_equal(f->out, "");
    assert_non_null(strstr(f->err, SHARD_2));
}

/* --- prune --- */

static void prune_keeps_the_newest(void **state)
{
    struct fixture *f = *state;
    json_t *json;

    assert_int_equal(RUN(f, "prune", f->dir, "--keep", "2"), 0);
    assert_non_null(strstr(f->out, "deleted step-00000900-g1"));
    assert_int_equal(RUN(f, "prune", f->dir, "--keep=1", "--json"), 0);
    json = parse(f);
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(json, "deleted"), 0)),
        "step-00000010-g2");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(json, "kept"), 0)),
        "step-00000020-g2");
    json_decref(json);
    assert_int_equal(RUN(f, "verify", f->newest), 0);
}

/* The best of the three is 20, then 10, then 900. */
static void prune_keeps_every_nth_and_the_best_too(void **state)
{
    struct fixture *f = *state;

    tiny_commit(&f->tiny, f->dir, 30, 2, 1);
    assert_int_equal(
        RUN(f, "prune", f->dir, "--keep", "1", "--keep-every=900", "--keep-best", "2"),
        0);
    assert_string_equal(f->out, "deleted step-00000010-g2\nkept 3 of 4\n");
    assert_int_equal(RUN(f, "prune", f->dir, "--keep=1", "--keep-best=2"), 0);
    assert_string_equal(f->out, "deleted step-00000900-g1\nkept 2 of 3\n");
    assert_int_equal(RUN(f, "prune", f->dir, "--keep=1"), 0);
    assert_string_equal(f->out, "deleted step-00000020-g2\nkept 1 of 2\n");
}

static void prune_never_leaves_only_damaged_ones(void **state)
{
    struct fixture *f = *state;
    char older[CHECKPOINT_PATH_MAX];

    checkpoint_path(older, sizeof(older), f->dir, 10, 2, false);
    flip(f->newest, SHARD_1);
    assert_int_equal(RUN(f, "prune", f->dir, "--keep", "1"), 1);
    assert_string_equal(f->out, "");
    assert_non_null(strstr(f->err, "nothing deleted"));
    assert_int_equal(RUN(f, "verify", older), 0);
    assert_int_equal(RUN(f, "prune", f->dir, "--keep", "2"),
                     0); /* one of two is good */
    assert_int_equal(RUN(f, "verify", older), 0);
    flip(older, SHARD_1);
    assert_int_equal(RUN(f, "prune", f->dir, "--keep", "2"), 0); /* nothing to delete */
}

/* --- mistakes --- */

static void mistakes_are_one_line_and_exit_2(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][5] = {
        {"lst", "x", NULL},
        {"list", NULL},
        {"list", "a", "b", NULL},
        {"list", "--keep", "1", "x", NULL},
        {"verify", "--fast", "x", NULL},
        {"verify", "/nonexistent", NULL},
        {"show", "/nonexistent", NULL},
        {"prune", "x", NULL},
        {"prune", "x", "--keep", NULL},
        {"prune", "x", "--keep", "0", NULL},
        {"prune", "x", "--keep=-1", NULL},
        {"prune", "x", "--keep-best", "2", NULL},
        {"prune", "x", "--keep=1", "--keep-best=0", NULL},
        {"prune", "x", "--keep=1", "--keep-every", NULL},
        {"prune", "x", "--keep=1", "--keep-ever=2", NULL},
        {"export", "x", NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(run(f, cases[i]), 2);
        assert_string_equal(f->out, "");
        assert_ptr_equal(strchr(f->err, '\n'), f->err + strlen(f->err) - 1);
    }
    assert_int_equal(RUN(f, NULL), 2);
    assert_int_equal(RUN(f, "lst", "x"), 2);
    assert_non_null(strstr(f->err, "did you mean 'list'"));
    assert_int_equal(RUN(f, "export", "x", "--hf", "y"), 2);
    assert_non_null(strstr(f->err, "ckpt export is not there yet"));
    assert_int_equal(RUN(f, "list", f->newest), 2);
    assert_int_equal(RUN(f, "prune", f->newest, "--keep", "1"), 2);
}

static void help_goes_to_stdout(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(RUN(f, "--help"), 0);
    assert_non_null(strstr(f->out, "prune DIR --keep N"));
    assert_int_equal(RUN(f, "list", "--help"), 0);
    assert_non_null(strstr(f->out, "usage:"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(list_shows_the_newest_first),
        CASE(list_gives_json),
        CASE(list_of_an_empty_folder_says_so),
        CASE(verify_of_good_ones_is_0),
        CASE(verify_names_every_wrong_file),
        CASE(verify_knows_a_checkpoint_that_lost_its_manifest),
        CASE(show_has_step_and_state_hash_at_the_top),
        CASE(show_ends_with_the_state_hash),
        CASE(show_refuses_damaged_ones),
        CASE(prune_keeps_the_newest),
        CASE(prune_keeps_every_nth_and_the_best_too),
        CASE(prune_never_leaves_only_damaged_ones),
        CASE(mistakes_are_one_line_and_exit_2),
        CASE(help_goes_to_stdout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
