/* Happy path: 1. a thread works (errand.h); 2. it wakes the loop; 3. on_done. */

#include "common/aside.h"

#include "common/check.h"
#include "common/closer.h"
#include "common/errand.h"
#include "common/mem.h"

#include <uv.h>

struct aside {
    struct aside_config config;
    struct errand *errand; /* NULL: taken, left, or there was no thread for it … */
    void *data; /* … and this was worked on by the loop itself; NULL: none */
    uv_async_t wake;
    uv_timer_t timer;
    struct closer closer;
};

static void wake_loop(void *arg)
{
    struct aside *a = arg;

    (void)uv_async_send(&a->wake); /* the handle is open */
}

static void on_all_closed(void *arg)
{
    mem_free(arg);
}

static void on_closed(uv_handle_t *handle)
{
    struct aside *a = handle->data;

    closer_closed(&a->closer);
}

static void release(const struct aside *a, void *data)
{
    if (data) {
        a->config.release(data);
    }
}

static void close_all(struct aside *a)
{
    errand_leave(a->errand);
    a->errand = NULL;
    closer_finish(&a->closer, on_all_closed, a);
    uv_close((uv_handle_t *)&a->wake, on_closed);
    uv_close((uv_handle_t *)&a->timer, on_closed);
}

void aside_drop(struct aside *a)
{
    release(a, a->data);
    close_all(a);
}

static void finish(struct aside *a)
{
    void *data = a->errand ? errand_take(a->errand, 0) : a->data;

    if (data) {
        a->errand = NULL;
    }
    close_all(a);
    a->config.on_done(a->config.arg, data);
    release(a, data);
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
    const struct errand_work work = {.data = data,
                                     .run = config->work,
                                     .release = config->release,
                                     .done = wake_loop,
                                     .arg = a};
    int rv = uv_async_init(config->loop, &a->wake, on_wake);

    rv = rv < 0 ? rv : uv_timer_init(config->loop, &a->timer);
    rv = rv < 0 ? rv : uv_timer_start(&a->timer, on_time_up, config->limit_ms, 0);
    ASSERT(rv == 0); /* the loop has its descriptors already */
    a->wake.data = a;
    a->timer.data = a;
    a->config = *config;
    closer_init(&a->closer);
    closer_opened(&a->closer);
    closer_opened(&a->closer);
    if (errand_begin(&work, &a->errand) < 0) {
        config->work(data);
        a->data = data;
        wake_loop(a);
    }
    return a;
}
