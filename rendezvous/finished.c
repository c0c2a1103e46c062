#include "rendezvous/finished.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static void drop(struct finished *f, size_t i)
{
    mem_free(f->job[i]);
    f->n--;
    memmove(&f->job[i], &f->job[i + 1], (f->n - i) * sizeof(struct finished_job *));
}

void finished_release(struct finished *f)
{
    while (f->n > 0) {
        drop(f, f->n - 1);
    }
}

static void drop_expired(struct finished *f, uint64_t now_ms)
{
    while (f->n > 0 && now_ms - f->job[0]->noted_ms >= FINISHED_KEPT_MS) {
        drop(f, 0);
    }
}

/* Its place, or n. */
static size_t place_of(const struct finished *f, const char *id)
{
    size_t i = 0;

    while (i < f->n && strcmp(f->job[i]->id, id) != 0) {
        i++;
    }
    return i;
}

static void write_text(struct finished_job *past, const struct job *job)
{
    const char *why = job->ending.has_refused ? job->ending.text : "";
    struct errmsg msg;

    (void)errmsg_set(&msg, ERR_REFUSED,
                     "job %s is over: it ended with exit code %u%s%s", job->id,
                     job->exit_code, *why ? ": " : "", why);
    (void)snprintf(past->text, sizeof(past->text), "%s", msg.text);
}

void finished_note(struct finished *f, const struct job *job, uint64_t now_ms)
{
    struct finished_job *past = mem_zalloc(sizeof(*past));
    size_t i = place_of(f, job->id);

    if (i < f->n) {
        drop(f, i);
    } else if (f->n == FINISHED_MAX) {
        drop(f, 0);
    }
    (void)snprintf(past->id, sizeof(past->id), "%s", job->id);
    past->generation = job->generation;
    past->noted_ms = now_ms;
    past->exit_code = job->exit_code;
    past->members = job->members;
    past->n_members = job->n_members;
    past->min_nodes = job->shape.min_nodes;
    past->max_nodes = job->shape.max_nodes;
    past->max_restarts = job->shape.max_restarts;
    write_text(past, job);
    f->job[f->n++] = past;
}

bool finished_is_late(const struct finished_job *past, const struct msg_hello *hello,
                      uint64_t key, uint64_t now_ms)
{
    bool is_same_command = hello->min_nodes == past->min_nodes &&
                           hello->max_nodes == past->max_nodes &&
                           hello->max_restarts == past->max_restarts;

    return strcmp(past->id, MSG_NO_ID) != 0 && hello->generation == 0 &&
           is_same_command && past->n_members < past->max_nodes &&
           now_ms - past->noted_ms < FINISHED_LATE_MS &&
           !members_may_have(&past->members, key);
}

const struct finished_job *finished_find(struct finished *f, const char *id,
                                         uint64_t now_ms)
{
    size_t i;

    drop_expired(f, now_ms);
    i = place_of(f, id);
    return i < f->n ? f->job[i] : NULL;
}
