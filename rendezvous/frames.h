#ifndef RENDEZVOUS_FRAMES_H
#define RENDEZVOUS_FRAMES_H

/* PURE. Buffers of whole frames to an agent that wait for their turn. */

#include "common/buf.h"

#include <stdbool.h>

/* Moves frames from the front of one to the end of the other: as many as fit into
 * `share` bytes, and one at least. ERR_TOO_LARGE: `to` is full. */
int frames_move(struct buf *from, struct buf *to, size_t share) MUST_CHECK;

enum { FRAMES_MAX_GONE = 1024 };

struct frames_client {
    uint64_t generation;
    uint32_t client;
};

/* Store clients that are gone, and whose replies may wait among the frames. */
struct frames_gone {
    struct frames_client *clients; /* owned; NULL until there is one */
    size_t n;
    bool is_new;      /* one has come since the frames were looked at */
    uint64_t n_moved; /* bytes of frames that dropping has moved so far */
};

void frames_gone_release(struct frames_gone *gone);

/* False: that was the last place; frames_drop_replies makes room. */
bool frames_gone_add(struct frames_gone *gone, uint64_t generation,
                     uint32_t client) MUST_CHECK;

/* What is large in the replies to those who are gone is left out; the replies still
 * acknowledge their requests. Looks at the first few thousand frames alone: where there
 * are more, they are small. As the frames behind move up, it waits until it saves a
 * good part of all, or no place is left for another client: all calls together move a
 * few times the bytes that ever came, however many clients go, and in whatever order.
 * Returns the bytes saved. */
size_t frames_drop_replies(struct buf *frames, struct frames_gone *gone);

#endif
