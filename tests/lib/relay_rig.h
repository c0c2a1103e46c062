#ifndef TESTS_LIB_RELAY_RIG_H
#define TESTS_LIB_RELAY_RIG_H

/* A relay on real sockets: the test is the workers, and the service that they reach.
 * For the bodies of child_run: checks with CHECK. */

#include "launcher/store/relay.h"
#include "tests/lib/child.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/tcpstore.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <uv.h>

enum {
    RELAY_BOUND_MS = 60000,
    RELAY_GENERATION = 3,
    RELAY_MAX_HEARD = 256,
    RELAY_CLOSE = 1000, /* the op of a STORE_CLOSE */
};

/* What the service was sent: whole requests, and closes. */
struct relay_heard {
    uint32_t client;
    uint64_t seq;
    int op;
};

struct relay_rig {
    uv_loop_t loop;
    struct relay *relay;
    struct relay_heard heard[RELAY_MAX_HEARD];
    unsigned n_heard;
    unsigned n_acked; /* the test's */
};

/* It listens; relay_rig_serve: serves a round of these nodes. */
struct relay_rig *relay_rig_new(const char *addr);
void relay_rig_serve(struct relay_rig *r, const char *const *nodes, uint32_t n);

/* … on 127.0.0.1, of one node. */
struct relay_rig *relay_rig_open(void);
void relay_rig_close(struct relay_rig *r);

void relay_rig_turn(struct relay_rig *r); /* NULL: a worker in a process of its own */

#define TURN_UNTIL(r, cond)                            \
    do {                                               \
        uint64_t end_ms = clock_ms() + RELAY_BOUND_MS; \
        while (!(cond)) {                              \
            CHECK(clock_ms() < end_ms);                \
            relay_rig_turn(r);                         \
        }                                              \
    } while (0)

/* --- a worker's connection --- */

struct sockaddr_in relay_rig_v4(const char *text, int port);

/* From one address to another; -1: refused. Does not block afterwards. */
int relay_rig_connect(const char *from, const char *to, int port);

/* … to the rig, with the store's hello. */
int relay_rig_enter(const struct relay_rig *r, const char *from, const char *to);

/* Sends it all; what the relay does with it goes on meanwhile. `body` may be NULL. */
void relay_rig_ask(struct relay_rig *r, int fd, enum tcpstore_op op,
                   const struct buf *body);

void relay_rig_expect(struct relay_rig *r, int fd, const void *bytes, size_t size);
void relay_rig_expect_pong(struct relay_rig *r, int fd, uint32_t nonce);
bool relay_rig_has_ended(int fd);
void relay_rig_expect_end(struct relay_rig *r, int fd); /* closes it */

#endif
