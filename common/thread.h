#ifndef COMMON_THREAD_H
#define COMMON_THREAD_H

/* Threads that leave signals alone: these are for the thread that asks for them, the
 * loop's or the host's, and none comes in the middle of another's work. What a thread of
 * ours writes to a pipe that nobody reads is EPIPE, not SIGPIPE. */

#include "common/err.h"

#include <pthread.h>
#include <stddef.h>

/* Starts a thread with all signals blocked, which the caller joins or detaches;
 * `stack_size` 0: what the system gives. -errno: there is no thread, and none of its
 * work is done (-EAGAIN: the system has no room for another one). */
int thread_start(size_t stack_size, void *(*run)(void *arg), void *arg,
                 pthread_t *ret) MUST_CHECK;

#endif
