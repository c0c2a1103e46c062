#include "rendezvous/early.h"

#include "common/check.h"

#include <signal.h>

static void change(int how)
{
    sigset_t set;
    int rv = sigemptyset(&set);

    rv |= sigaddset(&set, SIGTERM);
    rv |= sigaddset(&set, SIGINT);
    rv |= sigaddset(&set, SIGHUP);
    rv |= pthread_sigmask(how, &set, NULL);
    ASSERT(rv == 0);
}

void early_hold(void)
{
    change(SIG_BLOCK);
}

void early_let_go(void)
{
    change(SIG_UNBLOCK);
}

bool early_is_told_to_stop(void)
{
    sigset_t set;
    int rv = sigpending(&set);

    ASSERT(rv == 0);
    return sigismember(&set, SIGTERM) == 1 || sigismember(&set, SIGINT) == 1;
}
