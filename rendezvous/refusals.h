#ifndef RENDEZVOUS_REFUSALS_H
#define RENDEZVOUS_REFUSALS_H

/* PURE. Who was not let in: all are counted, and each peer is worth a line of the log
 * once in REFUSALS_AGAIN_MS for the same reason, whatever it does meanwhile. */

#include "rendezvous/bucket.h"

#include "common/msg.h"

enum refusal {
    REFUSAL_PLAIN,     /* it has shown no key, where one is asked for */
    REFUSAL_NO_SECRET, /* it speaks TLS, and there is no key here */
    REFUSAL_KEY,       /* its secret or certificate is none of ours, or has expired */
    REFUSAL_ROLE,      /* what it asks for is not its to do … */
    REFUSAL_OWNER, /* … and a job of another secret, an everyday mistake, hides none */
    REFUSAL_REPLAY, /* a session of somebody else */
    REFUSAL_COUNT,
};

enum {
    REFUSALS_PEERS = 128,
    REFUSALS_AGAIN_MS = 600000,
    REFUSALS_LINES_PER_S = 10, /* however many peers … */
    REFUSALS_LINES_AT_ONCE = 20,
};

struct refusals {
    uint64_t count[REFUSAL_COUNT];
    struct {
        char peer[MSG_ADDR_MAX];
        enum refusal why;
        uint64_t logged_ms; /* 0: nobody */
        uint64_t n_hidden;  /* since */
    } seen[REFUSALS_PEERS];
    struct bucket lines;
};

/* True: it is worth a line; *ret_hidden such were not, since the last one. */
bool refusals_note(struct refusals *r, const char *peer, enum refusal why,
                   uint64_t now_ms, uint64_t *ret_hidden);

/* For metrics: "no_key", "wrong_key" … */
const char *refusal_name(enum refusal why);

#endif
