/* What may hang is done by a thread of its own, for so long. */

#include "tests/lib/cmocka.h"

#include "common/aside.h"
#include "common/mem.h"

#include <stdbool.h>
#include <unistd.h>
#include <uv.h>

struct errand {
    int *released; /* a pipe's writing end: a byte tells */
    int wait_fd;   /* -1: does not wait */
    bool is_done;
};

struct scene {
    uv_loop_t loop;
    int released[2];
    int hung[2];
    unsigned n_done, n_late;
};

static void work(void *data)
{
    struct errand *e = data;
    char byte;

    e->is_done = e->wait_fd < 0 || read(e->wait_fd, &byte, 1) >= 0;
}

static void release(void *data)
{
    struct errand *e = data;
    int fd = e->released[1];

    mem_free(e);
    assert_int_equal(write(fd, "r", 1), 1);
}

static void on_done(void *arg, void *data)
{
    struct scene *s = arg;
    const struct errand *e = data;

    s->n_done += e && e->is_done;
    s->n_late += !e;
}

static void open_scene(struct scene *s)
{
    *s = (struct scene){.n_done = 0};
    assert_int_equal(uv_loop_init(&s->loop), 0);
    assert_int_equal(pipe(s->released), 0);
    assert_int_equal(pipe(s->hung), 0);
}

static struct aside *run(struct scene *s, uint64_t limit_ms, bool hangs)
{
    struct aside_config config = {.loop = &s->loop,
                                  .limit_ms = limit_ms,
                                  .work = work,
                                  .release = release,
                                  .on_done = on_done,
                                  .arg = s};
    struct errand *e = mem_zalloc(sizeof(*e));

    e->released = s->released;
    e->wait_fd = hangs ? s->hung[0] : -1;
    return aside_run(&config, e);
}

/* Waits for so many. */
static void expect_released(const struct scene *s, unsigned n)
{
    char byte;

    while (n-- > 0) {
        assert_int_equal(read(s->released[0], &byte, 1), 1);
    }
}

static void close_scene(struct scene *s)
{
    assert_int_equal(uv_loop_close(&s->loop), 0); /* nothing is left in it */
    for (int i = 0; i < 2; i++) {
        (void)close(s->released[i]);
        (void)close(s->hung[i]);
    }
}

static void what_is_done_in_time_is_handed_over_and_released(void **state)
{
    struct scene s;

    (void)state;
    open_scene(&s);
    for (int i = 0; i < 50; i++) {
        (void)run(&s, 60000, false);
    }
    assert_int_equal(uv_run(&s.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(s.n_done, 50);
    assert_int_equal(s.n_late, 0);
    expect_released(&s, 50);
    close_scene(&s);
}

static void what_hangs_holds_up_neither_the_loop_nor_others(void **state)
{
    struct scene s;

    (void)state;
    open_scene(&s);
    (void)run(&s, 50, true);
    (void)run(&s, ASIDE_NO_LIMIT, false);
    assert_int_equal(uv_run(&s.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(s.n_done, 1);
    assert_int_equal(s.n_late, 1);
    expect_released(&s, 1);
    assert_int_equal(write(s.hung[1], "x", 1), 1); /* it comes back after all */
    expect_released(&s, 1);
    close_scene(&s);
}

/* Both at once, as often as not. */
static void what_ends_as_its_time_is_up_is_told_once(void **state)
{
    struct scene s;

    (void)state;
    open_scene(&s);
    for (int i = 0; i < 200; i++) {
        (void)run(&s, (uint64_t)i % 2, false);
    }
    assert_int_equal(uv_run(&s.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(s.n_done + s.n_late, 200);
    expect_released(&s, 200);
    close_scene(&s);
}

static void what_is_dropped_is_told_no_more_and_not_waited_for(void **state)
{
    struct scene s;

    (void)state;
    open_scene(&s);
    for (int i = 0; i < 50; i++) {
        aside_drop(run(&s, 60000, false));
    }
    aside_drop(run(&s, 60000, true));
    assert_int_equal(uv_run(&s.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(s.n_done + s.n_late, 0);
    expect_released(&s, 50);
    assert_int_equal(write(s.hung[1], "x", 1), 1);
    expect_released(&s, 1);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_done_in_time_is_handed_over_and_released),
        cmocka_unit_test(what_hangs_holds_up_neither_the_loop_nor_others),
        cmocka_unit_test(what_ends_as_its_time_is_up_is_told_once),
        cmocka_unit_test(what_is_dropped_is_told_no_more_and_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
