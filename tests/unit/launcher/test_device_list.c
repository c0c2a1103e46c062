/* --virtual-local-rank's devices, as torch 2.15 chooses them (local_elastic_agent):
 * what differs is that an entry which names nothing is refused. */

#include "launcher/place/device_list.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <string.h>

static void the_list_of_hip_counts_where_it_is_not_empty(void **state)
{
    (void)state;
    assert_null(device_list_choose(NULL, NULL).text);
    assert_string_equal(device_list_choose(NULL, NULL).name, "CUDA_VISIBLE_DEVICES");
    assert_string_equal(device_list_choose("0", NULL).text, "0");
    assert_string_equal(device_list_choose("0", "").name, "CUDA_VISIBLE_DEVICES");
    assert_null(device_list_choose(NULL, "").text);
    assert_string_equal(device_list_choose("0", "1").name, "HIP_VISIBLE_DEVICES");
    assert_string_equal(device_list_choose("0", "1").text, "1");
}

static void a_worker_sees_the_entry_of_its_local_rank(void **state)
{
    static const struct {
        const char *list;
        uint32_t local_rank;
        const char *expected;
    } cases[] = {
        {NULL, 0, "0"},
        {NULL, 17, "17"},
        {"4,5,6", 0, "4"},
        {"4,5,6", 2, "6"},
        {" 4 ,\t5 ", 0, "4"},
        {" 4 ,\t5 ", 1, "5"},
        {"GPU-8932f937,MIG-a/1/0", 1, "MIG-a/1/0"},
        {"3,3", 1, "3"}, /* two workers may share one */
        {"", 0, ""},
        {"  ", 0, ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct device_list list = device_list_choose(cases[i].list, NULL);
        char *entry = device_list_entry(&list, cases[i].local_rank);

        assert_string_equal(entry, cases[i].expected);
        mem_free(entry);
    }
}

static void check(const char *text, uint32_t nproc, const char *expected)
{
    struct device_list list = device_list_choose(text, NULL);
    struct errmsg msg = {0};

    assert_int_equal(device_list_check(&list, nproc, &msg),
                     *expected ? ERR_INVALID : 0);
    assert_string_equal(msg.text, expected);
}

static void a_list_that_does_not_reach_is_refused_with_the_remedy(void **state)
{
    struct device_list hip = device_list_choose(NULL, "0");
    struct errmsg msg = {0};

    (void)state;
    check(NULL, 8, "");
    check("0", 1, "");
    check("0,1,2", 2, "");
    check("", 1, ""); /* hidden on purpose */
    check("0,", 1, "");
    check("0,1", 3,
          "--virtual-local-rank: CUDA_VISIBLE_DEVICES=0,1 is too short for 3 workers; "
          "name a device for each, or lower --nproc-per-node");
    check("", 2,
          "--virtual-local-rank: CUDA_VISIBLE_DEVICES= is too short for 2 workers; "
          "name a device for each, or lower --nproc-per-node");
    check("0, ,2", 3,
          "--virtual-local-rank: CUDA_VISIBLE_DEVICES=0, ,2 names no device for local "
          "rank 1; fill the gap");
    assert_int_equal(device_list_check(&hip, 2, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "HIP_VISIBLE_DEVICES=0 is too short"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_of_hip_counts_where_it_is_not_empty),
        cmocka_unit_test(a_worker_sees_the_entry_of_its_local_rank),
        cmocka_unit_test(a_list_that_does_not_reach_is_refused_with_the_remedy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
