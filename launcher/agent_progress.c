/* PURE. What the workers report of their progress, for the service: at most once a
 * second from each, but the last of a burst is told as soon as nothing more comes. So a
 * fast rank costs no more than a slow one, and it is known where one has stopped. What is
 * only said again is told when the second is over, and not dropped: a rank that seems
 * silent may be taken for the one that hangs. Of a rank's end the service hears behind
 * its last report (agent_workers.c). */

#include "launcher/agent_core.h"

#include <stdio.h>
#include <string.h>

enum { EVERY_MS = 1000, QUIET_MS = 250 };

void progress_send(struct agent *a, uint32_t slot)
{
    struct worker *w = &a->workers[slot];
    struct report *r = &w->report;
    struct msg m = {.type = MSG_PROGRESS,
                    .u.progress = {.generation = a->generation,
                                   .rank = a->first_rank + slot,
                                   .step = w->step,
                                   .tok_s = r->tok_s,
                                   .loss_step = r->loss_step,
                                   .waits_for = (int32_t)r->waits_for - 1,
                                   .pid = w->pid}};

    if (r->said_ms != 0) {
        r->sent_ms = MAX(a->now_ms, 1);
        m.u.progress.age_ms = (uint32_t)MIN(a->now_ms - r->said_ms, UINT32_MAX);
    }
    r->is_unsent = false;
    memcpy(m.u.progress.phase, r->phase, sizeof(m.u.progress.phase));
    memcpy(m.u.progress.loss, r->loss, sizeof(m.u.progress.loss));
    agent_send(a, &m);
}

static bool is_new(const struct worker *w, const struct control *c)
{
    const struct report *r = &w->report;

    return r->said_ms == 0 || c->step != w->step || c->loss_step != r->loss_step ||
           c->waits_for != r->waits_for || strcmp(c->phase, r->phase) != 0;
}

void progress_take(struct agent *a, uint32_t slot, const struct control *c)
{
    struct worker *w = &a->workers[slot];
    struct report *r = &w->report;

    if (c->step > INT64_MAX) {
        return; /* as with a line that is none: JSON's numbers have a sign */
    }
    r->has_news = (r->is_unsent && r->has_news) || is_new(w, c);
    r->is_unsent = true;
    r->said_ms = MAX(a->now_ms, 1);
    r->tok_s = c->tok_s;
    r->waits_for = c->waits_for <= MSG_MAX_WORLD ? c->waits_for : 0;
    memcpy(r->phase, c->phase, sizeof(r->phase));
    memcpy(r->loss, c->loss, sizeof(r->loss));
    r->loss_step = c->loss_step;
    w->step = c->step;
    if (r->sent_ms == 0 || a->now_ms - r->sent_ms >= EVERY_MS) {
        progress_send(a, slot);
    }
}

uint64_t progress_deadline(const struct worker *w)
{
    const struct report *r = &w->report;
    uint64_t next_ms = r->sent_ms + EVERY_MS;

    if (!r->is_unsent) {
        return UINT64_MAX;
    }
    return r->has_news ? MIN(r->said_ms + QUIET_MS, next_ms) : next_ms;
}

void progress_tick(struct agent *a, uint32_t slot)
{
    if (progress_deadline(&a->workers[slot]) <= a->now_ms) {
        progress_send(a, slot);
    }
}

void progress_flush(struct agent *a, uint32_t slot)
{
    if (a->workers[slot].report.is_unsent) {
        progress_send(a, slot);
    }
}

void progress_hurry(struct agent *a)
{
    for (uint32_t i = 0; i < a->config.nproc; i++) {
        progress_flush(a, i);
    }
}
