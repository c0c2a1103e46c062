#ifndef LAUNCHER_EVENTS_H
#define LAUNCHER_EVENTS_H

/* PURE. --event-log-handler=console: torchrun's events, a line of JSON each. Its fields
 * and states: a worker's START, SUCCEEDED, FAILED, TERMINATED (it was stopped), and at
 * the end the agent's SUCCEEDED or FAILED. More than torchrun: the ends of workers of
 * every start are told, not of the last only, and the timestamp (ms) is set. */

#include "launcher/topology.h"

#include <stdbool.h>

struct event {
    const char *state;
    uint64_t wall_ms;
    const struct topology *topology;   /* NULL: no round was ever there */
    const struct event_worker *worker; /* NULL: the agent's own */
    const char *run_id, *role, *host, *program, *backend;
    uint64_t run_time_s; /* of ctrun, when it has ended; else 0, as in torchrun */
    uint32_t restarts;
    const char *raw_error; /* the worker's exception; "": none */
};

struct event_worker {
    uint32_t local_rank;
    uint32_t pid;  /* 0: not told, */
    int exit_code; /* and not this either; -signal, as Python has it */
};

/* With its newline, mem_alloc'ed. */
char *event_format(const struct event *e);

#endif
