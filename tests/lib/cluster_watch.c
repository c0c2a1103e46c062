/* Whether what the service says of hangs and ends is true, whether it says so in time
 * and once, and whether who was told to go goes. */

#include "rendezvous/service_core.h"
#include "tests/lib/cluster.h"

#include <inttypes.h>
#include <string.h>

enum {
    HANG_LIMIT_MS = 3000, /* or five steps: the judge's promise … */
    HANG_STEPS = 5,
    STEP_SPREAD = 3,
    NEWS_MS = 600,      /* … and what the way of a report and of a question takes */
    KNOWN_MS = 4000,    /* then it knows how long steps are: reports come each second */
    OLD_NEWS_MS = 6000, /* a lease, and a slow line */
    GRACE_MS = 30000 + 5000,
    ATTACHED_MS = 5000, /* an agent to a server that is there */
};

/* NULL: that life of it is over. */
static struct sim_worker *find_worker(struct cluster *c, uint64_t generation,
                                      uint32_t rank)
{
    struct sim_worker *w;

    for (size_t i = 0; (w = cluster_worker(c, i)) != NULL; i++) {
        if (w->is_alive && w->generation == generation && w->rank == rank) {
            return w;
        }
    }
    return NULL;
}

/* --- hangs --- */

static bool is_calm(const struct cluster *c)
{
    return (c->config.faults & FAULT_BLIND) == 0;
}

/* Or it did when the news left. */
static bool does_hang(const struct sim_worker *w)
{
    return w->hang != HANGS_NOT ||
           (w->resumed_ms > 0 && worker_now(w) < w->resumed_ms + OLD_NEWS_MS);
}

/* Of the generation: ranks that are gone, or hang, or go. */
static size_t count_disturbed(struct cluster *c, uint64_t generation, uint32_t world)
{
    size_t n = 0;

    for (uint32_t rank = 0; rank < world; rank++) {
        const struct sim_worker *w = find_worker(c, generation, rank);

        n += !w || does_hang(w) || w->is_leaving;
    }
    return n;
}

static void on_must_be_told(void *arg, uint64_t tag)
{
    struct sim_worker *w = arg;
    struct cluster *c = w->node->cluster;
    bool is_same = w->is_alive && w->life == tag && w->hang != HANGS_NOT &&
                   w->hung_ms + HANG_LIMIT_MS < worker_now(w);

    if (is_same && w->told_ms == 0 &&
        count_disturbed(c, w->generation, w->world) == 1) {
        cluster_violate(c,
                        "rank %u of generation %" PRIu64 " hangs since %" PRIu64
                        " ms, and nobody says so",
                        w->rank, w->generation, worker_now(w) - w->hung_ms);
    }
}

/* Each hang is also a long step: the median is a step's again when more others have been
 * reported since. */
void watch_hang(struct sim_worker *w)
{
    struct cluster *c = w->node->cluster;
    struct sealed *s = train_sealed(w);
    uint64_t steps_ms = (uint64_t)HANG_STEPS * STEP_SPREAD * c->config.step_ms;
    uint64_t calm_ms = worker_now(w) - MAX(s->begun_ms, s->resumed_ms);
    bool knows_steps = s->step >= s->start_step + HANG_STEPS &&
                       calm_ms > (uint64_t)KNOWN_MS * (s->n_hangs + 1);

    s->n_hangs++;
    if (is_calm(c) && w->world > 1 && knows_steps && w->at != AT_SAVE) {
        sim_after(&c->sim, MAX((uint64_t)HANG_LIMIT_MS, steps_ms) + NEWS_MS,
                  on_must_be_told, w, w->life);
    }
}

static void check_hang(struct cluster *c, const struct job_event *e)
{
    struct sim_worker *w = e->has_rank ? find_worker(c, e->generation, e->rank) : NULL;

    if (!e->has_rank) {
        const struct sealed *s = cluster_sealed(c, c->job_life, e->generation);

        if (!s->has_lost && count_disturbed(c, e->generation, s->world) == 0) {
            cluster_violate(c, "no rank hangs, and the service says: %s", e->why);
        }
        return;
    }
    if (!w) {
        return; /* it is gone, and nobody knows yet */
    }
    if (!does_hang(w)) {
        cluster_violate(c, "rank %u does not hang: %s", e->rank, e->why);
    }
    train_sealed(w)->rank[w->rank].is_culprit = true;
    if (w->told_ms == 0) {
        c->result->n_hangs_found++;
    } else if (is_calm(c) && train_sealed(w)->resumed_ms + NEWS_MS < w->told_ms) {
        cluster_violate(c, "told again: %s", e->why);
    }
    w->told_ms = worker_now(w);
}

/* --- ends --- */

/* Those that only reacted are not the cause, in whatever order their ends are known. */
void watch_report(struct node *n, const struct msg_report *report)
{
    struct cluster *c = n->cluster;
    size_t n_ranks = (size_t)c->config.n_nodes * c->config.nproc;

    for (size_t i = c->n_sealed; i > 0 && report->rank >= 0; i--) {
        const struct sealed *s = c->sealed[i - 1];

        if (s->generation != report->generation) {
            continue;
        }
        if ((size_t)report->rank >= n_ranks || !s->rank[report->rank].is_culprit) {
            cluster_violate(c, "generation %" PRIu64 ": rank %d did not fail by itself",
                            report->generation, report->rank);
        }
        return;
    }
}

void watch_note(struct cluster *c, const struct job_event *e)
{
    (void)history_note(&c->history, e, c->sim.now_ms);
    sim_note(&c->sim, "server: %s", event_kind_name(e->kind));
    if (e->kind == JOB_HANGS) {
        check_hang(c, e);
    }
    if (e->kind == JOB_IS_CANCELLED) { /* who comes now begins another */
        c->may_be_cancelled = true;
        c->seen_generation = 0;
        c->seen_step = 0;
    }
}

/* Steps that were done in the generation before, and have to be done again. */
void watch_start(struct cluster *c, const struct sealed *s)
{
    const struct sealed *before = NULL;

    for (size_t i = 0; i < c->n_sealed; i++) {
        const struct sealed *other = c->sealed[i];

        if (other->job_life == s->job_life && other->generation < s->generation &&
            (!before || other->generation > before->generation)) {
            before = other;
        }
    }
    if (before && before->step > s->start_step) {
        c->result->steps_lost += before->step - s->start_step;
    }
}

static void on_must_be_gone(void *arg, uint64_t tag)
{
    struct node *n = arg;
    struct cluster *c = n->cluster;

    if (!n->agent || n->life != tag) {
        return;
    }
    if (n->paused_until_ms + GRACE_MS > c->sim.now_ms) {
        sim_after(&c->sim, GRACE_MS, on_must_be_gone, n, tag);
        return;
    }
    cluster_violate(c, "node %u was told to go %" PRIu64 " ms ago", n->index,
                    c->sim.now_ms - n->told_ms);
}

void watch_told(struct node *n)
{
    struct cluster *c = n->cluster;

    if (n->told_ms == 0) {
        n->told_ms = c->sim.now_ms;
        sim_after(&c->sim, GRACE_MS, on_must_be_gone, n, n->life);
    }
}

static void on_must_be_drained(void *arg, uint64_t tag)
{
    struct node *n = arg;
    struct cluster *c = n->cluster;

    if (!n->agent || n->life != tag || n->is_drained || c->is_ending) {
        return;
    }
    if (!c->service || c->sim.now_ms < c->server_since_ms + ATTACHED_MS) {
        sim_after(&c->sim, ATTACHED_MS, on_must_be_drained, n, tag);
        return;
    }
    cluster_violate(c, "node %u was to be drained, and does not know it", n->index);
}

/* Where nothing but the server itself is lost, its word is not. */
void watch_drain(struct node *n)
{
    struct cluster *c = n->cluster;

    if (c->config.is_durable &&
        (c->config.faults & FAULT_BLIND & ~(unsigned)FAULT_SERVER) == 0) {
        sim_after(&c->sim, ATTACHED_MS, on_must_be_drained, n, n->life);
    }
}

/* It is down, has not heard yet that somebody is gone, or waits for who was there when it
 * was killed. */
static bool is_behind(const struct cluster *c)
{
    for (size_t i = 0; i < c->n_conns; i++) {
        if (c->conns[i]->server_open && c->conns[i]->server_life == c->server_life) {
            return true;
        }
    }
    return !c->service || c->service->n_away > 0;
}

bool watch_is_over(const struct cluster *c)
{
    return !c->is_cancelled || !is_behind(c);
}

/* As the history has it: the job was cancelled, and has ended so often since then. */
static bool was_cancelled(const struct cluster *c, unsigned *ret_ends)
{
    const struct history_event *e;
    bool is_cancelled = false;
    uint64_t at = 0;

    *ret_ends = 0;
    while ((e = history_after(&c->history, at)) != NULL) {
        at = e->number;
        if (e->kind == OPERATOR_ACTS && strncmp(e->text, "cancelled", 9) == 0) {
            is_cancelled = true;
            *ret_ends = 0;
        } else if (*ret_ends > 0 && e->kind == JOB_HAS_FORMED) {
            is_cancelled = false; /* that one has ended; another has begun */
        }
        *ret_ends += e->kind == JOB_IS_CANCELLED || e->kind == JOB_HAS_FAILED ||
                     e->kind == JOB_IS_DONE;
    }
    return is_cancelled;
}

bool watch_was_cancelled(const struct cluster *c)
{
    unsigned n_ends;

    return was_cancelled(c, &n_ends);
}

/* A job that was cancelled has ended, once. (Who was started before, and says hello only
 * then, may begin it anew.) */
void watch_end(struct cluster *c)
{
    unsigned n_ends;

    if (!c->is_cancelled ||
        (!c->config.is_durable && c->cancelled_by != c->server_life)) {
        return;
    }
    if (is_behind(c)) {
        cluster_violate(c, "the service never notices that all nodes are gone");
        return;
    }
    if (was_cancelled(c, &n_ends) && n_ends != 1) {
        cluster_violate(c, "the job was cancelled, and has ended %u times", n_ends);
    }
}
