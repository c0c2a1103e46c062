#ifndef WORKER_COMM_BOOTSTRAP_H
#define WORKER_COMM_BOOTSTRAP_H

/* Finds the ranks of a group through the store and makes the links to all of them.
 * Errors: those of comm_open. Links made before a failure stay in c->link, for
 * link_close. */

#include "worker/comm/host.h"

int bootstrap_run(struct host_comm *c, const struct comm_config *config,
                  struct errmsg *msg) MUST_CHECK;

#endif
