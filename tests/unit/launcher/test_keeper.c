/* The keeper with real processes. */

#include "launcher/keeper/keeper.h"
#include "launcher/keeper/keeper_wire.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/keeper_rig.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAUSE_MS = 5 };

/* The C library's, with a descriptor that cannot be polled, and counted. */
static bool has_no_pidfd;
static uint64_t n_waits;

int pidfd_open(pid_t pid, unsigned flags)
{
    return has_no_pidfd ? INT_MAX : (int)syscall(SYS_pidfd_open, pid, flags);
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
pid_t waitpid(pid_t pid, int *status, int options)
{
    n_waits++;
    return (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
}

static void codes_and_signals(void)
{
    struct keeper k = keeper_rig_start();
    int status;

    SPAWN(&k, 1, "exit=0");
    (void)keeper_rig_receive_spawned(&k, 1);
    CHECK(keeper_rig_receive_exited(&k, 1) == 0);
    SPAWN(&k, 2, "exit=7");
    (void)keeper_rig_receive_spawned(&k, 2);
    status = keeper_rig_receive_exited(&k, 2);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    SPAWN(&k, 1, "signal=11"); /* a number may be used again after its end */
    (void)keeper_rig_receive_spawned(&k, 1);
    status = keeper_rig_receive_exited(&k, 1);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == 11);
    keeper_stop(&k);
}

static void exit_codes_and_signals_are_reported_as_waitpid_does(void **state)
{
    (void)state;
    child_run(codes_and_signals);
}

/* As keeper_spawn, with a memfd of the test's own. */
static int spawn_image(struct keeper *k, const void *image, size_t size)
{
    struct keeper_request request = {.type = KEEPER_REQUEST_SPAWN, .id = 4};
    int fd = memfd_create("image", MFD_CLOEXEC);
    struct keeper_event e;

    CHECK(fd >= 0 && write(fd, image, size) == (ssize_t)size);
    CHECK(keeper_send(k->fd, &request, sizeof(request), &fd, 1) == 0);
    CHECK(close(fd) == 0);
    e = keeper_rig_receive(k);
    CHECK(e.type == KEEPER_FAILED && e.id == 4);
    return e.error;
}

static void damaged_images(void)
{
    static const struct {
        struct keeper_image head;
        char texts[6];
    } images[] = {
        {{.argc = 1}, "/a"},            /* unterminated, with size 10 */
        {{.argc = 3}, "/a"},            /* fewer texts than it says … */
        {{.argc = 1, .envc = 2}, "/a"}, /* … and of env, too */
        {{.argc = UINT32_MAX, .envc = UINT32_MAX}, "/a"}, /* more than bytes */
        {{.argc = UINT32_MAX, .envc = 3}, "/a"}, /* … which 32 bits do not hold */
    };
    struct keeper k = keeper_rig_start();

    CHECK(spawn_image(&k, images, 0) == -EINVAL);
    CHECK(spawn_image(&k, images, sizeof(images[0].head) - 1) == -EINVAL);
    CHECK(spawn_image(&k, &images[0], sizeof(images[0].head) + 2) == -ENOENT);
    for (size_t i = 1; i < ARRAY_LEN(images); i++) {
        CHECK(spawn_image(&k, &images[i], sizeof(images[i].head) + 3) == -EINVAL);
    }
    SPAWN(&k, 4, "exit=3");
    (void)keeper_rig_receive_spawned(&k, 4);
    CHECK(WEXITSTATUS(keeper_rig_receive_exited(&k, 4)) == 3);
    keeper_stop(&k);
}

static void damaged_arguments_are_refused_and_the_keeper_goes_on(void **state)
{
    (void)state;
    child_run(damaged_images);
}

static void failed_exec(void)
{
    static char missing[] = "/nonexistent/program";
    static char not_executable[] = "/etc/passwd";
    char *argv[] = {missing, NULL};
    struct keeper k = keeper_rig_start();
    struct keeper_spawn spawn = {
        .id = 4, .argv = argv, .env = environ, .fds = {-1, -1, -1, -1, -1}};
    struct keeper_event e;

    CHECK(keeper_spawn(&k, &spawn, NULL) == 0);
    e = keeper_rig_receive(&k);
    CHECK(e.type == KEEPER_FAILED && e.id == 4 && e.error == -ENOENT);
    argv[0] = not_executable;
    CHECK(keeper_spawn(&k, &spawn, NULL) == 0);
    e = keeper_rig_receive(&k);
    CHECK(e.type == KEEPER_FAILED && e.error == -EACCES);
    CHECK(keeper_receive(&k, &e) == -EAGAIN); /* and no end follows */
    SPAWN(&k, 4, "exit=3");
    (void)keeper_rig_receive_spawned(&k, 4);
    CHECK(WEXITSTATUS(keeper_rig_receive_exited(&k, 4)) == 3);
    keeper_stop(&k);
}

static void failed_exec_is_told_with_its_errno_and_the_keeper_goes_on(void **state)
{
    (void)state;
    child_run(failed_exec);
}

enum { MANY = 100 };

static void hundred_workers(void)
{
    bool seen[MANY] = {false};
    struct keeper k = keeper_rig_start();
    int n_ended = 0;

    for (uint32_t i = 0; i < MANY; i++) {
        char code[16];
        bool fits = str_format(code, sizeof(code), "exit=%u", i);

        CHECK(fits);
        SPAWN(&k, i, code);
    }
    while (n_ended < MANY) {
        struct keeper_event e = keeper_rig_receive(&k);

        CHECK(e.type != KEEPER_FAILED && e.id < MANY);
        if (e.type == KEEPER_SPAWNED) {
            seen[e.id] = true;
        } else {
            CHECK(seen[e.id]);
            CHECK(WIFEXITED(e.status) && WEXITSTATUS(e.status) == (int)e.id);
            n_ended++;
        }
    }
    keeper_stop(&k);
}

static void hundred_workers_come_and_go_each_with_its_own_code(void **state)
{
    (void)state;
    child_run(hundred_workers);
}

static void unread_replies(void)
{
    struct keeper k = keeper_rig_start();
    struct keeper_event e;
    int n_ended = 0;

    /* More replies than the socket holds: the keeper keeps them and takes requests. */
    for (uint32_t i = 0; i < 6 * MANY; i++) {
        static char missing[] = "/nonexistent/program";
        char *argv[] = {missing, NULL};
        struct keeper_spawn spawn = {
            .id = i, .argv = argv, .env = environ, .fds = {-1, -1, -1, -1, -1}};

        CHECK(keeper_spawn(&k, &spawn, NULL) == 0);
    }
    while (n_ended < 6 * MANY) {
        e = keeper_rig_receive(&k);
        CHECK(e.type == KEEPER_FAILED);
        n_ended++;
    }
    keeper_stop(&k);
}

static void replies_that_nobody_reads_do_not_block_the_keeper(void **state)
{
    (void)state;
    child_run(unread_replies);
}

static void descriptors(void)
{
    struct keeper k = keeper_rig_start();
    char text[4096];
    const char *args[] = {keeper_rig_fake, "fds", NULL};
    struct keeper_spawn spawn = {.id = 9, .env = environ};
    int low =
        open("/dev/null", O_RDONLY); /* NOLINT(android-cloexec-open): on purpose */
    int ends[2];

    CHECK(low >= 0);
    CAPTURE(&k, text, "fds");
    CHECK(strcmp(text, "fds: 0 1 2\n") == 0);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    memcpy(&spawn.argv, &(const char *const *){args}, sizeof(spawn.argv));
    /* all five; the same one several times */
    memcpy(spawn.fds, (int[]){low, ends[1], ends[1], low, ends[1]}, sizeof(spawn.fds));
    CHECK(keeper_spawn(&k, &spawn, NULL) == 0);
    CHECK(close(ends[1]) == 0);
    (void)keeper_rig_read_end(ends[0], text, sizeof(text));
    CHECK(strcmp(text, "fds: 0 1 2 3 4\n") == 0);
    keeper_stop(&k);
}

static void worker_has_the_given_descriptors_and_no_others(void **state)
{
    (void)state;
    child_run(descriptors);
}

static void big_environment(void)
{
    enum { N = 200 };
    char *env[N + 1] = {NULL};
    const char *args[] = {keeper_rig_fake, "env", "print=a b\tc", NULL};
    struct keeper k = keeper_rig_start();
    struct keeper_spawn spawn = {.id = 1, .env = env, .fds = {-1, -1, -1, -1, -1}};
    static char text[1024 * 1024];
    int ends[2];
    size_t n;

    for (int i = 0; i < N; i++) {
        env[i] = mem_printf("V%03d=%04000d", i, i);
    }
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    spawn.fds[1] = ends[1];
    memcpy(&spawn.argv, &(const char *const *){args}, sizeof(spawn.argv));
    CHECK(keeper_spawn(&k, &spawn, NULL) == 0);
    CHECK(close(ends[1]) == 0);
    n = keeper_rig_read_end(ends[0], text, sizeof(text));
    CHECK(n > (size_t)N * 4000);
    CHECK(strstr(text, "\"V199\": \"") != NULL);
    CHECK(strcmp(text + n - 6, "a b\tc\n") == 0);
    (void)keeper_rig_receive_spawned(&k, 1);
    CHECK(keeper_rig_receive_exited(&k, 1) == 0);
    keeper_stop(&k);
}

static void environment_of_800_kilobytes_arrives_whole(void **state)
{
    (void)state;
    child_run(big_environment);
}

static void group_killed(void)
{
    struct keeper k = keeper_rig_start();
    pid_t pids[KEEPER_RIG_PIDS];

    SPAWN(&k, 2, "hang");
    (void)keeper_rig_receive_spawned(&k, 2);
    SPAWN(&k, 1, "child=plain", "child=group", "child=setsid",
          keeper_rig_pid_action("ends"), "exit=5");
    (void)keeper_rig_receive_spawned(&k, 1);
    CHECK(WEXITSTATUS(keeper_rig_receive_exited(&k, 1)) == 5);
    CHECK(keeper_rig_read_pids(keeper_rig_path_of("ends"), pids) == 4);
    CHECK(!keeper_rig_is_alive(pids[0])); /* all of them reaped when the end is told */
    CHECK(!keeper_rig_is_alive(pids[1]));
    CHECK(!keeper_rig_is_alive(pids[2]));
    CHECK(keeper_rig_is_alive(pids[3])); /* torchrun, too, lets a daemon be … */
    CHECK(keeper_kill(&k, 2, SIGKILL) == 0);
    CHECK(WTERMSIG(keeper_rig_receive_exited(&k, 2)) == SIGKILL);
    CHECK(!keeper_rig_is_alive(pids[3])); /* but here it goes with the last worker */
    keeper_stop(&k);
}

static void end_is_told_when_group_and_session_are_dead_and_reaped(void **state)
{
    (void)state;
    child_run(group_killed);
}

static void kill_reaches_group(void)
{
    struct keeper k = keeper_rig_start();
    pid_t pids[KEEPER_RIG_PIDS];
    int status;

    SPAWN(&k, 1, "ignore=15", "child=plain", keeper_rig_pid_action("kill"), "hang");
    (void)keeper_rig_receive_spawned(&k, 1);
    keeper_rig_wait_for_pids("kill", 2, pids);
    CHECK(keeper_kill(&k, 1, SIGTERM) == 0);  /* ignored by both */
    CHECK(keeper_kill(&k, 77, SIGKILL) == 0); /* no such worker: nothing happens */
    CHECK(keeper_kill(&k, 1, SIGKILL) == 0);
    status = keeper_rig_receive_exited(&k, 1);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(!keeper_rig_is_alive(pids[0]) && !keeper_rig_is_alive(pids[1]));
    SPAWN(&k, 2, "on=15:21", keeper_rig_pid_action("term"), "hang");
    (void)keeper_rig_receive_spawned(&k, 2);
    keeper_rig_wait_for_pids("term", 1, pids);
    CHECK(keeper_kill(&k, 2, SIGTERM) == 0);
    CHECK(WEXITSTATUS(keeper_rig_receive_exited(&k, 2)) == 21);
    keeper_stop(&k);
}

static void signals_reach_the_worker_and_its_group(void **state)
{
    (void)state;
    child_run(kill_reaches_group);
}

static void stopped_without_pidfd(void)
{
    struct keeper k = keeper_rig_start();
    uint64_t begin_ms;

    SPAWN(&k, 1, "hang");
    (void)keeper_rig_receive_spawned(&k, 1);
    has_no_pidfd = true;
    n_waits = 0;
    begin_ms = clock_ms();
    keeper_stop(&k);
    CHECK(n_waits <= (clock_ms() - begin_ms) / PAUSE_MS + 2);
}

static void end_that_cannot_be_polled_for_is_awaited_without_spinning(void **state)
{
    (void)state;
    child_run(stopped_without_pidfd);
}

/* Wherever between fork and exec it comes. */
static void kill_at_once(void)
{
    struct keeper k = keeper_rig_start();

    for (uint32_t i = 0; i < MANY; i++) {
        int status;

        SPAWN(&k, i, "hang");
        CHECK(keeper_kill(&k, i, SIGTERM) == 0);
        (void)keeper_rig_receive_spawned(&k, i);
        status = keeper_rig_receive_exited(&k, i);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
    keeper_stop(&k);
}

static void signal_before_the_program_runs_is_not_lost(void **state)
{
    (void)state;
    child_run(kill_at_once);
}

/* The dispositions of the process with this id: field `name` of its status, as hex
 * digits. */
static uint64_t signal_field(pid_t pid, const char *name)
{
    char path[64];
    char line[256];
    uint64_t value = 0;
    bool fits = str_format(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f;

    CHECK(fits);
    f = fopen(path, "re");
    CHECK(f != NULL);
    while (fgets(line, sizeof(line), f)) {
        if (str_starts_with(line, name)) {
            value = strtoull(line + strlen(name), NULL, 16);
        }
    }
    (void)fclose(f);
    return value;
}

static void origin_is_given_back(void)
{
    struct rlimit before = {256, 4096};
    struct rlimit raised = {1024, 4096};
    struct rlimit seen;
    struct keeper k;
    sigset_t set;
    pid_t pids[KEEPER_RIG_PIDS];
    uint64_t ignored;

    (void)signal(SIGHUP, SIG_IGN); /* as nohup does */
    (void)signal(SIGPIPE, SIG_DFL);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    k = keeper_rig_start();
    (void)signal(SIGPIPE, SIG_IGN); /* as the agent does later */
    (void)signal(SIGTERM, SIG_IGN);
    (void)sigfillset(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    CHECK(setrlimit(RLIMIT_NOFILE, &raised) == 0);
    SPAWN(&k, 1, keeper_rig_pid_action("origin"), "hang");
    (void)keeper_rig_receive_spawned(&k, 1);
    keeper_rig_wait_for_pids("origin", 1, pids);
    ignored = signal_field(pids[0], "SigIgn:");
    CHECK((ignored >> (SIGHUP - 1) & 1) == 1);
    CHECK((ignored >> (SIGPIPE - 1) & 1) == 0);
    CHECK((ignored >> (SIGTERM - 1) & 1) == 0);
    CHECK((ignored >> (SIGINT - 1) & 1) == 0); /* the keeper itself ignores it */
    CHECK(signal_field(pids[0], "SigBlk:") == 0);
    CHECK(prlimit(pids[0], RLIMIT_NOFILE, NULL, &seen) == 0);
    CHECK(seen.rlim_cur == 256 && seen.rlim_max == 4096);
    CHECK(getsid(pids[0]) == pids[0]);
    CHECK(keeper_kill(&k, 1, SIGHUP) == 0); /* survives it */
    CHECK(keeper_kill(&k, 1, SIGTERM) == 0);
    CHECK(WTERMSIG(keeper_rig_receive_exited(&k, 1)) == SIGTERM);
    keeper_stop(&k);
}

static void
worker_starts_with_the_signals_and_limits_that_ctrun_started_with(void **state)
{
    (void)state;
    child_run(origin_is_given_back);
}

static long oom_score(pid_t pid)
{
    char path[64];
    long score = -1;
    bool fits = str_format(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
    FILE *f;

    CHECK(fits);
    f = fopen(path, "re");
    CHECK(f && fscanf(f, "%ld", &score) == 1);
    (void)fclose(f);
    return score;
}

/* As cpu `cpu` alone for worker 1, which hangs. */
static struct keeper_event spawn_bound(struct keeper *k, unsigned cpu)
{
    static char hang[] = "hang";
    char *argv[] = {keeper_rig_fake, hang, NULL};
    struct cpuset cpus = {{0}};
    struct keeper_spawn spawn = {.id = 1,
                                 .argv = argv,
                                 .env = environ,
                                 .cpus = &cpus,
                                 .fds = {-1, -1, -1, -1, -1}};

    cpuset_add(&cpus, cpu);
    CHECK(keeper_spawn(k, &spawn, NULL) == 0);
    return keeper_rig_receive(k);
}

static void bound(void)
{
    struct keeper k = keeper_rig_start();
    struct keeper_event e;
    cpu_set_t here;
    cpu_set_t there;
    unsigned last = CPU_SETSIZE - 1;

    CHECK(sched_getaffinity(0, sizeof(here), &here) == 0);
    while (!CPU_ISSET(last, &here)) {
        last--;
    }
    e = spawn_bound(&k, last);
    CHECK(e.type == KEEPER_SPAWNED); /* its program runs */
    CHECK(sched_getaffinity(e.pid, sizeof(there), &there) == 0);
    CHECK(CPU_COUNT(&there) == 1 && CPU_ISSET(last, &there));
    CHECK(sched_getaffinity(k.pid, sizeof(there), &there) == 0);
    CHECK(CPU_EQUAL(&here, &there)); /* the keeper stays as it is */
    CHECK(keeper_kill(&k, 1, SIGKILL) == 0);
    (void)keeper_rig_receive_exited(&k, 1);
    e = spawn_bound(&k, CPUSET_MAX - 1);
    CHECK(e.type == KEEPER_FAILED && e.error == -EINVAL);
    keeper_stop(&k);
}

static void worker_is_bound_to_its_cpus_before_its_program_runs(void **state)
{
    (void)state;
    child_run(bound);
}

static void oom(void)
{
    struct keeper k = keeper_rig_start();
    pid_t pids[KEEPER_RIG_PIDS];

    SPAWN(&k, 1, keeper_rig_pid_action("oom"), "hang");
    (void)keeper_rig_receive_spawned(&k, 1);
    keeper_rig_wait_for_pids("oom", 1, pids);
    CHECK(oom_score(pids[0]) > oom_score(getpid()) || oom_score(getpid()) == 1000);
    CHECK(oom_score(k.pid) == oom_score(getpid()));
    keeper_stop(&k);
}

static void workers_are_killed_before_the_agent_when_memory_is_short(void **state)
{
    (void)state;
    child_run(oom);
}

/* One that has its number by now is younger than what was said of the first. */
static void timed(void)
{
    struct keeper k = keeper_rig_start();
    pid_t worker;
    pid_t gone = fork();

    if (gone == 0) {
        _exit(0);
    }
    SPAWN(&k, 1, "hang");
    worker = keeper_rig_receive_spawned(&k, 1);
    CHECK(keeper_has_age(worker, 0) && !keeper_has_age(worker, 100000));
    CHECK(keeper_has_age(1, 1)); /* since long */
    CHECK(waitpid(gone, NULL, 0) == gone && !keeper_has_age(gone, 0));
    CHECK(keeper_signal(&k, worker, 100000, SIGKILL) == ERR_MISSING);
    CHECK(keeper_signal(&k, getpid(), 0, SIGKILL) == ERR_MISSING); /* no worker */
    CHECK(keeper_signal(&k, worker, 0, SIGKILL) == 0);
    CHECK(WTERMSIG(keeper_rig_receive_exited(&k, 1)) == SIGKILL);
    keeper_stop(&k);
}

static void signal_is_for_a_worker_that_was_there_already(void **state)
{
    (void)state;
    child_run(timed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes_and_signals_are_reported_as_waitpid_does),
        cmocka_unit_test(failed_exec_is_told_with_its_errno_and_the_keeper_goes_on),
        cmocka_unit_test(damaged_arguments_are_refused_and_the_keeper_goes_on),
        cmocka_unit_test(hundred_workers_come_and_go_each_with_its_own_code),
        cmocka_unit_test(replies_that_nobody_reads_do_not_block_the_keeper),
        cmocka_unit_test(worker_has_the_given_descriptors_and_no_others),
        cmocka_unit_test(environment_of_800_kilobytes_arrives_whole),
        cmocka_unit_test(end_is_told_when_group_and_session_are_dead_and_reaped),
        cmocka_unit_test(signals_reach_the_worker_and_its_group),
        cmocka_unit_test(end_that_cannot_be_polled_for_is_awaited_without_spinning),
        cmocka_unit_test(signal_before_the_program_runs_is_not_lost),
        cmocka_unit_test(worker_is_bound_to_its_cpus_before_its_program_runs),
        cmocka_unit_test(workers_are_killed_before_the_agent_when_memory_is_short),
        cmocka_unit_test(signal_is_for_a_worker_that_was_there_already),
        cmocka_unit_test(
            worker_starts_with_the_signals_and_limits_that_ctrun_started_with),
    };

    return cmocka_run_group_tests(tests, keeper_rig_set_up, keeper_rig_tear_down);
}
