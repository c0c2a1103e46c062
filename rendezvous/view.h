#ifndef RENDEZVOUS_VIEW_H
#define RENDEZVOUS_VIEW_H

/* PURE. What people and programs see of the service, as JSON: the API (/api/v1), the
 * status page and the operator's verbs say the same because they all ask here. Every
 * object is new and the caller's (json_decref). Lists that a peer can make long come in
 * pages: `next` is where the next one begins; without it this was the last.
 *
 * Times named …_ms are Unix time in milliseconds, …_age_ms how long ago. What is not
 * known is left out. A loss is a number; null, where what was said is none: "nan",
 * "inf". */

#include "rendezvous/history.h"
#include "rendezvous/registry.h"
#include "rendezvous/service.h"

#include <jansson.h>

/* Of reals, all of which are losses: the digits that floats have. */
#define VIEW_JSON (JSON_COMPACT | JSON_REAL_PRECISION(9))

enum {
    VIEW_MAX_PAGE = 1000, /* nodes, ranks, events */
    VIEW_MAX_JOBS = REGISTRY_MAX,
};

/* Borrowed for the call. */
struct view {
    const struct service *service;
    const struct history *history;
    uint64_t now_ms;            /* the service's clock */
    const struct identity *who; /* whose jobs are in the lists; NULL: all are */
};

/* {"jobs": […]}: a summary of each that the service knows, by name; of one alone where
 * `job` is neither NULL nor "". While it hangs, "hang" says which rank, since when;
 * "draining", why its generation ends. */
json_t *view_jobs(const struct view *v, const char *job);

/* The summary, and: commit, cause, loss curve. Of one that has ended, too. NULL: none
 * has that id. */
json_t *view_job(const struct view *v, const char *id);

/* Of that name the last one that who asks may see; NULL: there is none. */
const struct history_job *view_find_past(const struct view *v, const char *id);

/* {"nodes": […]}, from the `first` on: members by group rank, then the others. NULL: no
 * such job is there. */
json_t *view_nodes(const struct view *v, const char *id, size_t first, size_t limit);

/* {"ranks": […]}: of the current generation, from rank `first` on; "away": those whose
 * node is not here (any more). */
json_t *view_ranks(const struct view *v, const char *id, size_t first, size_t limit);

/* {"events": […], "last": N}: those with a number larger than `after`; `job` as above.
 */
json_t *view_events(const struct view *v, const char *job, uint64_t after,
                    size_t limit);

/* {"jobs": […]}: those that have ended, the newest first; `job` as above. */
json_t *view_history(const struct view *v, const char *job);

/* Single figures, for metrics.h as well. */
const char *view_job_state(const struct job *j); /* "forming", "running", … */
uint32_t view_job_ranks(const struct job *j);    /* of the generation that runs */
/* 0: not known; no less than has been saved */
uint64_t view_job_step(const struct job *j, const struct history_job *record);
uint32_t view_job_tok_s(const struct job *j); /* as its first ranks say, of the whole */

/* Of this job, not of an earlier one of its name; NULL: nothing is known of it. */
const struct history_job *view_record(const struct view *v, const struct job *j);

#endif
