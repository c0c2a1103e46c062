#ifndef TESTS_LIB_RANK_ENDS_H
#define TESTS_LIB_RANK_ENDS_H

/* What a forked rank of the worker's tests needs: store, CPU device, comm. Failures end
 * the rank. */

#include "tests/lib/ranks.h"
#include "worker/comm/comm.h"
#include "worker/store_client.h"

enum { RANK_TIMEOUT_MS = 60000 };

struct rank_setup {
    const char *kind;
    int node_size; /* ranks of a pretended node: they say that they have different
                      agents */
};

struct rank_ends {
    struct store_client *store;
    struct device *device;
    struct comm *comm; /* NULL with kind NULL */
};

void rank_ends_open(struct rank_ends *e, const struct rank *self,
                    const struct rank_setup *setup);

/* The same in a network namespace (of `ip netns`), entered once there is a connection
 * to the store, where the rank has `address`. */
void rank_ends_open_in(struct rank_ends *e, const struct rank *self,
                       const struct rank_setup *setup, const char *netns,
                       const char *address);
void rank_ends_close(struct rank_ends *e);

/* Waits for the reduce queue; its error. */
int rank_ends_finish(struct rank_ends *e, struct errmsg *msg) MUST_CHECK;
void rank_ends_finish_well(struct rank_ends *e);

#endif
