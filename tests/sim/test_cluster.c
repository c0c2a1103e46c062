/* The whole control plane on a virtual clock: hundreds of seeds, each with its own
 * number of nodes and kinds of fault, each run twice.
 *
 *   SIM_SEED=123 …/test_cluster       that one alone (SIM_TRACE=1: with every event)
 *   SIM_SEEDS=100000 …/test_cluster   more of them (SIM_FROM=1000: from that one on) */

#include "tests/lib/cluster.h"
#include "tests/lib/cmocka.h"

#include "common/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUICK_SEEDS = 500,
    WALL_SEEDS = 20,
    DURABLE_SEEDS = 20,
    SOME_SEEDS = 20,
    SOAK_CROWDS = 10,
};

static uint64_t from_env(const char *name, uint64_t fallback)
{
    const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe): one thread */
    uint64_t value;

    return text && str_parse_u64(text, &value) == 0 ? value : fallback;
}

static struct cluster_config make_config(uint64_t seed)
{
    struct cluster_config config = {.seed = seed, .total_steps = 100};
    struct sim dice;

    sim_init(&dice, seed ^ 0xABCDEF);
    config.n_nodes = (uint32_t)sim_between(&dice, 1, 5);
    config.nproc = (uint32_t)sim_between(&dice, 1, CLUSTER_MAX_NPROC);
    config.max_nodes = config.n_nodes;
    if (config.n_nodes > 2 && sim_chance(&dice, 25)) {
        config.max_nodes--; /* one stands by */
    }
    config.min_nodes = (uint32_t)sim_between(&dice, 1, config.max_nodes);
    config.faults = (unsigned)sim_random(&dice, FAULT_ALL + 1);
    config.faults_until_ms = 60000;
    if (sim_chance(&dice, 25)) { /* what MIN nodes have, or more */
        config.max_world = config.nproc * (uint32_t)sim_between(&dice, config.min_nodes,
                                                                config.max_nodes) +
                           (uint32_t)sim_random(&dice, config.nproc);
    }
    config.is_durable = sim_chance(&dice, 50);
    config.step_ms = sim_chance(&dice, 10) ? 300 : 40;
    config.reports_hangs = sim_chance(&dice, 30);
    config.says_for_whom = sim_chance(&dice, 50);
    config.repeats = sim_chance(&dice, 50);
    config.loses_peers = sim_chance(&dice, 50);
    config.shares_keys = sim_chance(&dice, 25);
    config.cancel_ms = sim_chance(&dice, 15) ? sim_between(&dice, 2000, 50000) : 0;
    sim_release(&dice);
    return config;
}

/* What many seeds have met together. */
struct met {
    unsigned hangs, drains, answers, refusals, cancels, histories, returns;
};

static void run_seed(uint64_t seed, struct met *met)
{
    struct cluster_config config = make_config(seed);
    struct cluster_result first;
    struct cluster_result second;

    cluster_run(&config, &first);
    if (first.violation[0] != '\0') {
        print_error("%s (SIM_SEED=%" PRIu64 ")\n", first.violation, seed);
    }
    assert_string_equal(first.violation, "");
    cluster_run(&config, &second);
    assert_true(first.hash == second.hash);
    met->hangs += first.n_hangs_found;
    met->drains += first.n_drained;
    met->answers += first.n_asked;
    met->refusals += first.n_refused;
    met->cancels += first.was_cancelled;
    met->histories += first.n_histories;
    met->returns += first.n_returned;
}

static void invariants_hold_under_every_seed(void **state)
{
    uint64_t only = from_env("SIM_SEED", 0);
    uint64_t n = from_env("SIM_SEEDS", QUICK_SEEDS);
    uint64_t from = from_env("SIM_FROM", 1);
    struct met met = {0};

    (void)state;
    if (only != 0) {
        run_seed(only, &met);
        return;
    }
    for (uint64_t seed = from; seed < from + n; seed++) {
        run_seed(seed, &met);
    }
    print_message("%u hangs, %u drains, %u answers, %u refusals, %u cancels, %u "
                  "histories, %u returns\n",
                  met.hangs, met.drains, met.answers, met.refusals, met.cancels,
                  met.histories, met.returns);
    if (n >= QUICK_SEEDS) { /* none of them does nothing */
        assert_true(met.hangs > n / 20 && met.drains > n / 10 && met.cancels > n / 50);
        assert_true(met.answers > n && met.refusals > n / 10 && met.histories > n);
    }
}

static void undisturbed_job_needs_one_round(void **state)
{
    struct cluster_config config = {.seed = 1,
                                    .n_nodes = 4,
                                    .nproc = 2,
                                    .min_nodes = 4,
                                    .max_nodes = 4,
                                    .total_steps = 100};
    struct cluster_result result;

    (void)state;
    cluster_run(&config, &result);
    assert_string_equal(result.violation, "");
    assert_int_equal(result.n_rounds, 1);
    assert_int_equal(result.n_commits, 20);
    assert_int_equal(result.n_done, 4);
    assert_true(result.end_ms < 30000);
}

static void surplus_nodes_stand_by_after_one_refusal(void **state)
{
    struct cluster_config config = {.seed = 5,
                                    .n_nodes = 4,
                                    .nproc = 2,
                                    .min_nodes = 1,
                                    .max_nodes = 4,
                                    .total_steps = 100,
                                    .max_world = 5};
    struct cluster_result result;

    (void)state;
    cluster_run(&config, &result);
    assert_string_equal(result.violation, "");
    assert_int_equal(result.n_rounds, 2);
    assert_int_equal(result.n_commits, 20);
    assert_int_equal(result.n_done, 4);
}

/* Each node's wall clock is up to an hour off, another hour at every look. */
static void wall_clocks_that_jump_change_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= WALL_SEEDS; seed++) {
        struct cluster_config config = make_config(seed);
        struct cluster_result right;
        struct cluster_result wrong;

        config.faults = FAULT_ALL;
        cluster_run(&config, &right);
        config.wall_seed = seed;
        cluster_run(&config, &wrong);
        assert_string_equal(wrong.violation, "");
        assert_true(wrong.n_faults > 0);
        assert_true(right.hash == wrong.hash);
    }
}

/* Each kind of fault by itself, so that one that does nothing would be seen. */
static void every_fault_makes_new_rounds(void **state)
{
    static const unsigned faults[] = {FAULT_WORKER,    FAULT_AGENT, FAULT_SERVER,
                                      FAULT_PARTITION, FAULT_RESET, FAULT_LEAVE};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        struct cluster_config config = {.seed = 7 + i,
                                        .n_nodes = 3,
                                        .nproc = 2,
                                        .min_nodes = 1,
                                        .max_nodes = 3,
                                        .total_steps = 300,
                                        .faults = faults[i],
                                        .faults_until_ms = 60000};
        struct cluster_result result;

        cluster_run(&config, &result);
        assert_string_equal(result.violation, "");
        assert_true(result.n_faults > 0);
        assert_true(result.n_rounds > 1);
    }
}

static void silence_alone_restarts_nothing(void **state)
{
    struct cluster_config config = {.seed = 3,
                                    .n_nodes = 3,
                                    .nproc = 2,
                                    .min_nodes = 3,
                                    .max_nodes = 3,
                                    .total_steps = 300,
                                    .faults = FAULT_SERVER_PAUSE,
                                    .faults_until_ms = 60000};
    struct cluster_result result;

    (void)state;
    cluster_run(&config, &result);
    assert_string_equal(result.violation, "");
    assert_true(result.n_faults > 0);
    assert_int_equal(result.n_rounds, 1);
}

/* Nobody hears of it but the agents: not a worker starts anew, no step is lost, and no
 * store connection ends (the simulation says so). */
static void a_durable_servers_restarts_restart_nothing(void **state)
{
    unsigned n_boots = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= DURABLE_SEEDS; seed++) {
        struct cluster_config config = {.seed = seed,
                                        .n_nodes = 3,
                                        .nproc = 2,
                                        .min_nodes = 3,
                                        .max_nodes = 3,
                                        .total_steps = 300,
                                        .is_durable = true,
                                        .faults = FAULT_SERVER,
                                        .faults_until_ms = 60000};
        struct cluster_result result;

        cluster_run(&config, &result);
        assert_string_equal(result.violation, "");
        assert_int_equal(result.n_rounds, 1);
        assert_int_equal(result.n_done, 3);
        n_boots += result.n_boots;
    }
    assert_true(n_boots > 5 * DURABLE_SEEDS);
}

/* However long it is there, and how much it has done meanwhile. */
static void an_old_copy_of_the_state_is_followed_by_none(void **state)
{
    unsigned n_copies = 0;
    unsigned n_outgrown = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SOME_SEEDS; seed++) {
        struct cluster_config config = {
            .seed = seed,
            .n_nodes = 3,
            .nproc = 2,
            .min_nodes = (uint32_t)(1 + seed % 3),
            .max_nodes = 3,
            .total_steps = 600,
            .is_durable = true,
            .faults = FAULT_COPY | (seed % 2 == 0 ? FAULT_SERVER | FAULT_WORKER |
                                                        FAULT_RESET | FAULT_AGENT_PAUSE
                                                  : 0U),
            .faults_until_ms = 150000};
        struct cluster_result result;

        cluster_run(&config, &result);
        assert_string_equal(result.violation, "");
        assert_int_equal(result.n_done, 3);
        n_copies += result.n_copies;
        n_outgrown += result.n_outgrown;
    }
    assert_true(n_copies > SOME_SEEDS && n_outgrown > SOME_SEEDS / 4);
}

/* Not one, and none is told of a job that trains on. */
static void every_hang_is_told_in_time_and_costs_one_restart(void **state)
{
    unsigned n_found = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SOME_SEEDS; seed++) {
        struct cluster_config config = {.seed = seed,
                                        .n_nodes = 3,
                                        .nproc = 2,
                                        .min_nodes = 3,
                                        .max_nodes = 3,
                                        .total_steps = 200,
                                        .says_for_whom = seed % 2 == 0,
                                        .repeats = seed % 4 < 2,
                                        .faults = FAULT_HANG | FAULT_ASK,
                                        .faults_until_ms = 30000};
        struct cluster_result result;

        cluster_run(&config, &result);
        assert_string_equal(result.violation, "");
        assert_int_equal(result.failures, result.n_hangs_found);
        assert_int_equal(result.n_rounds, result.n_hangs_found + 1);
        n_found += result.n_hangs_found;
    }
    assert_true(n_found > SOME_SEEDS);
}

static void a_hang_that_is_only_told_restarts_nothing(void **state)
{
    unsigned n_found = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= UINT64_C(5) * SOME_SEEDS; seed++) {
        struct cluster_config config = {.seed = seed,
                                        .n_nodes = 2,
                                        .nproc = 2,
                                        .min_nodes = 2,
                                        .max_nodes = 2,
                                        .total_steps = 200,
                                        .reports_hangs = true,
                                        .repeats = true,
                                        .faults = FAULT_HANG,
                                        .faults_until_ms = 30000};
        struct cluster_result result;

        cluster_run(&config, &result);
        assert_string_equal(result.violation, "");
        assert_int_equal(result.n_rounds, 1);
        n_found += result.n_hangs_found;
    }
    assert_true(n_found > 5 * SOME_SEEDS);
}

/* Though the service is killed meanwhile: a durable one's word is kept. */
static void who_is_drained_or_preempted_costs_neither_a_step_nor_a_restart(void **state)
{
    unsigned n_drained = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SOME_SEEDS; seed++) {
        struct cluster_config config = {.seed = seed,
                                        .n_nodes = 4,
                                        .nproc = 2,
                                        .min_nodes = (uint32_t)(1 + seed % 4),
                                        .max_nodes = 4,
                                        .total_steps = 300,
                                        .is_durable = seed % 2 == 0,
                                        .faults = FAULT_DRAIN | FAULT_LEAVE |
                                                  (seed % 2 == 0 ? FAULT_SERVER : 0U),
                                        .faults_until_ms = 20000};
        struct cluster_result result;

        cluster_run(&config, &result);
        assert_string_equal(result.violation, "");
        assert_int_equal(result.failures, 0);
        assert_int_equal(result.steps_lost, 0);
        n_drained += result.n_drained;
    }
    assert_true(n_drained > SOME_SEEDS / 2); /* one a seed or so */
}

/* By nobody who was in it, though the service is killed before all have heard. */
static void a_job_that_was_cancelled_is_not_begun_again(void **state)
{
    unsigned n_cancelled = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= UINT64_C(2) * SOME_SEEDS; seed++) {
        struct cluster_config config = {.seed = seed,
                                        .n_nodes = 5,
                                        .nproc = 1,
                                        .min_nodes = (uint32_t)(1 + seed % 5),
                                        .max_nodes = 5,
                                        .total_steps = 300,
                                        .is_durable = seed % 2 == 0,
                                        .faults = FAULT_SERVER,
                                        .faults_until_ms = 20000,
                                        .cancel_ms = 2000 + UINT64_C(300) * seed};
        struct cluster_result result;

        cluster_run(&config, &result);
        assert_string_equal(result.violation, "");
        n_cancelled += result.was_cancelled;
    }
    assert_true(n_cancelled > SOME_SEEDS);
}

static void what_ranks_see_of_keys_that_they_share_can_have_been(void **state)
{
    unsigned n_histories = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SOME_SEEDS; seed++) {
        struct cluster_config config = {.seed = seed,
                                        .n_nodes = 4,
                                        .nproc = 2,
                                        .min_nodes = 4,
                                        .max_nodes = 4,
                                        .total_steps = 100,
                                        .is_durable = seed % 2 == 0,
                                        .shares_keys = true,
                                        .faults = FAULT_SERVER | FAULT_RESET,
                                        .faults_until_ms = 20000};
        struct cluster_result result;

        cluster_run(&config, &result);
        assert_string_equal(result.violation, "");
        n_histories += result.n_histories;
    }
    assert_true(n_histories > 10 * SOME_SEEDS);
}

/* The lease's heartbeats, joins and rounds of many, and a state of some size. */
static void a_thousand_agents_come_back_in_time(void **state)
{
    bool is_soak = getenv("CTRUN_SOAK") != NULL; /* NOLINT(concurrency-mt-unsafe) */

    (void)state;
    for (uint64_t seed = 1; seed <= (is_soak ? SOAK_CROWDS : 1); seed++) {
        struct cluster_config config = {.seed = seed,
                                        .n_nodes = 1000,
                                        .nproc = 1,
                                        .min_nodes = 1000,
                                        .max_nodes = 1000,
                                        .total_steps = is_soak ? 100 : 20,
                                        .is_durable = true,
                                        .faults = FAULT_SERVER | FAULT_ASK,
                                        .faults_until_ms = is_soak ? 15000 : 5000};
        struct cluster_result result;

        cluster_run(&config, &result);
        assert_string_equal(result.violation, "");
        assert_int_equal(result.n_rounds, 1);
        assert_int_equal(result.n_done, 1000);
        assert_true(result.n_boots > 1);
    }
}

/* No line and no event is missed, or told twice. */
static void what_is_followed_goes_on_after_a_durable_servers_restarts(void **state)
{
    unsigned n_returned = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= DURABLE_SEEDS; seed++) {
        struct cluster_config config = {.seed = seed,
                                        .n_nodes = 2,
                                        .nproc = 2,
                                        .min_nodes = 2,
                                        .max_nodes = 2,
                                        .total_steps = 1000,
                                        .is_durable = true,
                                        .faults = FAULT_SERVER | FAULT_ASK,
                                        .faults_until_ms = 60000};
        struct cluster_result result;

        cluster_run(&config, &result);
        assert_string_equal(result.violation, "");
        n_returned += result.n_returned;
    }
    assert_true(n_returned > 2 * DURABLE_SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_durable_servers_restarts_restart_nothing),
        cmocka_unit_test(what_is_followed_goes_on_after_a_durable_servers_restarts),
        cmocka_unit_test(a_thousand_agents_come_back_in_time),
        cmocka_unit_test(an_old_copy_of_the_state_is_followed_by_none),
        cmocka_unit_test(every_hang_is_told_in_time_and_costs_one_restart),
        cmocka_unit_test(a_hang_that_is_only_told_restarts_nothing),
        cmocka_unit_test(
            who_is_drained_or_preempted_costs_neither_a_step_nor_a_restart),
        cmocka_unit_test(a_job_that_was_cancelled_is_not_begun_again),
        cmocka_unit_test(what_ranks_see_of_keys_that_they_share_can_have_been),
        cmocka_unit_test(undisturbed_job_needs_one_round),
        cmocka_unit_test(surplus_nodes_stand_by_after_one_refusal),
        cmocka_unit_test(every_fault_makes_new_rounds),
        cmocka_unit_test(wall_clocks_that_jump_change_nothing),
        cmocka_unit_test(silence_alone_restarts_nothing),
        cmocka_unit_test(invariants_hold_under_every_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
