/* PURE. The history of a service that starts: its events, in the order of their numbers,
 * and its jobs' curves among them. */

#include "rendezvous/event_json.h"
#include "rendezvous/history_internal.h"
#include "rendezvous/record_fields.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

static bool restore_curve(struct history *h, const struct record *r)
{
    struct kept_curve c;

    if (!kept_curve_read(r, &c)) {
        return false;
    }
    if ((h->n_curves & (h->n_curves - 1)) == 0) { /* full: 0, 1, 2, 4 … */
        h->curves =
            mem_grow(h->curves, MAX(2 * h->n_curves, 1), sizeof(struct kept_curve));
    }
    h->curves[h->n_curves++] = c;
    return true;
}

static bool restore_event(struct history *h, const struct record *r)
{
    struct history_event *made = mem_zalloc(sizeof(*made));
    struct bytes key = r->key;
    uint64_t number = 0;

    if (r->key.size != sizeof(uint64_t) ||
        record_take_number(&key, sizeof(uint64_t), &number) < 0 ||
        !event_json_parse(r->value.data, r->value.size, made)) {
        mem_free(made);
        return false;
    }
    mem_free(made->job);
    made->job = history_copy_text(r->job); /* as it was said */
    made->number = number;
    if ((h->n_restored & (h->n_restored - 1)) == 0) { /* full: 0, 1, 2, 4 … */
        h->restored = mem_grow(h->restored, MAX(2 * h->n_restored, 1),
                               sizeof(struct history_event *));
    }
    h->restored[h->n_restored++] = made;
    return true;
}

bool history_restore(struct history *h, const struct record *r)
{
    return r->kind == RECORD_CURVE ? restore_curve(h, r)
                                   : r->kind == RECORD_EVENT && restore_event(h, r);
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t left = (*(struct history_event *const *)a)->number;
    uint64_t right = (*(struct history_event *const *)b)->number;

    return (left > right) - (left < right);
}

static int compare_curves(const void *a, const void *b)
{
    const struct kept_curve *left = a;
    const struct kept_curve *right = b;

    return (left->number > right->number) - (left->number < right->number);
}

/* Nobody knows any more how its job has ended. */
static bool is_orphan(const struct history *h, const struct kept_curve *c)
{
    struct history_event end = {.number = c->ended};
    const struct history_event *wanted = &end;

    return c->ended != 0 && (h->n_restored == 0 ||
                             !bsearch(&wanted, h->restored, h->n_restored,
                                      sizeof(struct history_event *), compare_numbers));
}

static void drop_curve(const struct history *h, struct kept_curve *c)
{
    if (h->config.save) {
        kept_curve_drop(c->job, c->number, h->config.save, h->config.arg);
    }
    loss_curve_release(&c->curve);
}

static void drop_orphans(struct history *h)
{
    size_t n = 0;

    for (size_t i = 0; i < h->n_curves; i++) {
        if (is_orphan(h, &h->curves[i])) {
            drop_curve(h, &h->curves[i]);
        } else {
            h->curves[n++] = h->curves[i];
        }
    }
    h->n_curves = n;
}

/* Its job begins with it: events from before may be gone. */
static void apply_curve(struct history *h, struct kept_curve *c)
{
    struct history_job *job;

    if (history_find_living(h, c->job)) {
        drop_curve(h, c);
        return;
    }
    h->last_number = MAX(h->last_number, c->number);
    job = history_take_job(h, c->job, c->began_ms);
    job->number = c->number;
    history_set_owner(job, c->owner);
    job->kept_ms = MAX(c->curve.point[c->curve.n - 1].wall_ms, 1);
    job->curve = c->curve;
}

/* Those of a job's end carry how often it was restarted. */
static void apply_restored(struct history *h, const struct history_event *e)
{
    struct history_job *job;

    if (!history_is_of_job(h, e->kind, e->job)) {
        return;
    }
    job = history_take_job(h, e->job, e->wall_ms);
    history_set_owner(job, e->owner);
    job->generation = MAX(job->generation, e->generation);
    if (e->kind == JOB_RESTARTS || e->kind == JOB_HAS_FAILED ||
        e->kind == JOB_IS_DONE || e->kind == JOB_IS_CANCELLED ||
        e->kind == JOB_IS_STOPPED) {
        memcpy(job->restarts, e->restarts, sizeof(job->restarts));
    }
    history_apply(h, job, e);
}

/* Each before the event with which its job began. */
static void apply_in_order(struct history *h)
{
    size_t k = 0;

    for (size_t i = 0; i < h->n_restored; i++) {
        struct history_event *e = h->restored[i];

        for (; k < h->n_curves && h->curves[k].number <= e->number; k++) {
            apply_curve(h, &h->curves[k]);
        }
        h->last_number = e->number;
        apply_restored(h, e);
        history_push(h, e);
    }
    for (; k < h->n_curves; k++) {
        apply_curve(h, &h->curves[k]);
    }
}

/* As old as the next one, at least: another version has not said how old it is. */
static void set_ages(struct history *h)
{
    uint64_t latest_ms = h->now_ms;

    for (size_t i = h->n_restored; i > 0; i--) {
        struct history_event *e = h->restored[i - 1];

        latest_ms = e->noted_ms > 0 ? MIN(e->noted_ms, latest_ms) : latest_ms;
        e->noted_ms = latest_ms;
    }
}

void history_restored(struct history *h, uint64_t now_ms)
{
    history_run(h, now_ms);
    if (h->n_restored > 0) {
        qsort(h->restored, h->n_restored, sizeof(struct history_event *),
              compare_numbers);
    }
    if (h->n_curves > 0) {
        qsort(h->curves, h->n_curves, sizeof(struct kept_curve), compare_curves);
    }
    set_ages(h);
    drop_orphans(h);
    apply_in_order(h);
    mem_free(h->restored);
    mem_free(h->curves);
    h->restored = NULL;
    h->curves = NULL;
    h->n_restored = h->n_curves = 0;
}
