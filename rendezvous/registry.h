#ifndef RENDEZVOUS_REGISTRY_H
#define RENDEZVOUS_REGISTRY_H

/* PURE. The jobs of a service, by id: few enough that nobody fills its memory by making
 * up names. A job without sessions is idle; its nodes may come back and bring along
 * what they know of it, so that it does no harm to forget those that have been idle
 * longest when there are too many. */

#include "rendezvous/job.h"

#include "common/table.h"

enum {
    REGISTRY_MAX = 1024,
    REGISTRY_MAX_IDLE = 256,
};

struct entry {
    struct table_node by_id;
    struct job *job;     /* owned */
    size_t index;        /* in registry.entry */
    uint64_t idle_since; /* a count, not a time; 0: it has sessions */
};

struct registry {
    uint64_t seed;        /* of the hashes */
    struct table by_id;   /* of entries, owned … */
    struct entry **entry; /* … and listed */
    size_t n, n_idle;
    uint64_t n_idlings; /* so far */
    /* Before a job is forgotten; NULL: nobody wants to know. */
    void (*on_forget)(struct job *job);
};

void registry_init(struct registry *r, uint64_t seed);
void registry_release(struct registry *r);

/* NULL: there is none of that id. */
struct entry *registry_find(const struct registry *r, const char *id);

/* All of them by name, for people; mem_alloc'ed. */
struct entry **registry_sorted(const struct registry *r);

/* Makes room for one more, at the cost of the idlest; false when there is none. */
bool registry_make_room(struct registry *r);

/* Takes the job over; there is room, and none of its id. */
struct entry *registry_add(struct registry *r, struct job *job);

void registry_forget(struct registry *r, struct entry *entry);

/* It has no session any more, or has one again. The first may forget a job: this one or
 * another. */
void registry_set_idle(struct registry *r, struct entry *entry);
void registry_set_busy(struct registry *r, struct entry *entry);

#endif
