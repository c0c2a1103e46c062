#ifndef TESTS_LIB_SIM_H
#define TESTS_LIB_SIM_H

/* A virtual clock, a heap of events, a seeded generator, and a hash of all that
 * happened: the same seed gives the same hash. SIM_TRACE=1 prints the notes as they
 * come. */

#include "common/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*sim_cb)(void *arg, uint64_t tag);

struct sim_event {
    uint64_t at_ms;
    uint64_t order; /* of those at the same time: first come, first served */
    sim_cb cb;
    void *arg;
    uint64_t tag;
};

struct sim {
    uint64_t now_ms;
    uint64_t hash;
    bool is_traced;
    /* private */
    uint64_t rng, last_order;
    struct sim_event *heap; /* owned */
    size_t n, capacity;
};

void sim_init(struct sim *s, uint64_t seed);
void sim_release(struct sim *s);

void sim_at(struct sim *s, uint64_t at_ms, sim_cb cb, void *arg, uint64_t tag);
void sim_after(struct sim *s, uint64_t delay_ms, sim_cb cb, void *arg, uint64_t tag);

/* The event at hand comes again at a later time, before younger ones of that time. */
void sim_put_off(struct sim *s, const struct sim_event *event, uint64_t at_ms);

/* Takes the next event off and sets the clock; false when there is none. */
bool sim_next(struct sim *s, struct sim_event *ret);

uint64_t sim_random(struct sim *s, uint64_t below);               /* 0 … below - 1 */
uint64_t sim_between(struct sim *s, uint64_t low, uint64_t high); /* both included */
bool sim_chance(struct sim *s, unsigned percent);

void sim_note(struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
