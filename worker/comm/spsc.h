#ifndef WORKER_COMM_SPSC_H
#define WORKER_COMM_SPSC_H

/* A byte ring in memory shared by two processes: one writer, one reader, no lock.
 *
 *   positions count bytes for ever; the place of one is position mod size
 *
 *        tail                head
 *          │  written, unread  │        free = size − (head − tail)
 *   ───────┴───────────────────┴───────
 *
 * Each piece of data begins at a multiple of RING_ALIGN (the gap is skipped by both
 * sides, who know where pieces begin), so floats can be read in place with vectors and
 * never straddle the end. All accesses to head and tail are sequentially consistent:
 * the sleeper's protocol (shm.h) depends on it, and on x86 only the stores cost
 * anything. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RING_ALIGN = 64 };

struct ring_control {
    _Alignas(RING_ALIGN) _Atomic uint64_t head; /* stored by the writer alone */
    _Alignas(RING_ALIGN) _Atomic uint64_t tail; /* stored by the reader alone */
};

/* One side's view. */
struct ring {
    struct ring_control *control; /* in shared memory */
    uint8_t *data;                /* in shared memory */
    size_t size;                  /* a multiple of RING_ALIGN */
};

/* Copies what fits of `size` bytes in, publishes it, returns how much it was.
 * `is_first`: the data begin a piece. `streams`: write to memory, past the caches. */
size_t ring_write(struct ring *r, const void *data, size_t size, bool is_first,
                  bool streams);

/* The bytes that can be read in place now; *ret = 0 when there are none. */
const uint8_t *ring_peek(const struct ring *r, bool is_first, size_t *ret);
void ring_consume(struct ring *r, bool is_first, size_t size);

#endif
