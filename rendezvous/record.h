#ifndef RENDEZVOUS_RECORD_H
#define RENDEZVOUS_RECORD_H

/* PURE. What of the service's state is durable, as records: what the core hands out
 * while it changes (service_sink.save), what state.c keeps, what service_restore is
 * given at the next start. A record is a name (kind, job, generation, key) and a value;
 * one of the same name replaces it.
 *
 *   kind      job  generation  key                      value
 *   JOB       id   0           -                        what was decided in it
 *   NODE      id   0           session u64              one of its nodes
 *   END       id   g           rank u32                 u8, how it ended (enum how)
 *   KEY       id   g           the store's key          its value
 *   QUEUE     id   g           the store's key, u64 n   the item pushed as the nth
 *   CLIENT    id   g           session u64, client u32, a request and its reply
 *                              slot u8
 *   FINISHED  id   0           -                        how a forgotten job ended
 *   COMMIT    id   g           run u32, step u64        the manifest's hash: history
 *   EVENT     id   g           number u64               a line of history, JSON
 *   CAUSE     id   0           -                        the first cause, crash loops
 *   MEMBERS   id   0           -                        who was in its generations
 *   FLAPPERS  id   0           -                        who was lost how often
 *   REPORT    id   0           -                        why the last generation ended
 *   CURVE     id   0           number u64               its loss, by steps: history
 *   PACE      id   g           -                        how long a step takes in it
 *   START     ""   0           boot u64                 a start of the service (starts.h)
 *
 * Values of KEY and QUEUE are the bytes themselves; COMMIT's is text; those of EVENT are
 * made and read by who keeps history; all others are little-endian fields in the order of
 * their schema (record_fields.h), behind its u8 version. Integers of keys are
 * big-endian, so that names in the order of memcmp are in that of their numbers.
 *
 * Everything that a turn of the loop saves is one transaction: after a crash all of it
 * is there or nothing. Replies of that turn leave after it. At the start the records
 * are given in the order of (kind, job, generation, key), texts and keys compared as
 * bytes (the shorter of two with a common beginning first); COMMIT, EVENT and CURVE
 * may be left out. What is not dropped stays. */

#include "common/msg.h"

enum {
    RECORD_KEY_MAX = 8192 + 8, /* bytes: TCPStore's longest, and a number */
    RECORD_DRAINED_MAX = 256,
};

enum record_kind {
    RECORD_JOB = 1,
    RECORD_NODE,
    RECORD_END,
    RECORD_KEY,
    RECORD_QUEUE,
    RECORD_CLIENT,
    RECORD_FINISHED,
    RECORD_COMMIT,
    RECORD_EVENT,
    RECORD_CAUSE,
    RECORD_MEMBERS,
    RECORD_FLAPPERS,
    RECORD_REPORT,
    RECORD_CURVE,
    RECORD_PACE,
    RECORD_START,
    RECORD_KIND_COUNT,
};

enum record_act {
    RECORD_PUT,
    RECORD_DROP,            /* the one record; one that is not there is no error */
    RECORD_DROP_GENERATION, /* END, KEY, QUEUE and CLIENT of (job, generation) */
    RECORD_DROP_JOB,        /* all of the job but FINISHED, COMMIT, EVENT, CURVE */
};

struct record {
    enum record_act act;
    enum record_kind kind; /* of PUT and DROP */
    const char *job;
    uint64_t generation;
    struct bytes key;   /* data may be NULL where size is 0 */
    struct bytes value; /* of PUT; data may be NULL where size is 0 */
};

#endif
