/* What the options must be together, and those that follow from others. */

#include "rendezvous/keyring.h"
#include "rendezvous/options.h"
#include "rendezvous/peer.h"

#include "common/str.h"

#include <sys/socket.h>

bool rendezvous_is_loopback(const char *host)
{
    struct sockaddr_storage addr;

    return peer_parse(host, &addr) == 0 && peer_is_loopback((struct sockaddr *)&addr);
}

static int check_keys(const struct rendezvous_options *o, bool has_keys,
                      struct errmsg *msg)
{
    int n = (o->tls_ca[0] != '\0') + (o->tls_cert[0] != '\0') + (o->tls_key[0] != '\0');

    if (n != 0 && n != 3) {
        return errmsg_set(msg, ERR_INVALID,
                          "--tls-ca, --tls-cert and --tls-key go together: give all "
                          "three, or none");
    }
    if (has_keys && o->insecure) {
        return errmsg_set(msg, ERR_INVALID,
                          "--insecure is for a service without keys, and this one has "
                          "some: leave out one or the other");
    }
    return 0;
}

static int complete_limits(struct rendezvous_options *o, struct errmsg *msg)
{
    if (o->job_max_mib == 0) {
        o->job_max_mib = MAX(o->store_max_mib / 2, 1);
    }
    if (o->job_max_mib > o->store_max_mib) {
        return errmsg_set(msg, ERR_INVALID,
                          "--job-max-mib %u is more than all jobs have together "
                          "(--store-max-mib %u): lower it, or raise that",
                          o->job_max_mib, o->store_max_mib);
    }
    return 0;
}

int rendezvous_options_complete(struct rendezvous_options *o, struct errmsg *msg)
{
    bool has_keys = keyring_is_asked_for(o);
    int rv = check_keys(o, has_keys, msg);

    rv = rv == 0 ? complete_limits(o, msg) : rv;
    if (rv < 0) {
        return rv;
    }
    for (size_t i = 0; i < o->n_listen && !o->insecure && !has_keys; i++) {
        if (!rendezvous_is_loopback(o->listen[i].host)) {
            return errmsg_set(
                msg, ERR_INVALID,
                "other machines could connect to %s, and nothing is encrypted or "
                "authenticated: give --secrets (or --tls-ca, --tls-cert, --tls-key; "
                "'ctrun keygen' makes them), listen on 127.0.0.1, or give --insecure "
                "where the network is trusted",
                o->listen[i].host);
        }
    }
    if (o->http.host[0] && !rendezvous_is_loopback(o->http.host) && !o->http_open &&
        !o->insecure) {
        return errmsg_set(msg, ERR_INVALID,
                          "other machines could read the status at %s, and whoever can "
                          "connect there may: serve it on 127.0.0.1 (and put a proxy "
                          "before it), or give --http-open",
                          o->http.host);
    }
    return 0;
}
