/* Whom the agent reaps: those that it has adopted, and nobody whom a thread of its waits
 * for. */

#include "launcher/keeper/keeper.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

struct beside {
    pthread_barrier_t barrier;
    int status;
};

static void *start_beside(void *arg)
{
    struct beside *b = arg;
    pid_t pid = fork();
    siginfo_t info;

    if (pid == 0) {
        _exit(3);
    }
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0); /* it has ended */
    (void)pthread_barrier_wait(&b->barrier);
    (void)pthread_barrier_wait(&b->barrier);
    CHECK(waitpid(pid, &b->status, 0) == pid);
    return NULL;
}

static void started_by_another_thread(void)
{
    const struct keeper k = {.fd = -1, .pid = -1};
    struct beside b = {.status = -1};
    pthread_t thread;
    pid_t pid = fork();
    siginfo_t info;

    if (pid == 0) {
        _exit(4);
    }
    CHECK(pthread_barrier_init(&b.barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, start_beside, &b) == 0);
    (void)pthread_barrier_wait(&b.barrier);
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    keeper_reap_others(&k);
    CHECK(waitpid(pid, NULL, 0) < 0 && errno == ECHILD);
    keeper_clean_up(); /* which kills it, dead or not */
    (void)pthread_barrier_wait(&b.barrier);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(WIFEXITED(b.status) && WEXITSTATUS(b.status) == 3);
    CHECK(pthread_barrier_destroy(&b.barrier) == 0);
}

static void whom_another_thread_has_started_is_its_own_to_reap(void **state)
{
    (void)state;
    child_run(started_by_another_thread);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whom_another_thread_has_started_is_its_own_to_reap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
