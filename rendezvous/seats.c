#include "rendezvous/seats.h"

#include "common/mem.h"

#include <stdlib.h>

static bool has_seat(const struct job *j, const struct job_node *node)
{
    return node->ranked_in == j->generation && node->is_admitted &&
           node->group_rank >= 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct job_node *left = *(const struct job_node *const *)a;
    const struct job_node *right = *(const struct job_node *const *)b;

    return (left->group_rank > right->group_rank) -
           (left->group_rank < right->group_rank);
}

/* Those that are still here, in order. mem_alloc'ed. */
static const struct job_node **find_nodes(const struct job *j, size_t *ret_n)
{
    const struct job_node **node =
        mem_array(j->n_nodes + 1, sizeof(const struct job_node *));
    size_t n = 0;

    for (size_t i = 0; i < j->n_nodes; i++) {
        if (has_seat(j, j->node[i])) {
            node[n++] = j->node[i];
        }
    }
    qsort(node, n, sizeof(const struct job_node *), compare_places);
    *ret_n = n;
    return node;
}

/* What ranks report is kept by the nodes of the whole generation. */
static bool are_all_known(const struct job *j)
{
    return j->progress.generation == j->generation && j->n_members > 0 &&
           j->progress.n_nodes == j->n_members;
}

static void add(struct seats *s, const char *host, uint32_t group_rank, uint32_t nproc,
                const struct job_node *node)
{
    s->seat[s->n++] = (struct seat){.node = node,
                                    .host = host,
                                    .group_rank = group_rank,
                                    .first_rank = s->world,
                                    .nproc = nproc};
    s->world += nproc;
}

static void add_all(struct seats *s, const struct job *j,
                    const struct job_node *const *node, size_t n)
{
    size_t at = 0;

    for (uint32_t i = 0; i < j->progress.n_nodes; i++) {
        const struct progress_node *p = &j->progress.node[i];
        bool is_here = at < n && (uint32_t)node[at]->group_rank == i;

        add(s, p->host, i, p->nproc, is_here ? node[at] : NULL);
        at += is_here;
    }
}

void seats_find(struct seats *s, const struct job *j)
{
    size_t n;
    const struct job_node **node = find_nodes(j, &n);

    *s = (struct seats){.seat = mem_array(MAX(n, j->n_members) + 1, sizeof(*s->seat))};
    if (are_all_known(j)) {
        add_all(s, j, node, n);
    } else {
        for (size_t i = 0; i < n && (uint32_t)node[i]->group_rank == i; i++) {
            add(s, node[i]->hello.host, (uint32_t)i, node[i]->hello.nproc, node[i]);
        }
        if (n == 0 && j->progress.is_over && j->progress.generation == j->generation) {
            s->world = j->progress.world; /* all have gone */
        }
    }
    mem_free(node);
}

void seats_release(struct seats *s)
{
    mem_free(s->seat);
    *s = (struct seats){0};
}

static int compare_group_rank(const void *key, const void *element)
{
    uint32_t group_rank = *(const uint32_t *)key;
    const struct seat *seat = element;

    return (group_rank > seat->group_rank) - (group_rank < seat->group_rank);
}

const struct seat *seats_of(const struct seats *s, const struct job *j,
                            const struct job_node *node)
{
    uint32_t group_rank = (uint32_t)node->group_rank;

    return s->n > 0 && has_seat(j, node) ? bsearch(&group_rank, s->seat, s->n,
                                                   sizeof(*s->seat), compare_group_rank)
                                         : NULL;
}
