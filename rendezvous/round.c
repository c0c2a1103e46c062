#include "rendezvous/round.h"

#include "common/mem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Compares the numbers at *a and *b, and moves both behind them. */
static int compare_numbers(const char **a, const char **b)
{
    const char *digits_a = *a + strspn(*a, "0");
    const char *digits_b = *b + strspn(*b, "0");
    size_t len_a = strspn(digits_a, "0123456789");
    size_t len_b = strspn(digits_b, "0123456789");

    *a = digits_a + len_a;
    *b = digits_b + len_b;
    if (len_a != len_b) {
        return len_a < len_b ? -1 : 1;
    }
    return strncmp(digits_a, digits_b, len_a);
}

int round_compare_hosts(const char *a, const char *b)
{
    int order = 0;

    while (*a && *b && order == 0) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            order = compare_numbers(&a, &b);
        } else {
            order = (int)(unsigned char)*a++ - (int)(unsigned char)*b++;
        }
    }
    return order != 0 ? order : (int)(unsigned char)*a - (int)(unsigned char)*b;
}

/* A rank that is set comes before one that is not. */
static int compare_set_ranks(int32_t a, int32_t b)
{
    if (a >= 0 && b >= 0) {
        return (a > b) - (a < b);
    }
    return (a < 0) - (b < 0);
}

/* The members of a later generation come first, in its order. */
static int compare_stability(const struct job_node *a, const struct job_node *b)
{
    if (a->ranked_in != b->ranked_in) {
        return a->ranked_in > b->ranked_in ? -1 : 1;
    }
    return compare_set_ranks(a->group_rank, b->group_rank);
}

static int compare_nodes(const void *left, const void *right)
{
    const struct job_node *a = *(struct job_node *const *)left;
    const struct job_node *b = *(struct job_node *const *)right;
    int order = compare_set_ranks(a->hello.node_rank, b->hello.node_rank);

    if (order == 0) {
        order = compare_stability(a, b);
    }
    if (order == 0) {
        order = round_compare_hosts(a->hello.host, b->hello.host);
    }
    if (order == 0) {
        order = (a->arrival > b->arrival) - (a->arrival < b->arrival);
    }
    return order;
}

static bool is_held_back(const struct job *j, const struct job_node *node)
{
    return node->is_flapping && j->now_ms < node->not_before_ms;
}

/* The flapping nodes that have joined and waited long enough. */
static size_t count_flapping(const struct job *j, size_t *ret_held)
{
    size_t n = 0;

    *ret_held = 0;
    for (size_t i = 0; i < j->n_nodes && j->n_flapping > 0; i++) {
        const struct job_node *node = j->node[i];

        if (node->is_flapping && node->state == NODE_JOINED) {
            n += !is_held_back(j, node);
            *ret_held += is_held_back(j, node);
        }
    }
    return n;
}

size_t round_count(const struct job *j)
{
    size_t n_held;
    size_t n_flapping = count_flapping(j, &n_held);
    size_t n_sound = j->count[NODE_JOINED] - n_flapping - n_held;
    size_t n_wanted = n_sound < j->shape.min_nodes ? j->shape.min_nodes - n_sound : 0;

    return MIN(n_sound + MIN(n_flapping, n_wanted), j->shape.max_nodes);
}

static uint64_t limit_world(uint64_t largest, const struct job_node *node)
{
    return node->join.max_world > 0 ? MIN(largest, node->join.max_world) : largest;
}

uint64_t round_largest_world(const struct job *j)
{
    uint64_t largest = j->ending.max_world > 0 ? j->ending.max_world : UINT64_MAX;

    for (size_t i = 0; i < j->n_nodes; i++) {
        if (j->node[i]->state != NODE_LEFT && !j->node[i]->is_flapping) {
            largest = limit_world(largest, j->node[i]);
        }
    }
    return largest;
}

/* Cuts the list where the workers could not use more ranks, but not below MIN. */
static void cut_to_usable(const struct job *j, struct round *r)
{
    uint64_t world = 0;

    r->largest_world = round_largest_world(j);
    for (size_t i = 0; i < r->n; i++) { /* flapping ones, too, that are needed */
        r->largest_world = limit_world(r->largest_world, r->node[i]);
    }
    for (size_t i = 0; i < r->n; i++) {
        world += r->node[i]->hello.nproc;
        if (world > r->largest_world && i >= j->shape.min_nodes) {
            r->n = i;
        }
    }
}

typedef bool (*is_in_cb)(const struct job_node *node);

static bool has_joined(const struct job_node *node)
{
    return node->state == NODE_JOINED;
}

static bool can_join(const struct job_node *node)
{
    return (node->state == NODE_PRESENT || node->state == NODE_JOINED) &&
           !node->is_leaving;
}

/* Ranked: the sound nodes that are in, and flapping ones where MIN needs them. */
static void collect(const struct job *j, is_in_cb is_in, struct round *ret)
{
    *ret = (struct round){.node = mem_array(j->n_nodes, sizeof(struct job_node *))};
    for (size_t i = 0; i < j->n_nodes; i++) {
        if (is_in(j->node[i]) && !j->node[i]->is_flapping) {
            ret->node[ret->n++] = j->node[i];
        }
    }
    for (size_t i = 0; i < j->n_nodes && ret->n < j->shape.min_nodes; i++) {
        if (is_in(j->node[i]) && j->node[i]->is_flapping &&
            !is_held_back(j, j->node[i])) {
            ret->node[ret->n++] = j->node[i];
        }
    }
    qsort(ret->node, ret->n, sizeof(struct job_node *), compare_nodes);
    ret->n = MIN(ret->n, j->shape.max_nodes);
}

void round_choose(const struct job *j, struct round *ret)
{
    collect(j, has_joined, ret);
    cut_to_usable(j, ret);
}

void round_release(struct round *r)
{
    mem_free(r->node);
    *r = (struct round){0};
}

bool round_fits(const struct job *j, uint64_t max_world)
{
    uint64_t world = 0;
    struct round r;

    collect(j, can_join, &r);
    for (size_t i = 0; i < j->shape.min_nodes; i++) {
        world += i < r.n ? r.node[i]->hello.nproc : 1; /* one to come has a rank */
    }
    round_release(&r);
    return world <= max_world;
}

static uint64_t quiet_since(const struct job *j)
{
    return MIN(j->join_ms + ROUND_QUIET_MS, j->enough_ms + j->shape.last_call_ms);
}

/* A member of the last generation that has stopped and is about to join. */
static bool awaits_survivor(const struct job *j)
{
    for (size_t i = 0; i < j->n_nodes && j->count[NODE_PRESENT] > 0; i++) {
        const struct job_node *node = j->node[i];

        if (node->state == NODE_PRESENT && node->is_admitted &&
            node->ranked_in == j->generation) {
            return true;
        }
    }
    return false;
}

bool round_is_closed(const struct job *j, size_t n)
{
    bool are_all_in = j->knows_living && j->count[NODE_PRESENT] == 0;

    if (n == 0 || n < j->shape.min_nodes || j->n_away > 0) {
        return false;
    }
    return are_all_in || j->now_ms >= quiet_since(j) ||
           (n == j->shape.max_nodes && !awaits_survivor(j));
}

uint64_t round_deadline(const struct job *j)
{
    uint64_t deadline = j->has_enough ? quiet_since(j) : UINT64_MAX;

    if (j->n_away > 0) {
        return UINT64_MAX;
    }
    for (size_t i = 0; i < j->n_nodes && j->n_flapping > 0; i++) {
        if (j->node[i]->state == NODE_JOINED && is_held_back(j, j->node[i])) {
            deadline = MIN(deadline, j->node[i]->not_before_ms);
        }
    }
    return deadline;
}
