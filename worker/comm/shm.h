#ifndef WORKER_COMM_SHM_H
#define WORKER_COMM_SHM_H

/* The shared memory of one rank: its inbound rings, and how it is woken.
 *
 *   ┌ segment_head ┬ ring_control × n ┬ data × n ┐     n = other ranks of the node
 *
 * A memfd without a name, reserved in full with fallocate and sealed against growing
 * and shrinking, so that a write never ends in SIGBUS and nothing outlives the
 * processes. Peers open it through /proc/<pid>/fd/<fd>; the token says that it is the
 * right one.
 *
 * Sleeping: the owner reads `bell`, sets `is_sleeping`, looks once more for work, then
 * waits on `bell` with a futex. Who has moved a ring's head or tail then looks at
 * `is_sleeping` and, if set, rings. Sequential consistency of the four accesses makes
 * sure that one of the two sees the other. */

#include "worker/comm/spsc.h"

#include "common/err.h"

#include <sys/types.h>

enum { SHM_TOKEN_SIZE = 16, SHM_RING_SIZE = 1024 * 1024 };

struct segment_head {
    uint64_t magic;
    uint8_t token[SHM_TOKEN_SIZE];
    _Alignas(RING_ALIGN) _Atomic uint32_t bell;
    _Atomic uint32_t is_sleeping;
    _Alignas(
        RING_ALIGN) _Atomic uint32_t has_left; /* the owner will move no ring again */
};

struct segment {
    struct segment_head *head; /* NULL: none; the mapping begins here */
    size_t size;
    int n_rings;
    int fd; /* the owner's, until all peers have opened it; else -1 */
};

/* Where peers find it; travels through the store. */
struct segment_address {
    pid_t pid;
    int fd;
};

int segment_create(struct segment *s, int n_rings, const uint8_t token[SHM_TOKEN_SIZE],
                   struct errmsg *msg) MUST_CHECK;

/* A peer's. ERR_PEER_LOST when its process or its descriptor is gone. */
int segment_open(struct segment *s, const struct segment_address *at, int n_rings,
                 const uint8_t token[SHM_TOKEN_SIZE], struct errmsg *msg) MUST_CHECK;
void segment_close(struct segment *s);
void segment_close_fd(struct segment *s);

struct ring segment_ring(const struct segment *s, int i);

/* Wakes the owner if it sleeps (after a ring was moved), or in any case. */
void segment_wake(const struct segment *s);
void segment_ring_bell(const struct segment *s);

/* The owner's: at most `timeout_ms`, unless the bell has rung since `seen`. */
uint32_t segment_begin_sleep(const struct segment *s);
void segment_sleep(const struct segment *s, uint32_t seen, int timeout_ms);
void segment_end_sleep(const struct segment *s);

#endif
