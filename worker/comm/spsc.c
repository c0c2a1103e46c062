#include "worker/comm/spsc.h"

#include "common/check.h"

#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

static uint64_t align_up(uint64_t position)
{
    return (position + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
}

/* Whole cache lines, so that none has to be read first. */
static void copy_past_caches(uint8_t *to, const uint8_t *from, size_t size)
{
    size_t i = MIN(size, -(uintptr_t)to % RING_ALIGN);

    memcpy(to, from, i);
#ifdef __x86_64__
    for (; i + RING_ALIGN <= size; i += RING_ALIGN) {
        for (size_t k = i; k < i + RING_ALIGN; k += sizeof(__m128i)) {
            __m128i x = _mm_loadu_si128((const __m128i_u *)(from + k));

            _mm_stream_si128((__m128i *)(to + k), x);
        }
    }
    _mm_sfence(); /* before the head is stored */
#endif
    memcpy(to + i, from + i, size - i);
}

static void copy(uint8_t *to, const uint8_t *from, size_t size, bool streams)
{
    if (streams) {
        copy_past_caches(to, from, size);
    } else {
        memcpy(to, from, size);
    }
}

size_t ring_write(struct ring *r, const void *data, size_t size, bool is_first,
                  bool streams)
{
    uint64_t tail = atomic_load(&r->control->tail);
    uint64_t head = atomic_load_explicit(&r->control->head, memory_order_relaxed);
    size_t used, n, at, part;

    head = is_first ? align_up(head) : head;
    used = (size_t)(head - tail); /* with the gap it may pass the size */
    n = used < r->size ? MIN(size, r->size - used) : 0;
    if (n == 0) {
        return 0;
    }
    at = (size_t)(head % r->size);
    part = MIN(n, r->size - at);
    copy(r->data + at, data, part, streams);
    copy(r->data, (const uint8_t *)data + part, n - part, streams);
    atomic_store(&r->control->head, head + n);
    return n;
}

const uint8_t *ring_peek(const struct ring *r, bool is_first, size_t *ret)
{
    uint64_t head = atomic_load(&r->control->head);
    uint64_t tail = atomic_load_explicit(&r->control->tail, memory_order_relaxed);
    size_t at;

    tail = is_first ? align_up(tail) : tail;
    at = (size_t)(tail % r->size);
    *ret = head > tail ? MIN((size_t)(head - tail), r->size - at) : 0;
    return r->data + at;
}

void ring_consume(struct ring *r, bool is_first, size_t size)
{
    uint64_t tail = atomic_load_explicit(&r->control->tail, memory_order_relaxed);

    tail = is_first ? align_up(tail) : tail;
    atomic_store(&r->control->tail, tail + size);
}
