#include "rendezvous/finished.h"

#include "rendezvous/eviction.h"
#include "rendezvous/record_fields.h"

#include "common/mem.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

enum { MAX_EXIT_CODE = 255 };

static void save(const struct finished *f, const struct finished_job *past)
{
    struct record record = {
        .act = RECORD_PUT, .kind = RECORD_FINISHED, .job = past->id};
    struct record_finished fields = {.generation = past->generation,
                                     .noted_ms = past->noted_ms,
                                     .n_members = (uint32_t)past->n_members,
                                     .min_nodes = past->min_nodes,
                                     .max_nodes = past->max_nodes,
                                     .max_restarts = past->max_restarts,
                                     .exit_code = past->exit_code,
                                     .has_more = past->members.has_more};
    struct buf value;
    struct buf keys;
    int rv = 0;

    if (!f->save) {
        return;
    }
    memcpy(fields.text, past->text, sizeof(fields.text));
    memcpy(fields.owner, past->owner, sizeof(fields.owner));
    buf_init(&value, RECORD_VALUE_MAX);
    buf_init(&keys, RECORD_VALUE_MAX);
    for (uint32_t i = 0; i < past->members.n && rv == 0; i++) {
        rv = wire_put_u64(&keys, past->members.key[i]);
    }
    fields.keys = record_bytes(&keys);
    rv = rv < 0 ? rv : record_put_finished(&fields, &value);
    ASSERT(rv == 0); /* far smaller than RECORD_VALUE_MAX */
    record.value = record_bytes(&value);
    f->save(f->save_arg, &record);
    buf_release(&keys);
    buf_release(&value);
}

static void drop(struct finished *f, size_t i)
{
    if (f->save) {
        f->save(f->save_arg, &(struct record){.act = RECORD_DROP,
                                              .kind = RECORD_FINISHED,
                                              .job = f->job[i]->id});
    }
    mem_free(f->job[i]);
    f->n--;
    memmove(&f->job[i], &f->job[i + 1], (f->n - i) * sizeof(struct finished_job *));
}

void finished_release(struct finished *f)
{
    while (f->n > 0) {
        mem_free(f->job[--f->n]);
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
    bool has_reason = job->ending.has_refused ||
                      (job->ending.is_cancelled && job->state == JOB_FAILED);
    const char *why = has_reason ? job->ending.text : "";
    struct errmsg msg;

    (void)errmsg_set(&msg, ERR_REFUSED,
                     "job %s is over: it ended with exit code %u%s%s", job->id,
                     job->exit_code, *why ? ": " : "", why);
    (void)snprintf(past->text, sizeof(past->text), "%s", msg.text);
}

static void make_room(struct finished *f, const char *newcomer)
{
    const char *owner[FINISHED_MAX];

    for (size_t i = 0; i < f->n; i++) {
        owner[i] = f->job[i]->owner;
    }
    drop(f, eviction_choose(owner, f->n, newcomer));
}

void finished_note(struct finished *f, const struct job *job, uint64_t now_ms)
{
    struct finished_job *past = mem_zalloc(sizeof(*past));
    size_t i;

    drop_expired(f, now_ms); /* no owner has those any more */
    i = place_of(f, job->id);
    if (i < f->n) {
        drop(f, i);
    } else if (f->n == FINISHED_MAX) {
        make_room(f, job->owner);
    }
    (void)snprintf(past->id, sizeof(past->id), "%s", job->id);
    memcpy(past->owner, job->owner, sizeof(past->owner));
    past->generation = MAX(job->generation, job->highest); /* begun anew: none yet */
    past->noted_ms = now_ms;
    past->exit_code = job->exit_code;
    past->members = job->members;
    past->n_members = job->n_members;
    past->min_nodes = job->shape.min_nodes;
    past->max_nodes = job->shape.max_nodes;
    past->max_restarts = job->shape.max_restarts;
    write_text(past, job);
    f->job[f->n++] = past;
    save(f, past);
}

/* Behind those that ended before. */
static void insert(struct finished *f, struct finished_job *past)
{
    size_t i = f->n++;

    while (i > 0 && f->job[i - 1]->noted_ms > past->noted_ms) {
        f->job[i] = f->job[i - 1];
        i--;
    }
    f->job[i] = past;
}

int finished_restore(struct finished *f, const struct record *r)
{
    struct record_finished fields;
    struct finished_job *past;
    int rv = record_get_finished(r->value, &fields);

    if (rv < 0) {
        return rv;
    }
    if (f->n == FINISHED_MAX || place_of(f, r->job) < f->n ||
        fields.exit_code > MAX_EXIT_CODE || fields.n_members > MSG_MAX_NODES ||
        fields.max_nodes > MSG_MAX_NODES) {
        return ERR_CORRUPT;
    }
    past = mem_zalloc(sizeof(*past));
    rv = members_restore(&past->members, fields.keys, fields.has_more != 0);
    if (rv < 0) {
        mem_free(past);
        return rv;
    }
    (void)snprintf(past->id, sizeof(past->id), "%s", r->job);
    memcpy(past->owner, fields.owner, sizeof(past->owner));
    past->generation = fields.generation;
    past->noted_ms = fields.noted_ms;
    past->n_members = fields.n_members;
    past->min_nodes = fields.min_nodes;
    past->max_nodes = fields.max_nodes;
    past->max_restarts = fields.max_restarts;
    past->exit_code = fields.exit_code;
    memcpy(past->text, fields.text, sizeof(past->text));
    insert(f, past);
    return 0;
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
