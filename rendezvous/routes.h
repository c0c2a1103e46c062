#ifndef RENDEZVOUS_ROUTES_H
#define RENDEZVOUS_ROUTES_H

/* PURE. What the HTTP port shows:
 *
 *   /                      the status page (status.html)
 *   /healthz               200 while the service's loop turns
 *   /readyz                200, or 503 while it does not take work
 *   /metrics               Prometheus (metrics.h)
 *   /api/v1/jobs           ?job=ID; this and all below as JSON (view.h)
 *   /api/v1/jobs/ID        ID is %-encoded
 *   /api/v1/jobs/ID/nodes  ?first=N&limit=N
 *   /api/v1/jobs/ID/ranks  ?first=N&limit=N
 *   /api/v1/events         ?after=N&job=ID&limit=N
 *   /api/v1/history        ?job=ID
 *
 * A value that is not valid, %-encoded or out of bounds, is refused: never taken for one
 * that was not given.
 *
 * Against foreign web pages in the browser of somebody who may look: no CORS, a strict
 * policy of contents, and no answer under a name that is not this machine's, so that
 * nobody can point one here. */

#include "rendezvous/http.h"
#include "rendezvous/metrics.h"

struct routes {
    struct view view;
    const struct tally *tally;
    struct metrics_shell shell;
    const char *const *names; /* by which we are known beside our addresses … */
    size_t n_names;           /* … and localhost */
    const char *date;         /* for http_response */
    const char *nonce;        /* fresh: for the page's own script */
};

/* Appends head and body of the answer; `q` is what http_parse gave with this status. */
void routes_answer(const struct routes *r, const struct http_request *q, int status,
                   struct buf *out);

/* The most that an answer takes. */
enum { ROUTES_MAX_BYTES = 16 * 1024 * 1024 };

/* The answer says what has become of jobs; that the service lives it says without. */
bool routes_show_jobs(const struct http_request *q);

#endif
