/* Order, tickets, errors and memory of a device. */

#include "tests/lib/cmocka.h"
#include "worker/device/kernels.h"
#include "worker/device/peak.h"

#include "common/clock.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PATIENCE_MS = 60000 };

static const enum queue helpers[] = {QUEUE_GATHER, QUEUE_REDUCE, QUEUE_COPY};

static struct device *open_cpu(int threads)
{
    struct device_config config = {.local_world_size = 1, .threads = threads};
    struct device *d = NULL;
    struct errmsg msg = {""};

    assert_int_equal(device_open("cpu", &config, &d, &msg), 0);
    return d;
}

static void assert_done(struct device *d, enum queue q)
{
    struct errmsg msg = {""};

    assert_int_equal(device_finish(d, device_mark(d, q), PATIENCE_MS, &msg), 0);
}

/* A door that a task waits behind. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_open;
    atomic_int entered;
};

struct gate_arg {
    struct gate *gate;
};

#define GATE_INIT                                                              \
    {                                                                          \
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER \
    }

static int on_gate(void *arg, struct errmsg *msg)
{
    struct gate *g = ((struct gate_arg *)arg)->gate;

    (void)msg;
    atomic_fetch_add(&g->entered, 1);
    (void)pthread_mutex_lock(&g->lock);
    while (!g->is_open) {
        (void)pthread_cond_wait(&g->changed, &g->lock);
    }
    (void)pthread_mutex_unlock(&g->lock);
    return 0;
}

static void push_gate(struct device *d, enum queue q, struct gate *g)
{
    device_enqueue(d, q, on_gate, &(struct gate_arg){g}, sizeof(struct gate_arg));
}

static void gate_open(struct gate *g)
{
    (void)pthread_mutex_lock(&g->lock);
    g->is_open = true;
    (void)pthread_cond_broadcast(&g->changed);
    (void)pthread_mutex_unlock(&g->lock);
}

struct note {
    int *list;
    atomic_int *length;
    int value;
};

static int on_note(void *arg, struct errmsg *msg)
{
    const struct note *n = arg;

    (void)msg;
    n->list[atomic_fetch_add(n->length, 1)] = n->value;
    return 0;
}

static int on_failure(void *arg, struct errmsg *msg)
{
    return errmsg_set(msg, *(int *)arg, "task %d failed", *(int *)arg);
}

static void push_failure(struct device *d, enum queue q, int err)
{
    device_enqueue(d, q, on_failure, &err, sizeof(err));
}

/* --- order --- */

static void a_queue_keeps_its_order_also_when_the_ring_overflows(void **state)
{
    enum { N = 1000 };
    static int list[N];
    struct device *d = open_cpu(1);

    (void)state;
    for (size_t q = 0; q < ARRAY_LEN(helpers); q++) {
        atomic_int length = 0;

        for (int i = 0; i < N; i++) {
            struct note n = {list, &length, i};

            device_enqueue(d, helpers[q], on_note, &n, sizeof(n));
        }
        assert_done(d, helpers[q]);
        for (int i = 0; i < N; i++) {
            assert_int_equal(list[i], i);
        }
    }
    device_close(d);
}

static void compute_goes_on_while_reduce_is_blocked(void **state)
{
    struct device *d = open_cpu(2);
    struct gate gate = GATE_INIT;
    atomic_int length = 0;
    int list[1] = {0};
    struct note n = {list, &length, 7};
    struct errmsg msg = {""};

    (void)state;
    push_gate(d, QUEUE_REDUCE, &gate);
    device_enqueue(d, QUEUE_COMPUTE, on_note, &n, sizeof(n));
    assert_int_equal(list[0], 7); /* done before the call returned */
    assert_done(d, QUEUE_COMPUTE);
    assert_done(d, QUEUE_COPY);
    assert_int_equal(device_finish(d, device_mark(d, QUEUE_REDUCE), 0, &msg),
                     ERR_TIMEOUT);
    gate_open(&gate);
    assert_done(d, QUEUE_REDUCE);
    device_close(d);
}

static void a_queue_waits_for_another_queue_s_ticket(void **state)
{
    struct device *d = open_cpu(1);
    struct gate gate = GATE_INIT;
    atomic_int length = 0;
    int list[2] = {0};
    struct note first = {list, &length, 1}, second = {list, &length, 2};

    (void)state;
    push_gate(d, QUEUE_GATHER, &gate);
    device_enqueue(d, QUEUE_GATHER, on_note, &first, sizeof(first));
    device_wait(d, QUEUE_COPY, device_mark(d, QUEUE_GATHER));
    device_enqueue(d, QUEUE_COPY, on_note, &second, sizeof(second));
    assert_int_equal(atomic_load(&length), 0);
    gate_open(&gate);
    assert_done(d, QUEUE_COPY);
    assert_int_equal(list[0], 1);
    assert_int_equal(list[1], 2);
    device_close(d);
}

static void compute_waits_for_a_helper(void **state)
{
    struct device *d = open_cpu(1);
    atomic_int length = 0;
    int list[64] = {0};

    (void)state;
    for (int i = 0; i < 32; i++) {
        struct note theirs = {list, &length, 1}, ours = {list, &length, 2};

        device_enqueue(d, QUEUE_REDUCE, on_note, &theirs, sizeof(theirs));
        device_wait(d, QUEUE_COMPUTE, device_mark(d, QUEUE_REDUCE));
        device_enqueue(d, QUEUE_COMPUTE, on_note, &ours, sizeof(ours));
    }
    for (int i = 0; i < 64; i++) {
        assert_int_equal(list[i], i % 2 + 1);
    }
    device_close(d);
}

static void an_old_ticket_is_complete_while_newer_work_waits(void **state)
{
    struct device *d = open_cpu(1);
    struct gate gate = GATE_INIT;
    atomic_int length = 0;
    int list[1];
    struct note n = {list, &length, 1};
    struct ticket before;

    (void)state;
    assert_int_equal(device_finish(d, (struct ticket){0}, 0, NULL), 0);
    device_enqueue(d, QUEUE_COPY, on_note, &n, sizeof(n));
    before = device_mark(d, QUEUE_COPY);
    push_gate(d, QUEUE_COPY, &gate);
    assert_int_equal(device_finish(d, before, PATIENCE_MS, NULL), 0);
    assert_int_equal(atomic_load(&length), 1);
    gate_open(&gate);
    device_close(d);
}

/* Late threads of one kernel meet the next one. */
static void kernels_in_a_row_lose_no_piece(void **state)
{
    enum { N = 50000, ROUNDS = 400 };
    static float x[N], one[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        one[i] = 1.0F;
    }
    for (int threads = 2; threads <= 3; threads++) {
        struct device *d = open_cpu(threads);

        memset(x, 0, sizeof(x));
        for (int i = 0; i < ROUNDS; i++) {
            d->k->residual(d, x, x, one, N);
        }
        for (int i = 0; i < N; i++) {
            assert_true(x[i] == (float)ROUNDS);
        }
        device_close(d);
    }
}

static void close_runs_what_is_left(void **state)
{
    enum { N = 50 };
    struct device *d = open_cpu(1);
    atomic_int length = 0;
    int list[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        struct note n = {list, &length, i};

        device_enqueue(d, QUEUE_COPY, on_note, &n, sizeof(n));
    }
    device_close(d);
    assert_int_equal(atomic_load(&length), N);
}

/* --- errors --- */

static void a_time_out_names_the_queue_and_harms_nothing(void **state)
{
    struct device *d = open_cpu(1);
    struct gate gate = GATE_INIT;
    struct errmsg msg = {""};

    (void)state;
    push_gate(d, QUEUE_GATHER, &gate);
    assert_int_equal(device_finish(d, device_mark(d, QUEUE_GATHER), 1, &msg),
                     ERR_TIMEOUT);
    assert_non_null(
        strstr(msg.text, "gather queue: 1 of 1 tasks not finished after 1 ms"));
    assert_int_equal(device_last_error(d, &msg), 0);
    gate_open(&gate);
    assert_done(d, QUEUE_GATHER);
    device_close(d);
}

static void the_first_error_stays_and_later_work_is_skipped(void **state)
{
    struct device *d = open_cpu(1);
    atomic_int length = 0;
    int list[1];
    struct note n = {list, &length, 1};
    struct errmsg msg = {""};

    (void)state;
    push_failure(d, QUEUE_REDUCE, ERR_PEER_LOST);
    push_failure(d, QUEUE_REDUCE, ERR_ABORTED);
    device_enqueue(d, QUEUE_REDUCE, on_note, &n, sizeof(n));
    for (int i = 0; i < 2; i++) {
        struct ticket t = device_mark(d, QUEUE_REDUCE);

        assert_int_equal(device_finish(d, t, PATIENCE_MS, &msg), ERR_PEER_LOST);
        assert_string_equal(msg.text, "task -5005 failed");
        assert_int_equal(device_last_error(d, &msg), ERR_PEER_LOST);
    }
    assert_int_equal(atomic_load(&length), 0);
    assert_done(d, QUEUE_COPY);
    device_close(d);
}

static void compute_fails_with_the_queue_that_it_waits_for(void **state)
{
    struct device *d = open_cpu(1);
    atomic_int length = 0;
    int list[1];
    struct note n = {list, &length, 1};
    char data[8] = "before";
    struct errmsg msg = {""};

    (void)state;
    push_failure(d, QUEUE_GATHER, ERR_TIMEOUT);
    device_wait(d, QUEUE_COMPUTE, device_mark(d, QUEUE_GATHER));
    device_enqueue(d, QUEUE_COMPUTE, on_note, &n, sizeof(n));
    device_fill(d, QUEUE_COMPUTE, data, 0, sizeof(data));
    assert_int_equal(device_finish(d, device_mark(d, QUEUE_COMPUTE), 0, &msg),
                     ERR_TIMEOUT);
    assert_int_equal(atomic_load(&length), 0);
    assert_string_equal(data, "before");
    device_close(d);
}

static int on_silent_failure(void *arg, struct errmsg *msg)
{
    (void)arg;
    (void)msg;
    return ERR_CORRUPT;
}

static void an_error_without_a_text_gets_one(void **state)
{
    struct device *d = open_cpu(1);
    struct errmsg msg = {""};

    (void)state;
    device_enqueue(d, QUEUE_COMPUTE, on_silent_failure, NULL, 0);
    assert_int_equal(device_last_error(d, &msg), ERR_CORRUPT);
    assert_string_equal(msg.text, "compute queue: damaged data");
    device_close(d);
}

/* --- memory --- */

enum { WORK_US = 200000 };

static int work(void *arg, struct errmsg *msg)
{
    uint64_t began_us = clock_us();

    (void)arg;
    (void)msg;
    while (clock_us() - began_us < WORK_US) {
    }
    return 0;
}

static void a_queue_knows_how_long_it_worked_and_waiting_is_no_work(void **state)
{
    static char bytes[1 << 16];
    struct device *d = open_cpu(2);

    (void)state;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        assert_int_equal(device_busy_us(d, (enum queue)q), 0);
    }
    device_enqueue(d, QUEUE_REDUCE, work, NULL, 0);
    device_wait(d, QUEUE_COPY, device_mark(d, QUEUE_REDUCE));
    device_fill(d, QUEUE_COPY, bytes, 1, sizeof(bytes));
    assert_done(d, QUEUE_COPY);
    assert_true(device_busy_us(d, QUEUE_REDUCE) >= WORK_US);
    assert_true(device_busy_us(d, QUEUE_COPY) < WORK_US);
    assert_int_equal(device_busy_us(d, QUEUE_GATHER), 0);
    device_enqueue(d, QUEUE_COMPUTE, work, NULL, 0);
    assert_true(device_busy_us(d, QUEUE_COMPUTE) >= WORK_US);
    device_close(d);
}

static void kernels_count_as_work_of_the_compute_queue(void **state)
{
    struct device *d = open_cpu(2);
    uint64_t before_us;
    void *a = NULL;

    (void)state;
    assert_int_equal(device_alloc(d, 1 << 22, &a), 0);
    for (int i = 0; i < 1000 && device_busy_us(d, QUEUE_COMPUTE) == 0; i++) {
        device_fill(d, QUEUE_COMPUTE, a, i, 1 << 22);
    }
    before_us = device_busy_us(d, QUEUE_COMPUTE);
    assert_true(before_us > 0);
    for (int i = 0; i < 1000 && device_busy_us(d, QUEUE_COMPUTE) == before_us; i++) {
        struct matmul mm = {.m = 512,
                            .n = 512,
                            .k = 512,
                            .alpha = 1,
                            .a = a,
                            .b = a,
                            .c = (float *)a + (size_t)512 * 512,
                            .lda = 512,
                            .ldb = 512,
                            .ldc = 512};

        d->k->matmul(d, &mm);
    }
    assert_true(device_busy_us(d, QUEUE_COMPUTE) > before_us);
    device_free(d, a, 1 << 22);
    device_close(d);
}

static void a_peak_is_measured_on_any_number_of_threads(void **state)
{
    struct errmsg msg = {""};

    (void)state;
    for (int threads = 1; threads <= 6; threads++) {
        struct device *d = open_cpu(threads);
        double flop_s = 0;

        assert_int_equal(peak_measure(d, &flop_s, &msg), 0);
        assert_true(isfinite(flop_s) && flop_s > 0);
        device_close(d);
    }
}

static void memory_is_aligned_and_zero(void **state)
{
    static const size_t sizes[] = {1, 63, 4096, 4097, 3 << 20};
    struct device *d = open_cpu(1);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        void *p;

        assert_int_equal(device_alloc(d, sizes[i], &p), 0);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(((char *)p)[j], 0);
        }
        memset(p, 1, sizes[i]);
        device_free(d, p, sizes[i]);
    }
    device_close(d);
}

/* Several pieces of it, by several threads; no page is left out at their seams. */
static void memory_is_touched_before_use(void **state)
{
    enum { PAGE = 4096, SIZE = (130 << 20) + 5, PAGES = (SIZE + PAGE - 1) / PAGE };
    struct device *d = open_cpu(2);
    unsigned char *is_resident = malloc(PAGES);
    void *p;

    (void)state;
    assert_int_equal(device_alloc(d, SIZE, &p), 0);
    assert_int_equal(mincore((char *)p - (uintptr_t)p % PAGE, SIZE, is_resident), 0);
    for (int i = 0; i < PAGES; i++) {
        assert_true(is_resident[i] & 1);
    }
    device_free(d, p, SIZE);
    free(is_resident);
    device_close(d);
}

/* --- the host's work --- */

static void count_piece(void *arg, int piece)
{
    atomic_fetch_add((atomic_int *)arg + piece, 1);
}

static void a_spread_runs_every_piece_once(void **state)
{
    enum { PIECES = 100 };
    struct device_ops plain;

    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct device *d = open_cpu(threads);
        const struct device_ops *own = d->ops;
        atomic_int runs[PIECES] = {0};

        plain = *own;
        plain.spread = NULL;
        device_spread(d, PIECES, count_piece, runs);
        d->ops = &plain; /* of a device whose memory is not the host's */
        device_spread(d, PIECES, count_piece, runs);
        device_spread(d, 0, count_piece, runs);
        for (int i = 0; i < PIECES; i++) {
            assert_int_equal(atomic_load(&runs[i]), 2);
        }
        d->ops = own;
        device_close(d);
    }
}

static void copy_and_fill_work_on_every_queue(void **state)
{
    enum { N = (3 << 20) + 5 };
    struct device *d = open_cpu(2);
    char *src = malloc(N), *dst = malloc(N);

    (void)state;
    assert_non_null(src);
    assert_non_null(dst);
    for (int q = 0; q < QUEUE_COUNT; q++) {
        for (size_t i = 0; i < N; i++) {
            src[i] = (char)(i * 31 + (size_t)q);
        }
        device_copy(d, (enum queue)q, dst, src, N);
        assert_done(d, (enum queue)q);
        assert_memory_equal(dst, src, N);
        device_fill(d, (enum queue)q, dst, 0x5A, N - 1);
        assert_done(d, (enum queue)q);
        assert_true(dst[0] == 0x5A && dst[N - 2] == 0x5A && dst[N - 1] == src[N - 1]);
    }
    free(src);
    free(dst);
    device_close(d);
}

static bool is_filled(const char *p, char with, size_t n)
{
    return n == 0 || (p[0] == with && memcmp(p, p + 1, n - 1) == 0);
}

/* The memory around the packed and the room of a part without a source stay as they are,
 * whatever the lengths and the alignment. */
static void parts_are_packed_back_to_back_on_every_queue(void **state)
{
    static const size_t lengths[] = {1, 63, 0, 64, 4096 + 4, 1 << 20, 7, 128};
    enum { N = (2 << 20), ROOM = 4 };
    struct device *d = open_cpu(2);
    char *src = malloc(N), *dst = malloc(N);

    (void)state;
    assert_non_null(src);
    assert_non_null(dst);
    for (size_t shift = 0; shift < 2 * QUEUE_COUNT; shift++) {
        struct device_part parts[ARRAY_LEN(lengths)];
        enum queue q = (enum queue)(shift % QUEUE_COUNT);
        size_t from = 3 * shift;
        size_t to = 5 * shift + 1;

        for (size_t i = 0; i < N; i++) {
            src[i] = (char)(i * 31 + shift);
        }
        memset(dst, 0x5A, N);
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
            parts[i] = (struct device_part){i == ROOM ? NULL : src + from, lengths[i]};
            from += lengths[i] + 11;
        }
        device_pack(d, q, dst + to, parts, ARRAY_LEN(lengths));
        assert_done(d, q);
        assert_true(dst[to - 1] == 0x5A);
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
            if (i == ROOM) {
                assert_true(is_filled(dst + to, 0x5A, lengths[i]));
            } else {
                assert_memory_equal(dst + to, parts[i].src, lengths[i]);
            }
            to += lengths[i];
        }
        assert_true(dst[to] == 0x5A);
        device_pack(d, q, NULL, NULL, 0);
    }
    free(src);
    free(dst);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_keeps_its_order_also_when_the_ring_overflows),
        cmocka_unit_test(compute_goes_on_while_reduce_is_blocked),
        cmocka_unit_test(a_queue_waits_for_another_queue_s_ticket),
        cmocka_unit_test(compute_waits_for_a_helper),
        cmocka_unit_test(an_old_ticket_is_complete_while_newer_work_waits),
        cmocka_unit_test(kernels_in_a_row_lose_no_piece),
        cmocka_unit_test(close_runs_what_is_left),
        cmocka_unit_test(a_time_out_names_the_queue_and_harms_nothing),
        cmocka_unit_test(the_first_error_stays_and_later_work_is_skipped),
        cmocka_unit_test(compute_fails_with_the_queue_that_it_waits_for),
        cmocka_unit_test(an_error_without_a_text_gets_one),
        cmocka_unit_test(a_queue_knows_how_long_it_worked_and_waiting_is_no_work),
        cmocka_unit_test(kernels_count_as_work_of_the_compute_queue),
        cmocka_unit_test(a_peak_is_measured_on_any_number_of_threads),
        cmocka_unit_test(memory_is_aligned_and_zero),
        cmocka_unit_test(memory_is_touched_before_use),
        cmocka_unit_test(a_spread_runs_every_piece_once),
        cmocka_unit_test(copy_and_fill_work_on_every_queue),
        cmocka_unit_test(parts_are_packed_back_to_back_on_every_queue),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
