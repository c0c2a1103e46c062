#ifndef LAUNCHER_RDZV_RDZV_CLIENT_H
#define LAUNCHER_RDZV_RDZV_CLIENT_H

/* The agent's connection to the rendezvous service, and the service itself where it is
 * this node's to serve (rdzv_serving.h): it is bound at every (re)connect; who binds,
 * serves (embed.h), and is a client of itself. Not so once a durable service was there:
 * its state is its own, and it comes back.
 *
 *   rdzv_client_connect: resolve → ours? bind → connect → magic → on_connected
 *   then on_message for each frame, until on_disconnected; then connect again
 *
 * Where one node is all and the job has no name, a port that another ctrun has is that
 * one's job's: this node serves itself on another, as with standalone.
 *
 * One conversation at a time. Callbacks come from the loop, never from inside a call,
 * except on_pause. Loop thread only. */

#include "launcher/agent.h"
#include "launcher/options/options.h"

#include "common/err.h"
#include "common/msg.h"

struct keys;
struct uv_loop_s;
struct rdzv_client;

struct rdzv_client_config {
    struct uv_loop_s *loop; /* borrowed: outlives the client */
    const char *host;       /* borrowed; "" with standalone */
    int port;
    bool standalone;    /* serve on 127.0.0.1, any port, in any case */
    uint32_t max_nodes; /* 1: nobody else will come */
    enum rdzv_serving serving;
    bool is_static;    /* the workers come to the endpoint, too: to on_store */
    bool is_anonymous; /* the job was not named: others at the endpoint are not it */
    struct keys *keys; /* borrowed: outlives the client */
    void *arg;
    /* `taken`: as agent_connected has it. */
    void (*on_connected)(void *arg, const char *taken);
    void (*on_failed)(void *arg, const char *text);
    void (*on_port_taken)(void *arg, const char *text, const char *taken);
    void (*on_impossible)(void *arg, const char *text);
    /* Another job has the endpoint: this one is at another, of this host alone. */
    void (*on_moved)(void *arg, const char *endpoint);
    void (*on_refused)(void *arg, const char *text);   /* one side by the other */
    int (*on_message)(void *arg, const struct msg *m); /* < 0: drop the connection */
    void (*on_disconnected)(void *arg, enum agent_loss loss);
    void (*on_store)(void *arg, int fd, const uint8_t *bytes, size_t size);
    void (*on_pause)(void *arg, bool is_paused); /* so many bytes wait to be sent */
};

int rdzv_client_new(const struct rdzv_client_config *config, struct rdzv_client **ret,
                    struct errmsg *msg) MUST_CHECK;
void rdzv_client_connect(struct rdzv_client *c);

/* Drops the connection at once, or the attempt; no callback comes from it any more. */
void rdzv_client_drop(struct rdzv_client *c);

/* Without a connection the message is dropped. */
void rdzv_client_send(struct rdzv_client *c, const struct msg *m);

bool rdzv_client_serves(const struct rdzv_client *c); /* the service runs here */

/* For what the attempt under way waits, for people; "" when there is none. */
void rdzv_client_describe(const struct rdzv_client *c, char *ret, size_t size);

/* Who holds the port that could not be bound (on_connected's `taken`). Slow. */
void rdzv_client_name_holder(const struct rdzv_client *c, char *ret, size_t size);

/* The numeric address of this host under which the other nodes reach it. */
void rdzv_client_local_addr(const struct rdzv_client *c, char ret[MSG_ADDR_MAX]);

/* How long a service that runs here stays up, at most: until the other agents have gone
 * or, where this node leaves a job that goes on, until they have stopped and were
 * told. */
struct rdzv_linger {
    uint64_t ms;
    bool is_leaving;
};

/* Asynchronous: flushes, closes. Frees itself after the callback. */
void rdzv_client_stop(struct rdzv_client *c, const struct rdzv_linger *linger,
                      void (*on_stopped)(void *arg), void *arg);

#endif
