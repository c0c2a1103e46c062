/* A rank's own block, from a checkpoint of any layout and from the seed. */

#include "tests/lib/cmocka.h"
#include "tests/lib/tiny_checkpoint.h"
#include "worker/model/init.h"
#include "worker/restore.h"
#include "worker/shares.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { SHARDS_MAX = 9, SEED = 42, LAYERS = 2, TABLES_MAX = 64 << 10 };

struct fixture {
    char dir[256];
    struct layout layout;
    struct unit_groups groups;
    float *whole[OWN_STATES];
    float *own[OWN_STATES]; /* of the shard at hand */
    struct shard_map map;
    struct own_block block;
    struct errmsg msg;
};

static int setup(void **state)
{
    static const struct model_config model = {"gpt2", LAYERS, 3, 48, 16, 101};
    struct fixture *f = mem_zalloc(sizeof(*f));

    tiny_make_dir(f->dir, sizeof(f->dir));
    assert_int_equal(layout_gpt2(&model, &f->layout, &f->msg), 0);
    unit_groups_each(&f->groups, &f->layout);
    for (size_t k = 0; k < OWN_STATES; k++) {
        f->whole[k] = mem_array(f->layout.size, sizeof(float));
        init_params(&f->layout, SEED + k, LAYERS, f->whole[k]);
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    for (size_t k = 0; k < OWN_STATES; k++) {
        mem_free(f->whole[k]);
    }
    unit_groups_release(&f->groups);
    layout_release(&f->layout);
    tiny_remove_dir(f->dir);
    mem_free(f);
    return 0;
}

/* The block of one shard, all zero, no element larger than it must be. */
static void hold(struct fixture *f, int n_shards, int shard)
{
    shard_map_init(&f->map, &f->layout, &f->groups, n_shards, shard);
    f->block = (struct own_block){.layout = &f->layout, .map = &f->map};
    for (size_t k = 0; k < OWN_STATES; k++) {
        f->own[k] = mem_array(f->map.size, sizeof(float));
        f->block.state[k] = f->own[k];
    }
}

static void let_go(struct fixture *f)
{
    for (size_t k = 0; k < OWN_STATES; k++) {
        mem_free(f->own[k]);
    }
    shard_map_release(&f->map);
}

/* Padding is zero in both. */
static void assert_holds(const struct fixture *f, size_t k)
{
    for (int g = 0; g < f->map.n_ranges; g++) {
        const struct shard_range *r = &f->map.range[g];

        assert_memory_equal(f->own[k] + r->at, f->whole[k] + r->begin,
                            (r->end - r->begin) * sizeof(float));
    }
}

static struct checkpoint_file write_part(struct fixture *f, const char *tmp, int rank,
                                         int world)
{
    struct checkpoint_file file;
    struct share share;
    float *state[OWN_STATES];

    share_make(&f->layout, &(struct holder){.rank = rank, .world_size = world}, &share);
    for (size_t k = 0; k < OWN_STATES; k++) {
        state[k] = f->whole[k] + share.spans.range[0].begin;
    }
    share_bind(&share, state);
    assert_int_equal(
        checkpoint_write_shard(tmp, rank, share.box, share.n_boxes, &file, &f->msg), 0);
    share_release(&share);
    return file;
}

/* A checkpoint of `world` ranks that all hold everything. */
static const char *commit(struct fixture *f, int world)
{
    static char path[CHECKPOINT_PATH_MAX];
    struct checkpoint_file files[SHARDS_MAX];

    checkpoint_path(path, sizeof(path), f->dir, (uint64_t)world, 1, true);
    for (int rank = 0; rank < world; rank++) {
        files[rank] = write_part(f, path, rank, world);
    }
    assert_int_equal(tiny_manifest(f->dir, (uint64_t)world, 1, files, world, &f->msg),
                     0);
    assert_int_equal(checkpoint_commit(f->dir, (uint64_t)world, 1, &f->msg), 0);
    checkpoint_path(path, sizeof(path), f->dir, (uint64_t)world, 1, false);
    return path;
}

static void every_shard_is_loaded_from_any_number_of_files(void **state)
{
    struct fixture *f = *state;

    for (int written = 1; written <= 7; written += 2) {
        const char *path = commit(f, written);

        for (int n = 1; n <= SHARDS_MAX; n++) {
            for (int shard = 0; shard < n; shard++) {
                hold(f, n, shard);
                assert_int_equal(
                    restore_own_block(path, &f->block, OWN_STATES, &f->msg), 0);
                for (size_t k = 0; k < OWN_STATES; k++) {
                    assert_holds(f, k);
                }
                let_go(f);
            }
        }
    }
}

static void weights_are_loaded_alone_where_they_are_asked_for(void **state)
{
    struct fixture *f = *state;

    hold(f, 3, 1);
    assert_int_equal(restore_own_block(commit(f, 2), &f->block, 1, &f->msg), 0);
    assert_holds(f, 0);
    for (size_t i = 0; i < f->map.size; i++) {
        assert_true(f->own[1][i] == 0.0F && f->own[2][i] == 0.0F);
    }
    let_go(f);
}

static void without_a_map_the_own_block_is_the_flat_block(void **state)
{
    struct fixture *f = *state;
    struct own_block all = {.layout = &f->layout};
    const char *path = commit(f, 2);

    assert_int_equal(own_size(&all), f->layout.size);
    for (size_t k = 0; k < OWN_STATES; k++) {
        all.state[k] = mem_array(f->layout.size, sizeof(float));
    }
    assert_int_equal(restore_own_block(path, &all, OWN_STATES, &f->msg), 0);
    for (size_t k = 0; k < OWN_STATES; k++) {
        assert_memory_equal(all.state[k], f->whole[k], f->layout.size * sizeof(float));
        mem_free(all.state[k]);
    }
}

static size_t bytes_read(void)
{
    FILE *file = fopen("/proc/self/io", "re");
    size_t n = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "rchar: %zu", &n), 1); /* NOLINT: the kernel's */
    assert_int_equal(fclose(file), 0);
    return n;
}

static void a_rank_reads_what_it_holds_and_the_tables(void **state)
{
    struct fixture *f = *state;
    const char *path = commit(f, 3);

    for (int shard = 0; shard < 8; shard++) {
        size_t before;
        size_t bytes;

        hold(f, 8, shard);
        bytes = OWN_STATES * f->map.size * sizeof(float);
        before = bytes_read();
        assert_int_equal(restore_own_block(path, &f->block, OWN_STATES, &f->msg), 0);
        assert_in_range(bytes_read() - before, 0, bytes + TABLES_MAX);
        let_go(f);
    }
}

static void another_models_checkpoint_is_refused(void **state)
{
    struct fixture *f = *state;
    struct tiny tiny;
    char path[CHECKPOINT_PATH_MAX];

    tiny_init(&tiny, 0);
    tiny_commit(&tiny, f->dir, 77, 1, 1);
    tiny_release(&tiny);
    checkpoint_path(path, sizeof(path), f->dir, 77, 1, false);
    hold(f, 1, 0);
    assert_int_equal(restore_own_block(path, &f->block, OWN_STATES, &f->msg),
                     ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "'wte.weight'"));
    let_go(f);
}

static void the_first_values_are_made_by_their_holder_in_any_pieces(void **state)
{
    struct fixture *f = *state;

    for (int n = 1; n <= SHARDS_MAX; n += 4) {
        for (int shard = 0; shard < n; shard++) {
            hold(f, n, shard);
            for (size_t at = 0; at < f->map.size; at += 5003) {
                init_own_block(&f->block, SEED, LAYERS, at,
                               MIN(at + 5003, f->map.size));
            }
            assert_holds(f, 0);
            let_go(f);
        }
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_shard_is_loaded_from_any_number_of_files),
        CASE(weights_are_loaded_alone_where_they_are_asked_for),
        CASE(without_a_map_the_own_block_is_the_flat_block),
        CASE(a_rank_reads_what_it_holds_and_the_tables),
        CASE(another_models_checkpoint_is_refused),
        CASE(the_first_values_are_made_by_their_holder_in_any_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
