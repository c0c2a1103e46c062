#ifndef RENDEZVOUS_FRAMES_H
#define RENDEZVOUS_FRAMES_H

/* PURE. Buffers of whole frames to an agent that wait for their turn. */

#include "common/buf.h"

/* Moves frames from the front of one to the end of the other: as many as fit into
 * `share` bytes, and one at least. ERR_TOO_LARGE: `to` is full. */
int frames_move(struct buf *from, struct buf *to, size_t share) MUST_CHECK;

/* What is large in the replies to this client, which is gone, is left out; they still
 * acknowledge its requests. Looks at the first few thousand frames alone: where there
 * are more, they are small. Returns the bytes saved. */
size_t frames_drop_replies(struct buf *frames, uint64_t generation, uint32_t client);

#endif
