/* What cannot be written, or is no more to be written. */

#include "tests/lib/cmocka.h"
#include "tests/lib/saver_rig.h"

#include "common/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail_once(const struct rank *self)
{
    struct saver_rig r;

    saver_rig_open_shaped(&r, self, SAVER_ACCEPT);
    if (saver_rig_leads(&r)) { /* a file where the folder belongs */
        FILE *file = fopen(r.ckpt, "we");

        RANK_CHECK(file && fclose(file) == 0);
        saver_rig_say(&r, "blocked");
    }
    saver_rig_hear(&r, "blocked");
    RANK_CHECK(saver_rig_begin(&r, 5) == 0);
    RANK_CHECK(saver_wait(r.saver, &r.msg) == -ENOTDIR);
    RANK_CHECK(strstr(r.msg.text, r.ckpt));
    RANK_CHECK(!saver_is_fenced(r.saver));
    RANK_CHECK(saver_wait(r.saver, &r.msg) == 0); /* told once */
    if (saver_rig_leads(&r)) {
        RANK_CHECK(r.agent.n_commits == 0);
        RANK_CHECK(unlink(r.ckpt) == 0);
        saver_rig_say(&r, "free");
    }
    saver_rig_hear(&r, "free");
    RANK_CHECK(saver_rig_save(&r, 6) == 0);
    if (saver_rig_leads(&r)) {
        saver_rig_check(&r, 6);
    }
    saver_rig_close(&r);
    return 0;
}

static void a_storage_failure_is_told_once_and_the_next_save_goes_on(void **state)
{
    (void)state;
    saver_rig_run_on_all_shapes(fail_once);
}

/* A folder where rank 1's shard belongs. */
static void block_shard(const struct saver_rig *r, uint64_t step)
{
    char tmp[CHECKPOINT_PATH_MAX];
    char path[CHECKPOINT_PATH_MAX + 64];

    checkpoint_path(tmp, sizeof(tmp), r->ckpt, step, SAVER_RIG_RUN, true);
    (void)snprintf(path, sizeof(path),
                   "%s/shard-00002-model-00001-of-00001.safetensors", tmp);
    RANK_CHECK(mkdir(r->ckpt, 0777) == 0 && mkdir(tmp, 0777) == 0 &&
               mkdir(path, 0777) == 0);
}

static int fail_on_one(const struct rank *self)
{
    struct saver_rig r;
    int rv;

    saver_rig_open_shaped(&r, self, SAVER_ACCEPT);
    if (saver_rig_leads(&r)) {
        block_shard(&r, 5);
        saver_rig_say(&r, "blocked");
    }
    saver_rig_hear(&r, "blocked");
    rv = saver_rig_save(&r, 5);
    RANK_CHECK(rv == -EISDIR && strstr(r.msg.text, "shard-00002-"));
    RANK_CHECK(self->rank == 1 || strncmp(r.msg.text, "rank 1: ", 8) == 0);
    if (saver_rig_leads(&r)) {
        RANK_CHECK(!saver_rig_has(&r, 5, true) && !saver_rig_has(&r, 5, false));
        RANK_CHECK(r.agent.n_commits == 0);
    }
    RANK_CHECK(saver_rig_save(&r, 6) == 0);
    saver_rig_close(&r);
    return 0;
}

static void one_ranks_failure_is_every_ranks_and_names_it(void **state)
{
    (void)state;
    saver_rig_run(1, 3, fail_on_one);
    saver_rig_run(3, 1, fail_on_one);
    saver_rig_run(2, 2, fail_on_one);
}

static int lose_the_run_directory(const struct rank *self)
{
    struct saver_rig r;
    char away[160];

    saver_rig_open_shaped(&r, self, SAVER_ACCEPT);
    (void)snprintf(away, sizeof(away), "%s.away", r.run);
    RANK_CHECK(rename(r.run, away) == 0);
    RANK_CHECK(saver_rig_save(&r, 5) == ERR_STALE);
    RANK_CHECK(!saver_rig_has(&r, 5, true) && r.agent.n_commits == 0);
    RANK_CHECK(rename(away, r.run) == 0);
    RANK_CHECK(saver_rig_save(&r, 6) == 0);
    saver_rig_close(&r);
    return 0;
}

static void nothing_is_committed_beside_a_run_directory_that_was_moved(void **state)
{
    (void)state;
    saver_rig_run(1, 1, lose_the_run_directory);
}

/* A rank 0 of the job that was stopped with the lock in its hands. */
static pid_t start_fenced(const char *dir)
{
    struct run_dir_owner owner = {.cluster = 1, .job = "j"};
    char path[128];
    struct run_dir r;
    struct errmsg msg;
    int status;
    pid_t pid;

    (void)snprintf(path, sizeof(path), "%s/run", dir);
    pid = fork();
    if (pid == 0) {
        RANK_CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        RANK_CHECK(run_dir_open(path, &owner, &r, &msg) == 0);
        (void)raise(SIGSTOP);
        _exit(0);
    }
    RANK_CHECK(pid > 0 && waitpid(pid, &status, WUNTRACED) == pid);
    RANK_CHECK(WIFSTOPPED(status));
    return pid;
}

static int inherit_the_lock(const struct rank *self)
{
    struct run_dir_owner foreign = {.cluster = 1, .job = "k"};
    pid_t fenced = start_fenced(self->arg);
    struct run_dir other;
    struct saver_rig r;

    saver_rig_open_shaped(&r, self, SAVER_ACCEPT);
    RANK_CHECK(saver_rig_save(&r, 5) == 0 && !r.run_dir.lock.is_held);
    RANK_CHECK(kill(fenced, SIGKILL) == 0 && waitpid(fenced, NULL, 0) == fenced);
    RANK_CHECK(saver_rig_save(&r, 6) == 0 && r.run_dir.lock.is_held);
    RANK_CHECK(run_dir_open(r.run, &foreign, &other, &r.msg) == ERR_BUSY);
    saver_rig_close(&r);
    return 0;
}

static void a_commit_takes_the_lock_that_a_fenced_rank_0_let_go(void **state)
{
    (void)state;
    saver_rig_run(1, 1, inherit_the_lock);
}

#ifdef FAULTS

/* 15 MiB of state a shard. The writer's own blocks would take nine writes with the
 * manifest. */
static int save_in_few_writes(const struct rank *self)
{
    enum { WRITES = 5 }; /* the header, two for the tensors, the last bytes, manifest */
    int n = saver_rig_shape.n_shards;
    const struct model_config model = {"gpt2", n, 1, 256, 63, n * 1920};
    struct saver_rig r;

    saver_rig_open_model(&r, self, &model, n);
    fault_arm("ckpt.write", WRITES + 1, -ENOSPC);
    RANK_CHECK(saver_rig_save(&r, 1) == 0);
    fault_disarm_all();
    if (saver_rig_leads(&r)) {
        saver_rig_check(&r, 1);
    }
    saver_rig_close(&r);
    return 0;
}

static void the_snapshot_is_written_from_where_it_lies(void **state)
{
    (void)state;
    saver_rig_run(1, 1, save_in_few_writes);
    saver_rig_run(2, 1, save_in_few_writes);
}

/* Each passage of `point` fails once, a checkpoint each; returns the next step. */
static uint64_t fail_each(struct saver_rig *r, const char *point, uint64_t step)
{
    int rv = -1;

    for (unsigned n = 1; rv < 0; n++, step++) {
        int asked = r->agent.n_commits;
        bool accepted;

        fault_arm(point, n, -ENOSPC);
        rv = saver_rig_save(r, step);
        fault_disarm_all();
        accepted = r->agent.n_commits > asked;
        RANK_CHECK(rv == (rv < 0 ? -ENOSPC : 0) && n < 50);
        RANK_CHECK(rv == 0 || strstr(r->msg.text, r->dir));
        RANK_CHECK(rv < 0 || accepted);
        RANK_CHECK(saver_rig_has(r, step, true) + saver_rig_has(r, step, false) ==
                   accepted);
        RANK_CHECK(!saver_is_fenced(r->saver));
    }
    saver_rig_check(r, step - 1);
    return step;
}

static int fail_everywhere(const struct rank *self)
{
    static const char *const points[] = {"ckpt.open", "ckpt.write", "ckpt.fsync",
                                         "ckpt.rename", "storage.fsync"};
    uint64_t step = 1;
    struct saver_rig r;

    saver_rig_open_shaped(&r, self, SAVER_ACCEPT);
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        uint64_t next = fail_each(&r, points[i], step);

        RANK_CHECK(next > step + 1); /* the point was passed */
        step = next;
    }
    saver_rig_close(&r);
    return 0;
}

static void a_full_disk_costs_the_temporary_unless_the_commit_was_accepted(void **state)
{
    (void)state;
    saver_rig_run(1, 1, fail_everywhere);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_storage_failure_is_told_once_and_the_next_save_goes_on),
        cmocka_unit_test(one_ranks_failure_is_every_ranks_and_names_it),
        cmocka_unit_test(nothing_is_committed_beside_a_run_directory_that_was_moved),
        cmocka_unit_test(a_commit_takes_the_lock_that_a_fenced_rank_0_let_go),
#ifdef FAULTS
        cmocka_unit_test(the_snapshot_is_written_from_where_it_lies),
        cmocka_unit_test(
            a_full_disk_costs_the_temporary_unless_the_commit_was_accepted),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
