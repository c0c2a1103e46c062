/* Sets of CPUs and the kernel's way to write them. */

#include "launcher/place/cpuset.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/mem.h"

#include <sched.h>
#include <string.h>

static void lists_are_read_and_written_as_the_kernels(void **state)
{
    static const struct {
        const char *text, *again;
        unsigned n;
    } cases[] = {
        {"", "", 0},
        {"0", "0", 1},
        {"0-3,8", "0-3,8", 5},
        {"5,4,0-1,1-2", "0-2,4-5", 5},
        {"63-64,127,128", "63-64,127-128", 4},
        {"0-8191", "0-8191", 8192},
        {"8191", "8191", 1},
        {"007", "7", 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cpuset set;
        char *again;

        assert_int_equal(cpuset_parse(cases[i].text, &set), 0);
        assert_int_equal(cpuset_count(&set), cases[i].n);
        again = cpuset_format(&set);
        assert_string_equal(again, cases[i].again);
        mem_free(again);
    }
}

static void what_is_no_list_is_refused_and_leaves_the_set_alone(void **state)
{
    static const char *const texts[] = {
        "x",   "-1",   "1-",    "3-1",  ",",
        "1,",  "1,,2", "1 2",   "8192", "0-8192",
        "0x1", " 1",   "1-2-3", "+1",   "99999999999999999999",
        "1\n"};
    struct cpuset set = {{7}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_int_equal(cpuset_parse(texts[i], &set), ERR_INVALID);
    }
    assert_true(set.word[0] == 7);
}

static void every_second_cpu_has_room_in_the_text(void **state)
{
    struct cpuset set = {{0}};
    struct cpuset again;
    char *text;

    (void)state;
    for (unsigned i = 1; i < CPUSET_MAX; i += 2) {
        cpuset_add(&set, i);
    }
    text = cpuset_format(&set);
    assert_int_equal(cpuset_parse(text, &again), 0);
    assert_true(cpuset_equal(&set, &again));
    mem_free(text);
}

static void members_are_visited_in_order_and_sets_combined(void **state)
{
    static const int expected[] = {0, 63, 64, 8191};
    struct cpuset a;
    struct cpuset b;
    size_t n = 0;

    (void)state;
    assert_int_equal(cpuset_parse("0,63-64,8191", &a), 0);
    for (int cpu = cpuset_next(&a, 0); cpu >= 0; cpu = cpuset_next(&a, cpu + 1)) {
        assert_true(n < ARRAY_LEN(expected));
        assert_int_equal(cpu, expected[n++]);
    }
    assert_int_equal(n, ARRAY_LEN(expected));
    assert_true(cpuset_has(&a, 63) && !cpuset_has(&a, 62) && !cpuset_has(&a, 8192));
    assert_int_equal(cpuset_next(&a, 65), 8191);
    assert_int_equal(cpuset_next(&a, 8192), -1);
    assert_int_equal(cpuset_parse("1,64-70", &b), 0);
    cpuset_join(&b, &a);
    assert_int_equal(cpuset_count(&b), 11);
    cpuset_keep(&b, &a);
    assert_true(cpuset_equal(&a, &b));
}

static void the_layout_is_the_c_librarys(void **state)
{
    cpu_set_t libc;
    struct cpuset set = {{0}};

    (void)state;
    CPU_ZERO(&libc);
    CPU_SET(0, &libc);
    CPU_SET(77, &libc);
    CPU_SET(1023, &libc);
    cpuset_add(&set, 0);
    cpuset_add(&set, 77);
    cpuset_add(&set, 1023);
    assert_memory_equal(&libc, &set, sizeof(libc));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read_and_written_as_the_kernels),
        cmocka_unit_test(what_is_no_list_is_refused_and_leaves_the_set_alone),
        cmocka_unit_test(every_second_cpu_has_room_in_the_text),
        cmocka_unit_test(members_are_visited_in_order_and_sets_combined),
        cmocka_unit_test(the_layout_is_the_c_librarys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
