/* Ranks within a role, by tables: nodes in group rank order, and what they get. */

#include "rendezvous/roles.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <stdio.h>

enum { MAX_NODES = 6 };

struct place {
    const char *role;
    uint32_t nproc;
    uint32_t first_rank, world_size; /* expected */
};

static void check(const struct place *expected, size_t n)
{
    struct job_node *storage = mem_array(n, sizeof(*storage));
    struct job_node *nodes[MAX_NODES];
    struct round r = {.node = nodes, .n = n};
    struct role_place *places;

    assert_true(n <= MAX_NODES);
    for (size_t i = 0; i < n; i++) {
        nodes[i] = &storage[i];
        nodes[i]->hello.nproc = expected[i].nproc;
        (void)snprintf(nodes[i]->join.role, sizeof(nodes[i]->join.role), "%s",
                       expected[i].role);
    }
    places = roles_make(&r);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(places[i].first_rank, expected[i].first_rank);
        assert_int_equal(places[i].world_size, expected[i].world_size);
    }
    mem_free(places);
    mem_free(storage);
}

static void one_role_has_the_jobs_ranks(void **state)
{
    static const struct place nodes[] = {
        {"default", 1, 0, 6}, {"default", 2, 1, 6}, {"default", 3, 3, 6}};

    (void)state;
    check(nodes, 3);
    check((const struct place[]){{"alone", 4, 0, 4}}, 1);
}

static void each_role_numbers_its_own_ranks_in_group_rank_order(void **state)
{
    static const struct place nodes[] = {{"trainer", 2, 0, 6}, {"data", 1, 0, 4},
                                         {"trainer", 1, 2, 6}, {"", 5, 0, 5},
                                         {"trainer", 3, 3, 6}, {"data", 3, 1, 4}};

    (void)state;
    check(nodes, 6);
}

static void a_role_that_begins_like_another_is_another(void **state)
{
    static const struct place nodes[] = {
        {"a", 1, 0, 2}, {"ab", 1, 0, 1}, {"a", 1, 1, 2}, {"A", 1, 0, 1}};

    (void)state;
    check(nodes, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_role_has_the_jobs_ranks),
        cmocka_unit_test(each_role_numbers_its_own_ranks_in_group_rank_order),
        cmocka_unit_test(a_role_that_begins_like_another_is_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
