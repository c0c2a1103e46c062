#include "rendezvous/gate.h"

#include "rendezvous/event.h"
#include "rendezvous/limits.h"
#include "rendezvous/peer.h"

#include "common/log.h"

#include <sys/socket.h>

void gate_init(struct gate *g, uint64_t seed, uint32_t accept_per_s)
{
    *g = (struct gate){.accept_per_s = accept_per_s, .accepts.seed = seed};
}

bool gate_admits(struct gate *g, const struct sockaddr *peer, uint64_t now_ms)
{
    return peer->sa_family == AF_UNIX || peer_is_loopback(peer) ||
           buckets_take(&g->accepts, peer_network(peer), g->accept_per_s,
                        g->accept_per_s * LIMIT_ACCEPT_BURST_S, now_ms);
}

void gate_log_peer(struct gate *g, const char *peer, const char *what, uint64_t now_ms)
{
    if (g->logged_ms != 0 && now_ms - g->logged_ms < LIMIT_LOG_PEER_MS) {
        g->n_unlogged++;
        return;
    }
    log_warn(what, "peer=%s more=%u", peer, g->n_unlogged);
    g->logged_ms = now_ms;
    g->n_unlogged = 0;
}

void gate_log_event(struct gate *g, const struct job_event *e, uint64_t now_ms)
{
    if (!bucket_take(&g->events, LIMIT_EVENTS_PER_S, LIMIT_EVENTS_BURST, now_ms)) {
        g->n_hidden++;
        return;
    }
    if (g->n_hidden > 0) {
        log_warn("jobs had more to tell than is written here", "lines=%u", g->n_hidden);
        g->n_hidden = 0;
    }
    event_log(e);
}
