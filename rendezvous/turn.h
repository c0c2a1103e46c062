#ifndef RENDEZVOUS_TURN_H
#define RENDEZVOUS_TURN_H

/* The server's turns where state is kept (durable.h): nothing that says what a turn of
 * the loop has decided leaves before it is on the disk.
 *
 *   a turn of the loop: input is taken, records are saved, replies gather
 *     │ prepare, check: is there anything to commit?
 *     ├─ no ──► the replies are sent, at once
 *     └─ yes ─► WAITING: no input is taken, nothing is sent ──committed──► as above
 *
 * So what comes while the disk is busy is one transaction, too. Meanwhile it is left in
 * the sockets, for as long as a disk should take: read when all is there it costs half
 * as many wake-ups. The loop's thread. */

#include "rendezvous/connection.h"
#include "rendezvous/durable.h"

struct history;
struct service;
struct tally;

struct turn_config {
    uv_loop_t *loop;               /* borrowed: outlives the turn */
    const struct durable *durable; /* borrowed, too */
    struct connection_pool *pool;  /* borrowed, too */
    struct tally *tally;           /* borrowed, too */
    void *arg;
    void (*on_settled)(void *arg); /* what is in memory is on the disk */
    void (*on_turn)(void *arg);    /* all was sent */
    void (*on_space)(void *arg, enum durable_space space);
};

struct turn {
    struct turn_config config; /* `durable` NULL: it was not begun */
    uv_prepare_t prepare;      /* behind the timers … */
    uv_check_t check;          /* … and behind the sockets of the same turn */
    uint64_t begun_ns;         /* when the commit that is waited for was */
    unsigned n_open;
    void (*on_ended)(void *arg);
};

/* From here on the pool sends nothing by itself. */
void turn_begin(struct turn *t, const struct turn_config *config);

/* What was decided is not on the disk yet. */
bool turn_is_waiting(const struct turn *t);
/* … for so long; 0: it is. */
uint64_t turn_waits_ms(const struct turn *t);

/* When no connection is left. Calls back once. */
void turn_end(struct turn *t, void (*on_ended)(void *arg));

/* Gives a new service and the history of its jobs the records that are kept. Negative,
 * with the reason, and what to do about it: they cannot be taken up. */
int turn_restore(const struct durable *durable, struct service *service,
                 struct history *history, uint64_t now_ms,
                 struct errmsg *msg) MUST_CHECK;

#endif
