/* The fence before checkpoints, alone; test_job.c has it in a job. */

#include "rendezvous/fence.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <stdio.h>
#include <string.h>

enum verb { END, BEGIN, RESUMED, COMMIT, LEARN };

struct step {
    enum verb verb;
    uint32_t run;
    uint64_t step;
    const char *hash;
    bool is_refused;
};

struct fence_case {
    const char *name;
    struct step steps[8];
    struct commit last; /* at the end */
};

static const struct fence_case cases[] = {
    {"a_commit_behind_the_resumed_step_is_accepted",
     {{RESUMED, 1, 10, NULL, false}, {COMMIT, 1, 11, "x", false}},
     {1, 11, "x"}},
    {"a_commit_of_the_resumed_step_is_refused",
     {{RESUMED, 1, 10, NULL, false}, {COMMIT, 1, 10, "x", true}},
     {0, 0, ""}},
    {"a_smaller_step_is_refused",
     {{RESUMED, 1, 0, NULL, false},
      {COMMIT, 1, 20, "x", false},
      {COMMIT, 1, 19, "y", true}},
     {1, 20, "x"}},
    {"the_same_step_with_another_hash_is_refused",
     {{RESUMED, 1, 0, NULL, false},
      {COMMIT, 1, 20, "x", false},
      {COMMIT, 1, 20, "y", true}},
     {1, 20, "x"}},
    {"a_commit_of_another_run_is_refused",
     {{RESUMED, 1, 0, NULL, false},
      {COMMIT, 1, 20, "x", false},
      {COMMIT, 2, 20, "x", true},
      {COMMIT, 2, 30, "y", true},
      {COMMIT, 0, 30, "y", true}},
     {1, 20, "x"}},
    {"a_commit_before_resuming_is_refused",
     {{COMMIT, 1, 20, "x", true},
      {RESUMED, 1, 10, NULL, false},
      {COMMIT, 1, 20, "x", false}},
     {1, 20, "x"}},
    {"each_generation_resumes_for_itself",
     {{RESUMED, 1, 10, NULL, false},
      {BEGIN, 0, 0, NULL, false},
      {COMMIT, 1, 20, "x", true}},
     {0, 0, ""}},
    {"a_repeat_of_the_accepted_is_accepted",
     {{RESUMED, 1, 0, NULL, false},
      {COMMIT, 1, 20, "x", false},
      {COMMIT, 1, 20, "x", false}},
     {1, 20, "x"}},
    {"a_repeat_of_an_older_one_is_refused",
     {{RESUMED, 1, 0, NULL, false},
      {COMMIT, 1, 20, "x", false},
      {COMMIT, 1, 30, "y", false},
      {COMMIT, 1, 20, "x", true}},
     {1, 30, "y"}},
    {"a_commit_without_a_hash_is_refused",
     {{RESUMED, 1, 0, NULL, false}, {COMMIT, 1, 20, "", true}},
     {0, 0, ""}},
    {"a_commit_of_a_step_that_cannot_be_kept_is_refused",
     {{RESUMED, 1, 0, NULL, false},
      {COMMIT, 1, INT64_MAX, "x", false},
      {COMMIT, 1, (uint64_t)INT64_MAX + 1, "y", true}},
     {1, INT64_MAX, "x"}},
    {"a_generation_may_resume_before_the_last_commit",
     {{RESUMED, 1, 0, NULL, false},
      {COMMIT, 1, 20, "x", false},
      {BEGIN, 0, 0, NULL, false},
      {RESUMED, 2, 10, NULL, false},
      {COMMIT, 2, 15, "y", false}},
     {2, 15, "y"}},
    {"a_commit_of_the_generation_before_is_no_repeat",
     {{RESUMED, 1, 0, NULL, false},
      {COMMIT, 1, 20, "x", false},
      {BEGIN, 0, 0, NULL, false},
      {RESUMED, 2, 20, NULL, false},
      {COMMIT, 1, 20, "x", true}},
     {1, 20, "x"}},
    {"resuming_twice_alike_is_accepted",
     {{RESUMED, 1, 10, NULL, false}, {RESUMED, 1, 10, NULL, false}},
     {0, 0, ""}},
    {"resuming_twice_from_two_steps_is_refused",
     {{RESUMED, 1, 10, NULL, false},
      {RESUMED, 1, 5, NULL, true},
      {COMMIT, 1, 7, "x", true}},
     {0, 0, ""}},
    {"the_newest_commit_that_agents_know_is_learnt",
     {{LEARN, 1, 50, "a", false},
      {LEARN, 2, 10, "b", false},
      {LEARN, 1, 90, "c", false}},
     {2, 10, "b"}},
    {"no_commit_teaches_nothing", {{LEARN, 9, 9, "", false}}, {0, 0, ""}},
    {"what_is_learnt_does_not_move_the_running_generations_fence",
     {{RESUMED, 1, 0, NULL, false},
      {COMMIT, 1, 20, "x", false},
      {LEARN, 7, 1000, "z", false},
      {COMMIT, 1, 20, "x", false},
      {COMMIT, 1, 30, "y", false}},
     {1, 30, "y"}},
};

static void play(void **state)
{
    const struct fence_case *c = *state;
    struct fence f = {0};

    for (const struct step *s = c->steps; s->verb != END; s++) {
        const char *objection = NULL;

        if (s->verb == BEGIN) {
            fence_begin(&f);
        } else if (s->verb == RESUMED) {
            objection = fence_resumed(&f, s->run, s->step);
        } else if (s->verb == COMMIT) {
            objection = fence_commit(&f, s->run, s->step, s->hash);
        } else {
            fence_learn(&f, s->run, s->step, s->hash);
        }
        assert_int_equal(objection != NULL, s->is_refused);
    }
    assert_int_equal(f.last.run, c->last.run);
    assert_int_equal(f.last.step, c->last.step);
    assert_string_equal(f.last.hash, c->last.hash);
}

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(cases)];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        tests[i] = (struct CMUnitTest){cases[i].name, play, NULL, NULL,
                                       (void *)(uintptr_t)&cases[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
