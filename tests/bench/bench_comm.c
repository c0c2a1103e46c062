/* The time of one all-reduce between ranks of this machine, as the engine calls it,
 * beside the time of copying as many bytes.
 *
 *   bench-comm KIND RANKS [NETNS=ADDRESS…] BYTES:COUNT…
 *
 * NETNS=ADDRESS, one for each rank: the network namespace where it is, and its address.
 * For each BYTES: COUNT all-reduces one after the other, each waited for; then COUNT
 * copies by one thread. A line of JSON each. Happy path: the copies; the ranks; in each
 * rank, for each size, one all-reduce whose result is checked, then the timed ones on
 * zeros. Failures: a usage line and 2; a rank that fails says so and it ends with 1. */

#include "tests/bench/bench.h"
#include "tests/lib/rank_ends.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { SIZES_MAX = 16, BYTES_MAX = 1 << 30, COUNT_MAX = 1000000 };

struct series {
    size_t bytes;
    size_t count;
};

struct plan {
    struct rank_setup setup;
    struct series series[SIZES_MAX];
    size_t n_series;
    const char *netns[RANKS_MAX], *address[RANKS_MAX]; /* or all NULL */
};

static int compare(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;

    return (*x > *y) - (*x < *y);
}

static void print_series(const char *what, const struct series *s, double *us)
{
    qsort(us, s->count, sizeof(*us), compare);
    (void)printf(
        "{\"what\": \"%s\", \"bytes\": %zu, \"count\": %zu, \"median_us\": %.3f, "
        "\"best_us\": %.3f}\n",
        what, s->bytes, s->count, us[s->count / 2], us[0]);
    (void)fflush(stdout);
}

static void time_copies(const struct series *s)
{
    double *us = mem_array(s->count, sizeof(*us));
    char *from = mem_alloc(s->bytes);
    char *to = mem_alloc(s->bytes);

    memset(from, 1, s->bytes);
    memset(to, 2, s->bytes); /* both are in memory now */
    for (size_t i = 0; i < s->count; i++) {
        double began = bench_now_us();

        memcpy(to, from, s->bytes);
        us[i] = bench_now_us() - began;
        from[i % s->bytes] = to[s->bytes - 1]; /* so that no copy can be left out */
    }
    print_series("memcpy", s, us);
    mem_free(to);
    mem_free(from);
    mem_free(us);
}

/* One that must be right, which also brings the pages in. */
static void check_sum(struct rank_ends *e, float *data, size_t n)
{
    int world = e->comm->world_size;
    int sum = world * (world + 1) / 2;

    for (size_t i = 0; i < n; i++) {
        data[i] = (float)(e->comm->rank + 1);
    }
    comm_all_reduce(e->comm, QUEUE_REDUCE, data, n);
    rank_ends_finish_well(e);
    for (size_t i = 0; i < n; i++) {
        RANK_CHECK(data[i] == (float)sum);
    }
}

static void time_all_reduces(struct rank_ends *e, const struct series *s)
{
    double *us = mem_array(s->count, sizeof(*us));
    size_t n = s->bytes / sizeof(float);
    float *data = mem_alloc(s->bytes);

    check_sum(e, data, n);
    memset(data, 0, s->bytes); /* sums of sums would overflow */
    comm_barrier(e->comm, QUEUE_REDUCE);
    rank_ends_finish_well(e);
    for (size_t i = 0; i < s->count; i++) {
        double began = bench_now_us();

        comm_all_reduce(e->comm, QUEUE_REDUCE, data, n);
        rank_ends_finish_well(e);
        us[i] = bench_now_us() - began;
    }
    if (e->comm->rank == 0) {
        print_series("all-reduce", s, us);
    }
    mem_free(data);
    mem_free(us);
}

static int run_rank(const struct rank *self)
{
    const struct plan *plan = self->arg;
    struct rank_ends e;

    rank_ends_open_in(&e, self, &plan->setup, plan->netns[self->rank],
                      plan->address[self->rank]);
    for (size_t i = 0; i < plan->n_series; i++) {
        time_all_reduces(&e, &plan->series[i]);
    }
    rank_ends_close(&e);
    return 0;
}

/* "BYTES:COUNT" */
static int parse_series(const char *text, struct series *ret)
{
    const char *colon = strchr(text, ':');
    char bytes[32];
    int64_t n_bytes;
    int64_t count;

    if (!colon || (size_t)(colon - text) >= sizeof(bytes)) {
        return ERR_INVALID;
    }
    memcpy(bytes, text, (size_t)(colon - text));
    bytes[colon - text] = '\0';
    if (!bench_number(bytes, sizeof(float), BYTES_MAX, &n_bytes) ||
        !bench_number(colon + 1, 1, COUNT_MAX, &count)) {
        return ERR_INVALID;
    }
    *ret =
        (struct series){(size_t)n_bytes / sizeof(float) * sizeof(float), (size_t)count};
    return 0;
}

/* Cuts "NETNS=ADDRESS" in two. */
static bool parse_place(char *text, const char **ret_netns, const char **ret_address)
{
    char *equals = strchr(text, '=');

    if (!equals) {
        return false;
    }
    *equals = '\0';
    *ret_netns = text;
    *ret_address = equals + 1;
    return true;
}

static int parse(int argc, char **argv, int *ret_ranks, struct plan *ret)
{
    int64_t ranks;
    int at = 3, n = 0;

    if (argc < 4 || !bench_number(argv[2], 2, RANKS_MAX, &ranks)) {
        return ERR_INVALID;
    }
    *ret_ranks = (int)ranks;
    ret->setup = (struct rank_setup){.kind = argv[1], .node_size = (int)ranks};
    while (at < argc && n < RANKS_MAX &&
           parse_place(argv[at], &ret->netns[n], &ret->address[n])) {
        at++;
        n++;
    }
    if ((n > 0 && n != ranks) || argc == at || argc - at > SIZES_MAX) {
        return ERR_INVALID;
    }
    for (; at < argc; at++) {
        if (parse_series(argv[at], &ret->series[ret->n_series++]) < 0) {
            return ERR_INVALID;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    int status[RANKS_MAX];
    struct plan plan = {0};
    int n_ranks;
    bool is_well;

    if (parse(argc, argv, &n_ranks, &plan) < 0) {
        (void)fprintf(
            stderr,
            "usage: bench-comm shm|tcp|auto RANKS [NETNS=ADDRESS…] BYTES:COUNT…\n");
        return 2;
    }
    for (size_t i = 0; i < plan.n_series; i++) {
        time_copies(&plan.series[i]);
    }
    is_well = ranks_run(n_ranks, run_rank, &plan, status);
    for (int i = 0; i < n_ranks; i++) {
        is_well = is_well && status[i] == 0;
    }
    return is_well ? 0 : 1;
}
