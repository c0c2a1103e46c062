/* Saving in the background, by one process and by several; each case runs in processes
 * of its own, with an agent that accepts, refuses or keeps silent. With CTRUN_CKPT_OUT
 * set it writes checkpoints into that folder instead of testing, for tests/torch. */

#include "tests/lib/cmocka.h"
#include "tests/lib/saver_rig.h"
#include "tests/lib/scratch.h"

#include "common/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* How the ranks at hand hold the state. */
static struct shape {
    int n_shards, n_replicas;
} shape = {1, 1};

static void run_in(const char *dir, const struct shape *how, rank_body body)
{
    int n = how->n_shards * how->n_replicas;
    int status[RANKS_MAX];

    shape = *how;
    assert_true(ranks_run(n, body, dir, status));
    for (int rank = 0; rank < n; rank++) {
        assert_int_equal(status[rank], 0);
    }
}

static void run(int n_shards, int n_replicas, rank_body body)
{
    struct scratch scratch;

    scratch_open(&scratch);
    run_in(scratch.dir, &(struct shape){n_shards, n_replicas}, body);
    scratch_close(&scratch);
}

static void run_on_all_shapes(rank_body body)
{
    static const struct shape shapes[] = {{1, 1}, {1, 2}, {1, 3},
                                          {2, 1}, {3, 1}, {2, 2}};

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        run(shapes[i].n_shards, shapes[i].n_replicas, body);
    }
}

static void run_in_place(int n_shards, int n_replicas, rank_body body)
{
    saver_rig_in_place = true;
    run(n_shards, n_replicas, body);
    saver_rig_in_place = false;
}

static void open_rig(struct saver_rig *r, const struct rank *self,
                     enum saver_answer answer)
{
    if (shape.n_shards > 1) {
        saver_rig_open_sharded(r, self, answer, shape.n_shards);
    } else {
        saver_rig_open(r, self, answer);
    }
}

static bool leads(const struct saver_rig *r)
{
    return r->launch.rank == 0;
}

static void say(struct saver_rig *r, const char *key)
{
    RANK_CHECK(store_client_set(r->store, key, "x", 1, &r->msg) == 0);
}

static void hear(struct saver_rig *r, const char *key)
{
    size_t size;
    char byte;

    RANK_CHECK(store_client_get(r->store, key, &byte, 1, &size, &r->msg) == 0);
}

/* Nobody goes on before all are here. */
static void meet(struct saver_rig *r, unsigned where)
{
    char key[32];

    (void)snprintf(key, sizeof(key), "here/%u/%d", where, r->launch.rank);
    say(r, key);
    for (int rank = 0; rank < r->launch.world_size; rank++) {
        (void)snprintf(key, sizeof(key), "here/%u/%d", where, rank);
        hear(r, key);
    }
}

/* --- committed --- */

static int save_three(const struct rank *self)
{
    struct saver_rig r;

    open_rig(&r, self, SAVER_ACCEPT);
    RANK_CHECK(!saver_is_busy(r.saver) && saver_wait(r.saver, &r.msg) == 0);
    for (unsigned step = 1; step <= SAVER_RIG_KEEP + 1; step++) {
        saver_rig_fill(&r, step);
        RANK_CHECK(saver_rig_save(&r, step) == 0);
        RANK_CHECK(!saver_is_busy(r.saver) && !saver_is_fenced(r.saver));
        if (leads(&r)) {
            saver_rig_check(&r, step);
            RANK_CHECK(!saver_rig_has(&r, step, true));
        }
    }
    if (leads(&r)) {
        RANK_CHECK(!saver_rig_has(&r, 1, false) &&
                   saver_rig_has(&r, 2, false)); /* pruned */
        RANK_CHECK(r.agent.n_commits == SAVER_RIG_KEEP + 1);
    }
    saver_rig_close(&r);
    return 0;
}

static void an_accepted_checkpoint_is_complete_on_any_number_of_ranks(void **state)
{
    (void)state;
    run_on_all_shapes(save_three);
}

static int change_after_the_ticket(const struct rank *self)
{
    struct saver_rig r;

    open_rig(&r, self, SAVER_ACCEPT);
    for (unsigned step = 1; step <= 3; step++) {
        saver_rig_fill(&r, step);
        RANK_CHECK(saver_rig_begin(&r, step) == 0);
        device_wait(r.device, QUEUE_COMPUTE, saver_snapshot_ticket(r.saver));
        saver_wait_state(r.saver);
        saver_rig_fill(&r, 100);
        RANK_CHECK(saver_wait(r.saver, &r.msg) == 0);
        saver_rig_fill(&r, step);
        saver_rig_check(&r, step);
        meet(&r, step); /* the next one prunes */
    }
    saver_rig_close(&r);
    return 0;
}

static void the_state_may_change_after_the_snapshots_ticket(void **state)
{
    (void)state;
    run(1, 1, change_after_the_ticket);
    run(3, 1, change_after_the_ticket);
}

static void a_state_that_is_saved_in_place_may_change_once_it_is_written(void **state)
{
    (void)state;
    run_in_place(1, 1, change_after_the_ticket);
    run_in_place(1, 3, change_after_the_ticket);
    run_in_place(3, 1, change_after_the_ticket);
    run_in_place(2, 2, change_after_the_ticket);
}

static int close_at_once(const struct rank *self)
{
    struct saver_rig r;

    open_rig(&r, self, SAVER_ACCEPT);
    RANK_CHECK(saver_rig_begin(&r, 5) == 0);
    saver_close(r.saver);
    r.saver = NULL;
    if (leads(&r)) {
        saver_rig_check(&r, 5);
    }
    saver_rig_close(&r);
    return 0;
}

static void closing_finishes_the_work_in_hand(void **state)
{
    (void)state;
    run_on_all_shapes(close_at_once);
}

/* --- from one number of shards to another --- */

static uint64_t chain_step; /* of this link */

static bool has_shard(const struct saver_rig *r, int rank)
{
    char path[CHECKPOINT_PATH_MAX];
    char file[CHECKPOINT_PATH_MAX + 64];

    checkpoint_path(path, sizeof(path), r->ckpt, chain_step, SAVER_RIG_RUN, false);
    (void)snprintf(file, sizeof(file), "%s/shard-%05d-model-00001-of-00001.safetensors",
                   path, rank + 1);
    return access(file, F_OK) == 0;
}

static void hash_of(struct saver_rig *r, uint64_t step, char hash[CHECKPOINT_HASH_HEX])
{
    char path[CHECKPOINT_PATH_MAX];

    checkpoint_path(path, sizeof(path), r->ckpt, step, SAVER_RIG_RUN, false);
    RANK_CHECK(checkpoint_state_hash(path, hash, &r->msg) == 0);
}

static void load_own(struct saver_rig *r, uint64_t step)
{
    char path[CHECKPOINT_PATH_MAX];

    checkpoint_path(path, sizeof(path), r->ckpt, step, SAVER_RIG_RUN, false);
    for (size_t k = 0; k < SAVER_RIG_STATES; k++) {
        memset(r->own.state[k], 0xff, r->map.size * sizeof(float));
    }
    RANK_CHECK(restore_own_block(path, &r->own, SAVER_RIG_STATES, &r->msg) == 0);
}

/* Loads what the link before has saved, and saves that. */
static int pass_on(const struct rank *self)
{
    char before[CHECKPOINT_HASH_HEX];
    char after[CHECKPOINT_HASH_HEX];
    struct saver_rig r;

    saver_rig_open_sharded(&r, self, SAVER_ACCEPT, shape.n_shards);
    if (chain_step > 1) {
        load_own(&r, chain_step - 1);
    }
    RANK_CHECK(saver_rig_save(&r, chain_step) == 0);
    if (leads(&r)) {
        int n = holder_writers(&r.holder);

        saver_rig_check(&r, chain_step);
        hash_of(&r, MAX(chain_step, 2) - 1, before);
        hash_of(&r, chain_step, after);
        RANK_CHECK(strcmp(before, after) == 0);
        RANK_CHECK(has_shard(&r, n - 1) && !has_shard(&r, n));
    }
    saver_rig_close(&r);
    return 0;
}

static void no_bit_changes_from_one_number_of_shards_to_another(void **state)
{
    static const struct shape chain[] = {{1, 1}, {8, 1}, {3, 1}, {1, 1}, {2, 2},
                                         {1, 3}, {9, 1}, {4, 2}, {1, 1}};
    struct scratch scratch;

    (void)state;
    scratch_open(&scratch);
    for (size_t i = 0; i < ARRAY_LEN(chain); i++) {
        chain_step = i + 1;
        run_in(scratch.dir, &chain[i], pass_on);
    }
    scratch_close(&scratch);
}

/* --- refused, unanswered --- */

static int be_refused(const struct rank *self)
{
    struct saver_rig r;

    open_rig(&r, self, SAVER_REFUSE);
    RANK_CHECK(saver_rig_begin(&r, 5) == 0);
    RANK_CHECK(saver_rig_begin(&r, 6) ==
               ERR_REFUSED); /* the outcome of the one before */
    RANK_CHECK(strcmp(r.msg.text, "a newer generation runs") == 0);
    RANK_CHECK(saver_is_fenced(r.saver) && !saver_is_busy(r.saver));
    if (leads(&r)) {
        RANK_CHECK(!saver_rig_has(&r, 5, true) && !saver_rig_has(&r, 5, false));
        RANK_CHECK(!saver_rig_has(&r, 6, true) && r.agent.n_commits == 1);
    }
    saver_rig_close(&r);
    return 0;
}

static void a_refused_commit_leaves_nothing_and_fences_every_rank(void **state)
{
    (void)state;
    run_on_all_shapes(be_refused);
}

/* Nobody goes on before all have looked. */
static void look_while_pending(struct saver_rig *r)
{
    if (leads(r)) {
        RANK_CHECK(sem_wait(&r->agent.asked) == 0);
        say(r, "asked");
    }
    hear(r, "asked");
    RANK_CHECK(saver_is_busy(r->saver) && !saver_is_fenced(r->saver));
    RANK_CHECK(saver_rig_has(r, 5, true) && !saver_rig_has(r, 5, false));
    meet(r, 0);
}

static int be_unanswered(const struct rank *self)
{
    struct saver_rig r;

    open_rig(&r, self, SAVER_KEEP_WAITING);
    RANK_CHECK(saver_rig_begin(&r, 5) == 0);
    look_while_pending(&r);
    if (leads(&r)) {
        RANK_CHECK(r.agent.n_commits == 1);
        RANK_CHECK(sem_post(&r.agent.release) == 0);
    }
    RANK_CHECK(saver_wait(r.saver, &r.msg) == 0 && !saver_is_busy(r.saver));
    if (leads(&r)) {
        saver_rig_check(&r, 5);
    }
    saver_rig_close(&r);
    return 0;
}

static void an_unanswered_commit_is_pending_on_every_rank(void **state)
{
    (void)state;
    run_on_all_shapes(be_unanswered);
}

/* --- what cannot be written --- */

static int fail_once(const struct rank *self)
{
    struct saver_rig r;

    open_rig(&r, self, SAVER_ACCEPT);
    if (leads(&r)) { /* a file where the folder belongs */
        FILE *file = fopen(r.ckpt, "we");

        RANK_CHECK(file && fclose(file) == 0);
        say(&r, "blocked");
    }
    hear(&r, "blocked");
    RANK_CHECK(saver_rig_begin(&r, 5) == 0);
    RANK_CHECK(saver_wait(r.saver, &r.msg) == -ENOTDIR);
    RANK_CHECK(strstr(r.msg.text, r.ckpt));
    RANK_CHECK(!saver_is_fenced(r.saver));
    RANK_CHECK(saver_wait(r.saver, &r.msg) == 0); /* told once */
    if (leads(&r)) {
        RANK_CHECK(r.agent.n_commits == 0);
        RANK_CHECK(unlink(r.ckpt) == 0);
        say(&r, "free");
    }
    hear(&r, "free");
    RANK_CHECK(saver_rig_save(&r, 6) == 0);
    if (leads(&r)) {
        saver_rig_check(&r, 6);
    }
    saver_rig_close(&r);
    return 0;
}

static void a_storage_failure_is_told_once_and_the_next_save_goes_on(void **state)
{
    (void)state;
    run_on_all_shapes(fail_once);
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

    open_rig(&r, self, SAVER_ACCEPT);
    if (leads(&r)) {
        block_shard(&r, 5);
        say(&r, "blocked");
    }
    hear(&r, "blocked");
    rv = saver_rig_save(&r, 5);
    RANK_CHECK(rv == -EISDIR && strstr(r.msg.text, "shard-00002-"));
    RANK_CHECK(self->rank == 1 || strncmp(r.msg.text, "rank 1: ", 8) == 0);
    if (leads(&r)) {
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
    run(1, 3, fail_on_one);
    run(3, 1, fail_on_one);
    run(2, 2, fail_on_one);
}

static int lose_the_run_directory(const struct rank *self)
{
    struct saver_rig r;
    char away[160];

    open_rig(&r, self, SAVER_ACCEPT);
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
    run(1, 1, lose_the_run_directory);
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

    open_rig(&r, self, SAVER_ACCEPT);
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
    run(1, 1, inherit_the_lock);
}

#ifdef FAULTS

/* 15 MiB of state a shard. The writer's own blocks would take nine writes with the
 * manifest. */
static int save_in_few_writes(const struct rank *self)
{
    enum { WRITES = 5 }; /* the header, two for the tensors, the last bytes, manifest */
    int n = shape.n_shards;
    const struct model_config model = {"gpt2", n, 1, 256, 63, n * 1920};
    struct saver_rig r;

    saver_rig_open_model(&r, self, &model, n);
    fault_arm("ckpt.write", WRITES + 1, -ENOSPC);
    RANK_CHECK(saver_rig_save(&r, 1) == 0);
    fault_disarm_all();
    if (leads(&r)) {
        saver_rig_check(&r, 1);
    }
    saver_rig_close(&r);
    return 0;
}

static void the_snapshot_is_written_from_where_it_lies(void **state)
{
    (void)state;
    run(1, 1, save_in_few_writes);
    run(2, 1, save_in_few_writes);
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

    open_rig(&r, self, SAVER_ACCEPT);
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
    run(1, 1, fail_everywhere);
}

#endif

static int save_once(const struct rank *self)
{
    struct saver_rig r;

    saver_rig_open_sharded(&r, self, SAVER_ACCEPT, shape.n_shards);
    RANK_CHECK(saver_rig_save(&r, 1) == 0);
    saver_rig_close(&r);
    return 0;
}

/* One state, held in several ways; one shard of the nine has nothing. */
static int write_samples(const char *out)
{
    static const struct shape shapes[] = {{1, 1}, {8, 1}, {3, 1}, {2, 2}, {9, 1}};
    char dir[128];

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        (void)snprintf(dir, sizeof(dir), "%s/%zu", out, i);
        if (mkdir(dir, 0777) < 0) {
            return 1;
        }
        run_in(dir, &shapes[i], save_once);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_accepted_checkpoint_is_complete_on_any_number_of_ranks),
        cmocka_unit_test(the_state_may_change_after_the_snapshots_ticket),
        cmocka_unit_test(a_state_that_is_saved_in_place_may_change_once_it_is_written),
        cmocka_unit_test(closing_finishes_the_work_in_hand),
        cmocka_unit_test(no_bit_changes_from_one_number_of_shards_to_another),
        cmocka_unit_test(a_refused_commit_leaves_nothing_and_fences_every_rank),
        cmocka_unit_test(an_unanswered_commit_is_pending_on_every_rank),
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
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here ever calls setenv */
    const char *samples = getenv("CTRUN_CKPT_OUT");

    return samples ? write_samples(samples) : cmocka_run_group_tests(tests, NULL, NULL);
}
