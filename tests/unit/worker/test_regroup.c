/* What the ranks hold becomes what they write: over worlds, groups and layouts whose
 * rows end anywhere in the shards, several shards on too. */

#include "tests/lib/cmocka.h"
#include "worker/device/kernels.h"
#include "worker/regroup.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { STATES = 3, WORLD_MAX = 9, CHUNK = SUMSQ_CHUNK };

/* Rows of these widths, a unit a line; shapes[…][0] = 0 ends it. */
static const size_t shapes[][UNIT_MAX_TENSORS][2] = {
    {{1, 1}},
    {{101, 48}, {16, 48}, {48, 0}, {48, 144}, {144, 0}}, /* rows below a chunk */
    {{3, 10000}, {5, 0}, {7, 1365}},                     /* over three chunks */
    {{1, 40000}, {2, 9999}},                             /* one over ten chunks */
    {{4, CHUNK}, {3, CHUNK / 2}, {CHUNK, 0}},            /* no row is cut, or all are */
    {{11, 7}, {CHUNK - 77, 0}, {2, 5}},                  /* a tensor ends at a bound */
};

static void make_unit(struct unit *u, int i, size_t offset)
{
    size_t at = 0;

    *u = (struct unit){.offset = offset};
    (void)snprintf(u->name, sizeof(u->name), "u%d", i);
    for (; shapes[i][u->n_tensors][0] > 0; u->n_tensors++) {
        const size_t *shape = shapes[i][u->n_tensors];
        struct tensor *t = &u->tensor[u->n_tensors];

        *t = (struct tensor){.shape = {shape[0], shape[1]},
                             .n_dims = shape[1] > 0 ? 2 : 1,
                             .offset = at,
                             .size = shape[0] * MAX(shape[1], 1)};
        (void)snprintf(t->name, sizeof(t->name), "u%d.t%d", i, u->n_tensors);
        at += t->size;
    }
    u->size = (at + CHUNK - 1) / CHUNK * CHUNK;
}

static void make_layout(struct layout *l)
{
    *l = (struct layout){.n_units = ARRAY_LEN(shapes)};
    l->unit = mem_array(ARRAY_LEN(shapes), sizeof(*l->unit));
    for (int i = 0; i < l->n_units; i++) {
        make_unit(&l->unit[i], i, l->size);
        l->size += l->unit[i].size;
    }
}

/* Groups of `n` units. */
static void make_groups(struct unit_groups *g, const struct layout *l, int n)
{
    unit_groups_each(g, l);
    g->n = (l->n_units + n - 1) / n;
    for (int i = 0; i <= g->n; i++) {
        g->first[i] = MIN(i * n, l->n_units);
    }
}

/* --- all ranks of one world --- */

struct world {
    const struct layout *layout;
    struct holder holder; /* of rank 0 */
    struct share share[2 * WORLD_MAX];
    struct regroup regroup[2 * WORLD_MAX];
    struct shard_map held[WORLD_MAX];
    float *whole[STATES];
    float *written[2 * WORLD_MAX][STATES]; /* share buffers */
};

static void fill(float *values, size_t n, size_t salt)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)(i * STATES + salt);
    }
}

static struct holder holder_of(const struct world *w, int rank)
{
    struct holder h = w->holder;

    h.rank = rank;
    return h;
}

static void world_open(struct world *w, const struct layout *l,
                       const struct unit_groups *groups, int n_shards, int n_replicas)
{
    *w = (struct world){.layout = l,
                        .holder = {.world_size = n_shards * n_replicas,
                                   .n_shards = n_shards,
                                   .groups = groups}};
    for (int rank = 0; rank < w->holder.world_size; rank++) {
        struct holder h = holder_of(w, rank);

        share_make(l, &h, &w->share[rank]);
        regroup_init(&w->regroup[rank], l, &h);
        for (size_t k = 0; k < STATES; k++) {
            w->written[rank][k] = mem_array(MAX(w->share[rank].spans.size, 1), 4);
            fill(w->written[rank][k], w->share[rank].spans.size, 1 << 23);
        }
        share_bind(&w->share[rank], w->written[rank]);
    }
    for (int s = 0; s < n_shards; s++) {
        shard_map_init(&w->held[s], l, groups, n_shards, s);
    }
    for (size_t k = 0; k < STATES; k++) {
        w->whole[k] = mem_array(l->size, sizeof(float));
        fill(w->whole[k], l->size, k);
    }
}

static void world_close(struct world *w)
{
    for (int rank = 0; rank < w->holder.world_size; rank++) {
        share_release(&w->share[rank]);
        regroup_release(&w->regroup[rank]);
        for (size_t k = 0; k < STATES; k++) {
            mem_free(w->written[rank][k]);
        }
    }
    for (int s = 0; s < w->holder.n_shards; s++) {
        shard_map_release(&w->held[s]);
    }
    for (size_t k = 0; k < STATES; k++) {
        mem_free(w->whole[k]);
    }
}

typedef void (*world_check)(struct world *w);

static void for_each_world(world_check check)
{
    struct unit_groups groups;
    struct layout l;
    struct world w;

    make_layout(&l);
    for (int units = 1; units <= (int)ARRAY_LEN(shapes); units += 1 + units / 2) {
        make_groups(&groups, &l, units);
        for (int n = 1; n <= WORLD_MAX; n++) {
            for (int replicas = 1; replicas <= 2; replicas++) {
                world_open(&w, &l, &groups, n, replicas);
                check(&w);
                world_close(&w);
            }
        }
        unit_groups_release(&groups);
    }
    layout_release(&l);
}

/* --- what is written --- */

static void count_rows(const struct world *w, int rank, uint8_t *count)
{
    const struct share *s = &w->share[rank];

    for (size_t i = 0; i < s->n_boxes; i += STATES) {
        const struct box *b = &s->box[i];
        size_t width = b->n_dims == 2 ? b->shape[1] : 1;

        for (size_t k = 0; k < b->n_rows * width; k++) {
            count[s->flat[i] + k]++;
        }
        for (size_t k = 0; k < i; k += STATES) {
            assert_string_not_equal(s->box[k].name, b->name); /* one box of a tensor */
        }
    }
}

static void check_cover(struct world *w)
{
    uint8_t *count = mem_zalloc(w->layout->size);

    for (int rank = 0; rank < w->holder.world_size; rank++) {
        count_rows(w, rank, count);
    }
    for (int u = 0; u < w->layout->n_units; u++) {
        const struct unit *unit = &w->layout->unit[u];

        for (int i = 0; i < unit->n_tensors; i++) {
            const struct tensor *t = &unit->tensor[i];
            uint8_t *at = count + unit->offset + t->offset;

            for (size_t k = 0; k < t->size; k++) {
                assert_int_equal(at[k], 1);
            }
            memset(at, 0, t->size);
        }
    }
    for (size_t k = 0; k < w->layout->size; k++) {
        assert_int_equal(count[k], 0); /* and no padding */
    }
    mem_free(count);
}

static void every_element_is_written_exactly_once_in_whole_rows(void **state)
{
    (void)state;
    for_each_world(check_cover);
}

static void check_replicas(struct world *w)
{
    int writers = holder_writers(&w->holder);

    assert_int_equal(writers, w->holder.n_shards > 1 ? w->holder.n_shards
                                                     : w->holder.world_size);
    for (int rank = writers; rank < w->holder.world_size; rank++) {
        const struct regroup *r = &w->regroup[rank];

        assert_int_equal(w->share[rank].n_boxes + w->share[rank].spans.size, 0);
        assert_int_equal(r->n_copies + r->n_sends + r->n_recvs, 0);
    }
}

static void only_the_first_replica_writes_what_is_sharded(void **state)
{
    (void)state;
    for_each_world(check_replicas);
}

static bool is_held(const struct shard_map *map, size_t element)
{
    for (int g = 0; g < map->n_ranges; g++) {
        if (element >= map->range[g].begin && element < map->range[g].end) {
            return true;
        }
    }
    return false;
}

static void check_owner(struct world *w)
{
    for (int rank = 0; rank < w->holder.n_shards && w->holder.n_shards > 1; rank++) {
        const struct share *s = &w->share[rank];

        for (size_t i = 0; i < s->n_boxes; i++) {
            const struct box *b = &s->box[i];
            size_t width = b->n_dims == 2 ? b->shape[1] : 1;

            assert_true(is_held(&w->held[rank], s->flat[i]));
            assert_true(is_held(&w->held[rank], s->flat[i] + (b->n_rows - 1) * width));
        }
    }
}

static void a_row_is_written_by_the_holder_of_its_first_element(void **state)
{
    (void)state;
    for_each_world(check_owner);
}

/* --- how it gets there --- */

/* The own block of a rank, for state k; owned by the caller. */
static float *own_block(const struct world *w, int rank, size_t k)
{
    const struct shard_map *map = &w->held[rank % w->holder.n_shards];
    float *block = mem_array(MAX(map->size, 1), sizeof(float));

    for (int g = 0; g < map->n_ranges; g++) {
        const struct shard_range *r = &map->range[g];

        memcpy(block + r->at, w->whole[k] + r->begin,
               (r->end - r->begin) * sizeof(float));
    }
    return block;
}

static void copy_own(const struct world *w, int rank, size_t k, const float *block)
{
    const struct regroup *r = &w->regroup[rank];

    for (size_t i = 0; i < r->n_copies; i++) {
        const struct regroup_copy *c = &r->copy[i];

        memcpy(w->written[rank][k] + c->share, block + c->own, c->n * sizeof(float));
    }
}

/* Each piece that `from` sends to `to` meets the next one that `to` expects from it. */
static void deliver(const struct world *w, int from, int to, size_t k,
                    const float *block)
{
    const struct regroup *s = &w->regroup[from];
    const struct regroup *r = &w->regroup[to];
    struct piece *send = mem_array(MAX(s->n_sends, 1), sizeof(*send));
    struct piece *recv = mem_array(MAX(r->n_recvs, 1), sizeof(*recv));
    size_t next = 0;

    regroup_sends(s, block, send);
    regroup_recvs(r, w->written[to][k], recv);
    for (size_t i = 0; i < s->n_sends; i++) {
        if (send[i].peer != to) {
            continue;
        }
        while (next < r->n_recvs && recv[next].peer != from) {
            next++;
        }
        assert_true(next < r->n_recvs && send[i].bytes > 0);
        assert_int_equal(recv[next].bytes, send[i].bytes);
        memcpy(recv[next].data, send[i].data, send[i].bytes);
        next++;
    }
    for (; next < r->n_recvs; next++) {
        assert_int_not_equal(recv[next].peer, from); /* none is missing */
    }
    mem_free(send);
    mem_free(recv);
}

static void check_size(const struct world *w, int rank)
{
    const struct regroup *r = &w->regroup[rank];
    size_t n = 0;

    for (size_t i = 0; i < r->n_copies; i++) {
        n += r->copy[i].n;
    }
    for (size_t i = 0; i < r->n_recvs; i++) {
        assert_int_not_equal(r->recv[i].peer, rank);
        n += r->recv[i].n;
    }
    assert_int_equal(n, w->share[rank].spans.size); /* nothing comes twice */
}

static void check_boxes(const struct world *w, int rank)
{
    const struct share *s = &w->share[rank];

    for (size_t i = 0; i < s->n_boxes; i++) {
        const struct box *b = &s->box[i];
        size_t n = b->n_rows * (b->n_dims == 2 ? b->shape[1] : 1);

        assert_memory_equal(b->data, w->whole[i % STATES] + s->flat[i],
                            n * sizeof(float));
    }
}

static void move_all(struct world *w)
{
    for (int from = 0; from < w->holder.world_size; from++) {
        for (size_t k = 0; k < STATES; k++) {
            float *block = own_block(w, from, k);

            copy_own(w, from, k, block);
            for (int to = 0; to < w->holder.world_size; to++) {
                deliver(w, from, to, k, block);
            }
            mem_free(block);
        }
    }
    for (int rank = 0; rank < w->holder.world_size; rank++) {
        check_size(w, rank);
        check_boxes(w, rank);
    }
}

static void the_pieces_match_pairwise_and_make_up_what_is_written(void **state)
{
    (void)state;
    for_each_world(move_all);
}

/* The cases above are worth something: a row over several shards, shards without a
 * row, ranks without an element. */
static void the_layouts_are_as_odd_as_they_should_be(void **state)
{
    struct unit_groups groups;
    struct layout l;
    struct world w;
    size_t most_tails = 0;
    size_t n_rowless = 0;

    (void)state;
    make_layout(&l);
    make_groups(&groups, &l, 1);
    world_open(&w, &l, &groups, WORLD_MAX, 1);
    for (int rank = 0; rank < WORLD_MAX; rank++) {
        most_tails = MAX(most_tails, w.regroup[rank].n_recvs);
        for (int g = 0; g < groups.n; g++) {
            const struct shard_range *held = &w.held[rank].range[g];
            const struct shard_range *span = &w.share[rank].spans.range[g];

            n_rowless += held->begin < held->end && span->begin == span->end;
        }
    }
    assert_true(most_tails > (size_t)groups.n && n_rowless > 4);
    assert_true(w.held[0].range[0].begin == w.held[0].range[0].end); /* of one chunk */
    world_close(&w);
    unit_groups_release(&groups);
    layout_release(&l);
}

static void one_owner_writes_all_and_moves_no_tail(void **state)
{
    struct unit_groups groups;
    struct layout l;
    struct world w;

    (void)state;
    make_layout(&l);
    make_groups(&groups, &l, 1);
    groups.one_owner = true;
    for (int n = 2; n <= WORLD_MAX; n++) {
        world_open(&w, &l, &groups, n, 1);
        assert_int_equal(holder_writers(&w.holder), 1);
        check_cover(&w);
        move_all(&w);
        for (int rank = 0; rank < n; rank++) {
            assert_int_equal(w.regroup[rank].n_sends + w.regroup[rank].n_recvs, 0);
            assert_true(rank == 0 || w.share[rank].n_boxes == 0);
        }
        world_close(&w);
    }
    unit_groups_release(&groups);
    layout_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_written_exactly_once_in_whole_rows),
        cmocka_unit_test(only_the_first_replica_writes_what_is_sharded),
        cmocka_unit_test(a_row_is_written_by_the_holder_of_its_first_element),
        cmocka_unit_test(the_pieces_match_pairwise_and_make_up_what_is_written),
        cmocka_unit_test(the_layouts_are_as_odd_as_they_should_be),
        cmocka_unit_test(one_owner_writes_all_and_moves_no_tail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
