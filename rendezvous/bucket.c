#include "rendezvous/bucket.h"

#include "common/check.h"
#include "common/table.h"

enum { MILLI = 1000 };

bool bucket_take(struct bucket *b, uint32_t per_s, uint32_t burst, uint64_t now_ms)
{
    uint64_t passed_ms = now_ms - MIN(b->seen_ms, now_ms);
    uint64_t back = passed_ms > UINT32_MAX ? UINT64_MAX : passed_ms * per_s;

    b->seen_ms = MAX(b->seen_ms, now_ms);
    b->used_milli -= MIN(b->used_milli, back);
    if (b->used_milli + MILLI > (uint64_t)burst * MILLI) {
        return false;
    }
    b->used_milli += MILLI;
    return true;
}

bool buckets_take(struct buckets *b, uint64_t key, uint32_t per_s, uint32_t burst,
                  uint64_t now_ms)
{
    uint64_t i = table_hash(&key, sizeof(key), b->seed) % BUCKETS;

    return bucket_take(&b->bucket[i], per_s, burst, now_ms);
}
