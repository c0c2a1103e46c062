#include "rendezvous/progress.h"

#include "common/check.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BACK_MS = 2200, /* who repeats its reports does so each second, unless it sleeps */
    MIN_STEPS = 3,  /* seen, before it is known how long one takes */
    TOK_S_RANKS = 64, /* of those that are asked for the throughput */
};

void progress_release(struct progress *p)
{
    mem_free(p->rank);
    mem_free(p->node);
    *p = (struct progress){0};
}

void progress_begin(struct progress *p, uint64_t generation, uint32_t max_nodes)
{
    progress_release(p);
    p->generation = generation;
    p->node = mem_array(MAX(max_nodes, 1), sizeof(*p->node));
}

void progress_add_node(struct progress *p, uint64_t session, const char *host,
                       uint32_t nproc)
{
    struct progress_node *node = &p->node[p->n_nodes++];

    node->session = session;
    node->first_rank = p->world;
    node->nproc = nproc;
    (void)snprintf(node->host, sizeof(node->host), "%s", host);
    p->world += nproc;
}

void progress_start(struct progress *p)
{
    p->rank = mem_array(MAX(p->world, 1), sizeof(*p->rank));
    for (uint32_t i = 0; i < p->world; i++) {
        p->rank[i].waits_for = -1;
    }
}

void progress_know(struct progress *p, uint32_t step_ms)
{
    p->known_ms = step_ms;
    p->median_ms = step_ms;
}

void progress_fold(struct progress *p)
{
    if (!p->rank) {
        return;
    }
    p->tok_s = progress_tok_s(p);
    p->is_over = true;
    mem_free(p->rank);
    p->rank = NULL;
}

void progress_fold_nodes(struct progress *p)
{
    mem_free(p->node);
    p->node = NULL;
    p->n_nodes = 0;
}

uint32_t progress_tok_s(const struct progress *p)
{
    uint32_t n = p->rank ? MIN(p->world, (uint32_t)TOK_S_RANKS) : 0;
    uint32_t tok_s = p->tok_s;

    for (uint32_t i = 0; i < n && tok_s == 0; i++) {
        tok_s = p->rank[i].tok_s;
    }
    return tok_s;
}

static int compare_rank(const void *key, const void *node)
{
    const uint32_t *rank = key;
    const struct progress_node *n = node;

    if (*rank < n->first_rank) {
        return -1;
    }
    return *rank - n->first_rank < n->nproc ? 0 : 1;
}

const struct progress_node *progress_node_of(const struct progress *p, uint32_t rank)
{
    return p->n_nodes == 0
               ? NULL
               : bsearch(&rank, p->node, p->n_nodes, sizeof(*p->node), compare_rank);
}

static struct progress_rank *find(const struct progress *p, uint64_t session,
                                  uint32_t rank)
{
    const struct progress_node *node = progress_node_of(p, rank);

    return p->rank && node && node->session == session ? &p->rank[rank] : NULL;
}

/* A peer's text goes to people, and into JSON. */
static void copy_text(char *to, const char *from)
{
    size_t n = 0;

    for (; from[n] != '\0' && n + 1 < PROGRESS_TEXT_MAX; n++) {
        to[n] = '?';
        if (from[n] >= ' ' && from[n] < 0x7f) {
            to[n] = from[n];
        }
    }
    to[n] = '\0';
}

static int compare_ms(const void *a, const void *b)
{
    const uint32_t *x = a;
    const uint32_t *y = b;

    return (*x > *y) - (*x < *y);
}

static uint32_t median_step_ms(const struct progress *p)
{
    uint32_t sorted[PROGRESS_STEPS];
    size_t n = MIN(p->n_advances, (uint32_t)PROGRESS_STEPS);

    if (n == 0 || p->front_step - p->first_step <= MIN_STEPS) {
        return p->known_ms;
    }
    memcpy(sorted, p->step_ms, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), compare_ms);
    return MAX(sorted[n / 2], 1);
}

static void advance(struct progress *p, uint64_t step, uint64_t when_ms)
{
    bool is_start = p->front_ms == 0;
    uint64_t n = step - p->front_step;
    uint64_t took_ms;

    if (step <= p->front_step) {
        return;
    }
    took_ms = (when_ms - MIN(when_ms, p->front_ms)) / n;
    p->first_step = is_start ? step : p->first_step;
    p->front_step = step;
    p->front_ms = MAX(when_ms, 1);
    /* the first step has the start in it, or compiles, or pages memory in */
    if (!is_start && (p->n_advances > 0 || n > 1 || step > p->first_step + 1)) {
        p->step_ms[p->n_advances % PROGRESS_STEPS] = (uint32_t)MIN(took_ms, UINT32_MAX);
        p->n_advances++;
    }
    p->median_ms = median_step_ms(p);
}

bool progress_note(struct progress *p, uint64_t session, const struct msg_progress *m,
                   uint64_t now_ms)
{
    struct progress_rank *r = find(p, session, m->rank);
    uint64_t when_ms = MAX(now_ms - MIN(now_ms, m->age_ms), 1);
    char phase[PROGRESS_TEXT_MAX];
    bool is_news;

    if (!r) {
        return false;
    }
    r->pid = m->pid;
    copy_text(phase, m->phase);
    if (m->step == 0 && phase[0] == '\0') {
        return true; /* it has been started, says its agent */
    }
    p->n_reporting += r->said_ms == 0;
    is_news = r->said_ms == 0 || m->step != r->step || strcmp(phase, r->phase) != 0;
    if (is_news || now_ms - MIN(now_ms, r->said_ms) > BACK_MS) {
        r->since_ms = is_news ? when_ms : now_ms;
        p->moved_ms = MAX(p->moved_ms, r->since_ms);
    }
    r->repeats = r->repeats || !is_news;
    r->said_ms = when_ms;
    p->said_ms = MAX(p->said_ms, when_ms);
    r->step = m->step;
    r->tok_s = m->tok_s;
    r->waits_for =
        m->waits_for >= 0 && (uint32_t)m->waits_for < p->world ? m->waits_for : -1;
    memcpy(r->phase, phase, sizeof(r->phase));
    if (m->loss[0] != '\0') {
        copy_text(r->loss, m->loss);
    }
    advance(p, m->step, when_ms);
    return true;
}

void progress_end(struct progress *p, uint64_t session, uint32_t rank)
{
    struct progress_rank *r = find(p, session, rank);

    if (r && !r->has_ended) {
        r->has_ended = true;
        p->n_ended++;
    }
}

static bool is_word_of(const char *phase, const char *const *words, size_t n)
{
    size_t len = strcspn(phase, " ");

    for (size_t i = 0; i < n; i++) {
        if (strncmp(phase, words[i], len) == 0 && words[i][len] == '\0') {
            return true;
        }
    }
    return false;
}

bool progress_is_waiting(const struct progress_rank *r)
{
    static const char *const words[] = {"wait", "reduce", "gather", "barrier", "sync"};

    return r->waits_for >= 0 || is_word_of(r->phase, words, ARRAY_LEN(words));
}

bool progress_is_excused(const struct progress_rank *r)
{
    static const char *const words[] = {"start",   "load",   "save", "eval",
                                        "compile", "sample", "end"};

    return is_word_of(r->phase, words, ARRAY_LEN(words));
}
