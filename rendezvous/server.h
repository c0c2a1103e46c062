#ifndef RENDEZVOUS_SERVER_H
#define RENDEZVOUS_SERVER_H

/* The service on sockets: one libuv loop, any number of listeners. First bytes decide:
 * the agents' magic (msg.h), a TCPStore client (from loopback unless `insecure`; one
 * key space that belongs to no job; or as on_store says), anything else is closed. Used
 * by ctrun-rendezvous and, embedded, by ctrun. All functions on the loop's thread. */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct durable;
struct server;
struct tls_context;
struct uv_loop_s;

struct server_config {
    struct uv_loop_s *loop; /* borrowed: outlives the server */
    uint32_t lease_ms;      /* 0: 3000 */
    bool insecure;          /* raw store clients from anywhere */
    /* Who comes has to show a key of these, but store clients from loopback; borrowed:
     * outlives the server; NULL: nobody has to. */
    struct tls_context *tls;
    bool logs_jobs;         /* a line for what becomes of each job */
    bool legacy_b;          /* read legacy TCPStore clients as PyTorch 2.1 */
    size_t store_max_bytes; /* of all jobs, and of all others; 0: 1 GiB */
    size_t job_max_bytes;   /* of one job; 0: all of it */
    size_t max_connections; /* 0: 20000 */
    uint32_t accept_per_s;  /* of one network, but this machine's; 0: 500 */
    uint64_t history_ms;    /* so long events are shown; 0: whatever their age */
    /* Where state is kept (borrowed: outlives the server); NULL: nowhere. */
    const struct durable *durable;
    /* Not NULL: takes TCPStore clients over, wherever they come from: the descriptor, and
     * what was read from it so far. Calls nothing of the server. */
    void (*on_store)(void *arg, int fd, const uint8_t *bytes, size_t size);
    void *arg;
};

/* ERR_CORRUPT, ERR_UNSUPPORTED: what is kept cannot be taken up. */
int server_new(const struct server_config *config, struct server **ret,
               struct errmsg *msg) MUST_CHECK;

/* Binds and listens on a numeric address ("::" is dual-stack, with 0.0.0.0 as
 * fall-back); port 0 picks one. -EADDRINUSE: listener_name_holder says more. */
int server_listen(struct server *s, const char *addr, int port, int *ret_port,
                  struct errmsg *msg) MUST_CHECK;

/* Makes a Unix socket where `ctrun status` and the like find this server
 * (common/sockdir.h), once so much time has passed; it is gone at the end. Without one
 * they may ask by TCP. */
void server_receive_operators(struct server *s, uint64_t delay_ms);

/* Status and metrics over HTTP (routes.h), once, on an address of its own; errors as
 * above. `names`: by which this machine is known there beside its addresses; borrowed. */
struct server_http {
    const char *addr;
    int port;
    const char *const *names;
    size_t n_names;
};
int server_listen_http(struct server *s, const struct server_http *http, int *ret_port,
                       struct errmsg *msg) MUST_CHECK;

struct server_limits;
/* While it serves. A job's share is for those that begin from now on. */
void server_set_limits(struct server *s, const struct server_limits *limits);

/* For people. */
struct server_counts {
    size_t jobs, nodes, connections;
    uint64_t waits_ms; /* for a disk, since when nobody is answered; 0: it does not */
};
void server_count(const struct server *s, struct server_counts *ret);

/* True while a job here is neither done nor failed, or an agent is still connected. */
bool server_is_busy(const struct server *s);

/* It ends soon: what runs finishes its step and goes, and is told; no generation begins
 * here any more. Until server_is_draining is false there is somebody who has not gone. */
void server_finish(struct server *s, const char *why);
bool server_is_draining(const struct server *s);

/* Asynchronous: flushes what was sent (for a second at most), closes everything, calls
 * back once, and frees itself. */
void server_stop(struct server *s, void (*on_stopped)(void *arg), void *arg);

#endif
