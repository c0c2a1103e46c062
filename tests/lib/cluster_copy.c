/* An operator copies a durable server's state, and puts the copy in the state's place
 * later; it is started again and again, and counts on. Then the right one is back. Each
 * agent has heard of what the copy lacks: none follows it, however long that lasts. */

#include "tests/lib/cluster.h"

#include <inttypes.h>

enum { COPY_MAX_MS = 40000, START_MAX_MS = 6000 };

/* All that there are; who comes anew would follow whatever answers. */
static bool have_heard_more(const struct cluster *c)
{
    for (uint32_t i = 0; i < c->config.n_nodes; i++) {
        const struct node *n = &c->nodes[i];

        if (!n->has_ended && (!n->agent || n->heard <= c->copied.n_commits)) {
            return false;
        }
    }
    return true;
}

static void kill_server(struct cluster *c)
{
    if (c->service) {
        serving_kill(c);
    }
}

/* `tag`: which copy. */
static void on_start_again(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    if (c->is_copy && tag == c->result->n_copies) {
        kill_server(c);
        sim_after(&c->sim, sim_between(&c->sim, 500, START_MAX_MS), on_start_again, c,
                  tag);
    }
}

static void on_right_back(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    (void)tag;
    kill_server(c);
    sim_note(&c->sim, "the copy has %" PRIu64 " transactions, the right state %" PRIu64,
             c->shelf.n_commits, c->right.n_commits);
    c->result->n_outgrown += c->shelf.n_commits > c->right.n_commits;
    shelf_release(&c->shelf);
    c->shelf = c->right;
    c->right = (struct shelf){0};
    c->boot = c->right_boot;
    c->is_copy = false;
}

static void put_in_place(struct cluster *c)
{
    kill_server(c);
    c->right = c->shelf;
    c->right_boot = c->boot;
    c->shelf = c->copied;
    c->copied = (struct shelf){0};
    c->boot = c->copied_boot;
    c->is_copy = true;
    c->result->n_copies++;
    sim_after(&c->sim, sim_between(&c->sim, 500, START_MAX_MS), on_start_again, c,
              c->result->n_copies);
    sim_after(&c->sim, sim_between(&c->sim, 1000, COPY_MAX_MS), on_right_back, c, 0);
}

void copy_happens(struct cluster *c)
{
    if (!c->config.is_durable || c->is_copy) {
        return;
    }
    if (c->copied.n_commits == 0) {
        shelf_copy(&c->copied, &c->shelf);
        c->copied_boot = c->boot;
    } else if (have_heard_more(c)) {
        put_in_place(c);
    }
}

void copy_heard(const struct conn *conn, const struct msg *m)
{
    struct node *n = conn->node;
    uint64_t kept = m->type == MSG_WELCOME       ? m->u.welcome.kept
                    : m->type == MSG_PONG        ? m->u.pong.kept
                    : m->type == MSG_STORE_REPLY ? m->u.store_reply.kept
                                                 : 0;

    if (!conn->is_of_copy) {
        n->heard = MAX(n->heard, kept);
    } else if (m->type != MSG_WELCOME) {
        cluster_violate(conn->cluster, "node %u follows a copy: it hears %s", n->index,
                        msg_name(m->type));
    }
}

void copy_release(struct cluster *c)
{
    shelf_release(&c->copied);
    shelf_release(&c->right);
}
