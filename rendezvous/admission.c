#include "rendezvous/admission.h"

#include "common/utf8.h"

#include <stdio.h>
#include <string.h>

enum {
    FLAPS_FREE = 3, /* a node's losses, no commit between, before it has to wait */
    FLAP_WAIT_MIN_MS = 1000,
    FLAP_WAIT_MAX_MS = 30000,
};

/* Higher ones are not reached, but made up; those that follow fit the database's numbers
 * and JSON's, which have a sign. */
#define MAX_GENERATION (INT64_MAX / 2)

/* "2", or "2:4". */
static const char *format_nodes(const struct msg_hello *hello, char text[32])
{
    if (hello->min_nodes == hello->max_nodes) {
        (void)snprintf(text, 32, "%u", hello->min_nodes);
    } else {
        (void)snprintf(text, 32, "%u:%u", hello->min_nodes, hello->max_nodes);
    }
    return text;
}

static const char *format_on_hang(const struct msg_hello *hello)
{
    return hello->on_hang == ON_HANG_REPORT ? "report" : "restart";
}

static int say_taken(const struct job *j, const struct job_node *by, struct errmsg *msg)
{
    return errmsg_set(msg, ERR_REFUSED,
                      "job %s: --node-rank=%d is taken by %s; give every node its own",
                      j->id, by->hello.node_rank, by->hello.host);
}

/* Another job's shape, and another node's number, are mistakes of the user. Of a node
 * that has not been seen since the service's start nobody knows whether it still runs. */
static int check_shape(const struct job *j, const struct msg_hello *hello,
                       struct errmsg *msg)
{
    const struct msg_hello *shape = &j->shape;
    const struct job_node *other = NULL;
    char nodes[32];
    char others[32];

    if (hello->min_nodes != shape->min_nodes || hello->max_nodes != shape->max_nodes) {
        return errmsg_set(
            msg, ERR_REFUSED,
            "job %s: this node says --nnodes=%s, but %s started it with %s; give "
            "every node the same --nnodes",
            j->id, format_nodes(hello, nodes), shape->host,
            format_nodes(shape, others));
    }
    if (hello->max_restarts != shape->max_restarts) {
        return errmsg_set(msg, ERR_REFUSED,
                          "job %s: this node says --max-restarts=%u, but %s started it "
                          "with %u; give every node the same --max-restarts",
                          j->id, hello->max_restarts, shape->host, shape->max_restarts);
    }
    if (hello->on_hang != shape->on_hang) {
        return errmsg_set(msg, ERR_REFUSED,
                          "job %s: this node says --on-hang=%s, but %s started it with "
                          "%s; give every node the same --on-hang",
                          j->id, format_on_hang(hello), shape->host,
                          format_on_hang(shape));
    }
    while ((other = job_of_node_rank(j, hello->node_rank, other)) != NULL) {
        if (!other->is_away) {
            return say_taken(j, other, msg);
        }
    }
    return 0;
}

struct job_node *admission_find_surplus(const struct job *j, struct job_node *node,
                                        struct errmsg *msg)
{
    struct job_node *twin = NULL;
    bool is_member;

    while ((twin = job_of_node_rank(j, node->hello.node_rank, twin)) != NULL) {
        if (twin == node || twin->is_away) {
            continue;
        }
        is_member = node_is_member(twin->state);
        (void)say_taken(j, is_member ? twin : node, msg);
        return is_member ? node : twin;
    }
    return NULL;
}

static int check_limits(const struct msg_hello *hello, struct errmsg *msg)
{
    char nodes[32];

    if (hello->job[0] == '\0' || hello->host[0] == '\0') {
        return errmsg_set(msg, ERR_REFUSED, "a job and a host have a name each");
    }
    if (!utf8_is_name(hello->job) || !utf8_is_name(hello->host)) {
        return errmsg_set(
            msg, ERR_REFUSED,
            "the job's name or this host's is not UTF-8, or has characters that cannot "
            "be seen or turn the text's direction");
    }
    if (hello->min_nodes == 0 || hello->min_nodes > hello->max_nodes ||
        hello->max_nodes > MSG_MAX_NODES || hello->nproc == 0 ||
        (uint64_t)hello->nproc * hello->max_nodes > MSG_MAX_WORLD ||
        hello->node_rank < -1 || hello->node_rank >= (int32_t)hello->max_nodes) {
        return errmsg_set(msg, ERR_REFUSED,
                          "job %s: --nnodes=%s, --nproc-per-node=%u, --node-rank=%d do "
                          "not fit together (at most %d nodes and %d ranks)",
                          hello->job, format_nodes(hello, nodes), hello->nproc,
                          hello->node_rank, MSG_MAX_NODES, MSG_MAX_WORLD);
    }
    if (hello->generation > MAX_GENERATION) {
        return errmsg_set(msg, ERR_REFUSED, "job %s: no generation has such a number",
                          hello->job);
    }
    if (hello->on_hang > ON_HANG_REPORT || hello->group_rank < -1 ||
        hello->group_rank >= MSG_MAX_NODES || hello->commit_step > INT64_MAX) {
        return errmsg_set(msg, ERR_REFUSED,
                          "job %s: what this node says of itself is none of what "
                          "ctrun says",
                          hello->job);
    }
    return 0;
}

int admission_check(const struct job *j, const struct msg_hello *hello,
                    struct errmsg *msg)
{
    int rv = check_limits(hello, msg);

    if (rv == 0 && j->n_nodes > 0) {
        rv = check_shape(j, hello, msg);
    }
    return rv;
}

int admission_check_ranks(const struct job *j, const struct msg_hello *hello,
                          struct errmsg *msg)
{
    if (j->ranks->used + hello->nproc > j->ranks->max) {
        return errmsg_set(msg, ERR_REFUSED,
                          "job %s: no room for the %u rank%s of this node: the jobs of "
                          "this service have %llu together, and may have %llu; wait "
                          "until one has ended, or start another ctrun-rendezvous",
                          j->id, hello->nproc, hello->nproc == 1 ? "" : "s",
                          (unsigned long long)j->ranks->used,
                          (unsigned long long)j->ranks->max);
    }
    return 0;
}

int admission_take_room(struct job *j, struct job_node *node, const char *addr,
                        struct errmsg *msg)
{
    size_t bytes = MSG_NODE_SIZE + strlen(node->hello.host) + strlen(addr);

    if (j->table_bytes - node->table_bytes + bytes > ADMISSION_MAX_TABLE) {
        return errmsg_set(msg, ERR_REFUSED,
                          "job %s: no room for a node beside its %zu others", j->id,
                          j->n_nodes);
    }
    j->table_bytes += bytes - node->table_bytes;
    node->table_bytes = bytes;
    return 0;
}

void admission_return_room(struct job *j, struct job_node *node)
{
    j->table_bytes -= node->table_bytes;
    node->table_bytes = 0;
}

void admission_name_node(const struct msg_hello *hello, const char *peer_addr,
                         char *ret, size_t size)
{
    if (hello->node_rank >= 0) {
        (void)snprintf(ret, size, "--node-rank=%d", hello->node_rank);
    } else {
        (void)snprintf(ret, size, "%s %s", hello->host, peer_addr);
    }
}

static struct flapper *find_flapper(struct job *j, const struct job_node *node)
{
    char key[sizeof(j->flapper[0].key)];

    admission_name_node(&node->hello, node->peer_addr, key, sizeof(key));
    for (size_t i = 0; i < j->n_flappers; i++) {
        if (strcmp(j->flapper[i].key, key) == 0) {
            return &j->flapper[i];
        }
    }
    return NULL;
}

/* In place of the one that was lost least, when there are too many. */
static struct flapper *make_flapper(struct job *j, const struct job_node *node)
{
    struct flapper *f = &j->flapper[0];

    if (j->n_flappers < JOB_MAX_FLAPPERS) {
        f = &j->flapper[j->n_flappers++];
    } else {
        for (size_t i = 1; i < j->n_flappers; i++) {
            f = j->flapper[i].losses < f->losses ? &j->flapper[i] : f;
        }
    }
    f->losses = 0;
    admission_name_node(&node->hello, node->peer_addr, f->key, sizeof(f->key));
    return f;
}

void admission_join(struct job *j, struct job_node *node)
{
    const struct flapper *f = find_flapper(j, node);
    uint32_t surplus;

    j->join_ms = j->now_ms;
    if (f && f->losses >= FLAPS_FREE && !node->is_admitted) {
        surplus = MIN(f->losses - FLAPS_FREE, 5);
        node->not_before_ms =
            j->now_ms + MIN((uint64_t)FLAP_WAIT_MIN_MS << surplus, FLAP_WAIT_MAX_MS);
        node->is_flapping = true;
        j->n_flapping++;
    }
}

bool admission_count_loss(struct job *j, const struct job_node *node)
{
    struct flapper *f = find_flapper(j, node);

    f = f ? f : make_flapper(j, node);
    return ++f->losses > FLAPS_FREE;
}
