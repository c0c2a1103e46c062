/* What a start may touch of a run directory. */

#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"
#include "worker/trainer.h"

#include "common/str.h"

#include <string.h>
#include <sys/stat.h>

static struct run_dir must_open(const char *dir, const char *job)
{
    struct run_dir_owner owner = {.cluster = 7, .job = job};
    struct errmsg msg;
    struct run_dir r;

    assert_int_equal(run_dir_open(dir, &owner, &r, &msg), 0);
    return r;
}

/* It began beside a fenced rank 0 of its own job, and so without the lock. */
static void a_start_that_lost_the_lock_to_a_foreign_run_touches_nothing(void **state)
{
    static struct train_config config = {.checkpoint.resume = "/nowhere"};
    static const struct launch launch = {.world_size = 1};
    struct trainer t = {.config = &config, .launch = &launch};
    struct errmsg msg = {""};
    struct run_dir fenced;
    struct run_dir foreign;
    struct scratch scratch;
    bool is_finished;
    struct stat st;
    char dir[128];

    (void)state;
    scratch_open(&scratch);
    (void)scratch_text(&scratch, "run/ckpt/step-00000004-g1.tmp/shard", "of another");
    assert_true(str_format(dir, sizeof(dir), "%s", scratch_path(&scratch, "run")));
    assert_true(str_format(config.checkpoint.dir, sizeof(config.checkpoint.dir),
                           "%s/ckpt", dir));
    assert_int_equal(control_client_open(-1, &t.control, &msg), 0);
    fenced = must_open(dir, "ours");
    t.run_dir = must_open(dir, "ours");
    assert_false(t.run_dir.lock.is_held);
    run_dir_close(&fenced);
    foreign = must_open(dir, "foreign");
    assert_true(foreign.lock.is_held);

    assert_int_equal(trainer_resume(&t, &is_finished, &msg), ERR_BUSY);
    assert_non_null(strstr(msg.text, "job foreign"));
    assert_int_equal(
        stat(scratch_path(&scratch, "run/ckpt/step-00000004-g1.tmp/shard"), &st), 0);

    run_dir_close(&foreign);
    run_dir_close(&t.run_dir);
    control_client_close(t.control);
    scratch_close(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_that_lost_the_lock_to_a_foreign_run_touches_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
