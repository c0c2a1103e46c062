#include "worker/data/loader.h"

#include "common/fault.h"
#include "common/mem.h"
#include "common/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A ring of n_ahead + 1 slots: the thread fills at `filled`, the consumer holds the
 * slot of its last call and takes at `taken`; both only grow, and slot = number mod
 * n_slots.
 *
 *        held   read ahead      free
 *      ┌──────┬──────┬──────┬──────┐
 *      │taken-1 taken  …     filled│
 *      └──────┴──────┴──────┴──────┘
 *
 * An error is kept and the thread ends; leaves filled before it are still handed out.
 */

struct loader {
    struct loader_config config;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows up to `slots` */
    pthread_cond_t changed;
    uint64_t filled; /* leaves read so far */
    uint64_t taken;  /* leaves handed out so far */
    bool is_closing;
    int err; /* the thread's; it has ended */
    struct errmsg err_msg;

    int32_t *slots;  /* owned; n_slots × {tokens, targets} × (micro_batch, seq_len) */
    int32_t *sample; /* owned; seq_len + 1 tokens, of the thread */
    uint64_t n_slots;
    uint64_t n_leaves; /* of the whole plan; 0: endless */
};

static size_t leaf_elements(const struct loader_config *config)
{
    return (size_t)config->micro_batch * (size_t)config->seq_len;
}

static size_t slots_bytes(const struct loader_config *config)
{
    return ((size_t)config->n_ahead + 1) * 2 * leaf_elements(config) * sizeof(int32_t);
}

size_t loader_bytes(const struct loader_config *config)
{
    return slots_bytes(config) + ((size_t)config->seq_len + 1) * sizeof(int32_t);
}

static int32_t *slot_tokens(const struct loader *l, uint64_t leaf)
{
    return l->slots + leaf % l->n_slots * 2 * leaf_elements(&l->config);
}

static uint32_t stride(const struct loader_config *c)
{
    return MAX(c->leaf_stride, 1U);
}

static uint64_t leaves_per_step(const struct loader_config *c)
{
    return (c->leaf_end - c->leaf_begin - 1) / stride(c) + 1;
}

/* The stream's position of the first sequence of the plan's n-th leaf. */
static uint64_t leaf_position(const struct loader_config *c, uint64_t leaf)
{
    uint64_t per_step = leaves_per_step(c);
    uint64_t step = c->first_step + leaf / per_step;
    uint64_t in_step = c->leaf_begin + leaf % per_step * stride(c);

    return step * (uint64_t)c->global_batch + in_step * (uint64_t)c->micro_batch;
}

static int fill(struct loader *l, uint64_t leaf, struct errmsg *msg)
{
    const struct loader_config *c = &l->config;
    size_t n = (size_t)c->seq_len;
    int32_t *tokens = slot_tokens(l, leaf);
    int32_t *targets = tokens + leaf_elements(c);
    uint64_t position = leaf_position(c, leaf);

    for (size_t row = 0; row < (size_t)c->micro_batch; row++) {
        uint64_t sample = sampler_at(c->sampler, position + row);
        int rv = dataset_read(c->dataset, sample, l->sample, msg);

        if (rv < 0) {
            return rv;
        }
        memcpy(tokens + row * n, l->sample, n * sizeof(*tokens));
        memcpy(targets + row * n, l->sample + 1, n * sizeof(*targets));
    }
    return 0;
}

/* Waits for a free slot; false when there is nothing more to read. */
static bool wait_for_slot(struct loader *l, uint64_t *ret_leaf)
{
    uint64_t held;
    bool is_open;

    (void)pthread_mutex_lock(&l->lock);
    for (;;) {
        held =
            l->taken > 0 ? l->taken - 1 : 0; /* the consumer still reads the last one */
        is_open = !l->is_closing && (l->n_leaves == 0 || l->filled < l->n_leaves);
        if (!is_open || l->filled - held < l->n_slots) {
            break;
        }
        (void)pthread_cond_wait(&l->changed, &l->lock);
    }
    *ret_leaf = l->filled;
    (void)pthread_mutex_unlock(&l->lock);
    return is_open;
}

static void *on_thread(void *arg)
{
    struct loader *l = arg;
    uint64_t leaf;
    int rv = 0;

    while (rv == 0 && wait_for_slot(l, &leaf)) {
        struct errmsg msg = {0};

        rv = fill(l, leaf, &msg);
        (void)pthread_mutex_lock(&l->lock);
        if (rv == 0) {
            l->filled++;
        } else {
            l->err = rv;
            l->err_msg = msg;
        }
        (void)pthread_cond_broadcast(&l->changed);
        (void)pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

static int start_thread(struct loader *l, struct errmsg *msg)
{
    int rv = fault_at("data.thread");

    rv = rv < 0 ? rv : thread_start(0, on_thread, l, &l->thread);
    return rv < 0 ? errmsg_thread(msg, rv, "reading data ahead") : 0;
}

static void free_loader(struct loader *l)
{
    (void)pthread_cond_destroy(&l->changed);
    (void)pthread_mutex_destroy(&l->lock);
    free(l->slots);
    free(l->sample);
    mem_free(l);
}

int loader_open(const struct loader_config *config, struct loader **ret,
                struct errmsg *msg)
{
    struct loader *l;
    int rv;

    ASSERT(config->n_ahead >= 1 && config->leaf_begin < config->leaf_end);
    ASSERT(config->micro_batch > 0 && config->seq_len > 0 && config->global_batch > 0);
    l = mem_zalloc(sizeof(*l));
    l->config = *config;
    l->n_slots = (uint64_t)config->n_ahead + 1;
    l->n_leaves = config->n_steps * leaves_per_step(config);
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_cond_init(&l->changed, NULL);
    l->slots = malloc(slots_bytes(config));
    l->sample = malloc(((size_t)config->seq_len + 1) * sizeof(*l->sample));
    if (!l->slots || !l->sample) {
        rv = errmsg_set(msg, -ENOMEM, "no memory for %zu bytes of data read ahead",
                        loader_bytes(config));
    } else {
        memset(l->slots, 0,
               slots_bytes(config)); /* touched now, not in the first step */
        rv = start_thread(l, msg);
    }
    if (rv < 0) {
        free_loader(l);
        return rv;
    }
    *ret = l;
    return 0;
}

void loader_close(struct loader *l)
{
    if (!l) {
        return;
    }
    (void)pthread_mutex_lock(&l->lock);
    l->is_closing = true;
    (void)pthread_cond_broadcast(&l->changed);
    (void)pthread_mutex_unlock(&l->lock);
    (void)pthread_join(l->thread, NULL);
    free_loader(l);
}

int loader_next(struct loader *l, const int32_t **ret_tokens,
                const int32_t **ret_targets, struct errmsg *msg)
{
    uint64_t leaf;
    int rv = 0;

    ASSERT(l->n_leaves == 0 || l->taken < l->n_leaves);
    (void)pthread_mutex_lock(&l->lock);
    while (l->filled == l->taken && l->err == 0) {
        (void)pthread_cond_wait(&l->changed, &l->lock);
    }
    leaf = l->taken;
    if (l->filled > l->taken) {
        l->taken++; /* gives the slot before it back */
        (void)pthread_cond_broadcast(&l->changed);
    } else {
        rv = errmsg_set(msg, l->err, "%s", l->err_msg.text);
    }
    (void)pthread_mutex_unlock(&l->lock);
    if (rv < 0) {
        return rv;
    }
    *ret_tokens = slot_tokens(l, leaf);
    *ret_targets = *ret_tokens + leaf_elements(&l->config);
    return 0;
}
