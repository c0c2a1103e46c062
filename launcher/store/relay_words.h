#ifndef LAUNCHER_STORE_RELAY_WORDS_H
#define LAUNCHER_STORE_RELAY_WORDS_H

/* What is logged when a worker's store connection is closed on it: the worker hears only
 * that it was, for its protocol has no word for it. */

#include <stddef.h>
#include <stdint.h>

struct sockaddr;

struct relay_words {
    uint64_t
        full_until_ms; /* a full disk was told, and is not again before; 0: was not */
};

/* It does not read its replies, of which so many bytes lie. */
void relay_words_unread(const struct sockaddr *peer, size_t unread);

/* The disk of the service's state is full: once a minute. */
void relay_words_full(struct relay_words *w, uint64_t generation, uint64_t now_ms);

#endif
