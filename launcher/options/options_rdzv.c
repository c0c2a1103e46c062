/* What the rendezvous' options mean together, by torchrun's rules where it has any.
 *
 *   --standalone; one node without an endpoint        a free port of this host
 *     and without --master-port
 *   --rdzv-backend=c10d; an endpoint; MIN:MAX         elastic, at the endpoint
 *   else, and --rdzv-backend=static                   a fixed world, at the endpoint
 *                                                     or --master-addr, --master-port
 */

#include "launcher/options/options_core.h"

#include "common/check.h"
#include "common/str.h"

#include <stdio.h>
#include <string.h>

enum {
    ELASTIC_PORT = 29400,
    STATIC_PORT = 29500,
    JOIN_MS = 600000,
    STATIC_JOIN_MS = 900000,
    LAST_CALL_MS = 30000,
};

static bool has_master(const struct parse *p)
{
    return p->master_addr[0] != '\0' || p->has_master_port;
}

static bool is_free_port(const struct parse *p)
{
    return p->endpoint[0] == '\0' && p->o.max_nodes == 1 &&
           (!p->has_master_port || p->backend == BACKEND_C10D);
}

static bool wants_static(const struct parse *p)
{
    if (p->backend != BACKEND_UNNAMED) {
        return p->backend == BACKEND_STATIC;
    }
    return p->endpoint[0] == '\0' &&
           (has_master(p) || p->o.min_nodes == p->o.max_nodes);
}

static int parse_endpoint(struct parse *p, struct errmsg *msg)
{
    struct launch_options *o = &p->o;
    int rv = str_parse_host_port(p->endpoint, o->rdzv_host, sizeof(o->rdzv_host),
                                 &o->rdzv_port);

    if (rv < 0) {
        return errmsg_set(
            msg, rv,
            "--rdzv-endpoint expects HOST[:PORT], a port from 0 to 65535, "
            "not '%.80s'",
            p->endpoint);
    }
    if (o->rdzv_port < 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "--rdzv-endpoint needs a port with the static backend: %s:%d",
                          p->endpoint, STATIC_PORT);
    }
    return 0;
}

static int refuse_any_port(const struct launch_options *o, const char *option, int port,
                           struct errmsg *msg)
{
    return errmsg_set(msg, ERR_INVALID,
                      "%s: port 0 means any free port, which other nodes cannot know; "
                      "name one, as %s:%d",
                      option, o->rdzv_host, port);
}

static int finish_elastic(struct parse *p, struct errmsg *msg)
{
    struct launch_options *o = &p->o;
    int rv = 0;

    o->rdzv_port = ELASTIC_PORT;
    if (p->endpoint[0] == '\0') {
        (void)snprintf(o->rdzv_host, sizeof(o->rdzv_host), "localhost");
    } else {
        rv = parse_endpoint(p, msg);
    }
    if (rv < 0) {
        return rv;
    }
    if (o->rdzv_port == 0 && o->max_nodes > 1) {
        return refuse_any_port(o, "--rdzv-endpoint", ELASTIC_PORT, msg);
    }
    if (o->rdzv_port == 0) {
        o->standalone = true; /* torchrun's way to write it in full */
    }
    if (has_master(p)) {
        (void)snprintf(
            o->note, sizeof(o->note),
            "--master-addr and --master-port have no effect: they are of the "
            "static backend, and the endpoint here is %.64s:%d",
            o->rdzv_host, o->rdzv_port);
    }
    return 0;
}

/* The brackets of an IPv6 address are not part of it. */
static void copy_host(const char *text, char *ret, size_t size)
{
    size_t len = strlen(text);
    bool has_brackets = len > 2 && text[0] == '[' && text[len - 1] == ']';

    (void)snprintf(ret, size, "%.*s", (int)(len - (has_brackets ? 2 : 0)),
                   text + has_brackets);
}

static int finish_static(struct parse *p, struct errmsg *msg)
{
    struct launch_options *o = &p->o;
    int rv = 0;

    o->is_static = true;
    if (o->min_nodes < o->max_nodes) {
        (void)snprintf(o->note, sizeof(o->note),
                       "the static backend's world is fixed: all %u nodes are waited "
                       "for; for %u:%u use --rdzv-backend=c10d and --rdzv-endpoint",
                       o->max_nodes, o->min_nodes, o->max_nodes);
    }
    o->min_nodes = o->max_nodes;
    if (p->endpoint[0] != '\0') {
        o->rdzv_port = -1;
        rv = parse_endpoint(p, msg);
    } else {
        copy_host(p->master_addr[0] != '\0' ? p->master_addr : "127.0.0.1",
                  o->rdzv_host, sizeof(o->rdzv_host));
        o->rdzv_port = p->has_master_port ? (int)p->master_port : STATIC_PORT;
    }
    if (rv == 0 && o->rdzv_port == 0 && o->max_nodes > 1) {
        rv = refuse_any_port(
            o, p->endpoint[0] != '\0' ? "--rdzv-endpoint" : "--master-port",
            STATIC_PORT, msg);
    }
    o->standalone = o->rdzv_port == 0;
    return rv;
}

/* One node, no endpoint: its own free port and, unless it was named, its own id. */
static int finish_standalone(struct parse *p, bool asked, struct errmsg *msg)
{
    struct launch_options *o = &p->o;

    if (o->min_nodes > 1) {
        return errmsg_set(msg, ERR_INVALID,
                          "--standalone is for one node, but --nnodes asks for %u; use "
                          "--rdzv-endpoint=HOST:PORT instead",
                          o->min_nodes);
    }
    o->max_nodes = 1;
    o->is_static = false;
    o->rdzv_host[0] = '\0';
    o->rdzv_port = 0;
    if (asked || !p->has_id) {
        o->rdzv_id[0] = '\0';
    }
    return 0;
}

static int finish_endpoint(struct parse *p, struct errmsg *msg)
{
    struct launch_options *o = &p->o;
    bool asked = o->standalone;
    int rv = 0;

    if (p->has_id && o->rdzv_id[0] == '\0' && o->max_nodes > 1 && !asked) {
        return errmsg_set(
            msg, ERR_INVALID,
            "--rdzv-id: an empty one means a random one, which other nodes "
            "cannot know; name one");
    }
    if (!asked && is_free_port(p)) {
        o->standalone = true;
    } else if (!asked) {
        rv = wants_static(p) ? finish_static(p, msg) : finish_elastic(p, msg);
    }
    return rv == 0 && o->standalone ? finish_standalone(p, asked, msg) : rv;
}

/* Where another than rank 0 served, the workers of the others would be turned away: it
 * would not know them. */
static void note_host(struct parse *p)
{
    struct launch_options *o = &p->o;

    if (p->conf.serving != RDZV_SERVE_OWN_ADDRESS && p->conf.serving != o->serving) {
        (void)snprintf(
            o->note, sizeof(o->note),
            "--rdzv-conf=is_host=%d has no effect: with the static backend node "
            "rank 0 hosts the endpoint, and this is node rank %d; for another "
            "host, or a ctrun-rendezvous, use --rdzv-backend=c10d",
            p->conf.serving == RDZV_SERVE_ALWAYS, MAX(o->node_rank, 0));
    }
}

/* In a static world rank 0 serves, as its users expect, and nobody else; a node that does
 * not say its rank is taken for rank 0, but serves only what is its own. */
static int finish_rank(struct parse *p, struct errmsg *msg)
{
    struct launch_options *o = &p->o;

    if (p->has_node_rank && p->node_rank >= o->max_nodes) {
        return errmsg_set(msg, ERR_INVALID,
                          "--node-rank %u is not below the number of nodes, %u",
                          p->node_rank, o->max_nodes);
    }
    o->node_rank = p->has_node_rank ? (int32_t)p->node_rank : -1;
    o->serving = p->conf.serving;
    if (!o->is_static) {
        return 0;
    }
    if (p->has_node_rank || o->max_nodes == 1) {
        o->serving = o->node_rank > 0 ? RDZV_SERVE_NEVER : RDZV_SERVE_ALWAYS;
        note_host(p);
    }
    o->node_rank = MAX(o->node_rank, 0);
    return 0;
}

static void finish_conf(struct parse *p)
{
    struct launch_options *o = &p->o;
    const struct rdzv_conf *conf = &p->conf;

    o->join_timeout_ms = o->is_static ? STATIC_JOIN_MS : JOIN_MS;
    if (o->is_static && conf->timeout_ms) {
        o->join_timeout_ms = conf->timeout_ms;
    }
    if (conf->join_timeout_ms) {
        o->join_timeout_ms = conf->join_timeout_ms;
    }
    o->last_call_timeout_ms =
        conf->last_call_timeout_ms ? conf->last_call_timeout_ms : LAST_CALL_MS;
}

int launch_finish_rdzv(struct parse *p, struct errmsg *msg)
{
    int rv = finish_endpoint(p, msg);

    rv = rv < 0 ? rv : finish_rank(p, msg);
    if (rv == 0) {
        finish_conf(p);
    }
    return rv;
}
