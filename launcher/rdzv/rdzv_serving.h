#ifndef LAUNCHER_RDZV_RDZV_SERVING_H
#define LAUNCHER_RDZV_RDZV_SERVING_H

/* PURE. Whether this node serves the rendezvous, and on which addresses. */

#include "launcher/options/options.h"

enum rdzv_place {
    RDZV_NOWHERE,
    RDZV_OWN_ADDRESS, /* on the endpoint's address, which is this host's */
    RDZV_EVERYWHERE,  /* on all addresses */
};

struct rdzv_endpoint {
    const char *host;   /* as it was given */
    bool is_ours;       /* one of its addresses is this host's … */
    bool is_loopback;   /* … and that is a loopback address */
    uint32_t max_nodes; /* 1: nobody else will come */
    /* The job is bound to a service that remembers it, and that this node has not
     * served: nobody could go on in its place, and it wants its port again. */
    bool is_kept_elsewhere;
};

enum rdzv_place rdzv_serving_place(enum rdzv_serving serving,
                                   const struct rdzv_endpoint *endpoint);

#endif
