#ifndef RENDEZVOUS_HTTP_SERVER_H
#define RENDEZVOUS_HTTP_SERVER_H

/* Connections of those who look: one request at a time on each, answered at once. What
 * a request means is the owner's business (routes.h).
 *
 * Where `may_answer` says so an answer waits, for as long as that takes.
 *
 * It must not cost the agents of the same loop anything: few connections, little memory,
 * and after an answer that took its time nobody here is answered for some times as
 * long. Who does not say what he wants within 5 s, or does not take the answer, is
 * closed. The loop's thread. */

#include "rendezvous/http.h"

#include "common/err.h"

struct http_server;
struct uv_loop_s;

enum {
    HTTP_MAX_CONNECTIONS = 64,
    HTTP_PATIENCE_MS = 5000,
    HTTP_MAX_ANSWER = 16 * 1024 * 1024,  /* one */
    HTTP_MAX_PENDING = 32 * 1024 * 1024, /* all together, before 503 */
    HTTP_REST = 4, /* an answer that took n ms is followed by so many times n of rest */
};

struct http_server_config {
    struct uv_loop_s *loop; /* borrowed: outlives the server */
    /* Appends a whole answer (head and body) to `out`; `status` as http_parse has it. */
    void (*answer)(void *arg, const struct http_request *q, int status,
                   struct buf *out);
    /* NULL: always. False: it waits for http_server_go_on. */
    bool (*may_answer)(void *arg, const struct http_request *q);
    void *arg;
};

/* Listens; port 0 picks one. -EADDRINUSE as listener_open. */
int http_server_open(const struct http_server_config *config, const char *addr,
                     int port, struct http_server **ret, struct errmsg *msg) MUST_CHECK;
int http_server_port(const struct http_server *s);
uint64_t http_server_requests(const struct http_server *s); /* so far */

/* Requests that were waiting may be answered. Costs nothing when there are none. */
void http_server_go_on(struct http_server *s);

/* Asynchronous: closes everything at once, frees the server, then calls back. */
void http_server_close(struct http_server *s, void (*on_closed)(void *arg), void *arg);

#endif
