#include "tests/lib/cmocka.h"
#include "worker/report/memory.h"

#include <string.h>
#include <sys/mman.h>

static void the_kernel_s_text_is_read(void **state)
{
    struct memory m = memory_parse("Name:\tVmRSS: 7 kB\nVmPeak:\t  900 kB\n"
                                   "VmHWM:\t     200 kB\nVmRSS:\t      100 kB\n");

    (void)state;
    assert_int_equal(m.bytes, 100 * 1024);
    assert_int_equal(m.peak_bytes, 200 * 1024);
}

static void what_is_not_told_is_0(void **state)
{
    static const char *const texts[] = {"", "Name:\tx\n", "VmRSS: 5 kB\n",
                                        "\nVmRSS:", "\nVmRSS:\tmany kB\n"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct memory m = memory_parse(texts[i]);

        assert_int_equal(m.bytes, 0);
        assert_int_equal(m.peak_bytes, 0);
    }
}

static void memory_that_was_given_back_stays_in_the_peak(void **state)
{
    enum { BYTES = 64 << 20 };
    struct memory full;
    struct memory after;
    void *p =
        mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(p != MAP_FAILED);
    memset(p, 1, BYTES);
    full = memory_read();
    assert_true(full.bytes >= BYTES && full.peak_bytes >= BYTES);
    assert_int_equal(munmap(p, BYTES), 0);
    after = memory_read();
    assert_true(after.bytes + BYTES / 2 < full.bytes);
    assert_true(after.peak_bytes >= BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_s_text_is_read),
        cmocka_unit_test(what_is_not_told_is_0),
        cmocka_unit_test(memory_that_was_given_back_stays_in_the_peak),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
