#include "launcher/relay_admission.h"

#include "launcher/netaddr.h"

#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <string.h>
#include <unistd.h>

struct node {
    char addr[MSG_ADDR_MAX];
    bool is_own; /* this host's, or that could not be found out */
};

struct relay_admission {
    uint32_t n;
    struct node nodes[];
};

struct relay_admission *relay_admission_new(const struct msg_node *nodes, uint32_t n)
{
    struct relay_admission *a = mem_zalloc(sizeof(*a) + n * sizeof(a->nodes[0]));
    struct sockaddr_storage addr;
    struct ifaddrs *all = NULL;
    bool is_known = getifaddrs(&all) == 0;

    a->n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct node *node = &a->nodes[i];

        memcpy(node->addr, nodes[i].addr, sizeof(node->addr));
        node->is_own = !is_known || netaddr_parse(node->addr, 0, &addr) < 0 ||
                       netaddr_is_among((struct sockaddr *)&addr, all);
    }
    if (is_known) {
        freeifaddrs(all);
    }
    return a;
}

void relay_admission_free(struct relay_admission *a)
{
    mem_free(a);
}

static bool is_our_user(const struct sockaddr *peer, const struct sockaddr *local)
{
    uid_t uid;
    int rv = netaddr_peer_uid(peer, local, &uid);

    if (rv == ERR_UNSUPPORTED) {
        log_debug("this kernel does not tell whose a connection is: admitted", "%s",
                  "");
        return true;
    }
    if (rv < 0 && rv != ERR_MISSING) {
        log_warn("turned away a store connection: the kernel did not tell whose it is",
                 "error=\"%s\"", err_text(rv));
    }
    return rv == 0 && uid == geteuid();
}

/* NULL: no node of the round has it. */
static const struct node *find_node(const struct relay_admission *a, const char *addr)
{
    for (uint32_t i = 0; i < a->n; i++) {
        if (strcmp(a->nodes[i].addr, addr) == 0) {
            return &a->nodes[i];
        }
    }
    return NULL;
}

bool relay_admission_check(const struct relay_admission *a, const struct sockaddr *peer,
                           const struct sockaddr *local)
{
    char text[INET6_ADDRSTRLEN];
    const struct node *node;

    if (netaddr_is_loopback(peer)) {
        return is_our_user(peer, local);
    }
    netaddr_format(peer, text, sizeof(text));
    node = find_node(a, text);
    if (!node) {
        log_warn("turned away a store connection from outside the job's nodes",
                 "from=%s", text);
        return false;
    }
    return !node->is_own || is_our_user(peer, local);
}
