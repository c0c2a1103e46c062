#ifndef RENDEZVOUS_ROUND_H
#define RENDEZVOUS_ROUND_H

/* PURE. One gathering: who is in the next generation, in which order, and when it
 * closes.
 *
 * It closes at once when MAX nodes are in or, once this service has formed a
 * generation, when all living nodes are in; else 3 s after the last join, at most
 * last_call after MIN was reached, and never before those that are known from before the
 * service's start are back, or lost. Standbys alone do not make it MAX while survivors of
 * the last generation, just stopped, are about to join: they would lose their places.
 * Order: an explicit --node-rank wins, then stability (the members of the last
 * generation in its order), then the natural order of host names ("node2" < "node10"),
 * then that of arrival. Surplus nodes, and those beyond the largest world that the
 * workers can use, stand by; so does a flapping node where MIN does not need it. */

#include "rendezvous/job.h"

enum { ROUND_QUIET_MS = 3000 };

struct round {
    struct job_node **node; /* owned array of borrowed nodes: those in, ranked */
    size_t n;
    uint64_t largest_world; /* as known when they were chosen: round_largest_world */
};

/* How many nodes are in now, without regard to the largest world: cheap. */
size_t round_count(const struct job *j);

/* True when a round with so many nodes closes now. */
bool round_is_closed(const struct job *j, size_t n);

/* The nodes that are in. Release with round_release. */
void round_choose(const struct job *j, struct round *ret);
void round_release(struct round *r);

/* The most ranks that the workers can use, as the nodes said when they joined and as
 * the last generation's refusal says (those whose workers were stopped before they came
 * to say it do not know); UINT64_MAX: any number. A node that has left has no say, a
 * flapping one only in a round that needs it. */
uint64_t round_largest_world(const struct job *j);

/* Between two generations: whether a round of MIN nodes can have so few ranks. */
bool round_fits(const struct job *j, uint64_t max_world);

/* When to look again, later than now; UINT64_MAX: at the next event. */
uint64_t round_deadline(const struct job *j);

/* strverscmp-like order that does not depend on the locale: digits compare as numbers.
 */
int round_compare_hosts(const char *a, const char *b);

#endif
