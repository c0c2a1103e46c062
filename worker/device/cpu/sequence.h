#ifndef WORKER_DEVICE_CPU_SEQUENCE_H
#define WORKER_DEVICE_CPU_SEQUENCE_H

/* A number that only grows, set by one thread and awaited by any: what a ticket
 * compares itself with. Waiters sleep on a futex; setting costs no system call while
 * none sleeps. */

#include <stdbool.h>
#include <stdint.h>

struct sequence {
    _Atomic uint64_t value;
    /* private */
    _Atomic uint32_t event; /* the futex: changes with each set */
    _Atomic uint32_t sleepers;
};

void sequence_set(struct sequence *s, uint64_t value);

/* True when `value` was reached, false after `timeout_ms` (negative: never). */
bool sequence_wait(struct sequence *s, uint64_t value, int timeout_ms);

/* Sleeps while *word is `expected`, at most `timeout_ms` (negative: no limit); may
 * return early. */
void futex_sleep(_Atomic uint32_t *word, uint32_t expected, int timeout_ms);
void futex_wake_all(_Atomic uint32_t *word);

#endif
