#include "launcher/output/terminal.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

void terminal_remember(struct terminal *ret)
{
    *ret = (struct terminal){0};
    ret->is_known = tcgetattr(STDIN_FILENO, &ret->mode) == 0;
}

void terminal_restore(const struct terminal *t)
{
    sigset_t set;

    if (!t->is_known || tcgetpgrp(STDIN_FILENO) != getpgrp()) {
        return;
    }
    (void)sigemptyset(&set);
    (void)sigaddset(&set,
                    SIGTTOU); /* in the background after all: then it would stop */
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->mode); /* fails when it is gone */
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
