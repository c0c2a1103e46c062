/* What is remembered of jobs: by number, bounded, and over a restart. */

#include "rendezvous/event_json.h"
#include "rendezvous/history.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"
#include "common/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_MAX = 8192, SPAN_MS = 1000000 };

/* A state that keeps event records, as a database would. */
struct shelf {
    struct record record[KEPT_MAX];
    size_t n;
    size_t n_dropped;
};

static void free_record(struct record *r)
{
    mem_free((void *)(uintptr_t)r->job);
    mem_free((void *)(uintptr_t)r->key.data);
    mem_free((void *)(uintptr_t)r->value.data);
}

static bool is_same_name(const struct record *a, const struct record *b)
{
    return a->kind == b->kind && a->generation == b->generation &&
           strcmp(a->job, b->job) == 0 && a->key.size == b->key.size &&
           memcmp(a->key.data, b->key.data, a->key.size) == 0;
}

static void on_save(void *arg, const struct record *r)
{
    struct shelf *shelf = arg;

    if (r->act == RECORD_DROP) {
        assert_true(is_same_name(&shelf->record[shelf->n_dropped], r));
        shelf->n_dropped++;
        return;
    }
    assert_int_equal(r->act, RECORD_PUT);
    assert_true(shelf->n < KEPT_MAX);
    shelf->record[shelf->n++] = (struct record){
        .kind = r->kind,
        .generation = r->generation,
        .job = mem_strdup(r->job),
        .key = {mem_dup(r->key.data, r->key.size), r->key.size},
        .value = {mem_dup(r->value.data, r->value.size), r->value.size}};
}

static void release_shelf(struct shelf *shelf)
{
    for (size_t i = 0; i < shelf->n; i++) {
        free_record(&shelf->record[i]);
    }
    free(shelf);
}

static struct history *new_history(struct shelf *shelf)
{
    struct history *h = mem_zalloc(sizeof(*h));

    history_init(h, &(struct history_config){.seed = 7,
                                             .span_ms = SPAN_MS,
                                             .save = shelf ? on_save : NULL,
                                             .arg = shelf});
    return h;
}

static void free_history(struct history *h)
{
    history_release(h);
    mem_free(h);
}

static void note(struct history *h, enum job_event_kind kind, const char *job)
{
    (void)history_note(h, &(struct job_event){.kind = kind, .job = job}, 1000);
}

static size_t count_after(const struct history *h, uint64_t number)
{
    const struct history_event *e = history_after(h, number);
    size_t n = 0;

    for (; e; e = history_after(h, e->number)) {
        assert_true(e->number > number);
        number = e->number;
        n++;
    }
    return n;
}

static void events_are_numbered_from_1_and_read_in_order(void **state)
{
    struct history *h = new_history(NULL);

    (void)state;
    note(h, NODE_HAS_JOINED, "a");
    note(h, JOB_HAS_FORMED, "a");
    note(h, JOB_HAS_COMMITTED, "a");
    note(h, JOB_IS_DONE, "a");
    assert_int_equal(count_after(h, 0), 4);
    assert_int_equal(count_after(h, 2), 2);
    assert_int_equal(history_after(h, 0)->kind, NODE_HAS_JOINED);
    assert_int_equal(history_after(h, 1)->kind, JOB_HAS_FORMED);
    assert_int_equal(history_after(h, 2)->kind, JOB_HAS_COMMITTED);
    assert_null(history_after(h, 4));
    assert_null(history_after(h, UINT64_MAX));
    free_history(h);
}

static void with_hardly_any_room_only_how_jobs_begin_and_end_is_saved(void **state)
{
    struct shelf *shelf = calloc(1, sizeof(*shelf));
    struct history *h = new_history(shelf);
    const struct history_job *job;

    (void)state;
    assert_non_null(shelf);
    history_be_terse(h, true);
    note(h, JOB_HAS_FORMED, "a");
    for (int i = 0; i < 10; i++) {
        note(h, JOB_HAS_COMMITTED, "a");
        (void)history_note(
            h, &(struct job_event){.kind = JOB_PROGRESSES, .job = "a", .why = "1.5"},
            1);
    }
    note(h, NODE_IS_LOST, "a");
    (void)history_note(
        h, &(struct job_event){.kind = JOB_HAS_FAILED, .job = "a", .exit_code = 7}, 1);
    assert_int_equal(count_after(h, 0), 13); /* people see all of it until then */
    assert_int_equal(shelf->n, 2);
    free_history(h);
    h = new_history(NULL);
    for (size_t i = 0; i < shelf->n; i++) {
        assert_true(history_restore(h, &shelf->record[i]));
    }
    history_restored(h, 0);
    job = history_find(h, "a");
    assert_non_null(job);
    assert_int_equal(job->state, HISTORY_FAILED);
    assert_int_equal(job->exit_code, 7);
    history_be_terse(h, false);
    free_history(h);
    release_shelf(shelf);
}

static void the_oldest_make_room_and_crowds_push_out_crowds_alone(void **state)
{
    struct history *h = new_history(NULL);

    (void)state;
    note(h, JOB_HAS_FORMED, "a"); /* the first of all */
    for (int i = 0; i < 3 * HISTORY_MAX_CROWD; i++) {
        note(h, JOB_HAS_COMMITTED, "a");
    }
    assert_int_equal(history_after(h, 0)->number, 1);
    assert_int_equal(count_after(h, 0), 1 + HISTORY_MAX_CROWD);
    for (int i = 0; i < HISTORY_MAX_EVENTS; i++) {
        note(h, JOB_RESTARTS, "a");
    }
    assert_int_equal(count_after(h, 0), HISTORY_MAX_EVENTS + HISTORY_MAX_CROWD);
    assert_int_not_equal(history_after(h, 0)->number, 1);
    assert_int_equal(h->last_number, 1 + 3 * HISTORY_MAX_CROWD + HISTORY_MAX_EVENTS);
    free_history(h);
}

static void note_at(struct history *h, uint64_t now_ms)
{
    history_run(h, now_ms);
    note(h, JOB_HAS_FORMED, "a");
}

static void events_are_forgotten_after_the_span_that_is_set(void **state)
{
    struct history *h = new_history(NULL);

    (void)state;
    note_at(h, 1000);
    note_at(h, 1000 + SPAN_MS);
    assert_int_equal(count_after(h, 0), 2);
    note_at(h, 1001 + SPAN_MS);
    assert_int_equal(count_after(h, 0), 2);
    assert_int_equal(history_after(h, 0)->number, 2);
    free_history(h);
    h = new_history(NULL);
    h->config.span_ms = 0;
    note_at(h, 1000);
    note_at(h, UINT64_MAX);
    assert_int_equal(count_after(h, 0), 2);
    free_history(h);
}

/* The machine has no clock of its own, or was off for long. */
static void a_wall_clock_that_jumps_makes_no_event_older(void **state)
{
    static const uint64_t walls[] = {1000, 1001 + 100ULL * SPAN_MS, 5};
    struct shelf *shelf = calloc(1, sizeof(*shelf));
    struct history *h = new_history(shelf);

    (void)state;
    assert_non_null(shelf);
    history_run(h, 10);
    for (size_t i = 0; i < ARRAY_LEN(walls); i++) {
        (void)history_note(h, &(struct job_event){.kind = JOB_IS_DONE, .job = "a"},
                           walls[i]);
    }
    assert_int_equal(count_after(h, 0), ARRAY_LEN(walls));
    assert_int_equal(shelf->n_dropped, 0);
    free_history(h);
    release_shelf(shelf);
}

static void after_a_restart_events_are_as_old_as_before(void **state)
{
    struct shelf *shelf = calloc(1, sizeof(*shelf));
    struct history *h = new_history(shelf);

    (void)state;
    assert_non_null(shelf);
    note(h, JOB_HAS_FORMED, "a"); /* of a version that did not say: as the next one */
    note_at(h, 1000);
    note_at(h, SPAN_MS);
    free_history(h);
    h = new_history(NULL);
    for (size_t i = 0; i < shelf->n; i++) {
        assert_true(history_restore(h, &shelf->record[i]));
    }
    history_restored(h, SPAN_MS + 500);
    note_at(h, SPAN_MS + 1000);
    assert_int_equal(count_after(h, 0), 4);
    note_at(h, SPAN_MS + 1001);
    assert_int_equal(history_after(h, 0)->number, 3);
    note_at(h, 2 * SPAN_MS + 1);
    assert_int_equal(history_after(h, 0)->number, 4);
    free_history(h);
    release_shelf(shelf);
}

static void one_refusal_a_second_is_kept_and_all_are_counted(void **state)
{
    struct history *h = new_history(NULL);
    const struct job_event e = {.kind = NODE_IS_REFUSED, .job = "x", .why = "no"};

    (void)state;
    assert_true(history_note(h, &e, 5000));
    assert_false(history_note(h, &e, 5001));
    assert_false(history_note(h, &e, 5999));
    assert_true(history_note(h, &e, 6000));
    assert_true(history_note(h, &e, 10)); /* the clock was set back */
    assert_int_equal(count_after(h, 0), 3);
    assert_int_equal(h->n_kind[NODE_IS_REFUSED], 5);
    assert_null(history_find(h, "x")); /* it is no job */
    free_history(h);
}

static void a_job_that_ends_is_remembered_with_its_cause_and_restarts(void **state)
{
    struct history *h = new_history(NULL);
    const struct history_job *job;

    (void)state;
    (void)history_note(h,
                       &(struct job_event){.kind = JOB_HAS_FORMED,
                                           .job = "a",
                                           .generation = 1,
                                           .nodes = 2,
                                           .ranks = 8},
                       100);
    (void)history_note(h,
                       &(struct job_event){.kind = JOB_RESTARTS,
                                           .job = "a",
                                           .generation = 1,
                                           .cause = RESTART_NODE_LOST,
                                           .why = "node b was lost"},
                       200);
    assert_string_equal(history_find(h, "a")->cause, "node b was lost");
    (void)history_note(h,
                       &(struct job_event){.kind = JOB_HAS_FORMED,
                                           .job = "a",
                                           .generation = 2,
                                           .nodes = 1,
                                           .ranks = 4},
                       300);
    (void)history_note(h,
                       &(struct job_event){.kind = JOB_HAS_FAILED,
                                           .job = "a",
                                           .generation = 2,
                                           .exit_code = 7,
                                           .node = "c",
                                           .has_rank = true,
                                           .rank = 3,
                                           .why = "rank 3 on c: exit code 7"},
                       400);
    job = history_find(h, "a");
    assert_int_equal(job->state, HISTORY_FAILED);
    assert_int_equal(job->exit_code, 7);
    assert_int_equal(job->generation, 2);
    assert_int_equal(job->began_ms, 100);
    assert_int_equal(job->formed_ms, 300);
    assert_int_equal(job->ended_ms, 400);
    assert_int_equal(job->restarts[RESTART_NODE_LOST], 1);
    assert_int_equal(job->restarts[RESTART_FAILURE], 0);
    assert_int_equal(job->rank, 3);
    assert_string_equal(job->node, "c");
    assert_string_equal(job->cause, "rank 3 on c: exit code 7");
    assert_int_equal(h->n_restarts[RESTART_NODE_LOST], 1);
    free_history(h);
}

static void a_job_begun_anew_has_a_record_of_its_own(void **state)
{
    struct history *h = new_history(NULL);

    (void)state;
    note(h, JOB_HAS_FORMED, "a");
    note(h, JOB_IS_DONE, "a");
    assert_int_equal(history_find(h, "a")->state, HISTORY_DONE);
    note(h, JOB_HAS_FORMED, "a");
    assert_int_equal(history_find(h, "a")->state, HISTORY_LIVES);
    note(h, JOB_IS_STOPPED, "a");
    assert_int_equal(history_find(h, "a")->state, HISTORY_STOPPED);
    assert_int_equal(h->n_ended, 2);
    free_history(h);
}

static void jobs_are_bounded_the_stalest_goes(void **state)
{
    struct history *h = new_history(NULL);
    char id[32];

    (void)state;
    for (int i = 0; i <= HISTORY_MAX_JOBS; i++) {
        (void)snprintf(id, sizeof(id), "job-%d", i);
        note(h, NODE_HAS_JOINED, id);
        note(h, NODE_HAS_JOINED, "job-0"); /* is heard of all the time */
    }
    assert_non_null(history_find(h, "job-0"));
    assert_null(history_find(h, "job-1"));
    assert_non_null(history_find(h, "job-2"));
    for (int i = 0; i < 2 * HISTORY_MAX_ENDED; i++) {
        (void)snprintf(id, sizeof(id), "short-%d", i);
        note(h, JOB_HAS_FORMED, id);
        note(h, JOB_IS_DONE, id);
    }
    assert_int_equal(h->n_ended, HISTORY_MAX_ENDED);
    assert_null(history_find(h, "short-0"));
    assert_non_null(history_find(h, "short-511"));
    free_history(h);
}

static void note_end(struct history *h, const char *owner, const char *job)
{
    (void)history_note(
        h, &(struct job_event){.kind = JOB_HAS_FAILED, .job = job, .owner = owner},
        1000);
}

static void who_ends_many_jobs_has_no_other_owners_forgotten(void **state)
{
    struct shelf *shelf = calloc(1, sizeof(*shelf));
    struct history *h = new_history(shelf);
    char id[32];

    (void)state;
    note_end(h, "secret bob", "bob");
    for (int i = 0; i < 2 * HISTORY_MAX_ENDED; i++) {
        (void)snprintf(id, sizeof(id), "alice-%d", i);
        note_end(h, "secret alice", id);
    }
    for (int round = 0; round < 2; round++) { /* after a restart, too */
        assert_int_equal(h->n_ended, HISTORY_MAX_ENDED);
        assert_non_null(history_find(h, "bob"));
        assert_null(history_find(h, "alice-256"));
        assert_non_null(history_find(h, "alice-257"));
        assert_non_null(history_find(h, "alice-511"));
        free_history(h);
        h = new_history(NULL);
        for (size_t i = 0; i < shelf->n; i++) {
            assert_true(history_restore(h, &shelf->record[i]));
        }
        history_restored(h, 0);
    }
    free_history(h);
    release_shelf(shelf);
}

/* --- over a restart --- */

static void events_survive_a_restart_and_numbers_go_on(void **state)
{
    struct shelf *shelf = calloc(1, sizeof(*shelf));
    struct history *h = new_history(shelf);
    const struct history_event *e;

    (void)state;
    (void)history_note(h,
                       &(struct job_event){.kind = JOB_HAS_FORMED,
                                           .job = "a",
                                           .generation = 1,
                                           .nodes = 2,
                                           .ranks = 8},
                       100);
    (void)history_note(h,
                       &(struct job_event){.kind = JOB_RESTARTS,
                                           .job = "a",
                                           .generation = 1,
                                           .cause = RESTART_HANG,
                                           .why = "rank 1 \"hangs\"\n"},
                       200);
    (void)history_note(
        h, &(struct job_event){.kind = JOB_HAS_COMMITTED, .job = "a", .step = 42}, 250);
    (void)history_note(h,
                       &(struct job_event){.kind = JOB_HAS_FAILED,
                                           .job = "a",
                                           .owner = "psk:7",
                                           .generation = 2,
                                           .exit_code = 9,
                                           .why = "it broke"},
                       300);
    note(h, JOB_HAS_FORMED, "b\xff"); /* no UTF-8 */
    free_history(h);

    h = new_history(NULL);
    for (size_t i = shelf->n; i > 0; i--) { /* in any order */
        assert_true(history_restore(h, &shelf->record[i - 1]));
    }
    history_restored(h, 0);
    assert_int_equal(count_after(h, 0), 5);
    assert_int_equal(h->last_number, 5);
    e = history_after(h, 1);
    assert_int_equal(e->kind, JOB_RESTARTS);
    assert_int_equal(e->cause, RESTART_HANG);
    assert_string_equal(e->text, "rank 1 \"hangs\"\n");
    assert_int_equal(e->wall_ms, 200);
    assert_int_equal(history_find(h, "a")->exit_code, 9);
    assert_int_equal(history_find(h, "a")->restarts[RESTART_HANG], 1);
    assert_int_equal(history_find(h, "a")->commit_step, 42);
    assert_string_equal(history_find(h, "a")->cause, "it broke");
    assert_string_equal(history_find(h, "a")->owner, "psk:7");
    assert_int_equal(history_find(h, "b\xff")->state, HISTORY_LIVES);
    free_history(h);
    release_shelf(shelf);
}

static void what_is_pushed_out_is_dropped_from_the_state(void **state)
{
    struct shelf *shelf = calloc(1, sizeof(*shelf));
    struct history *h = new_history(shelf);

    (void)state;
    for (int i = 0; i < HISTORY_MAX_EVENTS + 10; i++) {
        note(h, JOB_HAS_FORMED, "a");
    }
    assert_int_equal(shelf->n_dropped, 10); /* on_save checks which */
    free_history(h);
    release_shelf(shelf);
}

static void a_record_that_is_no_event_is_left_out(void **state)
{
    static const char *const texts[] = {
        "", "[]", "{}", "{\"kind\":\"no such\"}", "{", "{\"kind\":7}"};
    uint8_t key[8] = {[7] = 1};
    struct history *h = new_history(NULL);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct record r = {.kind = RECORD_EVENT,
                           .job = "a",
                           .key = {key, sizeof(key)},
                           .value = {(const uint8_t *)texts[i], strlen(texts[i])}};

        assert_false(history_restore(h, &r));
        r.key.size = 7;
        assert_false(history_restore(h, &r));
    }
    history_restored(h, 0);
    assert_null(history_after(h, 0));
    free_history(h);
}

/* --- the loss --- */

static void add(struct loss_curve *c, uint64_t generation, uint64_t step, double loss)
{
    loss_curve_add(c, generation, &(struct loss_point){.step = step, .loss = loss});
}

static void a_curve_keeps_its_shape_in_bounded_points(void **state)
{
    struct loss_curve c = {0};
    const uint64_t n = 100000;

    (void)state;
    for (uint64_t step = 1; step <= n; step++) {
        add(&c, 1, step, 1.0 / (double)step);
        assert_true(c.n <= LOSS_CURVE_MAX);
        assert_int_equal(c.point[c.n - 1].step, step); /* the newest, always */
    }
    assert_true(c.n > LOSS_CURVE_MAX / 4);
    assert_int_equal(c.point[0].step, 1);
    for (size_t i = 1; i < c.n; i++) {
        assert_true(c.point[i].step > c.point[i - 1].step);
        assert_true(c.point[i].step - c.point[i - 1].step <= 4 * n / LOSS_CURVE_MAX);
        assert_true(c.point[i].loss == 1.0 / (double)c.point[i].step);
    }
    loss_curve_release(&c);
}

static void ranks_that_tell_an_old_step_change_nothing(void **state)
{
    struct loss_curve c = {0};

    (void)state;
    add(&c, 1, 5, 3.0);
    add(&c, 1, 5, 9.0);
    add(&c, 1, 4, 9.0);
    assert_int_equal(c.n, 1);
    assert_true(c.point[0].loss == 3.0);
    loss_curve_release(&c);
}

static void a_generation_that_goes_back_draws_the_end_anew(void **state)
{
    struct loss_curve c = {0};

    (void)state;
    for (uint64_t step = 1; step <= 10; step++) {
        add(&c, 1, step, 1.0);
    }
    add(&c, 2, 6, 2.0);
    add(&c, 1, 11, 1.0); /* of before */
    assert_int_equal(c.n, 6);
    assert_int_equal(c.point[5].step, 6);
    assert_true(c.point[4].loss == 1.0);
    assert_true(c.point[5].loss == 2.0);
    loss_curve_release(&c);
}

static void progress_draws_the_curve_and_is_no_event(void **state)
{
    struct history *h = new_history(NULL);
    const struct loss_curve *c;

    (void)state;
    assert_false(history_note(h,
                              &(struct job_event){.kind = JOB_PROGRESSES,
                                                  .job = "a",
                                                  .generation = 1,
                                                  .step = 1,
                                                  .why = "2.5"},
                              10));
    assert_false(history_note(h,
                              &(struct job_event){.kind = JOB_PROGRESSES,
                                                  .job = "a",
                                                  .generation = 1,
                                                  .step = 2,
                                                  .why = "nan"},
                              20));
    c = &history_find(h, "a")->curve;
    assert_int_equal(c->n, 2);
    assert_true(c->point[0].loss == 2.5);
    assert_true(isnan(c->point[1].loss));
    assert_null(history_after(h, 0));
    free_history(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_numbered_from_1_and_read_in_order),
        cmocka_unit_test(with_hardly_any_room_only_how_jobs_begin_and_end_is_saved),
        cmocka_unit_test(the_oldest_make_room_and_crowds_push_out_crowds_alone),
        cmocka_unit_test(events_are_forgotten_after_the_span_that_is_set),
        cmocka_unit_test(a_wall_clock_that_jumps_makes_no_event_older),
        cmocka_unit_test(after_a_restart_events_are_as_old_as_before),
        cmocka_unit_test(one_refusal_a_second_is_kept_and_all_are_counted),
        cmocka_unit_test(a_job_that_ends_is_remembered_with_its_cause_and_restarts),
        cmocka_unit_test(a_job_begun_anew_has_a_record_of_its_own),
        cmocka_unit_test(jobs_are_bounded_the_stalest_goes),
        cmocka_unit_test(who_ends_many_jobs_has_no_other_owners_forgotten),
        cmocka_unit_test(events_survive_a_restart_and_numbers_go_on),
        cmocka_unit_test(what_is_pushed_out_is_dropped_from_the_state),
        cmocka_unit_test(a_record_that_is_no_event_is_left_out),
        cmocka_unit_test(a_curve_keeps_its_shape_in_bounded_points),
        cmocka_unit_test(ranks_that_tell_an_old_step_change_nothing),
        cmocka_unit_test(a_generation_that_goes_back_draws_the_end_anew),
        cmocka_unit_test(progress_draws_the_curve_and_is_no_event),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
