/* Every strategy, by real processes: the memory and the traffic that it plans are what
 * it allocates and sends. */

#include "tests/lib/cmocka.h"
#include "tests/lib/strategy_rig.h"

#define C ((size_t)SUMSQ_CHUNK)

/* ---- memory ---------------------------------------------------------------------- */

static size_t allocated;
static int (*real_alloc)(struct device *d, size_t bytes, void **ret);

static int count_alloc(struct device *d, size_t bytes, void **ret)
{
    allocated += bytes;
    return real_alloc(d, bytes, ret);
}

static size_t sum_bytes(const struct parallel_config *config)
{
    struct parallel_bytes b = config->ops->bytes(config);

    return b.params + b.rounded + b.gathered + b.kept + b.grads;
}

static void try_bytes(struct strategy_ends *e, bool exact, uint32_t m)
{
    struct parallel_config config = strategy_config(e, m, 12 * C, exact, true);
    struct parallel_config dry = config;
    struct parallel *p;
    size_t sum;

    allocated = 0;
    p = strategy_start(&config);
    sum = sum_bytes(&config);
    RANK_CHECK(allocated == sum);
    RANK_CHECK(config.ops->bytes(&config).params == p->own.size * sizeof(float));
    /* --dry-run */
    dry.comm = dry.gather = dry.secondary = dry.shard = dry.replica = NULL;
    dry.node_size = e->topology->node_size;
    if (e->world_size % dry.node_size == 0 || dry.node_size > e->world_size) {
        RANK_CHECK(allocated == sum_bytes(&dry));
    }
    (void)strategy_step(e, p, 0, true);
    RANK_CHECK(allocated == sum); /* a step allocates nothing */
    p->ops->close(p);
}

static int bytes_are_counted(const struct rank *self)
{
    struct device_ops counting;
    struct strategy_ends e;

    strategy_ends_open(&e, self, self->arg);
    counting = *e.all.device->ops;
    real_alloc = counting.alloc;
    counting.alloc = count_alloc;
    e.all.device->ops = &counting;
    for (uint32_t m = (uint32_t)self->world_size; m < 10; m++) {
        try_bytes(&e, true, m);
        try_bytes(&e, false, m);
    }
    strategy_ends_close(&e);
    return 0;
}

static void memory_plan_is_what_is_allocated(void **state)
{
    (void)state;
    strategy_run_all(bytes_are_counted);
}

/* ---- traffic --------------------------------------------------------------------- */

static size_t sent;
static const struct comm *wide; /* of all shards, where a piece of them is kept */
static int n_wide;              /* its gathers */
static const struct comm_ops *real_comm;

static void count_all_gather(struct comm *c, enum queue q, void *buf,
                             const size_t *offsets)
{
    sent += (size_t)(c->world_size - 1) * (offsets[c->rank + 1] - offsets[c->rank]);
    n_wide += c == wide;
    real_comm->all_gather(c, q, buf, offsets);
}

static void count_all_to_all(struct comm *c, enum queue q, const struct piece *send,
                             size_t n_send, const struct piece *recv, size_t n_recv)
{
    for (size_t i = 0; i < n_send; i++) {
        sent += send[i].peer != c->rank ? send[i].bytes : 0;
    }
    real_comm->all_to_all(c, q, send, n_send, recv, n_recv);
}

static int traffic_is_counted(const struct rank *self)
{
    struct comm_ops counting;
    struct comm *comms[5];
    double chunks[12] = {0};
    struct strategy_ends e;

    strategy_ends_open(&e, self, self->arg);
    comms[0] = e.all.comm;
    comms[1] = e.gather;
    comms[2] = e.shard;
    comms[3] = e.replica;
    comms[4] = e.secondary;
    wide = e.secondary ? e.gather : NULL;
    for (size_t i = 0; i < ARRAY_LEN(comms); i++) {
        if (comms[i]) {
            real_comm = real_comm ? real_comm : comms[i]->ops;
            counting = *real_comm;
            counting.all_gather = count_all_gather;
            counting.all_to_all = count_all_to_all;
            comms[i]->ops = &counting;
        }
    }
    for (uint32_t m = (uint32_t)self->world_size; m < 12; m++) {
        struct parallel_config config = strategy_config(&e, m, 12 * C, true, true);
        struct parallel *p = strategy_start(&config);

        (void)strategy_step(&e, p, 0, true); /* the next one finds nothing new */
        sent = 0;
        n_wide = 0;
        (void)strategy_step(&e, p, 1, true);
        RANK_CHECK(n_wide ==
                   (wide ? STRATEGY_UNITS : 0)); /* once a step, for all its leaves */
        p->ops->chunks(p, chunks);
        strategy_finish(&e);
        RANK_CHECK(sent == p->ops->sent(&config));
        p->ops->close(p);
    }
    strategy_ends_close(&e);
    return 0;
}

static void traffic_plan_is_what_is_sent(void **state)
{
    (void)state;
    strategy_run_all(traffic_is_counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_plan_is_what_is_allocated),
        cmocka_unit_test(traffic_plan_is_what_is_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
