/* Work by a thread, which may hang; here it hangs on a pipe. */

#include "tests/lib/cmocka.h"

#include "common/clock.h"
#include "common/errand.h"

#include <stdbool.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000, MOMENT_MS = 20 };

struct job {
    int go[2];       /* it reads there, and ends */
    int released[2]; /* it is said there that nobody takes it */
    bool is_run;
};

static struct job job;

static void run(void *data)
{
    struct job *j = data;
    char c;

    j->is_run = read(j->go[0], &c, 1) == 1;
}

static void release(void *data)
{
    const struct job *j = data;

    (void)!write(j->released[1], "r", 1); /* the test waits for it */
}

static int setup(void **state)
{
    (void)state;
    job = (struct job){.is_run = false};
    return pipe(job.go) < 0 || pipe(job.released) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        (void)close(job.go[i]);
        (void)close(job.released[i]);
    }
    return 0;
}

static struct errand *begin(void)
{
    const struct errand_work work = {.data = &job, .run = run, .release = release};
    struct errand *e;

    assert_int_equal(errand_begin(&work, &e), 0);
    return e;
}

static void let_go(void)
{
    assert_int_equal(write(job.go[1], "g", 1), 1);
}

static void assert_released(void)
{
    char c;

    assert_int_equal(read(job.released[0], &c, 1), 1); /* blocks until it is */
}

static void what_is_done_is_taken(void **state)
{
    struct errand *e = begin();

    (void)state;
    let_go();
    assert_ptr_equal(errand_take(e, PATIENCE_MS), &job);
    assert_true(job.is_run);
}

static void what_hangs_is_waited_for_as_long_as_was_said_and_taken_later(void **state)
{
    struct errand *e = begin();
    uint64_t begun_ms = clock_ms();

    (void)state;
    assert_null(errand_take(e, MOMENT_MS));
    assert_true(clock_ms() - begun_ms >= MOMENT_MS);
    assert_null(errand_take(e, 0));
    let_go();
    assert_ptr_equal(errand_take(e, PATIENCE_MS), &job);
}

static void what_hangs_and_is_left_is_released_when_it_comes_back(void **state)
{
    struct errand *e = begin();

    (void)state;
    errand_leave(e);
    let_go();
    assert_released();
    assert_true(job.is_run);
}

static void what_is_done_and_left_is_released(void **state)
{
    struct errand *e = begin();

    (void)state;
    let_go();
    errand_leave(e); /* before the thread has ended, or after */
    assert_released();
    errand_leave(NULL);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_is_done_is_taken),
        CASE(what_hangs_is_waited_for_as_long_as_was_said_and_taken_later),
        CASE(what_hangs_and_is_left_is_released_when_it_comes_back),
        CASE(what_is_done_and_left_is_released),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
