#include "tests/lib/cmocka.h"
#include "worker/parallel/mesh.h"

#include <string.h>

struct mesh_case {
    struct mesh_wish wish;
    struct mesh mesh;
    const char *error; /* NULL: none */
};

#define SHARDS            \
    {                     \
        .optimizer = true \
    }

static const struct mesh_case cases[] = {
    {{"ddp", .world_size = 4, .node_size = 2}, {4, 1}, NULL},
    {{"ddp", .dp_replicate = 4, .dp_shard = 1, .world_size = 4}, {4, 1}, NULL},
    {{"ddp", .dp_shard = 2, .world_size = 4},
     {0, 0},
     "parallel.dp_shard=2: parallel.strategy=ddp has no such axis; set it to auto, or "
     "parallel.strategy=hsdp"},
    {{"ddp", .dp_replicate = 3, .world_size = 4},
     {0, 0},
     "parallel.dp_replicate=3, but there are 4 ranks: set it to auto"},
    {{"fsdp", SHARDS, .world_size = 3}, {1, 3}, NULL},
    {{"zero1", SHARDS, .dp_replicate = 1, .dp_shard = 3, .world_size = 3},
     {1, 3},
     NULL},
    {{"fsdp", SHARDS, .world_size = 1}, {1, 1}, NULL},
    {{"dp", {.optimizer = true, .one_owner = true}, .world_size = 3}, {1, 3}, NULL},
    {{"fsdp", SHARDS, .dp_shard = 2, .world_size = 1},
     {0, 0},
     "parallel.dp_shard=2, but there is 1 rank: set it to auto"},
    {{"zero2", SHARDS, .dp_replicate = 2, .world_size = 4},
     {0, 0},
     "parallel.dp_replicate=2: parallel.strategy=zero2 has no such axis; set it to auto, "
     "or parallel.strategy=hsdp"},
    {{"hsdp", SHARDS, true, .world_size = 6, .node_size = 3}, {2, 3}, NULL},
    {{"hsdp", SHARDS, true, .world_size = 4, .node_size = 4}, {1, 4}, NULL},
    {{"hsdp", SHARDS, true, .dp_shard = 2, .world_size = 8, .node_size = 4},
     {4, 2},
     NULL},
    {{"hsdp", SHARDS, true, .dp_replicate = 2, .world_size = 8}, {2, 4}, NULL},
    {{"hsdp", SHARDS, true, .dp_replicate = 2, .dp_shard = 4, .world_size = 8},
     {2, 4},
     NULL},
    {{"hsdp", SHARDS, true, .world_size = 5}, {1, 5}, NULL}, /* unlike nodes */
    {{"hsdp", SHARDS, true, .dp_shard = 3, .world_size = 8, .node_size = 4},
     {0, 0},
     "parallel.dp_shard=3 does not divide the 8 ranks that there are: set it to a "
     "divisor of 8, or to auto"},
    {{"hsdp", SHARDS, true, .dp_replicate = 9, .world_size = 8},
     {0, 0},
     "parallel.dp_replicate=9 does not divide the 8 ranks"},
    {{"hsdp", SHARDS, true, .dp_replicate = 2, .dp_shard = 3, .world_size = 8},
     {0, 0},
     "parallel.dp_replicate=2 x parallel.dp_shard=3 are not the 8 ranks that there are: "
     "set one of them to auto, the other to a divisor of 8"},
    {{"hsdp", SHARDS, true, .dp_shard = 1 << 20, .dp_replicate = 1 << 20,
      .world_size = 8},
     {0, 0},
     "are not the 8"},
};

static void mesh_follows_strategy_wishes_and_nodes(void **state)
{
    struct errmsg msg;
    struct mesh m;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct mesh_case *c = &cases[i];

        msg.text[0] = '\0';
        if (c->error) {
            assert_int_equal(mesh_make(&c->wish, &m, &msg), ERR_INVALID);
            assert_non_null(strstr(msg.text, c->error));
            continue;
        }
        assert_int_equal(mesh_make(&c->wish, &m, &msg), 0);
        assert_int_equal(m.dp_replicate, c->mesh.dp_replicate);
        assert_int_equal(m.dp_shard, c->mesh.dp_shard);
    }
}

static void shards_of_a_replica_are_neighbours(void **state)
{
    static const struct mesh m = {2, 3};

    (void)state;
    for (int rank = 0; rank < 6; rank++) {
        assert_int_equal(mesh_replica(&m, rank), rank < 3 ? 0 : 1);
        assert_int_equal(mesh_replica(&m, rank) * 3 + mesh_shard(&m, rank), rank);
    }
}

static void groups_that_keep_pieces_come_out_even(void **state)
{
    static const struct {
        int dp_shard, n;
        const char *error;
    } tries[] = {
        {4, 2, NULL},
        {4, 1, NULL},
        {4, 4, NULL},
        {1, 1, NULL},
        {6, 3, NULL},
        {3, 2,
         "parallel.reshard_after_forward=2 does not divide the 3 ranks of a copy: set it "
         "to true, or to a divisor (1, 3)"},
        {12, 8,
         "the 12 ranks of a copy: set it to true, or to a divisor (1, 2, 3, 4, 6, 12)"},
        {4, 8, "reshard_after_forward=8 does not divide the 4 ranks"},
        {1, 2,
         "does not divide the 1 rank of a copy: set it to true, or to a divisor (1)"},
        {720720, 17,
         "a divisor (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, "},
    };
    struct errmsg msg;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
        struct mesh m = {1, tries[i].dp_shard};
        int rv = mesh_check_reshard(&m, tries[i].n, &msg);

        assert_int_equal(rv, tries[i].error ? ERR_INVALID : 0);
        assert_true(!tries[i].error || strstr(msg.text, tries[i].error));
    }
    assert_int_equal(mesh_check_reshard(&(struct mesh){1, 720720}, 17, &msg),
                     ERR_INVALID);
    assert_string_equal(msg.text + strlen(msg.text) - 1, ")");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mesh_follows_strategy_wishes_and_nodes),
        cmocka_unit_test(shards_of_a_replica_are_neighbours),
        cmocka_unit_test(groups_that_keep_pieces_come_out_even),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
