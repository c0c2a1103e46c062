#ifndef LAUNCHER_FOLLOWED_H
#define LAUNCHER_FOLLOWED_H

/* PURE. The durable service that this node has followed, as far as it is to be told from
 * others: its state may have been replaced by another, by an old copy, or by one that
 * has been started meanwhile and counts on by itself. */

#include "common/msg.h"

struct followed {
    uint64_t cluster;
    uint64_t boot, start; /* of its starts the last; 0: none, or it keeps no state */
    uint64_t kept;        /* transactions then, the most heard of */
    uint64_t generation;  /* of the job, the highest */
    const char *job;
};

/* Why the service that answers is not the one; "": it is. The same each time for the
 * same state, however often that was started since. */
void followed_object(const struct followed *f, const struct msg_welcome *w, char *ret,
                     size_t size);

#endif
