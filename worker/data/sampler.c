#include "worker/data/sampler.h"

#include "worker/data/randperm.h"

#include "common/mem.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* permute: perm(seed, e) is a balanced Feistel network of ROUNDS rounds over the
 * smallest 2·h bits that hold N, with cycle walking: a result ≥ N goes through again,
 * which keeps it a permutation of 0 … N − 1 (fewer than four turns on average). The
 * round function is SplitMix64's finalizer over (half ^ round key); the round keys are
 * SplitMix64's numbers from a state mixed of seed and epoch. */

enum { ROUNDS = 8 };

struct sampler {
    bool is_torch;
    uint64_t seed;
    uint64_t n_samples;
    uint64_t per_epoch; /* positions of an epoch */
    uint64_t epoch;     /* that keys or order belong to */
    bool has_epoch;
    int half_bits;         /* permute */
    uint64_t keys[ROUNDS]; /* permute */
    uint32_t *order;       /* torch; owned, n_samples of them */
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

static void set_keys(struct sampler *s, uint64_t epoch)
{
    const uint64_t golden = 0x9e3779b97f4a7c15U;
    uint64_t state = mix(s->seed + golden) ^ mix(epoch + 2 * golden);

    for (int i = 0; i < ROUNDS; i++) {
        state += golden;
        s->keys[i] = mix(state);
    }
}

static uint64_t permute_once(const struct sampler *s, uint64_t x)
{
    uint64_t mask = ((uint64_t)1 << s->half_bits) - 1;
    uint64_t left = x >> s->half_bits;
    uint64_t right = x & mask;

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t next = left ^ (mix(right ^ s->keys[i]) & mask);

        left = right;
        right = next;
    }
    return left << s->half_bits | right;
}

static uint64_t permute(const struct sampler *s, uint64_t x)
{
    do {
        x = permute_once(s, x);
    } while (x >= s->n_samples);
    return x;
}

static int half_bits_for(uint64_t n)
{
    int half = 1;

    while (half < 32 && ((uint64_t)1 << (2 * half)) < n) {
        half++;
    }
    return half;
}

static int init_torch(struct sampler *s, uint64_t global_batch, struct errmsg *msg)
{
    if (s->n_samples < global_batch) {
        return errmsg_set(msg, ERR_INVALID,
                          "data.sampler=torch: %llu samples are fewer than "
                          "train.global_batch (%llu), so no step is complete",
                          (unsigned long long)s->n_samples,
                          (unsigned long long)global_batch);
    }
    if (s->n_samples > UINT32_MAX) {
        return errmsg_set(msg, ERR_TOO_LARGE,
                          "data.sampler=torch: %llu samples; more than 2^32 − 1 need "
                          "data.sampler=permute",
                          (unsigned long long)s->n_samples);
    }
    s->per_epoch = s->n_samples / global_batch * global_batch;
    s->order = malloc(s->n_samples * sizeof(*s->order));
    if (!s->order) {
        return errmsg_set(
            msg, -ENOMEM,
            "data.sampler=torch: no memory for the order of %llu samples; "
            "data.sampler=permute needs none",
            (unsigned long long)s->n_samples);
    }
    return 0;
}

int sampler_new(const char *kind, uint64_t seed, uint64_t n_samples,
                uint64_t global_batch, struct sampler **ret, struct errmsg *msg)
{
    struct sampler *s;
    int rv = 0;

    if (strcmp(kind, "permute") != 0 && strcmp(kind, "torch") != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "data.sampler: \"%s\" is not one of permute, torch", kind);
    }
    if (n_samples == 0 || global_batch == 0) {
        return errmsg_set(msg, ERR_INVALID, "no samples to choose from");
    }
    s = mem_zalloc(sizeof(*s));
    s->is_torch = strcmp(kind, "torch") == 0;
    s->seed = seed;
    s->n_samples = n_samples;
    s->per_epoch = n_samples;
    s->half_bits = half_bits_for(n_samples);
    if (s->is_torch) {
        rv = init_torch(s, global_batch, msg);
    }
    if (rv < 0) {
        sampler_free(s);
        return rv;
    }
    *ret = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (s) {
        free(s->order);
        mem_free(s);
    }
}

size_t sampler_bytes(const struct sampler *s)
{
    return s->is_torch ? s->n_samples * sizeof(*s->order) : 0;
}

uint64_t sampler_at(struct sampler *s, uint64_t position)
{
    uint64_t epoch = position / s->per_epoch;
    uint64_t index = position % s->per_epoch;

    if (!s->has_epoch || s->epoch != epoch) {
        if (s->is_torch) {
            randperm(s->seed + epoch, (uint32_t)s->n_samples, s->order);
        } else {
            set_keys(s, epoch);
        }
        s->epoch = epoch;
        s->has_epoch = true;
    }
    return s->is_torch ? s->order[index] : permute(s, index);
}
