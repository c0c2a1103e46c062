#include "common/errand.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { STACK_SIZE = 512 * 1024 };

struct errand {
    struct errand_work work;
    pthread_t thread;     /* joined once it is done, detached when it is left */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t done;
    bool is_done;
    bool is_left; /* the thread frees all itself, if it ever comes back */
};

static void end(struct errand *e)
{
    (void)pthread_mutex_destroy(&e->lock);
    (void)pthread_cond_destroy(&e->done);
    mem_free(e);
}

static void *run(void *arg)
{
    struct errand *e = arg;
    bool is_left;

    e->work.run(e->work.data);
    (void)pthread_mutex_lock(&e->lock);
    e->is_done = true;
    is_left = e->is_left;
    if (!is_left && e->work.done) {
        e->work.done(
            e->work.arg); /* under the lock: who leaves is not called after it */
    }
    (void)pthread_cond_signal(&e->done);
    (void)pthread_mutex_unlock(&e->lock); /* else the last touch */
    if (is_left) {
        e->work.release(e->work.data);
        end(e);
    }
    return NULL;
}

int errand_begin(const struct errand_work *work, struct errand **ret)
{
    struct errand *e = mem_zalloc(sizeof(*e));
    pthread_condattr_t attr;
    int rv;

    e->work = *work;
    (void)pthread_mutex_init(&e->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&e->done, &attr);
    (void)pthread_condattr_destroy(&attr);
    rv = thread_start(STACK_SIZE, run, e, &e->thread);
    if (rv < 0) {
        end(e);
        return rv;
    }
    *ret = e;
    return 0;
}

static bool wait_for(struct errand *e, unsigned ms)
{
    uint64_t until_ms = clock_ms() + ms;
    const struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
                                   .tv_nsec = (long)(until_ms % 1000) * 1000000};
    bool is_done;

    (void)pthread_mutex_lock(&e->lock);
    while (!e->is_done && pthread_cond_timedwait(&e->done, &e->lock, &until) == 0) {
    }
    is_done = e->is_done;
    (void)pthread_mutex_unlock(&e->lock);
    return is_done;
}

void *errand_take(struct errand *e, unsigned ms)
{
    void *data;

    if (!wait_for(e, ms)) {
        return NULL;
    }
    data = e->work.data;
    (void)pthread_join(e->thread, NULL); /* it has what libraries keep for it to free */
    end(e);
    return data;
}

void errand_leave(struct errand *e)
{
    pthread_t thread;
    bool is_done;

    if (!e) {
        return;
    }
    (void)pthread_mutex_lock(&e->lock);
    e->is_left = true;
    is_done = e->is_done;
    thread = e->thread; /* which may free it as soon as it is unlocked */
    (void)pthread_mutex_unlock(&e->lock);
    if (is_done) {
        (void)pthread_join(thread, NULL); /* as above */
        e->work.release(e->work.data);
        end(e);
    } else {
        (void)pthread_detach(thread);
    }
}
