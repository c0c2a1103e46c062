/* The lock of a run's directory, and whose it is. */

#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/run_dir_rig.h"

#include "common/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GENEROUS_MS = 60000 };

/* A rank 0 that has the lock and was stopped: it may neither go on nor let go. */
static pid_t start_stopped(struct run_dir_rig *f, const char *name)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct run_dir r;

        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        CHECK(run_dir_rig_open(f, name, &r) == 0 && r.lock.is_held);
        (void)raise(SIGSTOP);
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    return pid;
}

static void reap(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void kill_stopped(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    reap(pid);
}

static void a_foreign_holder_is_named_in_the_error(void **state)
{
    static const char *const others[] = {"b", "a", "abc", ""};
    struct run_dir_rig *f = *state;
    struct run_dir_owner elsewhere = run_dir_rig_owner("ab");
    struct run_dir r;
    char named[64];
    pid_t pid = start_stopped(f, "ab");

    (void)snprintf(named, sizeof(named), "job ab pid %ld on ", (long)pid);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_int_equal(run_dir_rig_open(f, others[i], &r), ERR_BUSY);
        assert_non_null(strstr(f->msg.text, named));
        assert_non_null(strstr(f->msg.text, f->dir));
        assert_false(r.lock.is_open);
    }
    elsewhere.cluster = 8;
    assert_int_equal(run_dir_open(f->dir, &elsewhere, &r, &f->msg), ERR_BUSY);
    kill_stopped(pid);
}

static void two_processes_without_a_launcher_are_foreign(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;
    pid_t pid = start_stopped(f, "");

    assert_int_equal(run_dir_rig_open(f, "", &r), ERR_BUSY);
    assert_non_null(strstr(f->msg.text, "in use by one process pid "));
    kill_stopped(pid);
}

static void a_foreign_holder_is_waited_for(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir_owner owner = run_dir_rig_owner("b");
    struct run_dir r;
    pid_t holder = start_stopped(f, "a");
    pid_t killer = fork();
    int status;

    if (killer == 0) {
        _exit(kill(holder, SIGKILL) == 0 ? 0
                                         : 1); /* before or while it is waited for */
    }
    assert_true(killer > 0);
    owner.lock_wait_ms = GENEROUS_MS;
    assert_int_equal(run_dir_open(f->dir, &owner, &r, &f->msg), 0);
    assert_true(r.lock.is_held);
    run_dir_close(&r);
    assert_int_equal(waitpid(killer, &status, 0), killer);
    assert_int_equal(status, 0);
    reap(holder);
}

static void
a_fenced_rank_0_of_the_job_is_no_obstacle_and_its_lock_passes_on(void **state)
{
    const char *const begin = "cluster 0000000000000007 job a";
    struct run_dir_rig *f = *state;
    struct run_dir foreign;
    struct run_dir r;
    pid_t fenced = start_stopped(f, "a");

    assert_int_equal(run_dir_rig_open(f, "a", &r), 0);
    assert_false(r.lock.is_held);
    assert_int_equal(r.run_generation, 2);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    assert_false(r.lock.is_held);
    assert_true(run_dir_rig_is_lock_of(f, begin, fenced));

    kill_stopped(fenced);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    assert_true(r.lock.is_held);
    assert_true(run_dir_rig_is_lock_of(f, begin, getpid()));
    assert_int_equal(run_dir_rig_open(f, "b", &foreign), ERR_BUSY);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    run_dir_close(&r);
    assert_int_equal(run_dir_rig_open(f, "b", &foreign), 0);
    run_dir_close(&foreign);
}

static void a_foreign_run_that_took_the_lock_meanwhile_keeps_it(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;
    pid_t fenced = start_stopped(f, "a");
    pid_t foreign;

    assert_int_equal(run_dir_rig_open(f, "a", &r), 0);
    kill_stopped(fenced);
    foreign = start_stopped(f, "b");
    assert_int_equal(run_dir_hold(&r, &f->msg), ERR_BUSY);
    assert_non_null(strstr(f->msg.text, "job b pid "));
    assert_false(r.lock.is_held);
    kill_stopped(foreign);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    assert_true(r.lock.is_held);
    run_dir_close(&r);
}

/* Two runs, one folder of checkpoints outside both. */
static void a_checkpoint_folder_elsewhere_is_locked_too(void **state)
{
    struct run_dir_rig *f = *state;
    char ckpt[160];
    char path[160];
    struct run_dir_owner owner = {.cluster = 7, .job = "a", .checkpoint_dir = ckpt};
    struct run_dir first;
    struct run_dir r;

    (void)snprintf(ckpt, sizeof(ckpt), "%s", scratch_path(&f->scratch, "deep/ckpt/"));
    (void)snprintf(path, sizeof(path), "%s", scratch_path(&f->scratch, "other"));
    assert_int_equal(run_dir_open(f->dir, &owner, &first, &f->msg), 0);
    assert_true(first.checkpoint_lock.is_held);
    owner.job = "b";
    assert_int_equal(run_dir_open(path, &owner, &r, &f->msg), ERR_BUSY);
    assert_non_null(strstr(f->msg.text, "checkpoint.dir "));
    assert_non_null(strstr(f->msg.text, "deep/ckpt is in use by cluster "));
    assert_non_null(strstr(f->msg.text, " job a pid "));
    assert_non_null(strstr(f->msg.text, "another checkpoint.dir"));
    assert_false(r.lock.is_open);
    owner.job = "a"; /* a fenced rank 0 of the same job has it */
    assert_int_equal(run_dir_open(path, &owner, &r, &f->msg), 0);
    assert_true(r.lock.is_held && !r.checkpoint_lock.is_held);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    assert_false(r.checkpoint_lock.is_held);
    run_dir_close(&first);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    assert_true(r.checkpoint_lock.is_held);
    run_dir_close(&r);
}

static void
a_checkpoint_folder_in_the_run_directory_has_no_lock_of_its_own(void **state)
{
    struct run_dir_rig *f = *state;
    char ckpt[160];
    struct run_dir_owner owner = {.cluster = 7, .job = "a", .checkpoint_dir = ckpt};
    struct run_dir r;

    (void)snprintf(ckpt, sizeof(ckpt), "%s", scratch_path(&f->scratch, "run/x/ckpt"));
    assert_int_equal(run_dir_open(f->dir, &owner, &r, &f->msg), 0);
    assert_true(r.lock.is_held && !r.checkpoint_lock.is_open);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    run_dir_close(&r);
    assert_int_equal(access(scratch_path(&f->scratch, "run/x"), F_OK), -1);
}

static void a_checkpoint_folder_of_another_run_is_kept_by_its_lock(void **state)
{
    struct run_dir_rig *f = *state;
    char other[160];
    char ckpt[160];
    struct run_dir_owner owner = {.cluster = 7, .job = "a", .checkpoint_dir = ckpt};
    struct run_dir theirs;
    struct run_dir r;

    (void)snprintf(other, sizeof(other), "%s", scratch_path(&f->scratch, "other"));
    (void)snprintf(ckpt, sizeof(ckpt), "%s", scratch_path(&f->scratch, "run/ckpt"));
    assert_int_equal(run_dir_rig_open(f, "b", &theirs), 0);
    assert_int_equal(run_dir_open(other, &owner, &r, &f->msg), ERR_BUSY);
    assert_non_null(strstr(f->msg.text, "job b"));
    run_dir_close(&theirs);
    assert_int_equal(run_dir_open(other, &owner, &r, &f->msg), 0);
    assert_true(r.checkpoint_lock.is_held);
    run_dir_close(&r);
    assert_int_equal(access(scratch_path(&f->scratch, "run/ckpt/.lock"), F_OK), -1);
}

/* Who deletes a .lock lets another run in. */
static void a_lock_that_lost_its_name_is_held_no_more(void **state)
{
    struct run_dir_rig *f = *state;
    char ckpt[160];
    char lock[160];
    struct run_dir_owner owner = {.cluster = 7, .job = "a", .checkpoint_dir = ckpt};
    struct run_dir r;

    (void)snprintf(ckpt, sizeof(ckpt), "%s", scratch_path(&f->scratch, "ckpt"));
    for (int i = 0; i < 2; i++) {
        (void)snprintf(lock, sizeof(lock), "%s",
                       scratch_path(&f->scratch, i == 0 ? "run/.lock" : "ckpt/.lock"));
        assert_int_equal(run_dir_open(f->dir, &owner, &r, &f->msg), 0);
        assert_int_equal(run_dir_hold(&r, &f->msg), 0);
        assert_int_equal(unlink(lock), 0);
        assert_int_equal(run_dir_hold(&r, &f->msg), ERR_STALE);
        assert_non_null(strstr(f->msg.text, lock));
        (void)scratch_text(&f->scratch, i == 0 ? "run/.lock" : "ckpt/.lock", "new");
        assert_int_equal(run_dir_hold(&r, &f->msg), ERR_STALE);
        run_dir_close(&r);
    }
    assert_int_equal(run_dir_open(f->dir, &owner, &r, &f->msg), 0);
    assert_int_equal(rename(ckpt, scratch_path(&f->scratch, "moved")), 0);
    assert_int_equal(run_dir_hold(&r, &f->msg), ERR_STALE);
    run_dir_close(&r);
}

/* Else the file that it points to would be written over. */
static void a_lock_that_is_a_link_is_refused(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;
    char *text;

    (void)scratch_text(&f->scratch, "precious", "text");
    (void)scratch_text(&f->scratch, "run/x", "");
    assert_int_equal(symlink("../precious", scratch_path(&f->scratch, "run/.lock")), 0);
    assert_int_equal(run_dir_rig_open(f, "a", &r), ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "/run/.lock is a link: delete it"));
    text = scratch_read(&f->scratch, "precious");
    assert_string_equal(text, "text");
    free(text);
}

static void a_directory_that_was_moved_or_replaced_is_stale(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;
    char away[128];

    (void)snprintf(away, sizeof(away), "%s", scratch_path(&f->scratch, "away"));
    assert_int_equal(run_dir_rig_open(f, "a", &r), 0);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    assert_int_equal(rename(f->dir, away), 0);
    assert_int_equal(run_dir_hold(&r, &f->msg), ERR_STALE);
    assert_int_equal(mkdir(f->dir, 0777), 0);
    assert_int_equal(run_dir_hold(&r, &f->msg), ERR_STALE);
    assert_non_null(strstr(f->msg.text, f->dir));
    assert_int_equal(rmdir(f->dir), 0);
    assert_int_equal(rename(away, f->dir), 0);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    run_dir_close(&r);
}

#ifdef FAULTS

static void a_lock_whose_text_cannot_be_written_is_not_had_yet(void **state)
{
    struct run_dir_rig *f = *state;
    struct run_dir r;
    pid_t fenced = start_stopped(f, "a");

    assert_int_equal(run_dir_rig_open(f, "a", &r), 0);
    kill_stopped(fenced);
    fault_arm("storage.write", 1, -ENOSPC);
    assert_int_equal(run_dir_hold(&r, &f->msg), -ENOSPC);
    fault_disarm_all();
    assert_false(r.lock.is_held);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    assert_true(r.lock.is_held);
    assert_true(run_dir_rig_is_lock_of(f, "cluster 0000000000000007 job a", getpid()));
    run_dir_close(&r);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_DIR_CASE(a_foreign_holder_is_named_in_the_error),
        RUN_DIR_CASE(two_processes_without_a_launcher_are_foreign),
        RUN_DIR_CASE(a_foreign_holder_is_waited_for),
        RUN_DIR_CASE(a_fenced_rank_0_of_the_job_is_no_obstacle_and_its_lock_passes_on),
        RUN_DIR_CASE(a_foreign_run_that_took_the_lock_meanwhile_keeps_it),
        RUN_DIR_CASE(a_checkpoint_folder_elsewhere_is_locked_too),
        RUN_DIR_CASE(a_checkpoint_folder_in_the_run_directory_has_no_lock_of_its_own),
        RUN_DIR_CASE(a_checkpoint_folder_of_another_run_is_kept_by_its_lock),
        RUN_DIR_CASE(a_lock_that_lost_its_name_is_held_no_more),
        RUN_DIR_CASE(a_lock_that_is_a_link_is_refused),
        RUN_DIR_CASE(a_directory_that_was_moved_or_replaced_is_stale),
#ifdef FAULTS
        RUN_DIR_CASE(a_lock_whose_text_cannot_be_written_is_not_had_yet),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
