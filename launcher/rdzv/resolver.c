#include "launcher/rdzv/resolver.h"

#include "common/mem.h"

#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

enum { LIMIT_MS = 60000 }; /* most often the C library gives up before */

struct question {
    char *host; /* owned */
    char port[16];
    int error; /* of getaddrinfo … */
    struct addrinfo *found;
};

/* By a thread. */
static void look_up(void *data)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct question *q = data;

    q->error = getaddrinfo(q->host, q->port, &hints, &q->found);
}

static void release(void *data)
{
    struct question *q = data;

    if (q->found) {
        freeaddrinfo(q->found);
    }
    mem_free(q->host);
    mem_free(q);
}

struct aside *resolver_ask(struct uv_loop_s *loop, const char *host, int port,
                           void (*on_done)(void *arg, void *answer), void *arg)
{
    struct aside_config config = {.loop = loop,
                                  .limit_ms = LIMIT_MS,
                                  .work = look_up,
                                  .release = release,
                                  .on_done = on_done,
                                  .arg = arg};
    struct question *q = mem_zalloc(sizeof(*q));

    q->host = mem_strdup(host);
    (void)snprintf(q->port, sizeof(q->port), "%d", port);
    return aside_run(&config, q);
}

const struct addrinfo *resolver_found(const void *answer, const char **ret_why)
{
    const struct question *q = answer;

    *ret_why = !q              ? "no name server answers"
               : q->error != 0 ? gai_strerror(q->error)
                               : "";
    return q && q->error == 0 ? q->found : NULL;
}
