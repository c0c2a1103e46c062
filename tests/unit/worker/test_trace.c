#include "tests/lib/cmocka.h"
#include "worker/device/device.h"

#include "common/check.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { META = 1 + TRACE_ROWS }; /* names of the process and of the rows */

static char path[] = "/tmp/ctrun-trace-XXXXXX";

static struct trace *open_trace(void)
{
    struct trace *t = NULL;
    struct errmsg msg;

    assert_int_equal(trace_open(path, 3, &t, &msg), 0);
    return t;
}

/* Closes it and reads what it wrote. */
static json_t *closed(struct trace *t)
{
    struct errmsg msg;
    json_error_t error;
    json_t *root;

    assert_int_equal(trace_close(t, &msg), 0);
    root = json_load_file(path, 0, &error);
    assert_non_null(root);
    return root;
}

static const json_t *event(const json_t *root, size_t i)
{
    return json_array_get(json_object_get(root, "traceEvents"), i);
}

static void expect_number(const json_t *object, const char *key, json_int_t value)
{
    assert_int_equal(json_integer_value(json_object_get(object, key)), value);
}

static void events_have_row_step_and_time(void **state)
{
    struct trace *t = open_trace();
    uint64_t began = trace_begin(t);
    const json_t *e;
    json_t *root;

    (void)state;
    assert_true(began > 0);
    trace_step(7);
    trace_end(t, 2, "all_to_all", began);
    root = closed(t);
    assert_int_equal(json_array_size(json_object_get(root, "traceEvents")), META + 1);
    e = event(root, 3); /* the row of number 2 */
    expect_number(e, "tid", 2);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(e, "args"), "name")),
        "reduce");
    e = event(root, META);
    assert_string_equal(json_string_value(json_object_get(e, "name")), "all_to_all");
    assert_string_equal(json_string_value(json_object_get(e, "ph")), "X");
    expect_number(e, "pid", 3);
    expect_number(e, "tid", 2);
    expect_number(e, "ts", (json_int_t)began);
    assert_true(json_is_integer(json_object_get(e, "dur")));
    expect_number(json_object_get(e, "args"), "step", 7);
    json_decref(root);
}

static void *add_many(void *arg)
{
    for (int i = 0; i < TRACE_EVENTS; i++) {
        trace_end(arg, 0, "gelu", trace_begin(arg));
    }
    return NULL;
}

static void threads_add_at_once_and_what_finds_no_place_is_left_out(void **state)
{
    struct trace *t = open_trace();
    pthread_t thread[2];
    json_t *root;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(thread); i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, add_many, t), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(thread); i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    root = closed(t);
    assert_int_equal(json_array_size(json_object_get(root, "traceEvents")),
                     META + TRACE_EVENTS);
    for (size_t i = META; i < META + TRACE_EVENTS; i++) {
        assert_string_equal(json_string_value(json_object_get(event(root, i), "name")),
                            "gelu");
    }
    json_decref(root);
}

static int wait_for_the_next_step(void *arg, struct errmsg *msg)
{
    sem_t **begun = arg;

    return sem_wait(*begun) == 0 ? 0 : errmsg_set(msg, -errno, "sem_wait");
}

static void a_task_belongs_to_the_step_that_enqueued_it(void **state)
{
    struct trace *t = open_trace();
    struct device_config config = {.local_world_size = 1, .threads = 1, .trace = t};
    struct device *d;
    struct errmsg msg;
    sem_t begun;
    sem_t *arg = &begun;
    json_t *root;

    (void)state;
    assert_int_equal(device_open("cpu", &config, &d, &msg), 0);
    assert_int_equal(sem_init(&begun, 0, 0), 0);
    trace_step(4);
    device_enqueue(d, QUEUE_COPY, wait_for_the_next_step, &arg, sizeof(arg));
    trace_step(5);
    assert_int_equal(sem_post(&begun), 0);
    assert_int_equal(device_finish(d, device_mark(d, QUEUE_COPY), 60000, &msg), 0);
    device_close(d);
    (void)sem_destroy(&begun);
    root = closed(t);
    expect_number(json_object_get(event(root, META), "args"), "step", 4);
    json_decref(root);
}

static void without_a_trace_nothing_happens(void **state)
{
    struct errmsg msg;

    (void)state;
    assert_int_equal(trace_begin(NULL), 0);
    trace_end(NULL, 0, "gelu", 0);
    assert_int_equal(trace_close(NULL, &msg), 0);
}

static void a_name_holds_for_one_task(void **state)
{
    (void)state;
    trace_name("copy");
    assert_string_equal(trace_take_name(), "copy");
    assert_string_equal(trace_take_name(), "task");
}

static void files_that_cannot_be_written_are_told(void **state)
{
    struct trace *t = NULL;
    struct errmsg msg;

    (void)state;
    assert_int_equal(trace_open("/nowhere/trace", 0, &t, &msg), -ENOENT);
    assert_non_null(strstr(msg.text, "--profile: /nowhere/trace"));
    assert_int_equal(trace_open("/dev/full", 0, &t, &msg), 0);
    assert_int_equal(trace_close(t, &msg), -EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_have_row_step_and_time),
        cmocka_unit_test(threads_add_at_once_and_what_finds_no_place_is_left_out),
        cmocka_unit_test(a_task_belongs_to_the_step_that_enqueued_it),
        cmocka_unit_test(without_a_trace_nothing_happens),
        cmocka_unit_test(a_name_holds_for_one_task),
        cmocka_unit_test(files_that_cannot_be_written_are_told),
    };
    int fd = mkstemp(path), failed;

    if (fd < 0) {
        return 1;
    }
    close(fd);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
