/* Happy path: 1. the thread works; 2. it says so, and wakes the loop; 3. on_done. Two
 * share it, the thread and the loop: who leaves last frees it. */

#include "launcher/aside.h"

#include "common/check.h"
#include "common/closer.h"
#include "common/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <uv.h>

struct aside {
    struct aside_config config;
    void *data; /* the thread's until is_done, then the loop's */
    uv_async_t wake;
    uv_timer_t timer;
    struct closer closer;

    pthread_mutex_t lock;
    /* under the lock */
    bool is_done;
    bool is_alone; /* the loop's side is gone: `wake` is not touched any more */
};

static void free_aside(struct aside *a)
{
    a->config.release(a->data);
    (void)pthread_mutex_destroy(&a->lock);
    mem_free(a);
}

static void *run(void *arg)
{
    struct aside *a = arg;
    bool is_alone;

    a->config.work(a->data);
    (void)pthread_mutex_lock(&a->lock);
    a->is_done = true;
    is_alone = a->is_alone;
    if (!is_alone) {
        (void)uv_async_send(&a->wake); /* the handle is open */
    }
    (void)pthread_mutex_unlock(&a->lock); /* else the last touch */
    if (is_alone) {
        free_aside(a);
    }
    return NULL;
}

static bool start_thread(struct aside *a)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    int rv;

    (void)sigfillset(&all);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rv = pthread_create(&thread, &attr, run, a);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return rv == 0;
}

/* ---- the loop ---- */

static void on_all_closed(void *arg)
{
    struct aside *a = arg;
    bool is_done;

    (void)pthread_mutex_lock(&a->lock);
    is_done = a->is_done;
    a->is_alone = !is_done;
    (void)pthread_mutex_unlock(&a->lock); /* else the last touch */
    if (is_done) {
        free_aside(a);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct aside *a = handle->data;

    closer_closed(&a->closer);
}

void aside_drop(struct aside *a)
{
    closer_finish(&a->closer, on_all_closed, a);
    uv_close((uv_handle_t *)&a->wake, on_closed);
    uv_close((uv_handle_t *)&a->timer, on_closed);
}

static void finish(struct aside *a)
{
    bool is_done;

    (void)pthread_mutex_lock(&a->lock);
    is_done = a->is_done;
    (void)pthread_mutex_unlock(&a->lock);
    aside_drop(a);
    a->config.on_done(a->config.arg, is_done ? a->data : NULL);
}

static void on_wake(uv_async_t *wake)
{
    if (!uv_is_closing((uv_handle_t *)wake)) {
        finish(wake->data);
    }
}

static void on_time_up(uv_timer_t *timer)
{
    if (!uv_is_closing((uv_handle_t *)timer)) {
        finish(timer->data);
    }
}

struct aside *aside_run(const struct aside_config *config, void *data)
{
    struct aside *a = mem_zalloc(sizeof(*a));
    int rv = uv_async_init(config->loop, &a->wake, on_wake);

    rv = rv < 0 ? rv : uv_timer_init(config->loop, &a->timer);
    rv = rv < 0 ? rv : uv_timer_start(&a->timer, on_time_up, config->limit_ms, 0);
    ASSERT(rv == 0); /* the loop has its descriptors already */
    a->wake.data = a;
    a->timer.data = a;
    a->config = *config;
    a->data = data;
    (void)pthread_mutex_init(&a->lock, NULL);
    closer_init(&a->closer);
    closer_opened(&a->closer);
    closer_opened(&a->closer);
    if (!start_thread(a)) {
        (void)run(a);
    }
    return a;
}
