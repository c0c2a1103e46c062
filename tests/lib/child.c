#include "tests/lib/child.h"

#include "tests/lib/cmocka.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int tests_stderr = STDERR_FILENO; /* the case may turn its own elsewhere */

void child_run(void (*body)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        tests_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
        body();
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

_Noreturn void child_check_failed(const char *file, int line, const char *what)
{
    (void)dprintf(tests_stderr, "%s:%d: does not hold: %s\n", file, line, what);
    _exit(1);
}
