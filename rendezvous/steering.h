#ifndef RENDEZVOUS_STEERING_H
#define RENDEZVOUS_STEERING_H

/* PURE. What operators do to jobs: cancel one, send a node home. */

#include "common/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct identity;
struct service;

/* Who does it, to whose jobs. */
struct steering {
    struct service *service;
    const char *who;            /* for people */
    const struct identity *key; /* that was shown; NULL: none was asked for */
    size_t max_drained;         /* where more nodes are meant, none is sent home */
};

/* The job ends on all nodes: their workers are told to leave (ctrun-worker saves), then
 * every ctrun ends with 128 + SIGTERM; it is not started again. `job` "": the only one
 * that is not over. 0: *ret is {"job", "state"}; ERR_MISSING: no such job; ERR_REFUSED:
 * which of them? */
int steering_cancel(const struct steering *by, const char *job, uint64_t now_ms,
                    json_t **ret, struct errmsg *msg) MUST_CHECK;

/* The agents of that node leave, as after SIGTERM, and end with 0; the rest goes on.
 * `node`: a host's name, in the one job or (`job` "") in all of them; or a group rank, of
 * the one job. 0: *ret is {"nodes": [{"job", "host", "group_rank"}]}, or {"meant": …} of
 * more than may be, and nothing was done. Errors as above. */
int steering_drain(const struct steering *by, const char *job, const char *node,
                   json_t **ret, struct errmsg *msg) MUST_CHECK;

#endif
