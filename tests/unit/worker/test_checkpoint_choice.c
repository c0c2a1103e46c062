/* Which checkpoints count, which one is taken, and what is cleared away. */

#include "tests/lib/checkpoint_rig.h"
#include "tests/lib/cmocka.h"

#include "common/fault.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- committing and choosing --- */

static void a_commit_may_be_repeated_but_not_invented(void **state)
{
    struct checkpoint_rig *f = *state;

    assert_int_equal(tiny_write(&f->tiny, f->dir, 7, 2, 2, &f->msg), 0);
    assert_int_equal(checkpoint_commit(f->dir, 7, 2, &f->msg), 0);
    assert_int_equal(checkpoint_commit(f->dir, 7, 2, &f->msg), 0);
    assert_false(checkpoint_rig_has(f, "step-00000007-g2.tmp"));
    assert_int_equal(checkpoint_commit(f->dir, 8, 2, &f->msg), -ENOENT);
}

static void only_exact_names_are_committed(void **state)
{
    static const char *const wrong[] = {"step-00000001-g1.tmp",    "step-1-g1",
                                        "step-000000001-g1",       "step-00000001-g01",
                                        "step-00000001-g0",        "step-00000001-g",
                                        "step-00000001",           "step-+0000001-g1",
                                        "step-00000001-g1x",       "step--0000001-g1",
                                        "trash-step-00000001-g1.0"};
    struct checkpoint_rig *f = *state;
    struct checkpoint_entry *entry;
    size_t n;

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        checkpoint_rig_make_dir(f, wrong[i]);
    }
    checkpoint_rig_touch(f, "step-00000009-g9"); /* no directory */
    checkpoint_rig_make_dir(f, "step-123456789-g1");
    checkpoint_rig_make_dir(f, "step-00000900-g1");
    checkpoint_rig_make_dir(f, "step-00000005-g2");
    assert_int_equal(checkpoint_list(f->dir, &entry, &n, &f->msg), 0);
    assert_int_equal(n, 3);
    assert_int_equal(entry[0].run_generation, 2); /* before any step */
    assert_int_equal(entry[0].step, 5);
    assert_int_equal(entry[1].step, 123456789);
    assert_int_equal(entry[2].step, 900);
    mem_free(entry);
}

static void a_missing_folder_is_an_empty_one(void **state)
{
    struct checkpoint_rig *f = *state;
    struct checkpoint_entry *entry;
    size_t n = 1;

    assert_int_equal(checkpoint_list("/nonexistent/ckpt", &entry, &n, &f->msg), 0);
    assert_int_equal(n, 0);
    mem_free(entry);
    assert_int_equal(checkpoint_sweep("/nonexistent/ckpt", 0, &f->msg), 0);
    assert_int_equal(checkpoint_prune("/nonexistent/ckpt",
                                      &(struct checkpoint_retention){.keep = 1},
                                      &f->msg),
                     0);
}

struct rejections {
    char line[4][512];
    int n;
};

static void on_rejected(void *arg, const char *line)
{
    struct rejections *r = arg;

    if (r->n < (int)ARRAY_LEN(r->line)) {
        (void)snprintf(r->line[r->n], sizeof(r->line[0]), "%s", line);
    }
    r->n++;
}

static void loading_falls_back_to_the_newest_that_verifies_and_says_so(void **state)
{
    struct checkpoint_rig *f = *state;
    struct rejections r = {.n = 0};
    float data[64];
    struct cut cut = cut_of_box(&f->tiny.whole[0]);
    const struct checkpoint_search search = {.dir = f->dir,
                                             .cuts = &cut,
                                             .n_cuts = 1,
                                             .on_rejected = on_rejected,
                                             .arg = &r};
    struct checkpoint_entry entry;
    struct checkpoint_meta meta;

    cut.data = data;
    tiny_commit(&f->tiny, f->dir, 900, 1, 2);
    tiny_commit(&f->tiny, f->dir, 10, 2, 2);
    tiny_commit(&f->tiny, f->dir, 20, 2, 2);
    tiny_commit(&f->tiny, f->dir, 30, 2, 2);
    checkpoint_rig_damage(checkpoint_rig_path(f, 30, 2),
                          "shard-00002-model-00001-of-00001.safetensors");
    checkpoint_rig_damage(checkpoint_rig_path(f, 20, 2), "manifest.json");
    assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg), 0);
    assert_int_equal(entry.step, 10);
    assert_int_equal(entry.run_generation, 2);
    assert_int_equal(meta.step, 10);
    checkpoint_meta_release(&meta);
    assert_memory_equal(data, f->tiny.whole[0].data, cut.n * sizeof(float));
    assert_int_equal(r.n, 2);
    assert_non_null(strstr(r.line[0], "step-00000030-g2"));
    assert_non_null(strstr(r.line[0], "shard-00002-model-00001-of-00001.safetensors"));
    assert_non_null(strstr(r.line[1], "step-00000020-g2"));
    assert_non_null(strstr(r.line[1], "manifest.json"));
    assert_null(strchr(r.line[0], '\n'));
}

static void without_a_good_checkpoint_there_is_none(void **state)
{
    struct checkpoint_rig *f = *state;
    struct rejections r = {.n = 0};
    const struct checkpoint_search search = {
        .dir = f->dir, .on_rejected = on_rejected, .arg = &r};
    struct checkpoint_entry entry;
    struct checkpoint_meta meta;

    assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg), ERR_MISSING);
    tiny_commit(&f->tiny, f->dir, 1, 1, 1);
    checkpoint_rig_damage(checkpoint_rig_path(f, 1, 1), "manifest.json");
    assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg), ERR_MISSING);
    assert_int_equal(r.n, 1);
}

#ifdef FAULTS

/* It may be good: an older one in its place would make it the next to be pruned. */
static void what_cannot_be_read_now_is_not_rejected(void **state)
{
    static const int errors[] = {-EMFILE, -ENOMEM, -EACCES, -ESTALE, -EIO, -EAGAIN};
    struct checkpoint_rig *f = *state;
    struct rejections r = {.n = 0};
    float data[64];
    struct cut cut = cut_of_box(&f->tiny.whole[0]);
    const struct checkpoint_search search = {.dir = f->dir,
                                             .cuts = &cut,
                                             .n_cuts = 1,
                                             .on_rejected = on_rejected,
                                             .arg = &r};
    struct checkpoint_entry entry;
    struct checkpoint_meta meta = {0};

    cut.data = data;
    tiny_commit(&f->tiny, f->dir, 10, 1, 2);
    tiny_commit(&f->tiny, f->dir, 20, 1, 2);
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        fault_arm("ckpt.read", 2, errors[i]);
        assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg), errors[i]);
        assert_non_null(strstr(f->msg.text, "step-00000020-g1: shard-00002-"));
        fault_disarm_all();
        /* manifest, tables for the plan, files, tables again */
        for (unsigned n = 1; n <= 7; n++) {
            fault_arm("ckpt.open_read", n, errors[i]);
            assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg),
                             errors[i]);
            assert_null(meta.model_json);
            fault_disarm_all();
        }
    }
    checkpoint_rig_damage(checkpoint_rig_path(f, 20, 1),
                          "shard-00001-model-00001-of-00001.safetensors");
    fault_arm("ckpt.read", 2, -EIO); /* the other one: it is damaged all the same */
    assert_int_equal(r.n, 0);
    assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg), 0);
    fault_disarm_all();
    assert_int_equal(entry.step, 10);
    assert_int_equal(r.n, 1);
    checkpoint_meta_release(&meta);
}

#endif

/* --- housekeeping --- */

static int prune(struct checkpoint_rig *f, size_t keep)
{
    return checkpoint_prune(f->dir, &(struct checkpoint_retention){.keep = keep},
                            &f->msg);
}

static void pruning_keeps_the_newest_by_generation_then_step(void **state)
{
    struct checkpoint_rig *f = *state;

    tiny_commit(&f->tiny, f->dir, 900, 1, 1); /* a left-over with a higher number */
    tiny_commit(&f->tiny, f->dir, 10, 2, 1);
    tiny_commit(&f->tiny, f->dir, 20, 2, 1);
    assert_int_equal(prune(f, 0), 0);
    assert_true(checkpoint_rig_has(f, "step-00000900-g1"));
    assert_int_equal(prune(f, 2), 0);
    assert_false(checkpoint_rig_has(f, "step-00000900-g1"));
    assert_true(checkpoint_rig_has(f, "step-00000010-g2"));
    assert_int_equal(prune(f, 1), 0);
    assert_false(checkpoint_rig_has(f, "step-00000010-g2"));
    assert_true(checkpoint_rig_has(f, "step-00000020-g2"));
    assert_int_equal(checkpoint_verify(checkpoint_rig_path(f, 20, 2), NULL, &f->msg),
                     0);
}

static void pruning_keeps_every_nth_and_the_best_too(void **state)
{
    static const struct checkpoint_retention retention = {
        .keep = 1, .keep_every = 50, .keep_best = 2};
    static const char *const kept[] = {"step-00000020-g2", "step-00000030-g2",
                                       "step-00000050-g2", "step-00000060-g2"};
    static const char *const gone[] = {"step-00000010-g2", "step-00000040-g2"};
    struct checkpoint_rig *f = *state;

    for (uint64_t step = 10; step <= 60; step += 10) {
        tiny_commit(&f->tiny, f->dir, step, 2, 1);
    }
    assert_int_equal(checkpoint_prune(f->dir, &retention, &f->msg), 0);
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        assert_true(checkpoint_rig_has(f, kept[i]));
    }
    for (size_t i = 0; i < ARRAY_LEN(gone); i++) {
        assert_false(checkpoint_rig_has(f, gone[i]));
    }
}

/* By time, or put off while another was written, checkpoints miss the exact steps. */
static void one_stays_of_every_n_steps_whatever_their_numbers(void **state)
{
    static const struct checkpoint_retention retention = {.keep = 1, .keep_every = 10};
    static const struct {
        uint64_t step;
        int run_generation;
    } made[] = {{3, 1}, {9, 1}, {12, 1}, {17, 1}, {31, 1}, {38, 1}, {31, 2}, {39, 2}};
    static const char *const kept[] = {"step-00000012-g1", "step-00000031-g2",
                                       "step-00000039-g2"};
    struct checkpoint_rig *f = *state;
    struct checkpoint_entry *entry = NULL;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(made); i++) { /* as in training: after each one */
        tiny_commit(&f->tiny, f->dir, made[i].step, made[i].run_generation, 1);
        assert_int_equal(checkpoint_prune(f->dir, &retention, &f->msg), 0);
    }
    assert_int_equal(checkpoint_list(f->dir, &entry, &n, &f->msg), 0);
    mem_free(entry);
    assert_int_equal(n, ARRAY_LEN(kept));
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        assert_true(checkpoint_rig_has(f, kept[i]));
    }
}

static void the_sweep_removes_what_crashes_left_and_nothing_else(void **state)
{
    static const char *const gone[] = {"step-00000009-g1.tmp", "step-00000009-g2.tmp",
                                       "trash-step-00000001-g1.0", "step-9-g1.tmp",
                                       "step-00000009-g03.tmp"};
    static const char *const kept[] = {
        "step-1000",         /* of another framework */
        "step-9-g1",         /* nearly ours */
        "step-00000009-g03", /* the same */
        "step-00001000-g3.bak",
        "data.tmp",
        "step-",
        ".tmp",
        "a-step-1.tmp",
    };
    struct checkpoint_rig *f = *state;

    tiny_commit(&f->tiny, f->dir, 5, 1, 1);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 1, 2, &f->msg), 0);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 2, 2, &f->msg), 0);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 3, 2, &f->msg), 0);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 4, 2, &f->msg), 0);
    checkpoint_rig_make_dir(f, "trash-step-00000001-g1.0");
    checkpoint_rig_touch(f, "trash-step-00000001-g1.0/shard");
    checkpoint_rig_make_dir(f, "step-9-g1.tmp");
    checkpoint_rig_make_dir(f, "step-00000009-g03.tmp");
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        checkpoint_rig_make_dir(f, kept[i]);
    }
    checkpoint_rig_touch(f, "data.tmp/shard");
    checkpoint_rig_touch(f, "notes.txt");
    checkpoint_rig_touch(f, ".lock");
    assert_int_equal(checkpoint_sweep(f->dir, 3, &f->msg), 0);
    for (size_t i = 0; i < ARRAY_LEN(gone); i++) {
        assert_false(checkpoint_rig_has(f, gone[i]));
    }
    assert_true(checkpoint_rig_has(f, "step-00000009-g3.tmp"));
    assert_true(checkpoint_rig_has(f, "step-00000009-g4.tmp")); /* a successor's */
    assert_true(checkpoint_rig_has(f, "notes.txt"));
    assert_true(checkpoint_rig_has(f, ".lock"));
    assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 0);
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        assert_true(checkpoint_rig_has(f, kept[i]));
    }
    assert_true(checkpoint_rig_has(f, "data.tmp/shard"));
    assert_false(checkpoint_rig_has(f, "step-00000009-g3.tmp"));
    assert_int_equal(checkpoint_verify(checkpoint_rig_path(f, 5, 1), NULL, &f->msg), 0);
    assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 0);
}

static void the_sweep_takes_folders_whole_and_goes_on_where_it_cannot(void **state)
{
    struct checkpoint_rig *f = *state;
    char path[CHECKPOINT_PATH_MAX];
    char link[CHECKPOINT_PATH_MAX];

    tiny_commit(&f->tiny, f->dir, 5, 1, 1);
    checkpoint_rig_make_dir(f, "trash-z");
    checkpoint_rig_make_dir(f, "trash-z/a");
    checkpoint_rig_make_dir(f, "trash-z/a/b");
    checkpoint_rig_make_dir(f, "trash-z/a/b/c");
    checkpoint_rig_touch(f, "trash-z/a/b/c/d");
    assert_true(str_format(link, sizeof(link), "%s/trash-z/a/link", f->dir));
    assert_int_equal(symlink(checkpoint_rig_path(f, 5, 1), link), 0);
    checkpoint_rig_make_dir(f, "step-9-deep.tmp");
    assert_true(str_format(path, sizeof(path), "%s/step-9-deep.tmp", f->dir));
    for (int i = 0; i < 40; i++) {
        size_t len = strlen(path);

        assert_true(str_format(path + len, sizeof(path) - len, "/d"));
        assert_int_equal(mkdir(path, 0777), 0);
    }
    checkpoint_rig_touch(f, "step-z.tmp");
    assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 1);
    assert_non_null(strstr(f->msg.text, "/d: Directory not empty"));
    assert_false(checkpoint_rig_has(f, "trash-z"));
    assert_false(checkpoint_rig_has(f, "step-z.tmp"));
    assert_int_equal(checkpoint_verify(checkpoint_rig_path(f, 5, 1), NULL, &f->msg), 0);
    assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 1); /* nor the next time */
}

static void discarding_takes_the_own_temporary_alone(void **state)
{
    struct checkpoint_rig *f = *state;

    tiny_commit(&f->tiny, f->dir, 8, 1, 2);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 1, 2, &f->msg), 0);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 2, 2, &f->msg), 0);
    assert_int_equal(checkpoint_discard(f->dir, 9, 1, &f->msg), 0);
    assert_false(checkpoint_rig_has(f, "step-00000009-g1.tmp"));
    assert_true(checkpoint_rig_has(f, "step-00000009-g2.tmp"));
    assert_int_equal(checkpoint_discard(f->dir, 9, 1, &f->msg), 0);
    assert_int_equal(checkpoint_discard(f->dir, 8, 1, &f->msg), 0); /* committed */
    assert_int_equal(checkpoint_verify(checkpoint_rig_path(f, 8, 1), NULL, &f->msg), 0);
}

static void a_link_to_elsewhere_is_never_followed(void **state)
{
    struct checkpoint_rig *f = *state;
    char link[CHECKPOINT_PATH_MAX];

    tiny_commit(&f->tiny, f->dir, 5, 1, 1);
    assert_true(str_format(link, sizeof(link), "%s/step-00000006-g1.tmp", f->dir));
    assert_int_equal(symlink(checkpoint_rig_path(f, 5, 1), link), 0);
    assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 0);
    assert_false(checkpoint_rig_has(f, "step-00000006-g1.tmp"));
    assert_int_equal(checkpoint_verify(checkpoint_rig_path(f, 5, 1), NULL, &f->msg), 0);
}

static void a_zombies_commit_after_the_sweep_meets_enoent(void **state)
{
    struct checkpoint_rig *f = *state;

    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 1, 2, &f->msg), 0);
    assert_int_equal(checkpoint_sweep(f->dir, 2, &f->msg), 0);
    assert_int_equal(checkpoint_commit(f->dir, 9, 1, &f->msg), -ENOENT);
}

#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, checkpoint_rig_setup, checkpoint_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_commit_may_be_repeated_but_not_invented),
        CASE(only_exact_names_are_committed),
        CASE(a_missing_folder_is_an_empty_one),
        CASE(loading_falls_back_to_the_newest_that_verifies_and_says_so),
        CASE(without_a_good_checkpoint_there_is_none),
#ifdef FAULTS
        CASE(what_cannot_be_read_now_is_not_rejected),
#endif
        CASE(pruning_keeps_the_newest_by_generation_then_step),
        CASE(pruning_keeps_every_nth_and_the_best_too),
        CASE(one_stays_of_every_n_steps_whatever_their_numbers),
        CASE(the_sweep_removes_what_crashes_left_and_nothing_else),
        CASE(the_sweep_takes_folders_whole_and_goes_on_where_it_cannot),
        CASE(discarding_takes_the_own_temporary_alone),
        CASE(a_link_to_elsewhere_is_never_followed),
        CASE(a_zombies_commit_after_the_sweep_meets_enoent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
