#ifndef COMMON_FAIRQ_H
#define COMMON_FAIRQ_H

/* PURE. A fair queue of whole frames: STORE, STORE_CLOSE and STORE_REPLY wait in a
 * queue of each store client (generation, client), and the clients take turns, by
 * bytes (deficit round robin): one that has megabytes waiting delays the frame of
 * another by FAIRQ_QUANTUM and a frame, not by all of them. The frames of one client
 * keep their order. Any thread, one owner.
 *
 * Bounds: `size` (bytes of frames) never passes `max`; `memory` is what is allocated
 * for them: about twice the size, as buffers grow, some 200 bytes for each client that
 * has a frame waiting, and of each a block of 64 KiB and a frame, of which a part may
 * be sent. A client without frames costs nothing. */

#include "common/buf.h"
#include "common/msg.h"
#include "common/table.h"

enum { FAIRQ_QUANTUM = 64 * 1024 };

struct fairq_client;

struct fairq {
    struct table clients;       /* owned; those with frames */
    struct fairq_client *first; /* a ring, in the order of their turns; NULL: empty */
    uint64_t seed;              /* of the table, so that nobody can choose collisions */
    size_t max;
    size_t size;   /* bytes of frames */
    size_t memory; /* bytes allocated */
};

void fairq_init(struct fairq *q, size_t max, uint64_t seed);
void fairq_release(struct fairq *q);

static inline bool fairq_is_empty(const struct fairq *q)
{
    return q->first == NULL;
}

/* Bytes of frames that one client has waiting. */
size_t fairq_size_of(const struct fairq *q, uint64_t generation, uint32_t client);

/* Appends to the queue of the message's client. ERR_TOO_LARGE: `max` would be passed,
 * or the frame's limit; then nothing is appended. */
int fairq_push(struct fairq *q, const struct msg *m) MUST_CHECK;

/* The frame whose turn it is, of a queue that is not empty; until the next call. */
struct bytes fairq_front(struct fairq *q);

/* Leaves it; another client's turn comes first. */
void fairq_skip(struct fairq *q);

/* The client that came last, and would be last, is next. */
void fairq_turn_back(struct fairq *q);

/* Drops it. `extra`: what it has cost beyond its own bytes, of the client's turns. */
void fairq_pop(struct fairq *q, size_t extra);

/* Moves frames in turn to the end of `to`: as many as fit into `share` bytes, and one
 * at least if there is one. ERR_TOO_LARGE: `to` is full. */
int fairq_move(struct fairq *q, struct buf *to, size_t share) MUST_CHECK;

/* The same of one client, out of turn; the size is 0 when it has none. */
struct bytes fairq_front_of(const struct fairq *q, uint64_t generation,
                            uint32_t client);
void fairq_pop_of(struct fairq *q, uint64_t generation, uint32_t client);

/* The client is gone: what its STORE_REPLYs hold is left out, each still acknowledges
 * its request. Costs the length of that client's queue. Returns the bytes saved. */
size_t fairq_drop_replies(struct fairq *q, uint64_t generation, uint32_t client);

#endif
