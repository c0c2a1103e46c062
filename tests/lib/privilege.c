#include "tests/lib/privilege.h"

#include "tests/lib/cmocka.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

void privilege_need(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(unshare(CLONE_NEWNET) == 0 && setuid(PRIVILEGE_NOBODY) == 0 ? 0 : 1);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        print_message("skipped: root's right to be another user, and to make a network "
                      "namespace, is needed\n");
        skip();
    }
}
