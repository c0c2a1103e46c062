#ifndef RENDEZVOUS_METRICS_H
#define RENDEZVOUS_METRICS_H

/* PURE. /metrics: the service in Prometheus' text format (0.0.4). One name for a thing
 * and its unit in it, as their guidelines have it; jobs are a label, of so many jobs at
 * most that nobody fills a Prometheus by making up names. */

#include "rendezvous/refusals.h"
#include "rendezvous/tally.h"
#include "rendezvous/view.h"

#include "common/buf.h"

enum {
    METRICS_MAX_JOBS = 256, /* with series of their own; running ones first */
    METRICS_MAX_BYTES = 8 * 1024 * 1024,
};

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* What the shell knows beside. */
struct metrics_shell {
    bool is_ready, is_durable;
    uint32_t lease_ms;
    const struct refusals *refusals; /* NULL: nobody was asked for a key */
    uint64_t connections, agents, operators, store_clients, http_requests;
    uint64_t store_used, store_max; /* bytes of the jobs' key spaces */
    uint64_t started_ms;            /* wall clock */
    uint64_t cpu_us;                /* that this process has used */
    uint64_t resident;              /* bytes; 0: not known */
    uint64_t descriptors;           /* open ones; 0: not known */
};

void metrics_write(const struct view *v, const struct tally *t,
                   const struct metrics_shell *shell, struct buf *out);

#endif
