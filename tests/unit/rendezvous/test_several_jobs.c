/* Several jobs at once, in all states, and a service that is killed again and again: each
 * time the next one shows the same, holds the same, and goes on with all of them. */

#include "tests/lib/cmocka.h"
#include "tests/lib/stage_core.h"

#include "common/tcpstore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Behind each of them the service is killed, and all agents come back. */
static const char *const acts[] = {
    "shape nodes=2 restarts=3\n"
    "a enters job=long\n"
    "b enters job=long\n"
    "> a,b ROUND g=1 a b failures=0\n"
    "shape nodes=1 restarts=0\n"
    "c enters job=well\n"
    "> c ROUND g=1 c failures=0\n"
    "d enters job=badly\n"
    "> d ROUND g=1 d failures=0\n"
    "e enters job=job\n"
    "> e ROUND g=1 e failures=0\n"
    "shape nodes=2:3 restarts=3\n"
    "f enters job=young\n",

    "a resumed\n"
    "> a DECISION g=1 #1 accepted\n"
    "a commit step=5\n"
    "> a DECISION g=1 #2 accepted\n"
    "a reports step=7 loss=3.5\n"
    "c resumed\n"
    "> c DECISION g=1 #1 accepted\n"
    "c reports step=9 loss=1.5\n",

    "c done\n"
    "> c CLOSED 0\n",

    "d ended code=3\n"
    "> d STOP g=1 abort: rank 0 on d failed\n",

    "c gone\n"
    "d stopped\n"
    "> d REPORT g=1 final failures=1/0 exit=3 rank 0 on d code=3 signal=0: not "
    "restarting: --max-restarts is 0\n"
    "> d CLOSED 3\n",

    "operator cancels\n"
    "> e STOP g=1 leave: cancelled by op\n",

    "d gone\n"
    "e stopped\n"
    "> e CLOSED 143: job job was cancelled by op\n",

    "e gone\n"
    "b ended rank=1 signal=9 step=7\n"
    "> a,b STOP g=1 abort: rank 1 on b failed\n",

    "a stopped\n"
    "b stopped\n"
    "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=0 signal=9 commit=1:5:h: restarting (1 of "
    "3)\n",

    "a join\n"
    "b join\n"
    "> a,b ROUND g=2 a b failures=1 commit=1:5:h\n",

    "shape nodes=1 restarts=0\n" /* the name of one that is over */
    "g enters job=well\n"
    "> g ROUND g=2 g failures=0\n",

    "a resumed request=3\n"
    "> a DECISION g=2 #3 accepted\n"
    "a commit step=9 request=4\n"
    "> a DECISION g=2 #4 accepted\n",
};

/* A worker of the node's keeps something in the store. */
static void keep_key(struct stage *st, const char *name)
{
    static const uint8_t key_and_value[] = {1, 0, 0, 0, 0, 0, 0, 0,   'k', 3,
                                            0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c'};
    struct actor *a = st->actor;
    struct msg m = {.type = MSG_STORE,
                    .u.store = {.client = 1,
                                .seq = 1,
                                .op = TCPSTORE_SET,
                                .body = {key_and_value, sizeof(key_and_value)}}};

    while (strcmp(a->name, name) != 0) {
        a++;
    }
    m.u.store.generation = a->generation;
    stage_say(st, a, &m);
}

static void what_all_jobs_show_and_hold_outlives_every_kill(void **state)
{
    struct stage *st = stage_new();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
        size_t used;

        stage_play(st, acts[i]);
        if (i == 0 || i == 9) {
            keep_key(st, "a"); /* of a generation of its own */
        }
        used = service_store_used(st->service);
        stage_restart(st, NULL);
        assert_int_equal(service_store_used(st->service), used);
        assert_true((i < 8 || i > 8) == (used > 0)); /* between two of them */
    }
    shelf_commit(&st->shelf);
    assert_int_equal(shelf_count(&st->shelf, RECORD_JOB), 3);
    assert_int_equal(shelf_count(&st->shelf, RECORD_KEY), 1);
    assert_int_equal(shelf_count(&st->shelf, RECORD_COMMIT), 2);
    assert_int_equal(shelf_count(&st->shelf, RECORD_CURVE), 2);
    assert_int_equal(st->history.n_ended, 3);
    stage_free(st);
}

static void expect_state(const struct stage *st, size_t ended, const char *id,
                         enum history_state state, uint64_t last_step)
{
    const struct history_job *job = st->history.ended[ended];

    assert_string_equal(job->id, id);
    assert_int_equal(job->state, state);
    assert_int_equal(job->curve.n > 0 ? job->curve.point[job->curve.n - 1].step : 0,
                     last_step);
}

static void how_jobs_have_ended_is_known_after_all_kills(void **state)
{
    struct stage *st = stage_new();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
        stage_play(st, acts[i]);
        stage_restart(st, NULL);
        stage_restart(st, NULL);
    }
    expect_state(st, 0, "well", HISTORY_DONE, 9);
    expect_state(st, 1, "badly", HISTORY_FAILED, 0);
    expect_state(st, 2, "job", HISTORY_CANCELLED, 0);
    assert_int_equal(history_find(&st->history, "long")->restarts[RESTART_FAILURE], 1);
    assert_int_equal(history_find(&st->history, "long")->curve.point[0].step, 7);
    assert_int_equal(history_find(&st->history, "well")->state, HISTORY_LIVES);
    stage_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_all_jobs_show_and_hold_outlives_every_kill),
        cmocka_unit_test(how_jobs_have_ended_is_known_after_all_kills),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
