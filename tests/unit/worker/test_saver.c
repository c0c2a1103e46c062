/* Saving in the background, by one process and by several; each case runs in processes
 * of its own, with an agent that accepts, refuses or keeps silent. With CTRUN_CKPT_OUT
 * set it writes checkpoints into that folder instead of testing, for tests/torch. */

#include "tests/lib/cmocka.h"
#include "tests/lib/saver_rig.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- committed --- */

static int save_three(const struct rank *self)
{
    struct saver_rig r;

    saver_rig_open_shaped(&r, self, SAVER_ACCEPT);
    RANK_CHECK(!saver_is_busy(r.saver) && saver_wait(r.saver, &r.msg) == 0);
    for (unsigned step = 1; step <= SAVER_RIG_KEEP + 1; step++) {
        saver_rig_fill(&r, step);
        RANK_CHECK(saver_rig_save(&r, step) == 0);
        RANK_CHECK(!saver_is_busy(r.saver) && !saver_is_fenced(r.saver));
        if (saver_rig_leads(&r)) {
            saver_rig_check(&r, step);
            RANK_CHECK(!saver_rig_has(&r, step, true));
        }
    }
    if (saver_rig_leads(&r)) {
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
    saver_rig_run_on_all_shapes(save_three);
}

static int change_after_the_ticket(const struct rank *self)
{
    struct saver_rig r;

    saver_rig_open_shaped(&r, self, SAVER_ACCEPT);
    for (unsigned step = 1; step <= 3; step++) {
        saver_rig_fill(&r, step);
        RANK_CHECK(saver_rig_begin(&r, step) == 0);
        device_wait(r.device, QUEUE_COMPUTE, saver_snapshot_ticket(r.saver));
        saver_wait_state(r.saver);
        saver_rig_fill(&r, 100);
        RANK_CHECK(saver_wait(r.saver, &r.msg) == 0);
        saver_rig_fill(&r, step);
        saver_rig_check(&r, step);
        saver_rig_meet(&r, step); /* the next one prunes */
    }
    saver_rig_close(&r);
    return 0;
}

static void the_state_may_change_after_the_snapshots_ticket(void **state)
{
    (void)state;
    saver_rig_run(1, 1, change_after_the_ticket);
    saver_rig_run(3, 1, change_after_the_ticket);
}

static void a_state_that_is_saved_in_place_may_change_once_it_is_written(void **state)
{
    (void)state;
    saver_rig_run_in_place(1, 1, change_after_the_ticket);
    saver_rig_run_in_place(1, 3, change_after_the_ticket);
    saver_rig_run_in_place(3, 1, change_after_the_ticket);
    saver_rig_run_in_place(2, 2, change_after_the_ticket);
}

static int close_at_once(const struct rank *self)
{
    struct saver_rig r;

    saver_rig_open_shaped(&r, self, SAVER_ACCEPT);
    RANK_CHECK(saver_rig_begin(&r, 5) == 0);
    saver_close(r.saver);
    r.saver = NULL;
    if (saver_rig_leads(&r)) {
        saver_rig_check(&r, 5);
    }
    saver_rig_close(&r);
    return 0;
}

static void closing_finishes_the_work_in_hand(void **state)
{
    (void)state;
    saver_rig_run_on_all_shapes(close_at_once);
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

    saver_rig_open_sharded(&r, self, SAVER_ACCEPT, saver_rig_shape.n_shards);
    if (chain_step > 1) {
        load_own(&r, chain_step - 1);
    }
    RANK_CHECK(saver_rig_save(&r, chain_step) == 0);
    if (saver_rig_leads(&r)) {
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
    static const struct saver_shape chain[] = {{1, 1}, {8, 1}, {3, 1}, {1, 1}, {2, 2},
                                               {1, 3}, {9, 1}, {4, 2}, {1, 1}};
    struct scratch scratch;

    (void)state;
    scratch_open(&scratch);
    for (size_t i = 0; i < ARRAY_LEN(chain); i++) {
        chain_step = i + 1;
        saver_rig_run_in(scratch.dir, &chain[i], pass_on);
    }
    scratch_close(&scratch);
}

/* --- refused, unanswered --- */

static int be_refused(const struct rank *self)
{
    struct saver_rig r;

    saver_rig_open_shaped(&r, self, SAVER_REFUSE);
    RANK_CHECK(saver_rig_begin(&r, 5) == 0);
    RANK_CHECK(saver_rig_begin(&r, 6) ==
               ERR_REFUSED); /* the outcome of the one before */
    RANK_CHECK(strcmp(r.msg.text, "a newer generation runs") == 0);
    RANK_CHECK(saver_is_fenced(r.saver) && !saver_is_busy(r.saver));
    if (saver_rig_leads(&r)) {
        RANK_CHECK(!saver_rig_has(&r, 5, true) && !saver_rig_has(&r, 5, false));
        RANK_CHECK(!saver_rig_has(&r, 6, true) && r.agent.n_commits == 1);
    }
    saver_rig_close(&r);
    return 0;
}

static void a_refused_commit_leaves_nothing_and_fences_every_rank(void **state)
{
    (void)state;
    saver_rig_run_on_all_shapes(be_refused);
}

/* Nobody goes on before all have looked. */
static void look_while_pending(struct saver_rig *r)
{
    if (saver_rig_leads(r)) {
        RANK_CHECK(sem_wait(&r->agent.asked) == 0);
        saver_rig_say(r, "asked");
    }
    saver_rig_hear(r, "asked");
    RANK_CHECK(saver_is_busy(r->saver) && !saver_is_fenced(r->saver));
    RANK_CHECK(saver_rig_has(r, 5, true) && !saver_rig_has(r, 5, false));
    saver_rig_meet(r, 0);
}

static int be_unanswered(const struct rank *self)
{
    struct saver_rig r;

    saver_rig_open_shaped(&r, self, SAVER_KEEP_WAITING);
    RANK_CHECK(saver_rig_begin(&r, 5) == 0);
    look_while_pending(&r);
    if (saver_rig_leads(&r)) {
        RANK_CHECK(r.agent.n_commits == 1);
        RANK_CHECK(sem_post(&r.agent.release) == 0);
    }
    RANK_CHECK(saver_wait(r.saver, &r.msg) == 0 && !saver_is_busy(r.saver));
    if (saver_rig_leads(&r)) {
        saver_rig_check(&r, 5);
    }
    saver_rig_close(&r);
    return 0;
}

static void an_unanswered_commit_is_pending_on_every_rank(void **state)
{
    (void)state;
    saver_rig_run_on_all_shapes(be_unanswered);
}

static int save_once(const struct rank *self)
{
    struct saver_rig r;

    saver_rig_open_sharded(&r, self, SAVER_ACCEPT, saver_rig_shape.n_shards);
    RANK_CHECK(saver_rig_save(&r, 1) == 0);
    saver_rig_close(&r);
    return 0;
}

/* One state, held in several ways; one shard of the nine has nothing. */
static int write_samples(const char *out)
{
    static const struct saver_shape shapes[] = {{1, 1}, {8, 1}, {3, 1}, {2, 2}, {9, 1}};
    char dir[128];

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        (void)snprintf(dir, sizeof(dir), "%s/%zu", out, i);
        if (mkdir(dir, 0777) < 0) {
            return 1;
        }
        saver_rig_run_in(dir, &shapes[i], save_once);
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
    };
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here ever calls setenv */
    const char *samples = getenv("CTRUN_CKPT_OUT");

    return samples ? write_samples(samples) : cmocka_run_group_tests(tests, NULL, NULL);
}
