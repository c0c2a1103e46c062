#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"
#include "worker/run_dir.h"

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

struct fixture {
    struct scratch scratch;
    char dir[128]; /* of the run: not made yet */
    struct errmsg msg;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    scratch_open(&f->scratch);
    (void)snprintf(f->dir, sizeof(f->dir), "%s", scratch_path(&f->scratch, "run"));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    scratch_close(&f->scratch);
    free(f);
    return 0;
}

static struct run_dir_owner job(const char *name)
{
    return (struct run_dir_owner){.cluster = 7, .job = name};
}

static int open_as(struct fixture *f, const char *name, struct run_dir *ret)
{
    struct run_dir_owner owner = job(name);
    int rv = run_dir_open(f->dir, &owner, ret, &f->msg);

    rv = rv < 0 ? rv : run_dir_claim(ret, 1, &f->msg);
    if (rv < 0) {
        run_dir_close(ret);
    }
    return rv;
}

/* Whether the lock's text is that of process `pid`, and nothing more. */
static bool is_lock_of(struct fixture *f, const char *begin, pid_t pid)
{
    char *text = scratch_read(&f->scratch, "run/.lock");
    char own[128];
    bool is_so;

    (void)snprintf(own, sizeof(own), "%s pid %ld on ", begin, (long)pid);
    is_so = text && strncmp(text, own, strlen(own)) == 0 &&
            strchr(text, '\n') == text + strlen(text) - 1;
    free(text);
    return is_so;
}

/* --- opening --- */

static void the_directory_is_made_locked_and_claimed(void **state)
{
    struct fixture *f = *state;
    struct run_dir r;
    struct stat st;
    char *token;

    (void)snprintf(f->dir, sizeof(f->dir), "%s",
                   scratch_path(&f->scratch, "run/deep/down/"));
    assert_int_equal(open_as(f, "j", &r), 0);
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
    struct fixture *f = *state;
    struct run_dir r;

    (void)scratch_text(&f->scratch, "run/.lock",
                       "a text of more bytes than the one that comes, of a run that "
                       "ended long ago and far away\nand of more lines, too\n");
    assert_int_equal(open_as(f, "j", &r), 0);
    assert_true(is_lock_of(f, "cluster 0000000000000007 job j", getpid()));
    run_dir_close(&r);
    assert_int_equal(open_as(f, "", &r), 0);
    assert_true(is_lock_of(f, "one process", getpid()));
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
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct run_dir_owner owner = job("j");
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
    struct fixture *f = *state;
    struct run_dir r;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(open_as(f, "j", &r), 0);
        run_dir_close(&r);
    }
    assert_int_equal(mkdir(scratch_path(&f->scratch, "run/log/7"), 0777), 0);
    assert_int_equal(mkdir(scratch_path(&f->scratch, "run/log/notes"), 0777), 0);
    assert_int_equal(open_as(f, "j", &r), 0);
    assert_int_equal(r.run_generation, 8);
    assert_int_equal(run_dir_starts(&r, 1), 4);
    assert_int_equal(run_dir_starts(&r, 3), 2);
    assert_int_equal(run_dir_starts(&r, 8), 0);
    run_dir_close(&r);
}

static void make_long(const struct fixture *f, char *path, size_t len)
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
    struct fixture *f = *state;
    struct run_dir_owner owner = job("j");
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
    struct fixture *f = *state;
    struct run_dir_owner owner = job("j");
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
    struct fixture *f = *state;
    struct run_dir r;

    (void)scratch_text(&f->scratch, "run", "a file");
    assert_int_equal(open_as(f, "j", &r), ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "/run is a file"));
    (void)snprintf(f->dir, sizeof(f->dir), "%s",
                   scratch_path(&f->scratch, "run/deep/down"));
    assert_int_equal(open_as(f, "j", &r), ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "/run/deep/down is a file, or lies in one"));
    (void)snprintf(f->dir, sizeof(f->dir), "%s", scratch_path(&f->scratch, "run"));
    assert_int_equal(unlink(f->dir), 0);
    assert_int_equal(mkdir(f->dir, 0777), 0);
    (void)scratch_text(&f->scratch, "run/log", "a file");
    assert_int_equal(open_as(f, "j", &r), -ENOTDIR);
    assert_non_null(strstr(f->msg.text, "run/log"));
    assert_false(r.lock.is_open);
}

/* --- the lock --- */

/* A rank 0 that has the lock and was stopped: it may neither go on nor let go. */
static pid_t start_stopped(struct fixture *f, const char *name)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct run_dir r;

        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        CHECK(open_as(f, name, &r) == 0 && r.lock.is_held);
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
    struct fixture *f = *state;
    struct run_dir_owner elsewhere = job("ab");
    struct run_dir r;
    char named[64];
    pid_t pid = start_stopped(f, "ab");

    (void)snprintf(named, sizeof(named), "job ab pid %ld on ", (long)pid);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_int_equal(open_as(f, others[i], &r), ERR_BUSY);
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
    struct fixture *f = *state;
    struct run_dir r;
    pid_t pid = start_stopped(f, "");

    assert_int_equal(open_as(f, "", &r), ERR_BUSY);
    assert_non_null(strstr(f->msg.text, "in use by one process pid "));
    kill_stopped(pid);
}

static void a_foreign_holder_is_waited_for(void **state)
{
    struct fixture *f = *state;
    struct run_dir_owner owner = job("b");
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
    struct fixture *f = *state;
    struct run_dir foreign;
    struct run_dir r;
    pid_t fenced = start_stopped(f, "a");

    assert_int_equal(open_as(f, "a", &r), 0);
    assert_false(r.lock.is_held);
    assert_int_equal(r.run_generation, 2);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    assert_false(r.lock.is_held);
    assert_true(is_lock_of(f, begin, fenced));

    kill_stopped(fenced);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    assert_true(r.lock.is_held);
    assert_true(is_lock_of(f, begin, getpid()));
    assert_int_equal(open_as(f, "b", &foreign), ERR_BUSY);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    run_dir_close(&r);
    assert_int_equal(open_as(f, "b", &foreign), 0);
    run_dir_close(&foreign);
}

static void a_foreign_run_that_took_the_lock_meanwhile_keeps_it(void **state)
{
    struct fixture *f = *state;
    struct run_dir r;
    pid_t fenced = start_stopped(f, "a");
    pid_t foreign;

    assert_int_equal(open_as(f, "a", &r), 0);
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
    struct fixture *f = *state;
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
    struct fixture *f = *state;
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
    struct fixture *f = *state;
    char other[160];
    char ckpt[160];
    struct run_dir_owner owner = {.cluster = 7, .job = "a", .checkpoint_dir = ckpt};
    struct run_dir theirs;
    struct run_dir r;

    (void)snprintf(other, sizeof(other), "%s", scratch_path(&f->scratch, "other"));
    (void)snprintf(ckpt, sizeof(ckpt), "%s", scratch_path(&f->scratch, "run/ckpt"));
    assert_int_equal(open_as(f, "b", &theirs), 0);
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
    struct fixture *f = *state;
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
    struct fixture *f = *state;
    struct run_dir r;
    char *text;

    (void)scratch_text(&f->scratch, "precious", "text");
    (void)scratch_text(&f->scratch, "run/x", "");
    assert_int_equal(symlink("../precious", scratch_path(&f->scratch, "run/.lock")), 0);
    assert_int_equal(open_as(f, "a", &r), ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "/run/.lock is a link: delete it"));
    text = scratch_read(&f->scratch, "precious");
    assert_string_equal(text, "text");
    free(text);
}

static void a_directory_that_was_moved_or_replaced_is_stale(void **state)
{
    struct fixture *f = *state;
    struct run_dir r;
    char away[128];

    (void)snprintf(away, sizeof(away), "%s", scratch_path(&f->scratch, "away"));
    assert_int_equal(open_as(f, "a", &r), 0);
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

/* --- the token --- */

static void a_rank_that_sees_the_token_joins(void **state)
{
    struct fixture *f = *state;
    struct run_dir leader;
    struct run_dir r;

    assert_int_equal(open_as(f, "a", &leader), 0);
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
    struct fixture *f = *state;
    struct run_dir leader;
    struct run_dir r;

    assert_int_equal(open_as(f, "a", &leader), 0);
    assert_int_equal(run_dir_join(f->dir, 2, leader.token, &r, &f->msg), ERR_MISSING);
    leader.token[31] = leader.token[31] == '0' ? '1' : '0';
    assert_int_equal(run_dir_join(f->dir, 1, leader.token, &r, &f->msg), ERR_MISSING);
    assert_int_equal(run_dir_join("/nonexistent", 1, "", &r, &f->msg), ERR_MISSING);
    assert_non_null(strstr(f->msg.text, "/nonexistent: run.dir must be on one file "
                                        "system that all nodes share"));
    run_dir_close(&leader);
}

/* --- files in it --- */

static void a_written_file_replaces_the_old_one_whole(void **state)
{
    struct fixture *f = *state;
    struct run_dir r;
    char seen[8] = "";
    char *text;
    int reader;

    assert_int_equal(open_as(f, "a", &r), 0);
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
    struct fixture *f = *state;
    struct run_dir r;

    assert_int_equal(open_as(f, "a", &r), 0);
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
    struct fixture *f = *state;
    struct run_dir r;

    assert_int_equal(open_as(f, "a", &r), 0);
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

static void a_lock_whose_text_cannot_be_written_is_not_had_yet(void **state)
{
    struct fixture *f = *state;
    struct run_dir r;
    pid_t fenced = start_stopped(f, "a");

    assert_int_equal(open_as(f, "a", &r), 0);
    kill_stopped(fenced);
    fault_arm("storage.write", 1, -ENOSPC);
    assert_int_equal(run_dir_hold(&r, &f->msg), -ENOSPC);
    fault_disarm_all();
    assert_false(r.lock.is_held);
    assert_int_equal(run_dir_hold(&r, &f->msg), 0);
    assert_true(r.lock.is_held);
    assert_true(is_lock_of(f, "cluster 0000000000000007 job a", getpid()));
    run_dir_close(&r);
}

#endif

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_directory_is_made_locked_and_claimed),
        CASE(the_lock_names_cluster_job_and_process),
        CASE(the_generation_is_above_all_found_and_at_least_the_jobs),
        CASE(starts_before_this_one_are_counted),
        CASE(too_long_a_path_is_refused),
        CASE(a_long_path_that_fits_serves_every_rank),
        CASE(what_cannot_be_opened_is_named),
        CASE(a_foreign_holder_is_named_in_the_error),
        CASE(two_processes_without_a_launcher_are_foreign),
        CASE(a_foreign_holder_is_waited_for),
        CASE(a_fenced_rank_0_of_the_job_is_no_obstacle_and_its_lock_passes_on),
        CASE(a_foreign_run_that_took_the_lock_meanwhile_keeps_it),
        CASE(a_checkpoint_folder_elsewhere_is_locked_too),
        CASE(a_checkpoint_folder_in_the_run_directory_has_no_lock_of_its_own),
        CASE(a_checkpoint_folder_of_another_run_is_kept_by_its_lock),
        CASE(a_lock_that_lost_its_name_is_held_no_more),
        CASE(a_lock_that_is_a_link_is_refused),
        CASE(a_directory_that_was_moved_or_replaced_is_stale),
        CASE(a_rank_that_sees_the_token_joins),
        CASE(a_rank_that_does_not_see_the_token_is_told_what_to_do),
        CASE(a_written_file_replaces_the_old_one_whole),
        CASE(a_file_that_cannot_be_written_is_named),
#ifdef FAULTS
        CASE(a_full_disk_leaves_the_old_file),
        CASE(a_lock_whose_text_cannot_be_written_is_not_had_yet),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
