#include "common/thread.h"

#include <signal.h>

int thread_start(size_t stack_size, void *(*run)(void *arg), void *arg, pthread_t *ret)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    int rv = 0;

    (void)pthread_attr_init(&attr); /* it only sets fields */
    if (stack_size > 0) {
        rv = -pthread_attr_setstacksize(&attr, stack_size);
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* fails for bad numbers only */
    rv = rv < 0 ? rv : -pthread_create(&thread, &attr, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    if (rv < 0) {
        return rv;
    }
    *ret = thread;
    return 0;
}
