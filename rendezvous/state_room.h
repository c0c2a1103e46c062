#ifndef RENDEZVOUS_STATE_ROOM_H
#define RENDEZVOUS_STATE_ROOM_H

/* What the state does about a disk that is full: how much may still be written, and what
 * makes room for it. One thread at a time, that which has the database.
 *
 * The log's place is used again once it is copied: so it does not grow on a full disk,
 * nobody else can take it, and the reserve is there for what the database grows by. */

#include "rendezvous/durable.h"

#include "common/err.h"

struct state_db;
struct state_dir;

/* For what has just failed with -ENOSPC, about so many bytes, and is to be tried again at
 * once when this returns 0. -ENOSPC: there is no more. `db`: NULL where there is none. */
int state_room_make(struct state_dir *dir, struct state_db *db, uint64_t bytes,
                    struct errmsg *msg) MUST_CHECK;

/* How much may still be written with what is left of the reserve, which is made whole
 * again where there is enough for it. `before`: what the last look said. */
int state_room_look(struct state_dir *dir, const struct state_db *db,
                    enum durable_space before, enum durable_space *ret) MUST_CHECK;

#endif
