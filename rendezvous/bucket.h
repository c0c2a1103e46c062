#ifndef RENDEZVOUS_BUCKET_H
#define RENDEZVOUS_BUCKET_H

/* PURE. How often something may happen: tokens that come back with time, `per_s` of
 * them each second up to `burst`. And the same for each network by itself, of however
 * many, in a fixed number of buckets: two that fall together share one. */

#include <stdbool.h>
#include <stdint.h>

struct bucket {
    uint64_t used_milli; /* tokens that are not back yet, in thousandths */
    uint64_t seen_ms;
};

/* Takes one; false when there is none. */
bool bucket_take(struct bucket *b, uint32_t per_s, uint32_t burst, uint64_t now_ms);

enum { BUCKETS = 4096 };

struct buckets {
    uint64_t seed; /* secret: nobody chooses whom to share a bucket with */
    struct bucket bucket[BUCKETS];
};

bool buckets_take(struct buckets *b, uint64_t key, uint32_t per_s, uint32_t burst,
                  uint64_t now_ms);

#endif
