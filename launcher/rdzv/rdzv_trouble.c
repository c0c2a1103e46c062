#include "launcher/rdzv/rdzv_trouble.h"

#include "launcher/rdzv/keys.h"
#include "launcher/rdzv/netaddr.h"

#include "common/err.h"
#include "common/log.h"
#include "common/msg.h"
#include "common/str.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

static void describe(const struct sockaddr *addr, int error, char *ret, size_t size)
{
    char text[MSG_ADDR_MAX];

    netaddr_format(addr, text, sizeof(text));
    if (error == -ECONNREFUSED) {
        (void)snprintf(ret, size, "%s: Connection refused, nothing listens there yet",
                       text);
    } else if (error == -ETIMEDOUT) {
        (void)snprintf(ret, size, "%s: " RDZV_NO_ANSWER, text);
    } else {
        (void)snprintf(ret, size, "%s: %s", text, err_text(error));
    }
}

bool rdzv_trouble(const struct sockaddr *addr, int error, char *ret, size_t size)
{
    if (error == -EMFILE) {
        (void)snprintf(ret, size,
                       "no file descriptor is left: raise the limit (ulimit -n)");
        return true;
    }
    if ((error == -ENETUNREACH || error == -EADDRNOTAVAIL) &&
        netaddr_is_loopback(addr)) {
        (void)snprintf(ret, size, "the loopback interface is down: ip link set lo up");
        return true;
    }
    describe(addr, error, ret, size);
    return false;
}

void rdzv_trouble_refused(const struct sockaddr *addr, const char *why,
                          const struct keys *keys, char *ret, size_t size)
{
    char text[MSG_ADDR_MAX];
    char own[300];

    netaddr_format(addr, text, sizeof(text));
    keys_describe(keys, own, sizeof(own));
    (void)snprintf(ret, size, "%s: %s (this side's: %s)", text, why, own);
}

enum agent_loss rdzv_loss(int status)
{
    if (status == -ETIMEDOUT || status == -EHOSTUNREACH || status == -ENETUNREACH ||
        status == -ENETDOWN) {
        return LOSS_SILENT;
    }
    return status == ERR_PROTOCOL || status == ERR_TOO_LARGE ? LOSS_FOREIGN
                                                             : LOSS_CLOSED;
}

void rdzv_advise(const char *addr, int port)
{
    char host[MSG_ADDR_MAX + 2];
    struct sockaddr_storage parsed;

    if (netaddr_parse(addr, port, &parsed) == 0 &&
        netaddr_is_loopback((const struct sockaddr *)&parsed)) {
        return;
    }
    str_format_host(host, sizeof(host), addr);
    log_info(
        "whoever reaches this node's rendezvous may take part in the job; to let "
        "only your own nodes in, and encrypt what they say, run 'ctrun keygen' and "
        "copy ~/.config/ctrun/secret to each of them",
        "listening=%s:%d", host, port);
}
