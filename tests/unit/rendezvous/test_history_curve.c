/* Loss curves over a restart: what was drawn is there again, for little that is written;
 * each belongs to its own job, though another may have the same name. */

#include "rendezvous/history.h"
#include "rendezvous/record_fields.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/shelf.h"

#include "common/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct rig {
    struct history *history;
    struct shelf shelf;
    uint64_t wall_ms;
};

static void begin(struct rig *r)
{
    r->history = mem_zalloc(sizeof(*r->history));
    history_init(r->history, &(struct history_config){
                                 .seed = 7, .save = shelf_save, .arg = &r->shelf});
    for (size_t i = 0; shelf_at(&r->shelf, i); i++) {
        assert_true(history_restore(r->history, shelf_at(&r->shelf, i)));
    }
    history_restored(r->history, 0);
}

static void rig_open(struct rig *r)
{
    *r = (struct rig){.wall_ms = 1700000000000};
    begin(r);
}

static void end(struct rig *r)
{
    history_release(r->history);
    mem_free(r->history);
    shelf_commit(&r->shelf);
}

static void rig_close(struct rig *r)
{
    end(r);
    shelf_release(&r->shelf);
}

static void restart(struct rig *r)
{
    end(r);
    begin(r);
}

static void note(struct rig *r, enum job_event_kind kind, const char *job)
{
    (void)history_note(r->history,
                       &(struct job_event){.kind = kind, .job = job, .generation = 1},
                       r->wall_ms);
    r->wall_ms++;
}

/* Steps up to `last`, one after so many milliseconds. */
static void train(struct rig *r, const char *job, uint64_t first, uint64_t last,
                  uint64_t step_ms)
{
    for (uint64_t step = first; step <= last; step++) {
        char loss[32];

        (void)snprintf(loss, sizeof(loss), "%.17g", 10.0 / (double)step);
        (void)history_note(r->history,
                           &(struct job_event){.kind = JOB_PROGRESSES,
                                               .job = job,
                                               .generation = 1,
                                               .step = step,
                                               .why = loss},
                           r->wall_ms);
        r->wall_ms += step_ms;
    }
}

static const struct loss_curve *curve_of(const struct rig *r, const char *job)
{
    const struct history_job *found = history_find(r->history, job);

    assert_non_null(found);
    return &found->curve;
}

static uint64_t last_step(const struct loss_curve *c)
{
    return c->n > 0 ? c->point[c->n - 1].step : 0;
}

static void what_was_drawn_is_there_again_but_for_the_last_seconds(void **state)
{
    struct loss_point before[LOSS_CURVE_MAX];
    const struct loss_curve *c;
    struct rig r;
    size_t n;

    (void)state;
    rig_open(&r);
    note(&r, JOB_HAS_FORMED, "a");
    train(&r, "a", 1, 5000, 700);
    c = curve_of(&r, "a");
    n = c->n;
    memcpy(before, c->point, n * sizeof(*before));
    restart(&r);
    c = curve_of(&r, "a");
    assert_in_range(c->n, n - 1, n);
    assert_memory_equal(before, c->point, (c->n - 1) * sizeof(*before));
    assert_in_range(last_step(c), 5000 - c->stride, 5000);
    train(&r, "a", 5001, 6000, 700); /* and goes on as it would have */
    assert_int_equal(last_step(c), 6000);
    for (size_t i = 2; i + 1 < c->n; i++) {
        assert_true(c->point[i].step - c->point[i - 1].step <= 2 * c->stride);
    }
    rig_close(&r);
}

static void a_stop_that_is_told_loses_no_point(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    note(&r, JOB_HAS_FORMED, "a");
    note(&r, JOB_HAS_FORMED, "b"); /* has no curve */
    train(&r, "a", 1, 5, 700);
    history_stop(r.history, r.wall_ms);
    restart(&r);
    assert_int_equal(curve_of(&r, "a")->n, 5);
    assert_int_equal(last_step(curve_of(&r, "a")), 5);
    history_stop(r.history, r.wall_ms); /* nothing new */
    restart(&r);
    assert_int_equal(curve_of(&r, "a")->n, 5);
    rig_close(&r);
}

static void a_curve_is_whole_when_its_job_is_stopped(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    note(&r, JOB_HAS_FORMED, "a");
    train(&r, "a", 1, 5, 700);
    note(&r, JOB_IS_STOPPED, "a");
    restart(&r);
    assert_int_equal(history_find(r.history, "a")->state, HISTORY_STOPPED);
    assert_int_equal(last_step(curve_of(&r, "a")), 5);
    rig_close(&r);
}

static void a_diverged_loss_is_none_afterwards_too(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    note(&r, JOB_HAS_FORMED, "a");
    (void)history_note(r.history,
                       &(struct job_event){.kind = JOB_PROGRESSES,
                                           .job = "a",
                                           .generation = 1,
                                           .step = 3,
                                           .why = "nan"},
                       r.wall_ms);
    restart(&r);
    assert_int_equal(last_step(curve_of(&r, "a")), 3);
    assert_true(isnan(curve_of(&r, "a")->point[0].loss));
    rig_close(&r);
}

/* A fast job: ten steps a second for nearly three hours. */
static void a_curve_costs_little(void **state)
{
    struct rig r;
    size_t before;
    size_t bytes;

    (void)state;
    rig_open(&r);
    note(&r, JOB_HAS_FORMED, "a");
    before = r.shelf.n_saved;
    train(&r, "a", 1, 100000, 100);
    assert_in_range(r.shelf.n_saved - before, 500, 800); /* of 1000 times ten seconds */
    train(&r, "a", 100001, 110000, 100);
    bytes = r.shelf.bytes_saved;
    before = r.shelf.n_saved;
    train(&r, "a", 110001, 120000, 100);
    assert_in_range(r.shelf.n_saved - before, 10, 60);
    assert_true((r.shelf.bytes_saved - bytes) / (r.shelf.n_saved - before) <
                LOSS_CURVE_MAX * 24 + 64);
    shelf_commit(&r.shelf);
    assert_int_equal(shelf_count(&r.shelf, RECORD_CURVE), 1);
    rig_close(&r);
}

static void a_curve_that_has_ended_is_whole_and_is_its_own_jobs(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    note(&r, JOB_HAS_FORMED, "a");
    train(&r, "a", 1, 7, 10);
    note(&r, JOB_IS_DONE, "a");
    restart(&r);
    assert_int_equal(last_step(curve_of(&r, "a")), 7);
    assert_int_equal(history_find(r.history, "a")->state, HISTORY_DONE);
    note(&r, JOB_HAS_FORMED, "a"); /* the same name, another job */
    restart(&r);
    assert_int_equal(curve_of(&r, "a")->n, 0);
    assert_int_equal(r.history->n_ended, 1);
    assert_int_equal(last_step(&r.history->ended[0]->curve), 7);
    train(&r, "a", 1, 3, 20000);
    restart(&r);
    assert_int_equal(last_step(curve_of(&r, "a")), 3);
    assert_int_equal(last_step(&r.history->ended[0]->curve), 7);
    rig_close(&r);
}

/* The oldest events go; a job that has begun long ago keeps its curve, and when. */
static void a_curve_outlives_the_event_that_its_job_began_with(void **state)
{
    struct rig r;
    uint64_t began_ms;

    (void)state;
    rig_open(&r);
    note(&r, JOB_HAS_FORMED, "long");
    train(&r, "long", 1, 5, 20000);
    began_ms = history_find(r.history, "long")->began_ms;
    note(&r, JOB_HAS_FORMED, "short");
    train(&r, "short", 1, 5, 20000);
    note(&r, JOB_IS_DONE, "short");
    for (int i = 0; i < HISTORY_MAX_EVENTS + 10; i++) {
        note(&r, JOB_RESTARTS, "other");
    }
    restart(&r);
    assert_int_equal(last_step(curve_of(&r, "long")), 5);
    assert_true(history_find(r.history, "long")->began_ms == began_ms);
    assert_null(history_find(r.history, "short")); /* nobody knows how it has ended */
    shelf_commit(&r.shelf);
    assert_int_equal(shelf_count(&r.shelf, RECORD_CURVE), 1);
    rig_close(&r);
}

static void curves_of_jobs_that_are_forgotten_go(void **state)
{
    struct rig r;
    char id[16];

    (void)state;
    rig_open(&r);
    for (int i = 0; i < HISTORY_MAX_ENDED + 20; i++) {
        (void)snprintf(id, sizeof(id), "j%d", i);
        note(&r, JOB_HAS_FORMED, id);
        train(&r, id, 1, 2, 10);
        note(&r, JOB_IS_DONE, id);
    }
    shelf_commit(&r.shelf);
    assert_int_equal(shelf_count(&r.shelf, RECORD_CURVE), HISTORY_MAX_ENDED);
    restart(&r);
    shelf_commit(&r.shelf);
    assert_int_equal(shelf_count(&r.shelf, RECORD_CURVE), HISTORY_MAX_ENDED);
    rig_close(&r);
}

/* Points of which the steps do not grow, too many, none, a key of another length … */
static void what_is_no_curve_is_left_out(void **state)
{
    static const uint8_t key[] = {0, 0, 0, 0, 0, 0, 0, 1};
    static uint8_t points[(LOSS_CURVE_MAX + 1) * 24];
    const struct {
        size_t key_size, n_bytes;
        uint64_t stride, n_skipped;
        bool is_sorted;
    } cases[] = {
        {8, 48, 1, 0, false}, {8, 0, 1, 0, true},  {8, sizeof(points), 1, 0, true},
        {8, 25, 1, 0, true},  {7, 48, 1, 0, true}, {8, 48, 0, 0, true},
        {8, 48, 1, 2, true},  {8, 48, 2, 1, true}, /* the last is one */
    };
    struct rig r;

    (void)state;
    rig_open(&r);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct record_curve f = {.stride = cases[i].stride,
                                 .n_skipped = cases[i].n_skipped,
                                 .points = {points, cases[i].n_bytes}};
        struct buf value;

        for (size_t k = 0; k <= LOSS_CURVE_MAX; k++) {
            points[k * 24] = (uint8_t)(cases[i].is_sorted ? k : 1);
            points[k * 24 + 1] = (uint8_t)(cases[i].is_sorted ? k >> 8 : 0);
        }
        buf_init(&value, RECORD_VALUE_MAX);
        assert_int_equal(record_put_curve(&f, &value), 0);
        assert_int_equal(
            history_restore(r.history, &(struct record){.kind = RECORD_CURVE,
                                                        .job = "a",
                                                        .key = {key, cases[i].key_size},
                                                        .value = record_bytes(&value)}),
            i + 1 == ARRAY_LEN(cases));
        buf_release(&value);
    }
    rig_close(&r); /* before history_restored */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_drawn_is_there_again_but_for_the_last_seconds),
        cmocka_unit_test(a_stop_that_is_told_loses_no_point),
        cmocka_unit_test(a_curve_is_whole_when_its_job_is_stopped),
        cmocka_unit_test(a_diverged_loss_is_none_afterwards_too),
        cmocka_unit_test(a_curve_costs_little),
        cmocka_unit_test(a_curve_that_has_ended_is_whole_and_is_its_own_jobs),
        cmocka_unit_test(a_curve_outlives_the_event_that_its_job_began_with),
        cmocka_unit_test(curves_of_jobs_that_are_forgotten_go),
        cmocka_unit_test(what_is_no_curve_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
