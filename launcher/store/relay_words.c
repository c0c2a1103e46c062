#include "launcher/store/relay_words.h"

#include "launcher/rdzv/netaddr.h"

#include "common/log.h"

#include <arpa/inet.h>

enum { FULL_EVERY_MS = 60000 };

void relay_words_unread(const struct sockaddr *peer, size_t unread)
{
    char text[INET6_ADDRSTRLEN] = "";

    netaddr_format(peer, text, sizeof(text));
    log_warn("closed a worker's store connection: it does not read its replies",
             "peer=%s:%d unread_mib=%zu", text, netaddr_port(peer), unread >> 20);
}

void relay_words_full(struct relay_words *w, uint64_t generation, uint64_t now_ms)
{
    if (now_ms >= w->full_until_ms) {
        w->full_until_ms = now_ms + FULL_EVERY_MS;
        log_error("the disk of the rendezvous service's state is full: it takes no new "
                  "keys, and closes the store connection of a worker that stores one",
                  "generation=%llu", (unsigned long long)generation);
    }
}
