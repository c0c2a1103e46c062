#ifndef RENDEZVOUS_RECORD_H
#define RENDEZVOUS_RECORD_H

/* PURE. What of the service's state is durable, as records: what the core hands out
 * while it changes (service_sink.save), what state.c keeps, what service_restore is
 * given at the next start. A record is a name (kind, job, generation, key) and a value;
 * one of the same name replaces it.
 *
 *   kind      job  generation  key                      value
 *   JOB       id   0           -                        struct job, as record.c has it
 *   NODE      id   0           session u64              one of its nodes
 *   END       id   0           rank u32                 RANK_ENDED of what drains
 *   KEY       id   g           the store's key          its value
 *   QUEUE     id   g           the store's key, u64 n   the item pushed as the nth
 *   CLIENT    id   g           session u64, client u32  last request and its reply
 *   FINISHED  id   0           -                        how a forgotten job ended
 *   COMMIT    id   g           run u32, step u64        hash, wall time: history
 *   EVENT     id   g           number u64               a line of history, JSON
 *
 * Values are little-endian fields in the order of their schema (record.c), behind a u8
 * schema version. Everything that a turn of the loop saves is one transaction: after a
 * crash all of it is there or nothing. Replies of that turn leave after it. */

#include "common/msg.h"

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
    RECORD_KIND_COUNT,
};

enum record_act {
    RECORD_PUT,
    RECORD_DROP,            /* the one record */
    RECORD_DROP_GENERATION, /* KEY, QUEUE and CLIENT of (job, generation) */
    RECORD_DROP_JOB,        /* all of the job but FINISHED, COMMIT and EVENT */
};

struct record {
    enum record_act act;
    enum record_kind kind;
    const char *job;
    uint64_t generation;
    struct bytes key;
    struct bytes value;
};

#endif
