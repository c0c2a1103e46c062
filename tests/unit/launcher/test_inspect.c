/* What is found out about a live process. */

#include "launcher/inspect.h"
#include "launcher/keeper/keeper.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/check.h"
#include "common/clock.h"

#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
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
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
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

/* Looks until it is so: it may take a moment until the process is where it goes, and
 * one that computes must have had a processor while it was looked at. */
static void expect_state(pid_t pid, const char *state)
{
    char found[INSPECT_STATE_SIZE];

    for (uint64_t until = clock_ms() + 60000; clock_ms() < until;) {
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
    char kernel[INSPECT_KERNEL_SIZE] = "x";
    char stack[INSPECT_STACK_SIZE] = "x";
    pid_t pid = start(spin);

    (void)state;
    end(pid);
    inspect_state(pid, found);
    assert_string_equal(found, "");
    inspect_kernel(pid, kernel);
    assert_string_equal(kernel, "");
    inspect_stack(pid, INSPECT_STACK_MS, stack);
    assert_string_equal(stack, "");
}

/* Root does, mostly. */
static void who_may_sees_where_a_process_is_in_the_kernel(void **state)
{
    static const char title[] = "in the kernel:\n[<0>] ";
    char kernel[INSPECT_KERNEL_SIZE];
    pid_t pid = start(sleep_for_ever);

    (void)state;
    expect_state(pid, "S");
    inspect_kernel(pid, kernel);
    assert_true(kernel[0] == '\0' || strncmp(kernel, title, sizeof(title) - 1) == 0);
    end(pid);
}

/* By gdb, where it is. */
static void looking_at_the_stack_leaves_the_process_as_it_was(void **state)
{
    char stack[INSPECT_STACK_SIZE];
    pid_t pid = start(spin);

    (void)state;
    expect_state(pid, "R");
    inspect_stack(pid, INSPECT_STACK_MS, stack);
    assert_true(access("/usr/bin/gdb", X_OK) != 0 || strstr(stack, "spin"));
    expect_state(pid, "R");
    assert_int_equal(kill(pid, SIGSTOP), 0);
    expect_state(pid, "T");
    inspect_stack(pid, INSPECT_STACK_MS, stack);
    expect_state(pid, "T");
    end(pid);
}

static void on_signal(int number)
{
    (void)number;
}

static void only_a_handler_catches_a_signal(void **state)
{
    int last = SIGRTMAX;

    (void)state;
    (void)signal(SIGUSR1, on_signal);
    (void)signal(SIGUSR2, SIG_IGN);
    (void)signal(last, on_signal);
    assert_true(inspect_catches(getpid(), SIGUSR1));
    assert_true(inspect_catches(getpid(), last));
    assert_false(inspect_catches(getpid(), SIGUSR2));
    assert_false(inspect_catches(getpid(), last - 1));
}

/* --- people's tracers --- */

static pid_t traced;

/* A child of our child's: what we start ourselves is no person's. */
static void start_below(void (*deed)(void))
{
    if (fork() == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        deed();
        _exit(1);
    }
    sleep_for_ever();
}

static void seize(void)
{
    if (ptrace(PTRACE_SEIZE, traced, NULL, NULL) == 0) {
        sleep_for_ever();
    }
}

static void attach(void)
{
    if (ptrace(PTRACE_ATTACH, traced, NULL, NULL) == 0) {
        sleep_for_ever();
    }
}

static void seize_from_below(void)
{
    start_below(seize);
}

static void attach_from_below(void)
{
    start_below(attach);
}

static void a_process_that_somebody_traces_says_who(void **state)
{
    static const struct {
        void (*deed)(void);
        const char *state;
    } cases[] = {{seize_from_below, "P test_inspect, pid "},
                 {attach_from_below, "t test_inspect, pid "}};

    (void)state;
    traced = start(sleep_for_ever);
    expect_state(traced, "S");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        pid_t tracer = start(cases[i].deed);

        expect_state(traced, cases[i].state);
        end(tracer);
        (void)kill(traced, SIGCONT);
        expect_state(traced, "S");
    }
    end(traced);
}

static void run_traced(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        sleep_for_ever();
    }
    (void)waitpid(pid, NULL, 0);
}

static void run_traced_from_below(void)
{
    start_below(run_traced);
}

/* gdb --args program */
static void so_does_one_that_traces_what_it_has_started(void **state)
{
    pid_t pid = start(run_traced_from_below);

    (void)state;
    expect_state(pid, "P test_inspect, pid ");
    end(pid);
}

/* --- gdb --- */

/* Never comes to its end, with the process stopped: what one that is killed while it
 * attaches leaves behind now and then. */
static int be_a_gdb_that_hangs(const char *pid)
{
    if (kill((pid_t)strtol(pid, NULL, 10), SIGSTOP) == 0 &&
        write(1, "#0  fake\n", 9) == 9) {
        sleep_for_ever();
    }
    return 1;
}

/* A gdb of ours, the only one in the PATH. */
struct our_gdb {
    struct scratch folder;
    char *path; /* as it was */
};

static void open_folder(struct our_gdb *g)
{
    scratch_open(&g->folder);
    g->path = strdup(getenv("PATH"));
    assert_int_equal(setenv("PATH", g->folder.dir, 1), 0);
}

static void remove_gdb(struct our_gdb *g)
{
    assert_int_equal(setenv("PATH", g->path, 1), 0);
    free(g->path);
    scratch_close(&g->folder);
}

static void put_a_gdb_that_hangs(struct our_gdb *ret)
{
    char self[512] = "";

    open_folder(ret);
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    assert_int_equal(symlink(self, scratch_path(&ret->folder, "gdb")), 0);
}

static void a_gdb_that_hangs_leaves_the_process_as_it_was(void **state)
{
    char stack[INSPECT_STACK_SIZE];
    pid_t pid = start(sleep_for_ever);
    struct our_gdb gdb;

    (void)state;
    put_a_gdb_that_hangs(&gdb);
    expect_state(pid, "S");
    inspect_stack(pid, 200, stack);
    assert_non_null(
        strstr(stack, "#0  fake\n(gdb has not come to its end within 200 ms)"));
    expect_state(pid, "S");
    assert_int_equal(kill(pid, SIGSTOP), 0);
    expect_state(pid, "T");
    inspect_stack(pid, 200, stack);
    expect_state(pid, "T");
    end(pid);
    remove_gdb(&gdb);
}

/* Dies by a signal with the process stopped, as one that is killed while memory is
 * short. */
static void put_a_gdb_that_dies(struct our_gdb *ret)
{
    static const char text[] = "#!/bin/sh\n"
                               "for pid; do :; done\n"
                               "kill -STOP $pid\n"
                               "kill -KILL $$\n";

    open_folder(ret);
    assert_int_equal(chmod(scratch_text(&ret->folder, "gdb", text), 0700), 0);
}

struct look_aside {
    pid_t pid;
    atomic_bool is_done;
    char stack[INSPECT_STACK_SIZE];
};

static void *look_aside(void *arg)
{
    struct look_aside *l = arg;

    inspect_stack(l->pid, INSPECT_STACK_MS, l->stack);
    atomic_store(&l->is_done, true);
    return NULL;
}

/* As the supervisor does, whose loop reaps whom ctrun has adopted. */
static void gdb_is_reaped_by_nobody_but_who_looks(void **state)
{
    enum { TIMES = 40 };
    pid_t pid = start(sleep_for_ever);
    const struct keeper keeper = {.fd = -1, .pid = pid};
    struct our_gdb gdb;

    (void)state;
    put_a_gdb_that_dies(&gdb);
    for (int i = 0; i < TIMES; i++) {
        struct look_aside aside = {.pid = pid};
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, look_aside, &aside), 0);
        while (!atomic_load(&aside.is_done)) {
            keeper_reap_others(&keeper);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_string_equal(aside.stack,
                            "(gdb was killed before it came to its end)\n");
        expect_state(pid, "S");
    }
    end(pid);
    remove_gdb(&gdb);
}

/* SIGCHLD is ignored: the kernel reaps it. */
static void where_it_is_not_known_how_gdb_ended_the_process_goes_on(void **state)
{
    char stack[INSPECT_STACK_SIZE];
    pid_t pid = start(sleep_for_ever);
    struct our_gdb gdb;

    (void)state;
    put_a_gdb_that_dies(&gdb);
    assert_true(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    inspect_stack(pid, INSPECT_STACK_MS, stack);
    assert_true(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
    assert_null(strstr(stack, "gdb has not come to its end"));
    expect_state(pid, "S");
    end(pid);
    remove_gdb(&gdb);
}

/* Before it has attached, or soon after. */
static void a_gdb_that_is_sent_away_leaves_the_process_as_it_was(void **state)
{
    char stack[INSPECT_STACK_SIZE];
    pid_t pid = start(sleep_for_ever);

    (void)state;
    for (unsigned ms = 20; ms <= 80; ms *= 2) {
        inspect_stack(pid, ms, stack);
        expect_state(pid, "S");
    }
    end(pid);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_state_says_what_a_process_does),
        cmocka_unit_test(a_stopped_process_is_stopped),
        cmocka_unit_test(of_a_process_that_is_gone_nothing_is_found),
        cmocka_unit_test(who_may_sees_where_a_process_is_in_the_kernel),
        cmocka_unit_test(looking_at_the_stack_leaves_the_process_as_it_was),
        cmocka_unit_test(only_a_handler_catches_a_signal),
        cmocka_unit_test(a_process_that_somebody_traces_says_who),
        cmocka_unit_test(so_does_one_that_traces_what_it_has_started),
        cmocka_unit_test(a_gdb_that_hangs_leaves_the_process_as_it_was),
        cmocka_unit_test(gdb_is_reaped_by_nobody_but_who_looks),
        cmocka_unit_test(where_it_is_not_known_how_gdb_ended_the_process_goes_on),
        cmocka_unit_test(a_gdb_that_is_sent_away_leaves_the_process_as_it_was),
    };

    if (strcmp(basename(argv[0]), "gdb") == 0) {
        return be_a_gdb_that_hangs(argv[argc - 1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
