#ifndef RENDEZVOUS_CONNECTION_H
#define RENDEZVOUS_CONNECTION_H

/* The server's connections as movers of bytes: what they mean is the owner's business
 * (server.c). A pool holds them all, and bounds what they hold together.
 *
 *   OPEN ──connection_drain──► DRAINING ──all is sent, an agent has closed──► CLOSING
 *     └──────── connection_fail, the peer's end, a deadline ─────────────────────▲
 *
 * Input is handed to on_input as it comes; what it does not take is kept and handed in
 * again with more. Whoever sends requests without reading replies is behind: its owner
 * takes no more of them, and it is not read any more (is choked), so one connection
 * holds at most one request and one reply beyond its limit, which is low for all once
 * they hold half of what they may. An agent's connection carries many store clients,
 * which take turns (common/fairq.h): who is behind there is each client by itself
 * (connection_must_wait), the requests of those are put aside (`later`) up to a limit,
 * and what is not held up by them is taken. When all together hold too much, the one
 * that holds most is closed; an agent's only if no other holds anything. Nothing is
 * closed inside on_input: connection_fail marks, pool_flush (at the end of every turn)
 * closes. The loop's thread. */

#include "common/buf.h"
#include "common/closer.h"
#include "common/fairq.h"
#include "common/msg.h"
#include "common/table.h"
#include "common/tcpstore.h"

#include <uv.h>

struct connection;

enum {
    CONNECTION_CHOKED_AT = 256 * 1024,
    CONNECTION_LINGER_MS = 10 * 60 * 1000, /* an operator's, which reads nothing */
};
enum connection_kind { CONN_NEW, CONN_STORE, CONN_AGENT };
enum connection_state { CONN_OPEN, CONN_DRAINING, CONN_CLOSING };

/* Where replies must not leave before something else has happened (server.c: before
 * what they say is on the disk). */
enum pool_hold {
    HOLD_NOTHING, /* pool_flush sends, and closes */
    HOLD_OUTPUT,  /* … not, but pool_send and pool_go_on do */
    HOLD_ALL,     /* … nor is input handed over: it is kept */
};

struct pool_config {
    uv_loop_t *loop;       /* borrowed: outlives the pool */
    struct closer *closer; /* borrowed: counts the pool's handles */
    size_t max_connections;
    size_t max_buffered; /* of all connections together */
    uint64_t seed;       /* secret: of the queues' hash tables */
    /* It was accepted; nothing has come yet. */
    void (*on_opened)(void *arg, struct connection *c);
    /* The first byte of a TLS client has come: stream_secure, or connection_refuse. */
    void (*on_tls)(void *arg, struct connection *c);
    /* It has not shown a key of ours, as the end of a sentence about it. It ends. */
    void (*on_refused)(void *arg, struct connection *c, const char *text);
    /* Returns how many bytes were taken, or an error: the connection is closed. */
    int (*on_input)(void *arg, struct connection *c, const uint8_t *data, size_t size);
    /* The connection is being closed; its memory goes after the call. Once. */
    void (*on_gone)(void *arg, struct connection *c, int why);
    void *arg;
};

struct connection_pool {
    struct pool_config config;
    struct table connections; /* by id */
    struct connection *dirty; /* to be flushed */
    size_t buffered;
    uint64_t last_id;
    size_t n_unknown;
    size_t crowd; /* the most connections, since their memory was given back last */
    uint64_t heard_id; /* the oldest unknown connection comes after it */
    uint8_t *scratch;  /* owned: where reads go … */
    uint8_t *plain;    /* owned: … and what TLS makes of them; NULL: nothing yet */
    uv_timer_t sweep;  /* looks for deadlines that have passed … */
    uint64_t swept_ms; /* … and did last */
    bool is_stopping;
    enum pool_hold hold;
};

struct connection {
    struct table_node node;
    struct connection_pool *pool; /* borrowed: outlives its connections */
    uint64_t id;
    enum connection_kind kind; /* the owner's, from here … */
    bool is_loopback;
    bool is_local;     /* by a Unix socket */
    bool is_operator;  /* it has said OPERATOR */
    bool is_dismissed; /* the owner needs not be told of its end */
    bool is_greeting;  /* its first byte has come */
    bool is_known;     /* connection_know: an agent's hello, a store's dialect */
    bool lingers;      /* who reads may pause: CONNECTION_LINGER_MS until it has all */
    char peer[MSG_ADDR_MAX];
    struct tcpstore_parser parser;
    struct fairq later;  /* requests put aside, to be taken in turns … */
    bool is_newest_next; /* … from both ends; … to here */

    /* private */
    enum connection_state state;
    int why; /* the first error; 0: none */
    bool is_dirty;
    bool is_choked;
    bool is_writing;
    bool is_closed;  /* CLOSING, and libuv has let go of it */
    bool is_shut;    /* DRAINING: our end was said; the peer's is awaited */
    bool is_refused; /* … is, for it is to read why */
    bool has_held;   /* input has come while it was not handed over … */
    int held_end;    /* … and then the connection's end; 0: not */
    size_t choke_at; /* bytes of output */
    size_t max_later;
    uint64_t deadline_ms; /* 0: none */
    uint64_t n_queued;    /* bytes of output so far … */
    uint64_t n_taken; /* … and how many the peer had when connection_took was asked */
    struct connection *next_dirty;
    struct buf in;              /* not taken yet */
    struct buf out;             /* not given to the socket yet */
    struct fairq bulk;          /* … and frames that let `out` go first */
    struct buf sent;            /* being written */
    const struct conn_ops *ops; /* stream.h: tcp or tls */
    struct tls_pump *tls;       /* owned; NULL: tcp */
    struct buf wire;            /* … sealed, not given to the socket yet */
    size_t charged;             /* what `buffered` has of it: the memory of all these */
    uv_tcp_t tcp;
    uv_write_t write;
};

void pool_init(struct connection_pool *p, const struct pool_config *config);

/* Sends what is queued, closes what failed. At the end of every turn in which
 * connections were used from outside of on_input and on_gone. */
void pool_flush(struct connection_pool *p);

void pool_set_hold(struct connection_pool *p, enum pool_hold hold);

/* With HOLD_OUTPUT, in turn until there is nothing left to do: sends all that is queued;
 * then takes input that was kept, and closes what failed. False: nothing is left. What
 * either of them queues is sent by the next pool_send. */
void pool_send(struct connection_pool *p);
bool pool_go_on(struct connection_pool *p);

/* Drains every connection within `ms`, without on_gone, then closes the pool's own
 * handle; pool_release when the closer has fired. Nothing may be accepted any more. */
void pool_stop(struct connection_pool *p, uint64_t ms);
void pool_release(struct connection_pool *p);

/* Closes one connection that holds memory; pool_flush calls it. */
void pool_shed(struct connection_pool *p);

/* A connection's memory was freed: when most of a crowd have gone, the system gets theirs
 * back (the heap would keep it: small pieces that live on lie between). */
void pool_settle(struct connection_pool *p);

/* PURE. Whether that is now: `n` are left of at most *crowd, which is brought up to
 * date. */
bool pool_crowd_has_gone(size_t *crowd, size_t n);

/* NULL when there is none (any more). */
struct connection *pool_find(const struct connection_pool *p, uint64_t id);

/* The next of all connections; NULL: the first. */
struct connection *pool_next(const struct connection_pool *p,
                             const struct connection *c);

/* Takes the descriptor over, on errors too. When there are too many connections, the
 * oldest that is not known yet makes room (it fails with ERR_BUSY); without one:
 * ERR_BUSY. */
int connection_accept(struct connection_pool *p, int fd,
                      const struct sockaddr *peer) MUST_CHECK;

/* Fails with ERR_TIMEOUT unless it is cleared (0) before. A draining connection has a
 * deadline of its own, which stays. */
void connection_set_deadline(struct connection *c, uint64_t deadline_ms);

/* It has said who it is: it need not make room for others any more, and its deadline is
 * no more. */
void connection_know(struct connection *c);

/* Closes after what was sent has left; what still comes in is thrown away. */
void connection_drain(struct connection *c);
void connection_fail(struct connection *c, int why);
void connection_mark_dirty(struct connection *c); /* something is to be done for it */

/* Drains, without on_gone, and leaves the peer the time to read what was sent. */
void connection_refuse(struct connection *c);

/* For stream.c: plain bytes have come. */
int connection_take(struct connection *c, const uint8_t *data, size_t size) MUST_CHECK;

/* For everybody: a host that has vanished is noticed, within minutes. */
int connection_watch(struct connection *c) MUST_CHECK;

/* For agents. Short keep-alive and user time-outs: a vanished host is noticed within
 * seconds, or two leases, where those are long: that packets are lost ends no connection
 * before its agent's lease. Little unsent and unread in the kernel: what is urgent does
 * not wait there. */
void connection_watch_closely(struct connection *c, uint32_t lease_ms);

/* … but not for operators: a person reads what they print (less), and may pause for
 * CONNECTION_LINGER_MS. */
void connection_watch_patiently(struct connection *c);

#endif
