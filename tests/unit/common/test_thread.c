#include "tests/lib/cmocka.h"

#include "common/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>

enum { STACK_SIZE = 512 * 1024 };

struct seen {
    sigset_t blocked;
    size_t stack_size;
    bool is_run;
};

/* What a thread finds of itself. */
static void *look(void *arg)
{
    struct seen *seen = arg;
    pthread_attr_t attr;

    seen->is_run = pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked) == 0 &&
                   pthread_getattr_np(pthread_self(), &attr) == 0;
    if (seen->is_run) {
        (void)pthread_attr_getstacksize(&attr, &seen->stack_size);
        (void)pthread_attr_destroy(&attr);
    }
    return NULL;
}

static struct seen run_one(size_t stack_size)
{
    struct seen seen = {.is_run = false};
    pthread_t thread;

    assert_int_equal(thread_start(stack_size, look, &seen, &thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(seen.is_run);
    return seen;
}

/* Every signal that can be blocked, and that libc does not keep for itself. */
static void assert_blocked(const sigset_t *set)
{
    for (int i = 1; i <= SIGRTMAX; i++) {
        if (i != SIGKILL && i != SIGSTOP && (i < __SIGRTMIN || i >= SIGRTMIN)) {
            assert_int_equal(sigismember(set, i), 1);
        }
    }
}

/* Its starter goes on as before: what it has blocked, and nothing else. */
static void block_one(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &set, NULL), 0);
}

static void assert_one_blocked(void)
{
    sigset_t set;

    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
    assert_int_equal(sigismember(&set, SIGUSR1), 1);
    assert_int_equal(sigismember(&set, SIGTERM), 0);
    assert_int_equal(sigismember(&set, SIGPIPE), 0);
}

static void a_thread_takes_no_signals_and_its_starter_those_of_before(void **state)
{
    struct seen seen;

    (void)state;
    block_one();
    seen = run_one(0);
    assert_blocked(&seen.blocked);
    assert_one_blocked();
}

static void a_stack_is_as_large_as_was_asked_for_or_as_the_systems(void **state)
{
    pthread_attr_t attr;
    size_t size; /* sanitizers add something of their own */

    (void)state;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_getstacksize(&attr, &size), 0);
    assert_int_equal(pthread_attr_destroy(&attr), 0);
    assert_in_range(run_one(STACK_SIZE).stack_size, STACK_SIZE, size - 1);
    assert_true(run_one(0).stack_size >= size);
}

static void where_there_is_no_room_for_a_thread_that_is_said(void **state)
{
    const pthread_t nobody = pthread_self();
    pthread_t thread = nobody;
    struct seen seen = {.is_run = false};

    (void)state;
    block_one();
    assert_int_equal(thread_start((size_t)1 << 48, look, &seen, &thread), -EAGAIN);
    assert_true(pthread_equal(thread, nobody));
    assert_false(seen.is_run);
    assert_one_blocked();
    assert_int_equal(thread_start(1, look, &seen, &thread), -EINVAL); /* too small */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_takes_no_signals_and_its_starter_those_of_before),
        cmocka_unit_test(a_stack_is_as_large_as_was_asked_for_or_as_the_systems),
        cmocka_unit_test(where_there_is_no_room_for_a_thread_that_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
