#ifndef RENDEZVOUS_OPERATOR_H
#define RENDEZVOUS_OPERATOR_H

/* PURE. Those who ask and steer: `ctrun status`, `cancel` … An operator's connection is
 * told by WELCOME which server this is, asks once (ASK), gets ANSWER with JSON, and is
 * closed:
 *
 *   status ps history   one object (view.h)
 *   events              one object a line; `follow`: until the job's end, if one is named
 *   logs                one object a line of a rank's: {"rank", "stream", "text",
 *                       "next"}; `follow`: until the job's end
 *   cancel drain        one object that says what was done
 *   drain_one           … or, where several nodes are meant, says which: nothing is done
 *   drainable           which nodes drain means: nothing is done
 *
 * Who follows may come again, after a restart of ours, too, and say where it stands: by
 * the number of the last event, or by the generation and the "next" of each stream.
 *
 * An exit code other than 0 comes with a text for people instead. Operators hold no
 * lease, and nothing waits for them: there are few of them, and what one does not read
 * costs it its connection (the shell's limit) or, of a log, is not asked for; ranks are
 * not told to it until it does. */

#include "common/msg.h"

/* INSPECT's request numbers from here on are ours. */
#define OPERATOR_REQUESTS (1ULL << 63)

struct history;
struct identity;
struct operators;
struct service;

enum {
    OPERATORS_MAX = 64,
    OPERATORS_OF_ONE = OPERATORS_MAX / 4,     /* who sees an owner's jobs alone … */
    OPERATORS_OF_OWNERS = OPERATORS_MAX - 16, /* … of all owners: the rest sees all */
    OPERATOR_MAX_OUT = 128 * 1024 * 1024,     /* an answer, for the shell */
    OPERATOR_PIECE = 128 * 1024,
    OPERATOR_MAX_STREAMS = 2560 * 1024,    /* bytes: where it stands in each log … */
    OPERATORS_MAX_HELD = 32 * 1024 * 1024, /* … and lines before their turn, of all */
};

struct operators_config {
    struct service *service;       /* borrowed: outlives us */
    const struct history *history; /* borrowed: outlives us */
    struct msg_welcome welcome;    /* what they are told */
    void *arg;
    void (*send)(void *arg, uint64_t conn, const struct msg *m);
    void (*close)(void *arg, uint64_t conn); /* after what was sent has left */
    bool (*is_behind)(void *arg, uint64_t conn);
};

struct operators *operators_new(const struct operators_config *config);
void operators_free(struct operators *o); /* NULL allowed */

/* A connection has begun with OPERATOR, of somebody who has shown that key (NULL: none
 * is asked for here). Who has a job's secret sees and steers the jobs that were begun
 * with it, and no others: of those there is a place for so many, lest they keep out who
 * could end them. False: it was refused, and told so. */
bool operators_open(struct operators *o, uint64_t conn, const struct msg_operator *m,
                    const struct identity *who);

/* The shell has reason to refuse it: says so, with EXIT_RENDEZVOUS. */
void operators_refuse(const struct operators *o, uint64_t conn, const char *why);

/* ERR_PROTOCOL: the shell closes the connection and calls operators_closed. */
int operators_message(struct operators *o, uint64_t conn, const struct msg *m,
                      uint64_t now_ms) MUST_CHECK;
void operators_closed(struct operators *o, uint64_t conn);

/* All are closed from here on, and no call says so of each. */
void operators_stop(struct operators *o);

/* An agent answers what was asked of it for an operator. */
void operators_inspected(struct operators *o, uint64_t session,
                         const struct msg_inspected *m, uint64_t now_ms);

/* After anything that may have changed a job, and at operators_deadline (UINT64_MAX:
 * nothing to wait for): goes on with what is followed. */
void operators_go_on(struct operators *o, uint64_t now_ms);
uint64_t operators_deadline(const struct operators *o);

#endif
