/* Every collective on every kind of comm, by real processes. "two nodes" are pretended:
 * the ranks say that they have different agents, so auto uses TCP between them. */

#include "tests/lib/cmocka.h"
#include "tests/lib/rank_ends.h"

#include "common/mem.h"

#include <string.h>

static const struct rank_setup setups[] = {
    {"shm", RANKS_MAX}, {"tcp", RANKS_MAX}, {"auto", RANKS_MAX},
    {"auto", 2},        {"auto", 1},
};

static const size_t sizes[] = {0, 1, 3, 17, 1023, 2048, 2049, 16385, 300001};

/* Small whole numbers: any order of summation is exact. */
static float value(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13) % 101);
}

static float sum_of_ranks(int world, size_t i)
{
    float sum = 0;

    for (int r = 0; r < world; r++) {
        sum += value(r, i);
    }
    return sum;
}

static uint8_t byte(int from, int to, size_t i)
{
    return (uint8_t)(i * 31 + (size_t)from * 101 + (size_t)to * 57);
}

/* ---- each collective ------------------------------------------------------------- */

static void try_all_reduce(struct rank_ends *e, size_t n)
{
    struct comm *c = e->comm;
    float *buf = mem_array(n, sizeof(*buf));

    for (size_t i = 0; i < n; i++) {
        buf[i] = value(c->rank, i);
    }
    comm_all_reduce(c, QUEUE_REDUCE, buf, n);
    rank_ends_finish_well(e);
    for (size_t i = 0; i < n; i++) {
        RANK_CHECK(buf[i] == sum_of_ranks(c->world_size, i));
    }
    mem_free(buf);
}

static void try_reduce_scatter(struct rank_ends *e, size_t n)
{
    struct comm *c = e->comm;
    size_t all = n * (size_t)c->world_size, first = n * (size_t)c->rank;
    float *send = mem_array(all, sizeof(*send)), *recv = mem_array(n, sizeof(*recv));

    for (size_t i = 0; i < all; i++) {
        send[i] = value(c->rank, i);
    }
    comm_reduce_scatter(c, QUEUE_REDUCE, recv, send, n);
    rank_ends_finish_well(e);
    for (size_t i = 0; i < n; i++) {
        RANK_CHECK(recv[i] == sum_of_ranks(c->world_size, first + i));
    }
    mem_free(send);
    mem_free(recv);
}

/* Part r has n + 5r bytes, but rank 1's is empty. */
static void try_all_gather(struct rank_ends *e, size_t n)
{
    struct comm *c = e->comm;
    size_t offsets[RANKS_MAX + 1] = {0};
    uint8_t *buf;

    for (int r = 0; r < c->world_size; r++) {
        offsets[r + 1] = offsets[r] + (r == 1 ? 0 : n + 5 * (size_t)r);
    }
    buf = mem_zalloc(offsets[c->world_size]);
    for (size_t i = offsets[c->rank]; i < offsets[c->rank + 1]; i++) {
        buf[i] = byte(c->rank, 0, i);
    }
    comm_all_gather(c, QUEUE_REDUCE, buf, offsets);
    rank_ends_finish_well(e);
    for (int r = 0; r < c->world_size; r++) {
        for (size_t i = offsets[r]; i < offsets[r + 1]; i++) {
            RANK_CHECK(buf[i] == byte(r, 0, i));
        }
    }
    mem_free(buf);
}

/* Two pieces for each peer, the first of n bytes, the second of as many as the ranks'
 * numbers say; senders and receivers list their peers in different orders. */
struct pair {
    struct piece piece[2];
};

static size_t second_size(int from, int to)
{
    return (size_t)from * 3 + (size_t)to;
}

static void check_pair(const struct pair *p, int to)
{
    int from = p->piece[0].peer;
    const uint8_t *data;

    for (size_t k = 0; k < 2; k++) {
        data = p->piece[k].data;
        for (size_t i = 0; i < p->piece[k].bytes; i++) {
            RANK_CHECK(data[i] == byte(from, to, i + 1000 * k));
        }
    }
}

/* From or to `other`, filled as `from` sends it to `to`. */
static struct pair new_pair(int from, int to, int other, size_t n)
{
    struct pair p = {{{other, NULL, n}, {other, NULL, second_size(from, to)}}};
    uint8_t *data;

    for (size_t k = 0; k < 2; k++) {
        p.piece[k].data = data = mem_alloc(p.piece[k].bytes);
        for (size_t i = 0; i < p.piece[k].bytes; i++) {
            data[i] = byte(from, to, i + 1000 * k);
        }
    }
    return p;
}

static void pair_clear(struct pair *p)
{
    for (size_t k = 0; k < 2; k++) {
        memset(p->piece[k].data, 0, p->piece[k].bytes);
    }
}

static void try_all_to_all(struct rank_ends *e, size_t n)
{
    struct pair send[RANKS_MAX] = {0}, recv[RANKS_MAX] = {0};
    struct comm *c = e->comm;
    int world = c->world_size, own = c->rank;

    for (int k = 0; k < world; k++) {
        int to = world - 1 - k, from = (k + own) % world;

        send[k] = new_pair(own, to, to, n);
        recv[k] = new_pair(from, own, from, n);
        pair_clear(&recv[k]);
    }
    comm_all_to_all(c, QUEUE_REDUCE, send[0].piece, 2 * (size_t)world, recv[0].piece,
                    2 * (size_t)world);
    rank_ends_finish_well(e);
    for (int k = 0; k < world; k++) {
        check_pair(&recv[k], own);
        for (int i = 0; i < 2; i++) {
            mem_free(send[k].piece[i].data);
            mem_free(recv[k].piece[i].data);
        }
    }
}

static void try_broadcast(struct rank_ends *e, size_t n)
{
    struct comm *c = e->comm;
    uint8_t *buf = mem_zalloc(n);

    for (int root = 0; root < c->world_size; root++) {
        for (size_t i = 0; i < n; i++) {
            buf[i] = c->rank == root ? byte(root, 0, i) : 0;
        }
        comm_broadcast(c, QUEUE_REDUCE, buf, n, root);
        rank_ends_finish_well(e);
        for (size_t i = 0; i < n; i++) {
            RANK_CHECK(buf[i] == byte(root, 0, i));
        }
    }
    mem_free(buf);
}

static int all_collectives(const struct rank *self)
{
    const struct rank_setup *s = self->arg;
    struct errmsg msg;
    struct rank_ends e;

    rank_ends_open(&e, self, s);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        try_all_reduce(&e, sizes[i]);
        try_all_to_all(&e, sizes[i] * 3 + 1);
        try_reduce_scatter(&e, sizes[i]);
        try_all_gather(&e, sizes[i] * 4 + 3);
        try_broadcast(&e, sizes[i] + 1);
        comm_barrier(e.comm, QUEUE_REDUCE);
    }
    rank_ends_finish_well(&e);
    RANK_CHECK(comm_poll(e.comm, &msg) == 0);
    rank_ends_close(&e);
    return 0;
}

static void expect_well(int n, rank_body body, const void *arg)
{
    int status[RANKS_MAX];

    assert_true(ranks_run(n, body, arg, status));
    for (int r = 0; r < n; r++) {
        assert_int_equal(status[r], 0);
    }
}

static void collectives_are_right_on_every_kind_and_size(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(setups); k++) {
        for (int n = 1; n <= 4; n++) {
            print_message("%s, nodes of %d, %d ranks\n", setups[k].kind,
                          setups[k].node_size, n);
            expect_well(n, all_collectives, &setups[k]);
        }
    }
    print_message("auto, three nodes of 2\n");
    expect_well(6, all_collectives, &setups[3]);
}

/* ---- sums are the same bits everywhere ------------------------------------------- */

enum { WILD = 50001 };

static float wild(int rank, size_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xd1b54a32d192ed03u;

    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    return ((float)(x % 2000003) - 1000001.0f) * (float)(1ull << (x >> 59)) /
           (float)(1u << (x >> 40 & 15));
}

static uint32_t bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

/* In rank order, whatever the link. */
static int sums_in_rank_order(const struct rank *self)
{
    const struct rank_setup *s = self->arg;
    float *buf = mem_array(WILD, sizeof(*buf)), sum;
    struct rank_ends e;

    rank_ends_open(&e, self, s);
    for (size_t i = 0; i < WILD; i++) {
        buf[i] = wild(self->rank, i);
    }
    comm_all_reduce(e.comm, QUEUE_REDUCE, buf, WILD);
    rank_ends_finish_well(&e);
    for (size_t i = 0; i < WILD; i++) {
        sum = wild(0, i);
        for (int r = 1; r < self->world_size; r++) {
            sum += wild(r, i);
        }
        RANK_CHECK(bits(sum) == bits(buf[i]));
    }
    mem_free(buf);
    rank_ends_close(&e);
    return 0;
}

static void sums_are_taken_in_rank_order_on_shm_and_tcp(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        expect_well(4, sums_in_rank_order, &setups[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_are_right_on_every_kind_and_size),
        cmocka_unit_test(sums_are_taken_in_rank_order_on_shm_and_tcp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
