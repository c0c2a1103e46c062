#include "launcher/store/relay_admission.h"

#include "launcher/rdzv/netaddr.h"

#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct node {
    char addr[MSG_ADDR_MAX];
    bool is_own;  /* this host's, or that could not be found out */
    bool is_told; /* one that came from there was turned away, and that was logged */
};

enum { MAX_TOLD = 16 };

/* Those from outside the job's nodes. */
struct strangers {
    char told[MAX_TOLD][INET6_ADDRSTRLEN]; /* their addresses, … */
    unsigned n_told;                       /* … so many lines, … */
    uint64_t n;                            /* … of so many connections */
};

struct relay_admission {
    bool is_known;        /* which nodes are this host's */
    bool is_told;         /* … that it is not */
    struct node loopback; /* whichever address of it */
    struct strangers strangers;
    uint32_t n;
    struct node nodes[];
};

/* Fails for want of a descriptor or of memory: the next connection may have better
 * luck. Until then other nodes' workers are turned away, for nobody can be found behind
 * their sockets here. */
static void find_own(struct relay_admission *a)
{
    struct sockaddr_storage addr;
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) < 0) {
        if (!a->is_told) {
            log_warn("this host's addresses cannot be listed: tried again at each "
                     "worker's connection",
                     "error=\"%s\"", err_text(-errno));
        }
        a->is_told = true;
        return;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        struct node *node = &a->nodes[i];

        node->is_own = netaddr_parse(node->addr, 0, &addr) < 0 ||
                       netaddr_is_among((struct sockaddr *)&addr, all);
    }
    freeifaddrs(all);
    a->is_known = true;
}

struct relay_admission *relay_admission_new(const struct msg_node *nodes, uint32_t n)
{
    struct relay_admission *a = mem_zalloc(sizeof(*a) + n * sizeof(a->nodes[0]));

    a->n = n;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(a->nodes[i].addr, nodes[i].addr, sizeof(a->nodes[i].addr));
        a->nodes[i].is_own = true;
    }
    find_own(a);
    return a;
}

void relay_admission_free(struct relay_admission *a)
{
    if (a && a->strangers.n > a->strangers.n_told) {
        log_warn("turned away store connections from outside the job's nodes, not all "
                 "of which were told one by one",
                 "connections=%llu", (unsigned long long)a->strangers.n);
    }
    mem_free(a);
}

/* Once for each address, and of a few alone: a network that calls must not fill the log.
 */
static void turn_away(struct strangers *s, const char *addr)
{
    bool is_told = s->n_told == MAX_TOLD;

    for (unsigned i = 0; i < s->n_told && !is_told; i++) {
        is_told = strcmp(s->told[i], addr) == 0;
    }
    s->n++;
    if (is_told) {
        return;
    }
    (void)snprintf(s->told[s->n_told], sizeof(s->told[0]), "%s", addr);
    s->n_told++;
    log_warn("turned away a store connection from outside the job's nodes", "from=%s",
             addr);
}

/* Once for each address: whoever knocks again and again must not fill the log. */
static void tell_refused(struct node *node, const struct sockaddr *peer, int rv,
                         uid_t uid)
{
    char text[INET6_ADDRSTRLEN];

    netaddr_format(peer, text, sizeof(text));
    if (rv == ERR_MISSING && netaddr_is_loopback(peer)) {
        /* as of a worker that was refused, and ended, before we came to it */
        log_debug("a store connection had gone before it was admitted", "from=%s",
                  text);
        return;
    }
    if (node->is_told) {
        return;
    }
    node->is_told = true;
    if (rv == 0) {
        log_warn("turned away a store connection of another user", "from=%s uid=%u",
                 text, (unsigned)uid);
    } else if (rv == ERR_MISSING) {
        log_warn("turned away a store connection: no process of this host is behind it "
                 "(any more)",
                 "from=%s", text);
    } else {
        log_warn("turned away a store connection: the kernel did not tell whose it is",
                 "from=%s error=\"%s\"", text, err_text(rv));
    }
}

static bool is_our_user(struct node *node, const struct sockaddr *peer,
                        const struct sockaddr *local)
{
    uid_t uid = 0;
    int rv = netaddr_peer_uid(peer, local, &uid);

    if (rv == ERR_UNSUPPORTED) {
        log_debug("this kernel does not tell whose a connection is: admitted", "%s",
                  "");
        return true;
    }
    if (rv < 0 || uid != geteuid()) {
        tell_refused(node, peer, rv, uid);
        return false;
    }
    return true;
}

/* NULL: no node of the round has it. */
static struct node *find_node(struct relay_admission *a, const char *addr)
{
    for (uint32_t i = 0; i < a->n; i++) {
        if (strcmp(a->nodes[i].addr, addr) == 0) {
            return &a->nodes[i];
        }
    }
    return NULL;
}

bool relay_admission_check(struct relay_admission *a, const struct sockaddr *peer,
                           const struct sockaddr *local)
{
    char text[INET6_ADDRSTRLEN];
    struct node *node;

    if (netaddr_is_loopback(peer)) {
        return is_our_user(&a->loopback, peer, local);
    }
    netaddr_format(peer, text, sizeof(text));
    node = find_node(a, text);
    if (!node) {
        turn_away(&a->strangers, text);
        return false;
    }
    if (!a->is_known) {
        find_own(a);
    }
    return !node->is_own || is_our_user(node, peer, local);
}
