/* Which device is opened, and with what; test_device.c has what it then does. */

#include "tests/lib/cmocka.h"
#include "worker/device/device.h"

#include <stdlib.h>
#include <string.h>

static void what_is_not_there_is_refused_with_a_remedy(void **state)
{
    static const struct {
        const char *kind, *isa;
        int threads, err;
        const char *text;
    } rows[] = {
        {"cuda", NULL, 1, ERR_UNSUPPORTED, "use device.kind=cpu"},
        {"abacus", NULL, 1, ERR_UNSUPPORTED, "device.kind=abacus"},
        {"cpu", "mmx", 1, ERR_INVALID, "choose scalar, avx2 or avx512"},
        {"cpu", NULL, 100000, ERR_INVALID, "device.threads=100000"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct device_config config = {
            .local_world_size = 1, .threads = rows[i].threads, .isa = rows[i].isa};
        struct device *d = NULL;
        struct errmsg msg = {""};

        assert_int_equal(device_open(rows[i].kind, &config, &d, &msg), rows[i].err);
        assert_non_null(strstr(msg.text, rows[i].text));
        assert_null(d);
    }
}

/* NOLINTBEGIN(concurrency-mt-unsafe): no other thread runs here */
static void the_environment_chooses_the_instruction_set(void **state)
{
    struct device_config config = {.local_world_size = 1, .threads = 1};
    struct device *d = NULL;
    struct errmsg msg = {""};
    char text[256];

    (void)state;
    assert_int_equal(setenv("CTRUN_ISA", "scalar", 1), 0);
    assert_int_equal(device_open("auto", &config, &d, &msg), 0);
    assert_non_null(strstr(d->signature, "scalar"));
    d->ops->describe(d, text, sizeof(text));
    assert_non_null(strstr(text, "1 thread on"));
    device_close(d);
    assert_int_equal(setenv("CTRUN_ISA", "sse9", 1), 0);
    assert_int_equal(device_open("auto", &config, &d, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "CTRUN_ISA=sse9"));
    assert_int_equal(unsetenv("CTRUN_ISA"), 0);
}
/* NOLINTEND(concurrency-mt-unsafe) */

static void threads_default_to_the_rank_s_share_of_the_cores(void **state)
{
    struct device_config all = {.local_world_size = 1},
                         few = {.local_world_size = 10000};
    struct device *d = NULL;
    int cores;

    (void)state;
    assert_int_equal(device_open("cpu", &few, &d, NULL), 0);
    assert_int_equal(d->threads, 1);
    device_close(d);
    assert_int_equal(device_open("cpu", &all, &d, NULL), 0);
    cores = d->threads;
    device_close(d);
    all.local_world_size = 2;
    assert_int_equal(device_open("cpu", &all, &d, NULL), 0);
    assert_int_equal(d->threads, MAX(1, cores / 2));
    device_close(d);
    device_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_there_is_refused_with_a_remedy),
        cmocka_unit_test(the_environment_chooses_the_instruction_set),
        cmocka_unit_test(threads_default_to_the_rank_s_share_of_the_cores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
