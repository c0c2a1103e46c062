/* 1. /proc tells the holder's program, if we may look at it; 2. else the holder is
 * asked: a rendezvous answers a hello of version 0 with REFUSED, whatever its own. */

#include "rendezvous/holder.h"

#include "rendezvous/peer.h"

#include "common/clock.h"
#include "common/listener.h"
#include "common/mem.h"
#include "common/msg.h"
#include "common/portowner.h"
#include "common/str.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWER_MS = 1000, MAX_HOST = 256 };

static bool parse(const char *addr, int port, struct sockaddr_storage *ret)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    if (peer_parse(addr, ret) < 0) {
        return false;
    }
    if (ret->ss_family == AF_INET) {
        memcpy(&v4, ret, sizeof(v4));
        v4.sin_port = htons((uint16_t)port);
        memcpy(ret, &v4, sizeof(v4));
    } else {
        memcpy(&v6, ret, sizeof(v6));
        v6.sin6_port = htons((uint16_t)port);
        memcpy(ret, &v6, sizeof(v6));
    }
    return true;
}

static bool say_hello(int fd)
{
    struct msg *m = mem_zalloc(sizeof(*m)); /* of version 0, which there never was */
    struct buf out;
    bool is_sent;

    m->type = MSG_HELLO;
    buf_init(&out, MSG_MAX_FRAME);
    is_sent = buf_append(&out, MSG_MAGIC, MSG_MAGIC_SIZE) == 0 &&
              msg_encode(m, &out) == 0 &&
              send(fd, buf_bytes(&out), buf_len(&out), MSG_NOSIGNAL) ==
                  (ssize_t)buf_len(&out);
    buf_release(&out);
    mem_free(m);
    return is_sent;
}

static bool hears_refusal(int fd)
{
    uint64_t end_ms = clock_ms() + ANSWER_MS;
    struct msg *m = mem_zalloc(sizeof(*m));
    uint8_t bytes[4096];
    size_t size = 0;
    ssize_t n = 1;
    int took = 0;

    while (took == 0 && n > 0 && size < sizeof(bytes) && clock_ms() < end_ms) {
        n = recv(fd, bytes + size, sizeof(bytes) - size, 0); /* SO_RCVTIMEO bounds it */
        size += n > 0 ? (size_t)n : 0;
        took = msg_decode(bytes, size, m);
    }
    took = took > 0 && m->type == MSG_REFUSED;
    mem_free(m);
    return took;
}

/* An address to listen on, the wildcard too, is one to connect to. */
static bool speaks_ctrun(const struct sockaddr_storage *addr)
{
    struct timeval bound = {.tv_sec = ANSWER_MS / 1000};
    socklen_t size = addr->ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                                : sizeof(struct sockaddr_in6);
    int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answers;

    if (fd < 0) {
        return false;
    }
    answers = setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound)) == 0 &&
              setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound)) ==
                  0 && /* connect */
              connect(fd, (const struct sockaddr *)addr, size) == 0 &&
              say_hello(fd) && hears_refusal(fd);
    (void)close(fd); /* all is known */
    return answers;
}

/* Cuts the end off, if the text has it. */
static bool cut_end(char *text, const char *end)
{
    size_t size = strlen(text);
    bool has_it = size >= strlen(end) && strcmp(text + size - strlen(end), end) == 0;

    if (has_it) {
        text[size - strlen(end)] = '\0';
    }
    return has_it;
}

void holder_describe(const char *addr, int port, char *ret, size_t size)
{
    struct sockaddr_storage parsed;
    char owner[128] = "";
    char host[MAX_HOST];
    bool is_known;
    bool is_agent;

    listener_name_holder(addr, port, ret, size);
    if (!parse(addr, port, &parsed)) {
        return;
    }
    is_known = portowner_find((const struct sockaddr *)&parsed, owner, sizeof(owner));
    is_agent = is_known && cut_end(owner, " (ctrun)");
    if (is_known ? !is_agent : !speaks_ctrun(&parsed)) {
        return;
    }
    str_format_host(host, sizeof(host), addr);
    (void)snprintf(
        ret, size,
        "port %d on %s is taken: %s of a running job serves here until the job "
        "ends (%s): start the service again then, or give --listen another "
        "port",
        port, host, is_known ? "an agent" : "another service, or an agent",
        is_known ? owner : "another user's process");
}
