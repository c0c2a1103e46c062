#ifndef TESTS_LIB_STATE_PLAY_H
#define TESTS_LIB_STATE_PLAY_H

/* The service's state on a disk of tests/lib/simdisk.h (which is registered before), at
 * work: turns by chance, each a transaction that is acknowledged; and what must be found
 * when the machine stops after so many calls of the disk. The functions assert. */

#include "rendezvous/state_db.h"
#include "tests/lib/simdisk.h"
#include "tests/lib/state_model.h"

enum { STATE_PLAY_ACKS = 2048 };

struct state_ack {
    size_t calls;             /* of the disk, when it was given */
    struct state_print print; /* what is kept from here on */
    uint64_t boot;
};

struct state_play {
    struct simdisk *disk;
    struct state_db *db;
    struct state_model model;
    struct state_ack acks[STATE_PLAY_ACKS];
    size_t n_acks;
    uint64_t chance;
    uint64_t now_ms;
};

bool state_play_is_soak(void);
uint64_t state_play_draw(struct state_play *p, uint64_t below);

/* Nothing is open yet; the disk is the play's from now on. */
struct state_play *state_play_new(struct simdisk *disk, uint64_t seed);
/* One of so many turns, on a new disk; every now and then it is closed and started. */
struct state_play *state_play_of(unsigned n_turns);
void state_play_free(struct state_play *p); /* its disk is in use */

/* The disk in use, at the play's time. */
int state_play_open(const struct state_play *p, struct state_db **ret,
                    struct errmsg *msg);
void state_play_start(struct state_play *p);
void state_play_turn(struct state_play *p);

/* The last acknowledged state behind so many calls; STATE_PLAY_ACKS: none. */
size_t state_play_last_ack(const struct state_play *p, size_t calls);

/* Whether this is what was acknowledged by then, or with what was on its way. */
bool state_play_is_whole(const struct state_play *p, size_t calls,
                         struct state_print found);

/* Opens what was found, which is whole, with a new boot number. */
struct state_db *state_play_reopen(const struct state_play *p, size_t calls,
                                   const char *where);

#endif
