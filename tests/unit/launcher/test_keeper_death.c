/* The death of agent or keeper: nothing survives. */

#include "launcher/keeper/keeper.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/keeper_rig.h"

#include "common/check.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* An agent in a process of its own, with workers that leave all kinds of descendants.
 */
static pid_t start_agent(const char *name, pid_t *pids, pid_t *ret_keeper)
{
    int ends[2];
    pid_t agent;

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    agent = fork();
    if (agent == 0) {
        struct keeper k;

        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0); /* whatever becomes of the case */
        k = keeper_rig_start();
        CHECK(write(ends[1], &k.pid, sizeof(k.pid)) == (ssize_t)sizeof(k.pid));
        SPAWN(&k, 1, "ignore=15", "child=plain", "child=setsid", "child=double",
              "child=group", keeper_rig_pid_action(name), "hang");
        (void)keeper_rig_receive_spawned(&k, 1);
        SPAWN(&k, 2, "child=double", keeper_rig_pid_action(name), "hang");
        (void)keeper_rig_receive_spawned(&k, 2);
        for (;;) {
            (void)pause();
        }
    }
    CHECK(read(ends[0], ret_keeper, sizeof(pid_t)) == (ssize_t)sizeof(pid_t));
    keeper_rig_wait_for_pids(name, 7, pids);
    return agent;
}

static void killed_agent(void)
{
    pid_t pids[KEEPER_RIG_PIDS];
    pid_t keeper;
    pid_t agent = start_agent("agent", pids, &keeper);

    for (int i = 0; i < 7; i++) {
        CHECK(keeper_rig_is_alive(pids[i]));
    }
    CHECK(kill(agent, SIGKILL) == 0);
    CHECK(waitpid(agent, NULL, 0) == agent);
    for (int i = 0; i < 7; i++) {
        keeper_rig_wait_until_gone(pids[i]);
    }
}

static void kill_9_of_the_agent_leaves_nothing_grandchildren_included(void **state)
{
    (void)state;
    child_run(killed_agent);
}

static void name_of(pid_t pid, char *name, size_t size)
{
    char path[64];
    bool fits = str_format(path, sizeof(path), "/proc/%d/comm", (int)pid);
    FILE *f;

    CHECK(fits);
    f = fopen(path, "re");
    CHECK(f && fgets(name, (int)size, f));
    (void)fclose(f);
}

static void killed_agent_signals(void)
{
    pid_t pids[KEEPER_RIG_PIDS];
    pid_t keeper;
    pid_t agent = start_agent("signals", pids, &keeper);
    static const int harmless[] = {SIGINT,  SIGTERM, SIGHUP,    SIGQUIT, SIGUSR1,
                                   SIGXCPU, SIGALRM, SIGVTALRM, SIGTSTP, 64};
    char name[32];

    for (size_t i = 0; i < ARRAY_LEN(harmless); i++) {
        CHECK(kill(keeper, harmless[i]) == 0);
    }
    CHECK(getpgid(keeper) == keeper);
    name_of(keeper, name, sizeof(name));
    CHECK(!strstr(name, "ctrun")); /* as `pkill -9 ctrun` looks for it */
    CHECK(kill(agent, SIGKILL) == 0);
    CHECK(waitpid(agent, NULL, 0) == agent);
    for (int i = 0; i < 7; i++) {
        keeper_rig_wait_until_gone(pids[i]); /* the keeper was there to do it */
    }
}

static void keeper_sits_in_its_own_group_and_no_signal_but_kill_ends_it(void **state)
{
    (void)state;
    child_run(killed_agent_signals);
}

static void keeper_alone_killed(void)
{
    struct keeper k = keeper_rig_start();
    pid_t pids[KEEPER_RIG_PIDS];
    struct keeper_event e;
    struct pollfd poll_fd = {k.fd, POLLIN, 0};

    SPAWN(&k, 1, "ignore=15", "child=plain", "child=setsid", "child=double",
          keeper_rig_pid_action("alone"), "hang");
    (void)keeper_rig_receive_spawned(&k, 1);
    keeper_rig_wait_for_pids("alone", 4, pids);
    CHECK(kill(k.pid, SIGKILL) == 0);
    CHECK(poll(&poll_fd, 1, KEEPER_RIG_BOUND_MS) == 1);
    CHECK(keeper_receive(&k, &e) == ERR_CLOSED);
    keeper_clean_up();
    for (int i = 0; i < 4; i++) {
        CHECK(!keeper_rig_is_alive(pids[i]));
    }
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 &&
          errno == ECHILD); /* nothing is left to reap */
}

static void keeper_alone_killed_takes_its_workers_and_the_agent_the_rest(void **state)
{
    (void)state;
    child_run(keeper_alone_killed);
}

static void both_killed(void)
{
    pid_t pids[KEEPER_RIG_PIDS];
    pid_t keeper;
    pid_t agent = start_agent("both", pids, &keeper);

    CHECK(kill(agent, SIGSTOP) == 0); /* so that it cannot be the one who kills */
    CHECK(kill(keeper, SIGKILL) == 0);
    keeper_rig_wait_until_dead(pids[0]);
    for (int i = 0; i < 7; i++) {
        (void)kill(pids[i], SIGKILL); /* the grandchildren, which nobody else would */
    }
    CHECK(kill(agent, SIGKILL) == 0);
    CHECK(waitpid(agent, NULL, 0) == agent);
}

static void worker_dies_with_the_keeper_even_when_the_agent_cannot_act(void **state)
{
    (void)state;
    child_run(both_killed);
}

/* More than its socket holds: it is let go on, and none is lost. */
static void stopped_keeper(void)
{
    enum { REQUESTS = 2000 };
    struct keeper k = keeper_rig_start();
    int status;

    SPAWN(&k, 1, "ignore=10", "on=12:3", keeper_rig_pid_action("stopped"), "hang");
    (void)keeper_rig_receive_spawned(&k, 1);
    keeper_rig_wait_for_pids("stopped", 1, (pid_t[KEEPER_RIG_PIDS]){0});
    CHECK(kill(k.pid, SIGSTOP) == 0);
    CHECK(waitpid(k.pid, &status, WUNTRACED) == k.pid && WIFSTOPPED(status));
    CHECK(keeper_state(&k) == 'T');
    for (int i = 0; i < REQUESTS; i++) {
        CHECK(keeper_kill(&k, 1, i + 1 < REQUESTS ? SIGUSR1 : SIGUSR2) == 0);
    }
    CHECK(WEXITSTATUS(keeper_rig_receive_exited(&k, 1)) == 3);
    keeper_ask(&k);
    CHECK(keeper_rig_receive(&k).type == KEEPER_ALIVE);
    keeper_stop(&k);
}

static void stopped_keeper_is_let_go_on_when_it_takes_no_more_requests(void **state)
{
    (void)state;
    child_run(stopped_keeper);
}

/* From now on there are no pidfds, as under some sandboxes; and whoever means to sleep
 * in poll for a second or more is killed. */
static void forbid_pidfds_and_long_sleeps(void)
{
    static const unsigned nr = offsetof(struct seccomp_data, nr);
    static const unsigned timeout_ms = offsetof(struct seccomp_data, args[2]);
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_poll, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, timeout_ms),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 1000, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {ARRAY_LEN(rules), rules};

    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void without_pidfd(void)
{
    struct keeper k = keeper_rig_start();

    forbid_pidfds_and_long_sleeps();
    SPAWN(&k, 1, "hang");
    keeper_stop(&k);
    CHECK(waitpid(k.pid, NULL, WNOHANG) < 0 && errno == ECHILD); /* reaped */
}

static void end_of_the_keeper_is_seen_without_a_pidfd_too(void **state)
{
    (void)state;
    child_run(without_pidfd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill_9_of_the_agent_leaves_nothing_grandchildren_included),
        cmocka_unit_test(keeper_sits_in_its_own_group_and_no_signal_but_kill_ends_it),
        cmocka_unit_test(keeper_alone_killed_takes_its_workers_and_the_agent_the_rest),
        cmocka_unit_test(worker_dies_with_the_keeper_even_when_the_agent_cannot_act),
        cmocka_unit_test(stopped_keeper_is_let_go_on_when_it_takes_no_more_requests),
        cmocka_unit_test(end_of_the_keeper_is_seen_without_a_pidfd_too),
    };

    return cmocka_run_group_tests(tests, keeper_rig_set_up, keeper_rig_tear_down);
}
