#include "worker/device/cpu/cpu.h"

#include "worker/device/cpu/arena.h"

#include "common/clock.h"
#include "common/mem.h"

#include <cpuid.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <immintrin.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- work on the compute queue --- */

bool cpu_compute_failed(struct cpu *c)
{
    return atomic_load(&c->queue[QUEUE_COMPUTE].error) < 0;
}

struct spread {
    tile_fn fn;
    const void *args;
    size_t n, grain;
};

static void on_piece(void *arg, int piece)
{
    const struct spread *s = arg;
    size_t begin = (size_t)piece * s->grain;

    s->fn(s->args, begin, MIN(s->n, begin + s->grain));
}

/* What the pieces are called in a profile; any other is a fill or a copy. */
#define NAMED(field)                            \
    {                                           \
        offsetof(struct tiles, field), (#field) \
    }

static const struct {
    size_t offset;
    const char *name;
} named[] = {
    NAMED(embedding),   NAMED(embedding_grad), NAMED(position_grad),
    NAMED(layernorm),   NAMED(layernorm_dx),   NAMED(layernorm_dparam),
    NAMED(attention),   NAMED(attention_grad), NAMED(gelu),
    NAMED(gelu_grad),   NAMED(residual),       NAMED(scale),
    NAMED(column_sum),  NAMED(xent),           NAMED(sumsq),
    NAMED(sum_ordered), NAMED(adamw),          NAMED(dropout),
    NAMED(round),
};

const char *cpu_tile_name(const struct cpu *c, tile_fn fn)
{
    for (size_t i = 0; i < ARRAY_LEN(named); i++) {
        const char *at = (const char *)c->tiles + named[i].offset;

        if (*(const tile_fn *)(const void *)at == fn) {
            return named[i].name;
        }
    }
    return "copy";
}

void cpu_spread(struct device *d, tile_fn fn, const void *args, size_t n, size_t grain)
{
    struct cpu *c = cpu_of(d);
    struct spread s = {.fn = fn, .args = args, .n = n, .grain = grain};
    size_t pieces = (n + grain - 1) / grain;

    uint64_t began_us = clock_us();

    ASSERT(pieces <= INT32_MAX);
    if (!cpu_compute_failed(c)) {
        pool_run(&c->pool, (int)pieces, on_piece, &s);
        cpu_queue_worked(&c->queue[QUEUE_COMPUTE],
                         d->trace ? cpu_tile_name(c, fn) : NULL, began_us);
    }
}

/* --- copy, fill --- */

enum { COPY_PIECE = 1 << 20, CACHE_LINE = 64 };

struct transfer {
    char *dst;
    const char *src; /* NULL: fill with `byte` */
    size_t bytes;
    int byte;
};

static void transfer_piece(const void *args, size_t begin, size_t end)
{
    const struct transfer *t = args;

    if (t->src) {
        memcpy(t->dst + begin, t->src + begin, end - begin);
    } else {
        memset(t->dst + begin, t->byte, end - begin);
    }
}

static int on_transfer(void *arg, struct errmsg *msg)
{
    const struct transfer *t = arg;

    (void)msg;
    trace_name("copy");
    transfer_piece(t, 0, t->bytes);
    return 0;
}

static void transfer(struct device *d, enum queue q, const struct transfer *t)
{
    if (q == QUEUE_COMPUTE) {
        cpu_spread(d, transfer_piece, t, t->bytes, COPY_PIECE);
    } else {
        cpu_queue_push(&cpu_of(d)->queue[q], on_transfer, t, sizeof(*t));
    }
}

static void copy(struct device *d, enum queue q, void *dst, const void *src,
                 size_t bytes)
{
    transfer(d, q, &(struct transfer){.dst = dst, .src = src, .bytes = bytes});
}

static void fill(struct device *d, enum queue q, void *dst, int byte, size_t bytes)
{
    transfer(d, q, &(struct transfer){.dst = dst, .byte = byte, .bytes = bytes});
}

struct packing {
    char *dst;
    const struct device_part *parts;
    size_t n;
};

/* Past the caches: a snapshot would throw out of them what the kernels work on, and is
 * written a quarter faster than by memcpy. */
static void stream(char *dst, const char *src, size_t bytes)
{
    size_t head = MIN((CACHE_LINE - (uintptr_t)dst % CACHE_LINE) % CACHE_LINE, bytes);
    size_t end = head + (bytes - head) / CACHE_LINE * CACHE_LINE;

    memcpy(dst, src, head);
    for (size_t i = head; i < end; i += sizeof(__m128i)) {
        _mm_stream_si128((__m128i *)(void *)(dst + i),
                         _mm_loadu_si128((const __m128i *)(const void *)(src + i)));
    }
    memcpy(dst + end, src + end, bytes - end);
}

static int on_packing(void *arg, struct errmsg *msg)
{
    const struct packing *p = arg;
    char *to = p->dst;

    (void)msg;
    trace_name("copy");
    for (size_t i = 0; i < p->n; i++) {
        if (p->parts[i].src) {
            stream(to, p->parts[i].src, p->parts[i].bytes);
        }
        to += p->parts[i].bytes;
    }
    _mm_sfence(); /* what was streamed is there before the ticket is */
    return 0;
}

static void pack(struct device *d, enum queue q, void *dst,
                 const struct device_part *parts, size_t n)
{
    const struct packing p = {.dst = dst, .parts = parts, .n = n};

    cpu_queue_push(&cpu_of(d)->queue[q], on_packing, &p, sizeof(p));
}

/* --- order --- */

static struct ticket mark(struct device *d, enum queue q)
{
    return (struct ticket){.queue = q,
                           .seq = atomic_load(&cpu_of(d)->queue[q].pushed.value)};
}

struct wait_args {
    struct cpu_queue *self;
    struct cpu_queue *after;
    uint64_t seq;
};

/* For ever, because each task ends by itself: what talks to peers has a limit of its
 * own. */
static int on_wait(void *arg, struct errmsg *msg)
{
    const struct wait_args *w = arg;
    uint64_t began_us = clock_us();

    trace_name("wait");
    (void)sequence_wait(&w->after->done, w->seq, -1);
    cpu_queue_waited(w->self, began_us);
    return cpu_queue_error(w->after, msg);
}

static void wait(struct device *d, enum queue q, struct ticket after)
{
    struct cpu *c = cpu_of(d);
    struct wait_args w = {
        .self = &c->queue[q], .after = &c->queue[after.queue], .seq = after.seq};

    ASSERT(after.seq <= atomic_load(&w.after->pushed.value));
    cpu_queue_push(&c->queue[q], on_wait, &w, sizeof(w));
}

static int finish(struct device *d, struct ticket t, int timeout_ms, struct errmsg *msg)
{
    return cpu_queue_finish(&cpu_of(d)->queue[t.queue], t.seq, timeout_ms, msg);
}

static int last_error(struct device *d, struct errmsg *msg)
{
    struct cpu *c = cpu_of(d);
    int first = atomic_load(&c->first_failed);

    return first < 0 ? 0 : cpu_queue_error(&c->queue[first], msg);
}

static void enqueue(struct device *d, enum queue q, device_task task, const void *arg,
                    size_t size)
{
    cpu_queue_push(&cpu_of(d)->queue[q], task, arg, size);
}

static void spread(struct device *d, int n, device_piece piece, void *arg)
{
    pool_run(&cpu_of(d)->pool, n, piece, arg);
}

static uint64_t busy_us(struct device *d, enum queue q)
{
    return atomic_load_explicit(&cpu_of(d)->queue[q].busy_us, memory_order_relaxed);
}

/* --- memory --- */

/* Huge pages of one piece: some milliseconds. */
enum { POPULATE_PIECE = 64 << 20 };

struct populate {
    char *ptr;
    size_t bytes;
    _Atomic int error;
};

static void populate_piece(void *arg, int piece)
{
    struct populate *p = arg;
    size_t begin = (size_t)piece * POPULATE_PIECE;
    int err =
        arena_populate(p->ptr + begin, MIN((size_t)POPULATE_PIECE, p->bytes - begin));

    if (err < 0) {
        atomic_store(&p->error, err);
    }
}

/* The kernel clears a page when it is touched first: the threads share that out. */
static int alloc(struct device *d, size_t bytes, void **ret)
{
    struct populate p = {.bytes = bytes};
    size_t pieces = (bytes + POPULATE_PIECE - 1) / POPULATE_PIECE;
    void *ptr;
    int err = pieces > INT32_MAX ? -ENOMEM : arena_map(bytes, &ptr);

    if (err < 0) {
        return err;
    }
    p.ptr = ptr;
    spread(d, (int)pieces, populate_piece, &p);
    err = atomic_load(&p.error);
    if (err < 0) {
        arena_unmap(ptr, bytes);
        return err;
    }
    *ret = ptr;
    return 0;
}

static void release(struct device *d, void *ptr, size_t bytes)
{
    (void)d;
    arena_unmap(ptr, bytes);
}

/* --- the instruction set --- */

static bool has_any(void)
{
    return true;
}

/* clang has no name for it in __builtin_cpu_supports. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

static const struct choice {
    const struct tiles *tiles;
    bool (*is_available)(void);
    dnnl_cpu_isa_t onednn; /* what oneDNN may use beside it */
} choices[] = {
    {&cpu_tiles_avx512, has_avx512, dnnl_cpu_isa_avx512_core},
    {&cpu_tiles_avx2, has_avx2, dnnl_cpu_isa_avx2},
    {&cpu_tiles_scalar, has_any, dnnl_cpu_isa_all},
};

static int choose(const char *isa, const struct choice **ret, struct errmsg *msg)
{
    const char *from = "device isa";

    if (!isa) {
        isa = getenv("CTRUN_ISA"); /* NOLINT(concurrency-mt-unsafe): nobody sets it */
        isa = isa && isa[0] == '\0' ? NULL : isa;
        from = "CTRUN_ISA";
    }
    for (size_t i = 0; i < ARRAY_LEN(choices); i++) {
        bool is_wanted = !isa || strcmp(isa, choices[i].tiles->isa) == 0;

        if (is_wanted && choices[i].is_available()) {
            *ret = &choices[i];
            return 0;
        }
        if (isa && is_wanted) {
            return errmsg_set(msg, ERR_UNSUPPORTED,
                              "%s=%s: this processor does not have it; leave it unset",
                              from, isa);
        }
    }
    return errmsg_set(msg, ERR_INVALID, "%s=%s: choose scalar, avx2 or avx512", from,
                      isa);
}

int cpu_best_isa(const char **ret, struct errmsg *msg)
{
    const struct choice *choice = &choices[0];
    int err = choose(NULL, &choice, msg);

    if (err == 0) {
        *ret = choice->tiles->isa;
    }
    return err;
}

const char *cpu_lower_isa(const char *a, const char *b)
{
    bool has_a = false;
    bool has_b = false;

    for (size_t i = 0; i < ARRAY_LEN(choices); i++) { /* from the highest down */
        has_a = has_a || strcmp(a, choices[i].tiles->isa) == 0;
        has_b = has_b || strcmp(b, choices[i].tiles->isa) == 0;
        if (has_a && has_b) {
            return choices[i].tiles->isa;
        }
    }
    return NULL;
}

static const char *onednn_isa_name(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();

    if (isa == dnnl_cpu_isa_avx512_core) {
        return "avx512";
    }
    if (isa == dnnl_cpu_isa_avx2) {
        return "avx2";
    }
    return isa < dnnl_cpu_isa_avx2 ? "sse" : "other";
}

/* oneDNN's limit holds for the whole process and only before its first use: the
 * signature says what it really is, also when another device came first. */
static void sign(struct cpu *c, const struct choice *choice)
{
    const dnnl_version_t *v = dnnl_version();
    char *text = c->base.signature;

    if (choice->tiles == &cpu_tiles_scalar) {
        (void)snprintf(text, sizeof(c->base.signature), "cpu scalar libc-%s kernels-%d",
                       gnu_get_libc_version(), KERNELS_VERSION);
        return;
    }
    (void)dnnl_set_max_cpu_isa(choice->onednn);
    (void)snprintf(text, sizeof(c->base.signature),
                   "cpu %s onednn-%d.%d.%d/%s kernels-%d", choice->tiles->isa, v->major,
                   v->minor, v->patch, onednn_isa_name(), KERNELS_VERSION);
}

/* --- open, close --- */

static void describe(struct device *d, char *text, size_t size)
{
    const struct cpu *c = cpu_of(d);

    (void)snprintf(text, size, "%s, %d thread%s on %d of %d cores%s", d->signature,
                   d->threads, d->threads == 1 ? "" : "s", CPU_COUNT(&c->cores.own),
                   c->cores.n_allowed, c->cores.crowded ? ", not pinned" : "");
}

static void close_queues(struct cpu *c)
{
    /* in any order: a queue that waits for another finds its helper alive or all done
     */
    for (int i = 0; i < QUEUE_COUNT; i++) {
        cpu_queue_close(&c->queue[i]);
    }
}

static void cpu_close(struct device *d)
{
    struct cpu *c = cpu_of(d);

    close_queues(c);
    pool_close(&c->pool);
    cores_give_back(&c->cores);
    mem_free(c);
}

static int open_queues(struct cpu *c)
{
    atomic_init(&c->first_failed, -1);
    for (int i = 0; i < QUEUE_COUNT; i++) {
        int err = cpu_queue_open(&c->queue[i], (enum queue)i, &c->first_failed,
                                 c->base.trace);

        if (err < 0) {
            close_queues(c);
            return err;
        }
    }
    return 0;
}

static int start(struct cpu *c, const struct device_config *config)
{
    int err = cores_take(&c->cores, config->local_rank, config->local_world_size,
                         config->threads, &c->base.threads);

    if (err < 0) {
        return err;
    }
    c->base.cores = c->cores.n_allowed;
    compute_thread_flush_denormals();
    err = pool_open(&c->pool, c->base.threads, !c->cores.crowded);
    if (err < 0) {
        cores_give_back(&c->cores);
        return err;
    }
    err = open_queues(c);
    if (err < 0) {
        pool_close(&c->pool);
        cores_give_back(&c->cores);
    }
    return err;
}

static const struct device_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .alloc = alloc,
    .free = release,
    .copy = copy,
    .pack = pack,
    .fill = fill,
    .mark = mark,
    .wait = wait,
    .finish = finish,
    .last_error = last_error,
    .enqueue = enqueue,
    .spread = spread,
    .busy_us = busy_us,
    .describe = describe,
};

int cpu_open(const struct device_config *config, struct device **ret,
             struct errmsg *msg)
{
    const struct choice *choice = &choices[0];
    struct cpu *c;
    int err = choose(config->isa, &choice, msg);

    if (err < 0) {
        return err;
    }
    if (config->threads < 0 || config->threads > POOL_MAX_THREADS) {
        return errmsg_set(msg, ERR_INVALID,
                          "device.threads=%d: choose 1 to %d, or auto", config->threads,
                          POOL_MAX_THREADS);
    }
    c = mem_zalloc(sizeof(*c));
    c->base.ops = &cpu_ops;
    c->base.k = &cpu_kernels;
    c->base.trace = config->trace;
    c->tiles = choice->tiles;
    sign(c, choice);
    err = start(c, config);
    if (err < 0) {
        mem_free(c);
        return errmsg_thread(msg, err, "starting the CPU device");
    }
    *ret = &c->base;
    return 0;
}
