/* A run's directory: opening, the token, files in it; test_run_lock.c has the lock. */

#include "tests/lib/cmocka.h"
#include "tests/lib/run_dir_rig.h"

#include "common/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void the_directory_is_made_locked_and_claimed(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;
    struct stat st;
    char *token;

    (void)snprintf(f->dir, sizeof(f->dir), "%s",
                   scratch_path(&f->scratch, "run/deep/down/"));
    assert_int_equal(run_dir_rig_open(f, "j", &r), 0);
    assert_true(r.lock.is_held);
    assert_string_equal(r.path, scratch_path(&f->scratch, "run/deep/down"));
    assert_string_equal(r.log, scratch_path(&f->scratch, "run/deep/down/log/1"));
    assert_int_equal(stat(r.log, &st), 0);
    token = scratch_read(&f->scratch, "run/deep/down/log/1/.token");
    assert_string_equal(token, r.token);
    assert_int_equal(strlen(token), 32);
    free(token);
    run_dir_close(&r);
}

static void the_lock_names_cluster_job_and_process(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;

    (void)scratch_text(&f->scratch, "run/.lock",
                       "a text of more bytes than the one that comes, of a run that "
                       "ended long ago and far away\nand of more lines, too\n");
    assert_int_equal(run_dir_rig_open(f, "j", &r), 0);
    assert_true(run_dir_rig_is_lock_of(f, "cluster 0000000000000007 job j", getpid()));
    run_dir_close(&r);
    assert_int_equal(run_dir_rig_open(f, "", &r), 0);
    assert_true(run_dir_rig_is_lock_of(f, "one process", getpid()));
    run_dir_close(&r);
}

static void the_generation_is_above_all_found_and_at_least_the_jobs(void **state)
{
    static const struct {
        const char *found; /* in log/ */
        uint64_t at_least;
        int claimed;
    } cases[] = {
        {"run/log/3/x", 0, 4},
        {"run/log/notes/x", 0, 5},
        {"run/log/9x/x", 6, 6},
        {"run/log/20/x", 7, 21},
        {"run/log/-40/x", 21, 22},
        {"run/log/0050/x", 0, 51},
        {"run/log/51/y", 100, 100},
        {"run/log/99999999999/x", 0, 101}, /* not one of ours */
    };
    struct run_dir_rig *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct run_dir_owner owner = run_dir_rig_owner("j");
        struct run_dir r;

        (void)scratch_text(&f->scratch, cases[i].found, "");
        assert_int_equal(run_dir_open(f->dir, &owner, &r, &f->msg), 0);
        assert_int_equal(run_dir_claim(&r, cases[i].at_least, &f->msg), 0);
        assert_int_equal(r.run_generation, cases[i].claimed);
        run_dir_close(&r);
    }
}

/* A path of `len` bytes below the scratch folder. */
static void starts_before_this_one_are_counted(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(run_dir_rig_open(f, "j", &r), 0);
        run_dir_close(&r);
    }
    assert_int_equal(mkdir(scratch_path(&f->scratch, "run/log/7"), 0777), 0);
    assert_int_equal(mkdir(scratch_path(&f->scratch, "run/log/notes"), 0777), 0);
    assert_int_equal(run_dir_rig_open(f, "j", &r), 0);
    assert_int_equal(r.run_generation, 8);
    assert_int_equal(run_dir_starts(&r, 1), 4);
    assert_int_equal(run_dir_starts(&r, 3), 2);
    assert_int_equal(run_dir_starts(&r, 8), 0);
    run_dir_close(&r);
}

static void make_long(const struct run_dir_rig *f, char *path, size_t len)
{
    size_t begin = strlen(f->dir);

    memcpy(path, f->dir, begin);
    for (size_t i = begin; i < len; i++) {
        path[i] = i % 100 == 0 ? '/' : 'x';
    }
    path[len] = '\0';
}

static void too_long_a_path_is_refused(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir_owner owner = run_dir_rig_owner("j");
    struct run_dir r;
    char path[RUN_DIR_PATH_MAX + 1];

    make_long(f, path, RUN_DIR_PATH_MAX);
    assert_int_equal(run_dir_open(path, &owner, &r, &f->msg), ERR_TOO_LARGE);
    assert_non_null(strstr(f->msg.text, "run.dir is longer than 1023 bytes"));
    path[RUN_DIR_PATH_MAX - 2] = '\0'; /* fits, but nothing below it does */
    assert_int_equal(run_dir_open(path, &owner, &r, &f->msg), ERR_TOO_LARGE);
    assert_non_null(strstr(f->msg.text, "the path is too long: /"));
    assert_false(r.lock.is_open);
}

static void a_long_path_that_fits_serves_every_rank(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir_owner owner = run_dir_rig_owner("j");
    struct run_dir leader;
    struct run_dir r;
    char path[RUN_DIR_PATH_MAX];

    make_long(f, path, RUN_DIR_PATH_MAX - 1 - strlen("/log/1/.token"));
    assert_int_equal(run_dir_open(path, &owner, &leader, &f->msg), 0);
    assert_int_equal(run_dir_claim(&leader, 1, &f->msg), 0);
    assert_int_equal(run_dir_join(path, 1, leader.token, &r, &f->msg), 0);
    assert_string_equal(r.log, leader.log);
    assert_int_equal(run_dir_write(&leader, "1234567.y", "text", &f->msg),
                     ERR_TOO_LARGE); /* its temporary would not fit */
    assert_non_null(strstr(f->msg.text, "the path is too long"));
    assert_int_equal(run_dir_write(&leader, "123456.y", "text", &f->msg), 0);
    run_dir_close(&leader);
}

static void what_cannot_be_opened_is_named(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;

    (void)scratch_text(&f->scratch, "run", "a file");
    assert_int_equal(run_dir_rig_open(f, "j", &r), ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "/run is a file"));
    (void)snprintf(f->dir, sizeof(f->dir), "%s",
                   scratch_path(&f->scratch, "run/deep/down"));
    assert_int_equal(run_dir_rig_open(f, "j", &r), ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "/run/deep/down is a file, or lies in one"));
    (void)snprintf(f->dir, sizeof(f->dir), "%s", scratch_path(&f->scratch, "run"));
    assert_int_equal(unlink(f->dir), 0);
    assert_int_equal(mkdir(f->dir, 0777), 0);
    (void)scratch_text(&f->scratch, "run/log", "a file");
    assert_int_equal(run_dir_rig_open(f, "j", &r), -ENOTDIR);
    assert_non_null(strstr(f->msg.text, "run/log"));
    assert_false(r.lock.is_open);
}

static void a_rank_that_sees_the_token_joins(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir leader;
    struct run_dir r;

    assert_int_equal(run_dir_rig_open(f, "a", &leader), 0);
    assert_int_equal(run_dir_join(f->dir, 1, leader.token, &r, &f->msg), 0);
    assert_string_equal(r.path, leader.path);
    assert_string_equal(r.log, leader.log);
    assert_string_equal(r.token, leader.token);
    assert_int_equal(r.run_generation, 1);
    assert_false(r.lock.is_open);
    run_dir_close(&r);
    run_dir_close(&leader);
}

static void a_rank_that_does_not_see_the_token_is_told_what_to_do(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir leader;
    struct run_dir r;

    assert_int_equal(run_dir_rig_open(f, "a", &leader), 0);
    assert_int_equal(run_dir_join(f->dir, 2, leader.token, &r, &f->msg), ERR_MISSING);
    leader.token[31] = leader.token[31] == '0' ? '1' : '0';
    assert_int_equal(run_dir_join(f->dir, 1, leader.token, &r, &f->msg), ERR_MISSING);
    assert_int_equal(run_dir_join("/nonexistent", 1, "", &r, &f->msg), ERR_MISSING);
    assert_non_null(strstr(f->msg.text, "/nonexistent: run.dir must be on one file "
                                        "system that all nodes share"));
    run_dir_close(&leader);
}

static void a_written_file_replaces_the_old_one_whole(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;
    char seen[8] = "";
    char *text;
    int reader;

    assert_int_equal(run_dir_rig_open(f, "a", &r), 0);
    assert_int_equal(run_dir_write(&r, "x", "before", &f->msg), 0);
    reader = open(scratch_path(&f->scratch, "run/x"), O_RDONLY | O_CLOEXEC);
    assert_true(reader >= 0);
    assert_int_equal(run_dir_write(&r, "x", "now\n", &f->msg), 0);
    assert_int_equal(read(reader, seen, sizeof(seen)), 6); /* it was in its hands */
    assert_string_equal(seen, "before");
    assert_int_equal(close(reader), 0);
    text = scratch_read(&f->scratch, "run/x");
    assert_string_equal(text, "now\n");
    free(text);
    assert_null(scratch_read(&f->scratch, "run/x.tmp"));
    run_dir_close(&r);
}

static void a_file_that_cannot_be_written_is_named(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;

    assert_int_equal(run_dir_rig_open(f, "a", &r), 0);
    assert_int_equal(mkdir(scratch_path(&f->scratch, "run/x"), 0777), 0);
    assert_int_equal(run_dir_write(&r, "x", "text", &f->msg), -EISDIR);
    assert_non_null(strstr(f->msg.text, "run/x.tmp"));
    assert_null(scratch_read(&f->scratch, "run/x.tmp"));
    assert_int_equal(run_dir_write(&r, "no/x", "text", &f->msg), -ENOENT);
    run_dir_close(&r);
}

#ifdef FAULTS

static void a_full_disk_leaves_the_old_file(void **state)
{
    static const char *const points[] = {"storage.write", "storage.fsync"};
    struct run_dir_rig *f = *state;
    struct run_dir r;

    assert_int_equal(run_dir_rig_open(f, "a", &r), 0);
    assert_int_equal(run_dir_write(&r, "x", "before", &f->msg), 0);
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        char *text;

        fault_arm(points[i], 1, -ENOSPC);
        assert_int_equal(run_dir_write(&r, "x", "now", &f->msg), -ENOSPC);
        fault_disarm_all();
        text = scratch_read(&f->scratch, "run/x");
        assert_string_equal(text, "before");
        free(text);
        assert_null(scratch_read(&f->scratch, "run/x.tmp"));
    }
    run_dir_close(&r);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_DIR_CASE(the_directory_is_made_locked_and_claimed),
        RUN_DIR_CASE(the_lock_names_cluster_job_and_process),
        RUN_DIR_CASE(the_generation_is_above_all_found_and_at_least_the_jobs),
        RUN_DIR_CASE(starts_before_this_one_are_counted),
        RUN_DIR_CASE(too_long_a_path_is_refused),
        RUN_DIR_CASE(a_long_path_that_fits_serves_every_rank),
        RUN_DIR_CASE(what_cannot_be_opened_is_named),
        RUN_DIR_CASE(a_rank_that_sees_the_token_joins),
        RUN_DIR_CASE(a_rank_that_does_not_see_the_token_is_told_what_to_do),
        RUN_DIR_CASE(a_written_file_replaces_the_old_one_whole),
        RUN_DIR_CASE(a_file_that_cannot_be_written_is_named),
#ifdef FAULTS
        RUN_DIR_CASE(a_full_disk_leaves_the_old_file),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
