#ifndef RENDEZVOUS_SPACE_H
#define RENDEZVOUS_SPACE_H

/* PURE. How full the disk of the state is, by the room that is left there for it, the
 * reserve with it, and what that comes to in parts of the whole reserve. All in bytes. */

#include "rendezvous/durable.h"

/* `is_whole`: nothing of the reserve was given up. `before`: what it was so far; to come
 * back to a level takes a quarter of the reserve more than to stay at it. */
enum durable_space space_level(uint64_t room, uint64_t reserve, bool is_whole,
                               enum durable_space before);

/* What is to be free, beside the `left` of the reserve, for all to be as if the disk had
 * never been full. */
uint64_t space_wanted(uint64_t reserve, uint64_t left);

#endif
