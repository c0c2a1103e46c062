#ifndef RENDEZVOUS_SEATS_H
#define RENDEZVOUS_SEATS_H

/* PURE. Who has which ranks in the generation at hand: its nodes as it was formed, those
 * that have gone since too. Right after the service's start, until the first report,
 * only those before the first that has gone: where the others' ranks begin is not
 * kept. */

#include "rendezvous/job.h"

struct seat {
    const struct job_node *node; /* NULL: it has gone */
    const char *host;
    uint32_t group_rank, first_rank, nproc;
};

/* Borrows from the job: for a moment. */
struct seats {
    struct seat *seat; /* owned; by rank */
    size_t n;
    uint32_t world;
};

void seats_find(struct seats *s, const struct job *j);
void seats_release(struct seats *s);

/* NULL: the node has none. */
const struct seat *seats_of(const struct seats *s, const struct job *j,
                            const struct job_node *node);

#endif
