/* What is found out about a live process. */

#include "launcher/inspect.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void spin(void)
{
    for (volatile unsigned long n = 0;; n++) {
    }
}

static void sleep_for_ever(void)
{
    for (;;) {
        (void)pause();
    }
}

static void *spin_thread(void *arg)
{
    (void)arg;
    spin();
    return NULL;
}

static void wait_for_own_thread(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, spin_thread, NULL) == 0) {
        (void)pthread_join(thread, NULL);
    }
}

/* Into a pipe that nobody reads. */
static void flood(void)
{
    static const char bytes[4096];
    int ends[2];

    while (pipe(ends) == 0 && write(ends[1], bytes, sizeof(bytes)) > 0) {
        while (write(ends[1], bytes, sizeof(bytes)) > 0) {
        }
    }
}

static pid_t start(void (*deed)(void))
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        deed();
        _exit(1);
    }
    return pid;
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Looks until it is so: it may take a moment until the process is where it goes. */
static void expect_state(pid_t pid, const char *state)
{
    char found[INSPECT_STATE_SIZE];

    for (int i = 0; i < 40; i++) {
        inspect_state(pid, found);
        if (strncmp(found, state, strlen(state)) == 0) {
            return;
        }
    }
    fail_msg("'%s', not '%s'", found, state);
}

static void the_state_says_what_a_process_does(void **state)
{
    static const struct {
        void (*deed)(void);
        const char *state;
    } cases[] = {
        {spin, "R"}, {sleep_for_ever, "S"}, {wait_for_own_thread, "R"}, {flood, "O "}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        pid_t pid = start(cases[i].deed);

        expect_state(pid, cases[i].state);
        end(pid);
    }
}

static void a_stopped_process_is_stopped(void **state)
{
    pid_t pid = start(spin);

    (void)state;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    expect_state(pid, "T");
    assert_int_equal(kill(pid, SIGCONT), 0);
    expect_state(pid, "R");
    end(pid);
}

static void of_a_process_that_is_gone_nothing_is_found(void **state)
{
    char found[INSPECT_STATE_SIZE] = "x";
    char stack[INSPECT_STACK_SIZE] = "x";
    pid_t pid = start(spin);

    (void)state;
    end(pid);
    inspect_state(pid, found);
    assert_string_equal(found, "");
    inspect_stack(pid, stack);
    assert_string_equal(stack, "");
}

/* By gdb where it is, else the kernel's part alone, which root may see. */
static void looking_at_the_stack_leaves_the_process_as_it_was(void **state)
{
    char stack[INSPECT_STACK_SIZE];
    pid_t pid = start(spin);

    (void)state;
    expect_state(pid, "R");
    inspect_stack(pid, stack);
    assert_true(access("/usr/bin/gdb", X_OK) != 0 || strstr(stack, "spin"));
    expect_state(pid, "R");
    assert_int_equal(kill(pid, SIGSTOP), 0);
    expect_state(pid, "T");
    inspect_stack(pid, stack);
    expect_state(pid, "T");
    end(pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_state_says_what_a_process_does),
        cmocka_unit_test(a_stopped_process_is_stopped),
        cmocka_unit_test(of_a_process_that_is_gone_nothing_is_found),
        cmocka_unit_test(looking_at_the_stack_leaves_the_process_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
