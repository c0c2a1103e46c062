#ifndef TESTS_LIB_RANKS_H
#define TESTS_LIB_RANKS_H

/* N forked ranks and a store for them.
 *
 * The parent serves a small TCPStore (VALIDATE, PING, SET, GET, ADD, WAIT, CANCEL_WAIT)
 * on loopback until every rank has ended, and kills what is left when the time is up. A
 * rank is a function whose result is its exit status; it checks with RANK_CHECK, since
 * cmocka's assertions work in the parent alone. */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS_MAX = 16 };

struct rank {
    int rank, world_size;
    int store_port;
    const void *arg; /* of ranks_run */
};

typedef int (*rank_body)(const struct rank *self);

/* The exit status of each: its code, or 128 + the signal. False if the time was up. */
bool ranks_run(int n, rank_body body, const void *arg, int status[RANKS_MAX]);

/* Ends the rank with status 1 and the place. */
#define RANK_CHECK(cond) \
    ((cond) ? (void)0 : rank_check_failed(__FILE__, __LINE__, #cond))

_Noreturn void rank_check_failed(const char *file, int line, const char *what);

#endif
