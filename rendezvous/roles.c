#include "rendezvous/roles.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    const struct job_node *node; /* borrowed */
    size_t place;                /* in the round */
};

/* A peer chooses the names: sorted, so that no choice of them is slow. */
static int compare(const void *left, const void *right)
{
    const struct entry *a = left;
    const struct entry *b = right;
    int order = strcmp(a->node->join.role, b->node->join.role);

    return order != 0 ? order : (a->place > b->place) - (a->place < b->place);
}

/* The nodes of one role, n of them: places[…] are filled. */
static void number(const struct entry *entry, size_t n, struct role_place *places)
{
    uint32_t world = 0; /* at most the round's: MSG_MAX_WORLD */

    for (size_t i = 0; i < n; i++) {
        places[entry[i].place].first_rank = world;
        world += entry[i].node->hello.nproc;
    }
    for (size_t i = 0; i < n; i++) {
        places[entry[i].place].world_size = world;
    }
}

struct role_place *roles_make(const struct round *r)
{
    struct role_place *places = mem_array(r->n, sizeof(*places));
    struct entry *sorted = mem_array(r->n, sizeof(*sorted));
    size_t first = 0;

    for (size_t i = 0; i < r->n; i++) {
        sorted[i] = (struct entry){r->node[i], i};
    }
    qsort(sorted, r->n, sizeof(*sorted), compare);
    for (size_t i = 1; i <= r->n; i++) {
        if (i == r->n ||
            strcmp(sorted[i].node->join.role, sorted[first].node->join.role) != 0) {
            number(sorted + first, i - first, places);
            first = i;
        }
    }
    mem_free(sorted);
    return places;
}
