#ifndef LAUNCHER_STORE_RELAY_H
#define LAUNCHER_STORE_RELAY_H

/* The store as one generation's workers see it: a listener of the agent, whose
 * connections are carried over the agent's one connection to the service
 * (relay_flow.h).
 *
 *   relay_new    bound and listening, so that early workers of other nodes wait in the
 *                backlog; the port is known
 *   relay_serve  the round is known: accept, admit, relay
 *   relay_stop   listener and connections close; it frees itself once they have
 *
 * Bounds. Unacknowledged (kept to be sent again): a connection that holds 4 MiB is not
 * read; past 64 MiB of all together, none that holds more than 64 KiB with what it is
 * about to ask; past 144 MiB, none. So all hold at most that and one request, and a few
 * that pile up requests do not keep the others from theirs. Replies that are not read:
 * 64 MiB of a connection, 256 MiB of all. A request that has not come whole: of each
 * connection one, which the wire bounds.
 *
 * Who may come in: relay_admission.h. Loop thread only. */

#include "common/err.h"
#include "common/msg.h"

struct uv_loop_s;
struct relay;

struct relay_config {
    struct uv_loop_s *loop; /* borrowed: outlives the relay */
    const char *addr;       /* numeric; "" for 127.0.0.1 only, else that one too */
    void *arg;
    void (*send)(void *arg, const struct msg *m); /* to the service */
};

int relay_new(const struct relay_config *config, struct relay **ret,
              struct errmsg *msg) MUST_CHECK;
int relay_port(const struct relay *r);

/* `nodes`: those that the agent knows of the round. */
int relay_serve(struct relay *r, uint64_t generation, const struct msg_node *nodes,
                uint32_t n, struct errmsg *msg) MUST_CHECK;

/* Takes a worker's connection over that came elsewhere, with what was read from it. A
 * relay that does not serve yet closes it: PyTorch's clients try again. */
void relay_adopt(struct relay *r, int fd, const uint8_t *bytes, size_t size);

/* The service's STORE_REPLY: on to the worker that waits for it. One of another
 * generation, or for a worker that is gone, is dropped. */
void relay_reply(struct relay *r, const struct msg_store_reply *m);

/* The same service again, on a new connection: what it has not acknowledged is sent
 * again, in order. Ends a relay_pause. */
void relay_resend(struct relay *r);

/* The connection to the service is behind (or no more): workers that hold more than
 * little are not read meanwhile. */
void relay_pause(struct relay *r, bool is_paused);

void relay_stop(struct relay *r); /* NULL allowed; frees itself, the loop runs on */

#endif
