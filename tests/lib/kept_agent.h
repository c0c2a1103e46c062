#ifndef TESTS_LIB_KEPT_AGENT_H
#define TESTS_LIB_KEPT_AGENT_H

/* An agent of a service that keeps its state, as far as it matters what it knows and
 * says again after the service's restart. */

#include "common/msg.h"

enum { KEPT_SAID_MAX = 4, KEPT_BODY_MAX = 32 };

/* A message, as far as it is not the same each time. */
struct kept_word {
    enum msg_type type;
    uint64_t generation;
    uint64_t number; /* seq, or request */
    uint64_t step;
};

/* An agent, with one worker. */
struct kept_agent {
    uint64_t conn; /* 0: none */
    uint64_t session, boot, start, generation;
    uint64_t kept; /* transactions of that start, the most heard of */
    int32_t group_rank;
    bool is_running, has_resumed;
    bool must_stop, must_join; /* what it will do next */
    uint64_t n_adds;           /* in this generation, sent */
    struct kept_word asked;    /* without an answer yet; no type: nothing */
    struct kept_word said[KEPT_SAID_MAX];
    unsigned n_said; /* since its last ROUND: said again after a restart */
};

/* The whole message. `number` tells agents apart, of `n`; `body` is the caller's, for as
 * long as the message. */
struct kept_place {
    unsigned number, n;
    uint64_t cluster;
};
void kept_agent_fill(const struct kept_agent *a, const struct kept_place *place,
                     const struct kept_word *word, uint8_t body[KEPT_BODY_MAX],
                     struct msg *m);

#endif
