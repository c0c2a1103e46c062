/* Who may be in a job, and a node that is lost again and again. */

#include "rendezvous/job.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"

#include "common/check.h"

#include <stdio.h>

/* b is lost and comes back, three times; a and its workers stay. MIN is 2. */
static const char three_losses[] =
    "shape nodes=2 restarts=2\n"
    "a enters\n"
    "b enters\n"
    "> a,b ROUND g=1 a b failures=0\n"
    "b gone\n"
    "> a STOP g=1 abort: node b was lost: its connection ended\n"
    "a stopped\n"
    "> a REPORT g=1 again failures=0/2: node b was lost: its connection ended; "
    "re-forming (not counted as a failure)\n"
    "a join\n"
    "b enters\n"
    "> a,b ROUND g=2 a b failures=0\n"
    "b gone\n"
    "> a STOP g=2 abort: node b was lost: its connection ended\n"
    "a stopped\n"
    "> a REPORT g=2 again failures=0/2: node b was lost: its connection ended; "
    "re-forming (not counted as a failure)\n"
    "a join\n"
    "b enters\n"
    "> a,b ROUND g=3 a b failures=0\n"
    "b gone\n"
    "> a STOP g=3 abort: node b was lost: its connection ended\n"
    "a stopped\n"
    "> a REPORT g=3 again failures=0/2: node b was lost: its connection ended; "
    "re-forming (not counted as a failure)\n"
    "a join\n";

/* The same with MIN = 1: the job goes on alone each time. */
static const char three_losses_of_two[] =
    "shape nodes=1:2 restarts=2\n"
    "a enters\n"
    "b enters\n"
    "> a,b ROUND g=1 a b failures=0\n"
    "b gone\n"
    "> a STOP g=1 abort: node b was lost: its connection ended\n"
    "a stopped\n"
    "> a REPORT g=1 again failures=0/2: node b was lost: its connection ended; "
    "re-forming (not counted as a failure)\n"
    "a join\n"
    "> a ROUND g=2 a failures=0\n"
    "b enters\n"
    "> a STOP g=2 leave: node b joined\n"
    "a stopped\n"
    "> a,b REPORT g=2 again failures=0/2: node b joined; re-forming (not counted as a "
    "failure)\n"
    "a join\n"
    "> a,b ROUND g=3 a b failures=0\n"
    "b gone\n"
    "> a STOP g=3 abort: node b was lost: its connection ended\n"
    "a stopped\n"
    "> a REPORT g=3 again failures=0/2: node b was lost: its connection ended; "
    "re-forming (not counted as a failure)\n"
    "a join\n"
    "> a ROUND g=4 a failures=0\n"
    "b enters\n"
    "> a STOP g=4 leave: node b joined\n"
    "a stopped\n"
    "> a,b REPORT g=4 again failures=0/2: node b joined; re-forming (not counted as a "
    "failure)\n"
    "a join\n"
    "> a,b ROUND g=5 a b failures=0\n"
    "b gone\n"
    "> a STOP g=5 abort: node b was lost: its connection ended\n"
    "a stopped\n"
    "> a REPORT g=5 again failures=0/2: node b was lost: its connection ended; "
    "re-forming (not counted as a failure)\n"
    "a join\n"
    "> a ROUND g=6 a failures=0\n";

static const struct scene scenes[] = {
    {"another_nnodes_is_the_users_mistake", NULL,
     "shape nodes=2:4\n"
     "a hello\n"
     "b hello nodes=2:5\n"
     "> b REFUSED 2: job job: this node says --nnodes=2:5, but a started it with 2:4; "
     "give every node the same --nnodes\n"
     "> b (closed)\n"},

    {"a_fixed_number_of_nodes_is_said_as_one_number", NULL,
     "shape nodes=2\n"
     "a hello\n"
     "b hello nodes=3\n"
     "> b REFUSED 2: job job: this node says --nnodes=3, but a started it with 2; give "
     "every node the same --nnodes\n"
     "> b (closed)\n"},

    {"another_max_restarts_is_the_users_mistake", NULL,
     "shape restarts=3\n"
     "a hello\n"
     "b hello restarts=0\n"
     "> b REFUSED 2: job job: this node says --max-restarts=0, but a started it with 3; "
     "give every node the same --max-restarts\n"
     "> b (closed)\n"},

    {"a_node_rank_belongs_to_one_node", NULL,
     "shape nodes=3\n"
     "a hello rank=1\n"
     "b hello rank=1\n"
     "> b REFUSED 2: job job: --node-rank=1 is taken by a; give every node its own\n"
     "> b (closed)\n"
     "c hello rank=0\n"},

    {"a_node_that_came_back_takes_the_place_of_its_silent_session", NULL,
     "shape nodes=2\n"
     "a enters rank=0\n"
     "b enters rank=1\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "b mute\n" /* its power fails; it boots faster than the lease ends */
     "wait 1501\n"
     "c enters host=b rank=1\n"
     "> b (closed)\n"
     "> a STOP g=1 abort: node b was lost: it was started anew\n"
     "a stopped\n"
     "> a,c REPORT g=1 again failures=0/0: node b was lost: it was started anew; "
     "re-forming (not counted as a failure)\n"
     "a join\n"
     "> a,c ROUND g=2 a b failures=0\n"},

    {"a_node_rank_is_not_taken_from_a_node_that_speaks", NULL,
     "shape nodes=2\n"
     "a enters rank=0\n"
     "wait 1600\n"
     "c hello host=a rank=0\n"
     "> c REFUSED 2: job job: --node-rank=0 is taken by a; give every node its own\n"
     "> c (closed)\n"},

    {"a_node_rank_is_not_taken_by_another_host", NULL,
     "shape nodes=2\n"
     "a enters rank=0\n"
     "a mute\n"
     "wait 1600\n"
     "c hello rank=0\n"
     "> c REFUSED 2: job job: --node-rank=0 is taken by a; give every node its own\n"
     "> c (closed)\n"},

    {"the_node_rank_of_a_node_that_left_is_free", NULL,
     "shape nodes=2\n"
     "a hello rank=1\n"
     "a leave\n"
     "b hello rank=1\n"},

    {"a_refused_node_does_not_shape_the_job", NULL,
     "a hello nodes=3:2\n"
     "> a REFUSED 2: job job: --nnodes=3:2, --nproc-per-node=1, --node-rank=-1 do not "
     "fit together (at most 16384 nodes and 1048576 ranks)\n"
     "> a (closed)\n"
     "b enters nodes=1\n"
     "> b ROUND g=1 b failures=0\n"},

    {"numbers_that_do_not_fit_together_are_refused", NULL,
     "a hello nodes=0\n"
     "> a REFUSED 2: job job: --nnodes=0, --nproc-per-node=1, --node-rank=-1 do not "
     "fit together (at most 16384 nodes and 1048576 ranks)\n"
     "> a (closed)\n"
     "a hello nproc=0\n"
     "> a REFUSED 2: job job: --nnodes=2, --nproc-per-node=0, --node-rank=-1 do not "
     "fit together (at most 16384 nodes and 1048576 ranks)\n"
     "> a (closed)\n"
     "a hello nodes=1:16385\n"
     "> a REFUSED 2: job job: --nnodes=1:16385, --nproc-per-node=1, --node-rank=-1 do "
     "not fit together (at most 16384 nodes and 1048576 ranks)\n"
     "> a (closed)\n"
     "a hello rank=2\n"
     "> a REFUSED 2: job job: --nnodes=2, --nproc-per-node=1, --node-rank=2 do not "
     "fit together (at most 16384 nodes and 1048576 ranks)\n"
     "> a (closed)\n"
     "a hello nodes=16384 nproc=65\n"
     "> a REFUSED 2: job job: --nnodes=16384, --nproc-per-node=65, --node-rank=-1 "
     "do not fit together (at most 16384 nodes and 1048576 ranks)\n"
     "> a (closed)\n"},

    {"a_made_up_generation_is_refused", NULL,
     "a hello gen=-1\n"
     "> a REFUSED 2: job job: no generation has such a number\n"
     "> a (closed)\n"},

    {"a_generation_whose_next_ones_could_not_be_kept_is_refused", NULL,
     "a hello gen=9223372036854775807\n"
     "> a REFUSED 2: job job: no generation has such a number\n"
     "> a (closed)\n"},

    {"names_that_people_cannot_see_as_they_are_are_refused", NULL,
     "a hello host=\x1b[31m\n"
     "> a REFUSED 2: the job's name or this host's is not UTF-8, or has characters "
     "that cannot be seen or turn the text's direction\n"
     "> a (closed)\n"
     "a hello job=\x7f\n"
     "> a REFUSED 2: the job's name or this host's is not UTF-8, or has characters "
     "that cannot be seen or turn the text's direction\n"
     "> a (closed)\n"
     "a hello host=\u202ea\n"
     "> a REFUSED 2: the job's name or this host's is not UTF-8, or has characters "
     "that cannot be seen or turn the text's direction\n"
     "> a (closed)\n"
     "a hello job=job\u200b\n"
     "> a REFUSED 2: the job's name or this host's is not UTF-8, or has characters "
     "that cannot be seen or turn the text's direction\n"
     "> a (closed)\n"
     "a hello job=\xff\xfe\n"
     "> a REFUSED 2: the job's name or this host's is not UTF-8, or has characters "
     "that cannot be seen or turn the text's direction\n"
     "> a (closed)\n"},

    {"the_first_node_shapes_the_job_anew_when_all_were_lost", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a gone\n"
     "> b STOP g=1 abort: node a was lost: its connection ended\n"
     "b gone\n"
     "a enters nodes=1\n"
     "> a ROUND g=2 a failures=0\n"},

    {"a_node_lost_three_times_waits_before_it_is_taken", three_losses,
     "b enters\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "wait 999\n"
     "wait 1\n"
     "> a,b ROUND g=4 a b failures=0\n"},

    {"its_next_loss_counts_and_the_wait_doubles", three_losses,
     "b enters\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "wait 1000\n"
     "> a,b ROUND g=4 a b failures=0\n"
     "b gone\n"
     "> a STOP g=4 abort: node b was lost: its connection ended\n"
     "a ended code=80 engine\n"
     "a stopped\n"
     "> a REPORT g=4 again failures=1/2: node b was lost: its connection ended; "
     "restarting (1 of 2)\n"
     "a join\n"
     "b enters\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 2000 ms at the earliest, and only if the job needs it\n"
     "wait 1999\n"
     "wait 1\n"
     "> a,b ROUND g=5 a b failures=1\n"},

    {"a_flapping_node_uses_up_the_restarts", three_losses,
     "b enters failures=2\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "wait 1000\n"
     "> a,b ROUND g=4 a b failures=2\n"
     "b gone\n"
     "> a STOP g=4 abort: node b was lost: its connection ended\n"
     "a stopped\n"
     "> a REPORT g=4 final failures=3/2 exit=1: node b was lost: its connection ended; "
     "not restarting: --max-restarts=2 is used up\n"
     "> a CLOSED 1\n"},

    {"an_admitted_node_does_not_wait_in_an_ordinary_restart", three_losses,
     "b enters\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "wait 1000\n"
     "> a,b ROUND g=4 a b failures=0\n"
     "a ended code=3\n"
     "> a,b STOP g=4 abort: rank 0 on a failed\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=4 again failures=1/2 rank 0 on a code=3 signal=0: restarting (1 of "
     "2)\n"
     "a join\n"
     "b join\n"
     "> a,b ROUND g=5 a b failures=1\n"},

    {"another_node_does_not_wait", three_losses,
     "c enters\n"
     "> a,c ROUND g=4 a c failures=0\n"},

    {"the_same_host_from_another_address_is_another_node", three_losses,
     "c enters host=b peer=10.0.0.2\n"
     "> a,c ROUND g=4 a b failures=0\n"},

    {"where_min_does_not_need_it_a_flapping_node_stands_by", three_losses_of_two,
     "b enters\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "wait 60000\n"
     "a ended code=3\n"
     "> a STOP g=6 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a,b REPORT g=6 again failures=1/2 rank 0 on a code=3 signal=0: restarting (1 of "
     "2)\n"
     "a join\n"
     "> a ROUND g=7 a failures=1\n"},

    {"a_flapping_standby_does_not_limit_the_world", three_losses_of_two,
     "b enters world=1\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "c enters\n"
     "> a STOP g=6 leave: node c joined\n"
     "a stopped\n"
     "> a,b,c REPORT g=6 again failures=0/2: node c joined; re-forming (not counted as "
     "a failure)\n"
     "a join\n"
     "> a,c ROUND g=7 a c failures=0\n"},

    {"a_flapping_standby_that_is_needed_must_fit_too", three_losses,
     "c enters\n"
     "> a,c ROUND g=4 a c failures=0\n"
     "b enters nproc=9\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "wait 1000\n"
     "a refuse code=2 world=4 text=why\n"
     "> a,c STOP g=4 abort: why\n"
     "c gone\n"
     "a stopped\n"
     "> a,b CLOSED 2: why\n"},

    {"a_flapping_standby_takes_over_when_it_is_needed", three_losses_of_two,
     "b enters\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "wait 900\n"
     "a gone\n"
     "> b REPORT g=6 again failures=0/2: node a was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"
     "wait 99\n"
     "wait 1\n"
     "> b ROUND g=7 b failures=0\n"},

    {"a_flapping_standby_does_not_fill_the_round", three_losses_of_two,
     "b enters\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "wait 1000\n"
     "a ended code=3\n"
     "> a STOP g=6 abort: rank 0 on a failed\n"
     "c hello\n"
     "a stopped\n"
     "> a,b,c REPORT g=6 again failures=1/2 rank 0 on a code=3 signal=0: restarting (1 of "
     "2)\n"
     "a join\n"
     "wait 2999\n"
     "wait 1\n"
     "> a ROUND g=7 a failures=1\n"},

    {"a_new_committed_step_forgives", three_losses_of_two,
     "b enters\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "a resumed\n"
     "> a DECISION g=6 #1 accepted\n"
     "a commit step=5 hash=h5\n"
     "> a DECISION g=6 #2 accepted\n"
     "> a STOP g=6 leave: node b joined\n"},

    {"a_refused_commit_does_not_forgive", three_losses_of_two,
     "a resumed step=5\n"
     "> a DECISION g=6 #1 accepted\n"
     "b enters\n"
     "> b STANDBY this node was lost again and again without a checkpoint between: it "
     "stands by, to be taken in 1000 ms at the earliest, and only if the job needs it\n"
     "a commit step=5 hash=h5\n"
     "> a DECISION g=6 #2 refused: this step or a later one is committed already\n"},
};

/* It is gone before its workers are: a loss, but one that was announced. */
static void a_node_that_leaves_does_not_flap(void **state)
{
    struct stage *st = stage_new();
    char script[1024];

    (void)state;
    stage_play(st, "shape nodes=2 restarts=2\n"
                   "a enters\n");
    for (int g = 1; g <= 6; g++) {
        (void)snprintf(
            script, sizeof(script),
            "b enters\n"
            "> a,b ROUND g=%d a b failures=0\n"
            "b leave\n"
            "> a STOP g=%d leave: node b leaves: preempted by SIGTERM\n"
            "b gone\n"
            "> a STOP g=%d abort: node b has left: its connection ended\n"
            "a stopped\n"
            "> a REPORT g=%d again failures=0/2: node b has left: its connection ended; "
            "re-forming (not counted as a failure)\n"
            "a join\n",
            g, g, g, g);
        stage_play(st, script);
    }
    stage_free(st);
}

static void say_nothing(void *arg, uint64_t session, const struct msg *m)
{
    (void)arg;
    (void)session;
    (void)m;
}

static size_t longest_chain(const struct table *t)
{
    size_t longest = 0;

    for (uint64_t i = 0; i < t->n_buckets; i++) {
        size_t n = 0;

        for (const struct table_node *node = t->buckets[i]; node; node = node->next) {
            n++;
        }
        longest = MAX(longest, n);
    }
    return longest;
}

/* Those that end in the same bits would, were they their own hashes. */
static void chosen_node_ranks_do_not_share_a_bucket(void **state)
{
    enum { NODES = 128 };

    struct job_sink sink = {.send = say_nothing};
    struct store_budget budget = {.max = 1};
    struct rank_budget ranks = {.max = NODES};
    struct job *j = job_new("job", 11, 0x5eed, &budget, &ranks, &sink);
    struct msg_hello hello = {.job = "job",
                              .host = "h",
                              .min_nodes = 1,
                              .max_nodes = MSG_MAX_NODES,
                              .nproc = 1,
                              .group_rank = -1};
    struct job_node *node[NODES];
    struct errmsg msg;
    uint32_t exit_code;

    (void)state;
    for (int i = 0; i < NODES; i++) {
        struct job_guest guest = {(uint64_t)i + 1, &hello, "10.0.0.1"};

        hello.node_rank = i * (MSG_MAX_NODES / NODES);
        assert_int_equal(job_hello(j, &guest, &node[i], &exit_code, &msg), 0);
    }
    for (int i = 0; i < NODES; i++) {
        assert_ptr_equal(job_of_node_rank(j, i * (MSG_MAX_NODES / NODES), NULL),
                         node[i]);
    }
    assert_in_range(longest_chain(&j->node_ranks), 1, 16);
    job_free(j);
}

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(scenes) + 2] = {
        cmocka_unit_test(a_node_that_leaves_does_not_flap),
        cmocka_unit_test(chosen_node_ranks_do_not_share_a_bucket),
    };

    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        tests[i + 2] = stage_scene(&scenes[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
