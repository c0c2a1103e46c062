#ifndef RENDEZVOUS_EVICTION_H
#define RENDEZVOUS_EVICTION_H

/* PURE. Who makes room in a full list that all owners share: the one who has most, lest
 * who begins many short jobs has those of the others forgotten. */

#include <stddef.h>

/* Which of the n entries goes for one of `newcomer`: the first (oldest) of the owner who
 * has most, that one counted; of several who have as many, the first of all theirs. */
size_t eviction_choose(const char *const *owner, size_t n, const char *newcomer);

#endif
