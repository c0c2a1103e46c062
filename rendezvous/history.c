#include "rendezvous/event_json.h"
#include "rendezvous/eviction.h"
#include "rendezvous/history_internal.h"
#include "rendezvous/record_fields.h"

#include "common/mem.h"
#include "common/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REFUSALS_EVERY_MS = 1000, CURVE_EVERY_MS = 10000 };

void history_init(struct history *h, const struct history_config *config)
{
    *h = (struct history){.config = *config,
                          .vital = {.max = HISTORY_MAX_EVENTS},
                          .crowd = {.max = HISTORY_MAX_CROWD}};
    table_init(&h->jobs);
}

/* --- curves that are kept --- */

static void keep_curve(const struct history *h, struct history_job *job, uint64_t ended,
                       uint64_t wall_ms)
{
    struct kept_curve c = {.number = job->number,
                           .ended = ended,
                           .began_ms = job->began_ms,
                           .curve = job->curve};

    if (h->config.save && !h->is_terse && job->curve.n > 0) {
        memcpy(c.job, job->id, sizeof(c.job));
        memcpy(c.owner, job->owner, sizeof(c.owner));
        kept_curve_put(&c, h->config.save, h->config.arg);
        job->kept_ms = MAX(wall_ms, 1);
        job->n_kept = job->curve.n_kept;
    }
}

/* A point that stays has been added, and the last time is a while ago. */
static bool is_due(const struct history_job *job, uint64_t wall_ms)
{
    return job->curve.n_kept != job->n_kept &&
           (job->kept_ms == 0 || wall_ms < job->kept_ms ||
            wall_ms - job->kept_ms >= CURVE_EVERY_MS);
}

static void forget_job(const struct history *h, struct history_job *job)
{
    if (h->config.save && job->kept_ms != 0) {
        kept_curve_drop(job->id, job->number, h->config.save, h->config.arg);
    }
    loss_curve_release(&job->curve);
    mem_free(job);
}

static void free_job(struct history_job *job)
{
    loss_curve_release(&job->curve);
    mem_free(job);
}

static void free_event(struct history_event *e)
{
    mem_free(e->job);
    mem_free(e->node);
    mem_free(e->text);
    mem_free(e->owner);
    mem_free(e);
}

/* --- events --- */

/* The ith, or (n) where the next one goes. */
static struct history_event **place_of(const struct history_ring *r, size_t i)
{
    size_t at = r->first + i;

    return &r->event[at < r->max ? at : at - r->max];
}

static struct history_event *event_at(const struct history_ring *r, size_t i)
{
    return *place_of(r, i);
}

static void release_ring(struct history_ring *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free_event(event_at(r, i));
    }
    mem_free(r->event);
}

/* Without those a service that is started again would not know what has become of a job:
 * what it has told would not be so any more. */
static bool is_of_a_jobs_life(enum job_event_kind kind)
{
    return kind == JOB_HAS_FORMED || kind == JOB_RESTARTS || kind == JOB_HAS_FAILED ||
           kind == JOB_IS_DONE || kind == JOB_IS_CANCELLED || kind == JOB_IS_STOPPED;
}

static void save(const struct history *h, enum record_act act,
                 const struct history_event *e)
{
    struct record_key key = {.size = 0};
    struct record r = {
        .act = act, .kind = RECORD_EVENT, .job = e->job, .generation = e->generation};
    json_t *json = NULL;
    char *text = NULL;

    if (!h->config.save || (h->is_terse && !is_of_a_jobs_life(e->kind))) {
        return;
    }
    record_key_u64(&key, e->number);
    r.key = record_key_bytes(&key);
    if (act == RECORD_PUT) {
        json = event_json_keep(e);
        text = json_dumps(json, JSON_COMPACT);
        ASSERT(text); /* every text in it is UTF-8 */
        r.value = (struct bytes){(const uint8_t *)text, strlen(text)};
    }
    h->config.save(h->config.arg, &r);
    free(text); /* the library's */
    json_decref(json);
}

static void forget_first(struct history_ring *r)
{
    free_event(event_at(r, 0));
    r->first = r->first + 1 < r->max ? r->first + 1 : 0;
    r->n--;
}

static void drop_first(const struct history *h, struct history_ring *r)
{
    save(h, RECORD_DROP, event_at(r, 0));
    forget_first(r);
}

/* From memory alone: where they are durable, the state looks to their age itself. */
static void forget_expired(const struct history *h, struct history_ring *r)
{
    uint64_t span_ms = h->config.span_ms;

    while (span_ms > 0 && r->n > 0 && h->now_ms - event_at(r, 0)->noted_ms > span_ms) {
        forget_first(r);
    }
}

static bool comes_in_crowds(enum job_event_kind kind)
{
    return kind == JOB_HAS_COMMITTED || kind == NODE_HAS_JOINED ||
           kind == NODE_STANDS_BY || kind == NODE_IS_REFUSED;
}

/* Takes it over. */
void history_push(struct history *h, struct history_event *e)
{
    struct history_ring *r = comes_in_crowds(e->kind) ? &h->crowd : &h->vital;

    if (!r->event) {
        r->event = mem_array(r->max, sizeof(struct history_event *));
    }
    if (r->n == r->max) {
        drop_first(h, r);
    }
    *place_of(r, r->n) = e;
    r->n++;
}

/* The first of that ring with a larger number. */
static const struct history_event *ring_after(const struct history_ring *r,
                                              uint64_t number)
{
    size_t low = 0;
    size_t high = r->n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (event_at(r, middle)->number > number) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low < r->n ? event_at(r, low) : NULL;
}

const struct history_event *history_after(const struct history *h, uint64_t number)
{
    const struct history_event *a = ring_after(&h->vital, number);
    const struct history_event *b = ring_after(&h->crowd, number);

    return !a || (b && b->number < a->number) ? b : a;
}

/* --- jobs --- */

static uint64_t hash_of(const struct history *h, const char *id)
{
    return table_hash(id, strlen(id), h->config.seed);
}

struct history_job *history_find_living(const struct history *h, const char *id)
{
    uint64_t hash = hash_of(h, id);
    struct table_node *n = table_bucket(&h->jobs, hash);

    for (; n; n = n->next) {
        struct history_job *job = CONTAINER_OF(n, struct history_job, by_id);

        if (n->hash == hash && strcmp(job->id, id) == 0) {
            return job;
        }
    }
    return NULL;
}

const struct history_job *history_find(const struct history *h, const char *id)
{
    const struct history_job *job = history_find_living(h, id);

    for (size_t i = h->n_ended; i > 0 && !job; i--) {
        job = strcmp(h->ended[i - 1]->id, id) == 0 ? h->ended[i - 1] : NULL;
    }
    return job;
}

/* Of which nobody has heard for longest. */
static void forget_stalest(struct history *h)
{
    struct table_node *n = table_next(&h->jobs, NULL);
    struct history_job *stalest = NULL;

    for (; n; n = table_next(&h->jobs, n)) {
        struct history_job *job = CONTAINER_OF(n, struct history_job, by_id);

        stalest = stalest && stalest->touched < job->touched ? stalest : job;
    }
    ASSERT(stalest);
    table_remove(&h->jobs, &stalest->by_id);
    forget_job(h, stalest);
}

struct history_job *history_take_job(struct history *h, const char *id,
                                     uint64_t wall_ms)
{
    struct history_job *job = history_find_living(h, id);

    if (!job) {
        if (h->jobs.count == HISTORY_MAX_JOBS) {
            forget_stalest(h);
        }
        job = mem_zalloc(sizeof(*job));
        (void)snprintf(job->id, sizeof(job->id), "%s", id);
        job->began_ms = wall_ms;
        job->number = h->last_number;
        table_insert(&h->jobs, &job->by_id, hash_of(h, id));
    }
    job->touched = ++h->n_touches;
    return job;
}

static void forget_ended(struct history *h, const char *newcomer)
{
    const char *owner[HISTORY_MAX_ENDED];
    size_t i;

    for (i = 0; i < h->n_ended; i++) {
        owner[i] = h->ended[i]->owner;
    }
    i = eviction_choose(owner, h->n_ended, newcomer);
    forget_job(h, h->ended[i]);
    h->n_ended--;
    memmove(&h->ended[i], &h->ended[i + 1],
            (h->n_ended - i) * sizeof(struct history_job *));
}

static void end_job(struct history *h, struct history_job *job,
                    const struct history_event *e, enum history_state state)
{
    job->state = state;
    job->ended_ms = e->wall_ms;
    job->exit_code = e->exit_code;
    job->end_step = e->step;
    table_remove(&h->jobs, &job->by_id);
    if (h->n_ended == HISTORY_MAX_ENDED) {
        forget_ended(h, job->owner);
    }
    h->ended[h->n_ended++] = job;
}

static void set_cause(struct history_job *job, const struct history_event *e)
{
    (void)snprintf(job->cause, sizeof(job->cause), "%s", e->text);
    (void)snprintf(job->node, sizeof(job->node), "%s", e->node);
    job->has_rank = e->has_rank;
    job->rank = e->rank;
}

void history_set_owner(struct history_job *job, const char *owner)
{
    (void)snprintf(job->owner, sizeof(job->owner), "%s", owner);
}

/* What an event changes of its job's record. */
void history_apply(struct history *h, struct history_job *job,
                   const struct history_event *e)
{
    switch (e->kind) {
    case JOB_HAS_FORMED:
        job->formed_ms = e->wall_ms;
        job->nodes = e->nodes;
        job->ranks = e->ranks;
        job->restarts_now = false;
        break;
    case JOB_RESTARTS:
        set_cause(job, e);
        job->restarts_now = true;
        job->restarts_for = e->cause;
        break;
    case JOB_HAS_FAILED:
        set_cause(job, e);
        end_job(h, job, e, HISTORY_FAILED);
        break;
    case JOB_IS_CANCELLED:
        set_cause(job, e);
        end_job(h, job, e, HISTORY_CANCELLED);
        break;
    case JOB_IS_DONE:
        end_job(h, job, e, HISTORY_DONE);
        break;
    case JOB_IS_STOPPED:
        if (e->text[0] != '\0' && !job->has_rank) {
            set_cause(job, e);
        }
        end_job(h, job, e, HISTORY_STOPPED);
        break;
    case JOB_HAS_COMMITTED:
        job->commit_step = e->step;
        job->commit_ms = e->wall_ms;
        break;
    case JOB_PROGRESSES:
    case NODE_HAS_JOINED:
    case NODE_STANDS_BY:
    case NODE_IS_LOST:
    case NODE_HAS_LEFT:
    case NODE_IS_REFUSED:
    case JOB_HANGS:
    case JOB_HANGS_NO_MORE:
    case OPERATOR_ACTS:
    case SERVICE_HAS_STARTED:
    case JOB_EVENT_COUNT:
        break;
    }
}

/* Refusals are of jobs that may not exist; who is lost or drained does not begin one. */
bool history_is_of_job(const struct history *h, enum job_event_kind kind,
                       const char *id)
{
    bool begins =
        kind == NODE_HAS_JOINED || kind == JOB_HAS_FORMED || kind == JOB_PROGRESSES ||
        kind == JOB_RESTARTS || kind == JOB_HAS_FAILED || kind == JOB_IS_DONE ||
        kind == JOB_IS_CANCELLED || kind == JOB_IS_STOPPED || kind == JOB_HAS_COMMITTED;

    return id[0] != '\0' && (begins || history_find_living(h, id));
}

/* --- both --- */

static void add_point(struct history *h, const struct job_event *e, uint64_t wall_ms)
{
    struct history_job *job = history_take_job(h, e->job, wall_ms);
    struct loss_point p = {.step = e->step, .wall_ms = wall_ms, .loss = NAN};

    if (str_parse_double(e->why, &p.loss) < 0) {
        p.loss = NAN; /* "nan", "inf" */
    }
    loss_curve_add(&job->curve, e->generation, &p);
    if (is_due(job, wall_ms)) {
        keep_curve(h, job, 0, wall_ms);
    }
}

char *history_copy_text(const char *text)
{
    char cut[HISTORY_TEXT_MAX];

    (void)snprintf(cut, sizeof(cut), "%s", text ? text : "");
    return mem_strdup(cut);
}

static struct history_event *make_event(const struct job_event *e, uint64_t wall_ms)
{
    struct history_event *made = mem_zalloc(sizeof(*made));

    *made = (struct history_event){
        .wall_ms = wall_ms,
        .kind = e->kind,
        .cause = e->cause,
        .generation = e->generation,
        .step = e->step,
        .nodes = (uint32_t)e->nodes,
        .ranks = e->ranks,
        .exit_code = e->exit_code,
        .has_rank = e->has_rank,
        .rank = e->rank,
        .has_group_rank = e->has_group_rank,
        .group_rank = e->group_rank,
        .job = history_copy_text(e->job),
        .node = history_copy_text(e->node),
        .text = history_copy_text(e->why),
        .owner = history_copy_text(e->owner),
    };
    return made;
}

static bool is_one_of_many(struct history *h, const struct job_event *e,
                           uint64_t wall_ms)
{
    bool is_many = e->kind == NODE_IS_REFUSED && wall_ms >= h->refused_ms &&
                   wall_ms < h->refused_ms + REFUSALS_EVERY_MS;

    if (e->kind == NODE_IS_REFUSED && !is_many) {
        h->refused_ms = wall_ms;
    }
    return is_many;
}

/* One that no node was left for was none. */
static void count_restart(struct history_job *job, const struct job_event *e)
{
    job->restarts[e->cause] += e->kind == JOB_RESTARTS;
    if (e->kind == JOB_IS_STOPPED && job->restarts_now &&
        job->restarts[job->restarts_for] > 0) {
        job->restarts[job->restarts_for]--;
    }
}

void history_be_terse(struct history *h, bool is_terse)
{
    h->is_terse = is_terse;
}

void history_run(struct history *h, uint64_t now_ms)
{
    h->now_ms = MAX(h->now_ms, now_ms);
}

bool history_note(struct history *h, const struct job_event *e, uint64_t wall_ms)
{
    struct history_job *job = NULL;
    struct history_event *made;

    h->n_kind[e->kind]++;
    if (e->kind == JOB_PROGRESSES) {
        add_point(h, e, wall_ms);
        return false;
    }
    if (is_one_of_many(h, e, wall_ms)) {
        return false;
    }
    forget_expired(h, &h->vital);
    forget_expired(h, &h->crowd);
    made = make_event(e, wall_ms);
    made->noted_ms = h->now_ms;
    made->number = ++h->last_number;
    h->n_restarts[e->cause] += e->kind == JOB_RESTARTS;
    if (history_is_of_job(h, e->kind, made->job)) {
        job = history_take_job(h, made->job, wall_ms);
        history_set_owner(job, made->owner);
        job->generation = MAX(job->generation, e->generation);
        count_restart(job, e);
        memcpy(made->restarts, job->restarts, sizeof(made->restarts));
        history_apply(h, job, made);
        if (job->state != HISTORY_LIVES) {
            keep_curve(h, job, made->number, wall_ms);
        }
    }
    history_push(h, made);
    save(h, RECORD_PUT, made);
    return true;
}

void history_stop(struct history *h, uint64_t wall_ms)
{
    struct table_node *n = table_next(&h->jobs, NULL);

    for (; n; n = table_next(&h->jobs, n)) {
        keep_curve(h, CONTAINER_OF(n, struct history_job, by_id), 0, wall_ms);
    }
}

void history_release(struct history *h)
{
    struct table_node *n;

    while ((n = table_next(&h->jobs, NULL)) != NULL) {
        table_remove(&h->jobs, n);
        free_job(CONTAINER_OF(n, struct history_job, by_id));
    }
    for (size_t i = 0; i < h->n_ended; i++) {
        free_job(h->ended[i]);
    }
    table_release(&h->jobs);
    release_ring(&h->vital);
    release_ring(&h->crowd);
    for (size_t i = 0; i < h->n_restored; i++) {
        free_event(h->restored[i]); /* the start was given up */
    }
    for (size_t i = 0; i < h->n_curves; i++) {
        loss_curve_release(&h->curves[i].curve); /* that, too */
    }
    mem_free(h->restored);
    mem_free(h->curves);
}
