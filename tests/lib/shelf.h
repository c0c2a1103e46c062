#ifndef TESTS_LIB_SHELF_H
#define TESTS_LIB_SHELF_H

/* A disk for the service's records, in memory: what was committed, sorted by name, and
 * a turn of the loop that is not committed yet, and may be lost. */

#include "rendezvous/record.h"
#include "rendezvous/service.h"
#include "rendezvous/starts.h"

struct history;
struct shelf_record;

struct shelf {
    struct shelf_record **record; /* owned, sorted */
    size_t n, capacity;
    struct shelf_record **turn; /* owned, as they came */
    size_t n_turn, turn_capacity;
    size_t n_saved, bytes_saved; /* so far, of all turns */
    uint64_t n_commits;
};

/* Zeroed: empty. */
void shelf_release(struct shelf *s);

/* As service_sink.save has it, with the shelf as `arg`. */
void shelf_save(void *arg, const struct record *r);
void shelf_commit(struct shelf *s);
/* As service_sink.kept has it, too. */
uint64_t shelf_kept(const struct shelf *s);
/* The service has taken what it found: a transaction of the start's own. */
void shelf_begin(struct shelf *s, const struct start *now);
void shelf_copy(struct shelf *to, const struct shelf *from); /* what was committed */
void shelf_lose(struct shelf *s); /* the turn never happened */

/* Gives all that was committed to a fresh service and its history (NULL: none), as
 * turn_restore does. */
int shelf_restore(const struct shelf *s, struct service *service,
                  struct history *history, uint64_t now_ms,
                  struct errmsg *msg) MUST_CHECK;

/* The ith record (in order); NULL: there are not so many. */
const struct record *shelf_at(const struct shelf *s, size_t i);
size_t shelf_count(const struct shelf *s, enum record_kind kind);

#endif
