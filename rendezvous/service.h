#ifndef RENDEZVOUS_SERVICE_H
#define RENDEZVOUS_SERVICE_H

/* PURE. The whole rendezvous service but its sockets: sessions of agents, jobs, leases.
 * The shell (server.c) and the simulation (tests/sim) feed it messages and time; it
 * answers through a sink, during the call. Connections are numbers chosen by the shell,
 * not 0. */

#include "rendezvous/durable.h"
#include "rendezvous/refusals.h"

#include "common/err.h"
#include "common/msg.h"

struct identity;
struct job;
struct job_event;
struct record;
struct registry;
struct service;
struct tally;

struct service_sink {
    void *arg;
    /* `m` is borrowed for the call. Sending to a connection that is gone is ignored. */
    void (*send)(void *arg, uint64_t conn, const struct msg *m);
    /* Close after what was sent has left; service_closed is not called for it. */
    void (*close)(void *arg, uint64_t conn);
    /* What becomes of a job; NULL: nobody wants to know. */
    void (*note)(void *arg, const struct job_event *e);
    /* An agent answers what an operator wanted to know; NULL: nobody asks. */
    void (*inspected)(void *arg, uint64_t session, const struct msg_inspected *m);
    /* What has changed of the durable state (record.h); NULL: nothing is kept. */
    void (*save)(void *arg, const struct record *r);
    /* How many transactions are on the disk when what is sent now leaves, at least (a
     * server that is killed at any time finds as many, or more); NULL: nothing is
     * kept. */
    uint64_t (*kept)(void *arg);
    /* A hello was not this peer's to say; NULL: nobody counts. */
    void (*refused)(void *arg, uint64_t conn, enum refusal why, const char *text);
};

struct service_config {
    uint64_t cluster; /* random identity of this state */
    uint64_t boot;    /* higher at every start with that state … */
    uint64_t start;   /* … and random, not 0 (starts.h); 0: no state */
    uint64_t found;   /* transactions that it had before this one */
    bool ephemeral;
    uint32_t lease_ms;
    size_t store_max_bytes; /* of all jobs' key spaces together; 0: 1 GiB */
    size_t job_max_bytes;   /* of one job's; 0: all of it */
    uint64_t seed;          /* secret: of session numbers and hash tables */
    struct tally *tally;    /* borrowed: outlives us; NULL: nobody counts */
    struct service_sink sink;
};

struct service *service_new(const struct service_config *config);
void service_free(struct service *s); /* NULL allowed */

/* At the start, before all else: the records that were saved, one by one in the order of
 * record.h, then service_restored. The clock has not gone back since they were saved.
 * Every node known then is away until its agent is back, or a fresh term of its lease
 * is over (some have a little longer, so that not all ends come at once); rounds wait
 * so long. service_restored may save. Negative, with the reason: the state is damaged
 * (ERR_CORRUPT), or another version's (ERR_UNSUPPORTED); then the service is of no use
 * any more. What stores had comes back though they may have less now: until they have,
 * they are full. */
int service_restore(struct service *s, const struct record *r,
                    struct errmsg *msg) MUST_CHECK;
int service_restored(struct service *s, uint64_t now_ms, struct errmsg *msg) MUST_CHECK;

void service_opened(struct service *s, uint64_t conn, const char *peer_addr,
                    uint64_t now_ms);
/* Before its hello: who it is. NULL: it has shown no key; else borrowed until its end. */
void service_identify(struct service *s, uint64_t conn, const struct identity *who);
/* ERR_PROTOCOL: the shell closes the connection and calls service_closed. */
int service_message(struct service *s, uint64_t conn, const struct msg *m,
                    uint64_t now_ms) MUST_CHECK;
/* A STORE_CLOSE (seq 0) has come that waits behind requests: what its client asks for
 * in them need not be read any more. */
void service_forsake(struct service *s, uint64_t conn, const struct msg_store_close *m);
/* A sign of life other than a message. */
void service_heard(struct service *s, uint64_t conn, uint64_t now_ms);
void service_closed(struct service *s, uint64_t conn, uint64_t now_ms);

/* Judges leases and rounds; call at service_deadline (UINT64_MAX: nothing to wait for;
 * with sessions at least four times a lease). A call that comes later than a quarter of
 * the lease says that the service itself has been asleep: then everybody gets a fresh
 * term. */
void service_tick(struct service *s, uint64_t now_ms);
uint64_t service_deadline(const struct service *s);

/* By how much the last tick came later than that; 0: it was in time. */
uint64_t service_late_ms(const struct service *s);

/* How much may still be kept: with little space no job is begun, with less nothing is
 * stored, with hardly any commits are no history; what runs goes on. */
void service_set_space(struct service *s, enum durable_space space);

/* The job ends on all nodes, and is not started again (draining.h). `why` for people. */
void service_cancel(struct service *s, struct job *job, const char *why,
                    uint64_t now_ms);

/* It ends soon: what runs finishes its step and goes, and is told; no generation begins
 * here any more. `why` for people. */
void service_finish(struct service *s, const char *why, uint64_t now_ms);
/* Some generation has members that are still stopping. */
bool service_is_draining(const struct service *s);

/* Jobs that are neither done nor failed nor stopped, for the embedded server's end. */
size_t service_active_jobs(const struct service *s);

/* All jobs, for those who look on (view.h). */
const struct registry *service_jobs(const struct service *s);

/* Bytes that all jobs' key spaces have together, and what they may have now. */
size_t service_store_used(const struct service *s);
size_t service_store_max(const struct service *s);

/* Connections that have said hello. */
size_t service_sessions(const struct service *s);

/* As in the configuration, neither 0; the second for jobs that begin from now on. */
void service_set_store(struct service *s, size_t store_max_bytes, size_t job_max_bytes);

#endif
