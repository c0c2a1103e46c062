/* PURE. `ctrun ps`: the ranks of jobs, which may be a million: they are told page by
 * page, and an operator that has not read one is not told the next. Their pages come in
 * turns, with a pause in between, in which everybody else is served. The pages make one
 * object in the end, whose ranks are of one generation of each job: a job that has gone
 * on to another meanwhile ends the answer. */

#include "rendezvous/event_json.h"
#include "rendezvous/job.h"
#include "rendezvous/operator_core.h"
#include "rendezvous/service.h"
#include "rendezvous/view.h"

#include "common/exit_code.h"
#include "common/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAUSE_MS = 10,       /* a page takes less */
    MAX_RANK = 8 * 1024, /* bytes of one: two names, with escapes */
};

static bool is_half_told(const struct asker *op)
{
    return op->first_rank > 0;
}

/* The jobs come by name: those before were told. */
static bool is_next(const struct operators *o, const struct asker *op,
                    const struct job *j)
{
    int order = strcmp(j->id, op->told);

    return (order > 0 || (order == 0 && is_half_told(op))) &&
           (op->job[0] == '\0' || strcmp(op->job, j->id) == 0) &&
           operator_job(o, op, j->id);
}

/* As many of its ranks as the page has room for. */
static void add_ranks(const struct view *v, struct asker *op, const struct job *j,
                      json_t *list)
{
    size_t at = json_array_size(list);
    json_t *page = view_ranks(v, j->id, op->first_rank, VIEW_MAX_PAGE - at);

    op->first_rank = (size_t)json_integer_value(json_object_get(page, "next"));
    op->generation = j->generation;
    memcpy(op->told, j->id, sizeof(op->told));
    (void)json_array_extend(list, json_object_get(page, "ranks"));
    json_decref(page);
    for (; at < json_array_size(list); at++) {
        json_t *rank = json_array_get(list, at);

        (void)json_object_set_new(rank, "job", event_json_text(j->id));
        (void)json_object_set_new(rank, "generation",
                                  json_integer((json_int_t)j->generation));
    }
}

/* Returns whether these were the last. */
static bool fill_page(const struct operators *o, struct asker *op, json_t *list,
                      uint64_t now_ms)
{
    const struct view v = {o->config.service, o->config.history, now_ms, op->key};
    const struct registry *jobs = service_jobs(o->config.service);
    struct entry **sorted = registry_sorted(jobs);
    size_t i;

    for (i = 0; i < jobs->n && json_array_size(list) < VIEW_MAX_PAGE; i++) {
        if (is_next(o, op, sorted[i]->job)) {
            add_ranks(&v, op, sorted[i]->job, list);
        }
    }
    mem_free(sorted);
    return i == jobs->n && !is_half_told(op);
}

/* The list without its brackets, which are around all pages. */
static void send_page(const struct operators *o, struct asker *op, const char *list,
                      bool is_first, bool is_last)
{
    size_t size = strlen(list) - 2;
    struct buf text;
    int rv;

    buf_init(&text, (size_t)VIEW_MAX_PAGE * MAX_RANK);
    rv = buf_printf(&text, "%s", is_first ? "{\"ranks\":[" : size > 0 ? "," : "");
    rv = rv < 0 ? rv : buf_append(&text, list + 1, size);
    rv = rv < 0 ? rv : buf_printf(&text, "%s", is_last ? "]}\n" : "");
    ASSERT(rv == 0);
    operator_answer(o, op, buf_bytes(&text), buf_len(&text));
    buf_release(&text);
}

static void tell_page(const struct operators *o, struct asker *op, bool is_first,
                      uint64_t now_ms)
{
    json_t *list = json_array();
    bool is_last = fill_page(o, op, list, now_ms);
    char *text = json_dumps(list, VIEW_JSON);

    json_decref(list);
    if (!text) {
        operator_fail(o, op, EXIT_RENDEZVOUS, "there is no memory to show ranks");
        return;
    }
    send_page(o, op, text, is_first, is_last);
    free(text); /* NOLINT: jansson's */
    op->due_ms = now_ms + PAUSE_MS;
    if (is_last) {
        operator_finish(o, op);
    }
}

/* A job that has ended has none either. */
static bool has_gone_on(const struct operators *o, const struct asker *op)
{
    const struct job *j = operator_job(o, op, op->told);

    return is_half_told(op) &&
           (!j || j->generation != op->generation || view_job_ranks(j) == 0);
}

static void go_on(struct operators *o, struct asker *op, uint64_t now_ms)
{
    if (has_gone_on(o, op)) {
        operator_fail(o, op, EXIT_RENDEZVOUS,
                      "generation %llu of job %s has ended while its ranks were shown: "
                      "ask again",
                      (unsigned long long)op->generation, op->told);
    } else if (now_ms < o->ranks_ms) {
        op->due_ms = o->ranks_ms;
    } else if (o->config.is_behind(o->config.arg, op->conn)) {
        op->due_ms = now_ms + OPERATOR_BEHIND_MS;
    } else {
        o->ranks_ms = now_ms + PAUSE_MS;
        tell_page(o, op, false, now_ms);
    }
}

/* Those of a small job, or of several, need no more. */
void operator_ranks_begin(const struct operators *o, struct asker *op, uint64_t now_ms)
{
    op->asking = ASKING_RANKS;
    tell_page(o, op, true, now_ms);
}

void operator_ranks_go_on(struct operators *o, uint64_t now_ms)
{
    size_t first = o->next;

    for (size_t i = 0; i < o->n; i++) {
        size_t at = (first + i) % o->n;
        struct asker *op = &o->list[at];

        if (op->asking == ASKING_RANKS && now_ms >= op->due_ms) {
            o->next = now_ms >= o->ranks_ms ? at + 1 : o->next;
            go_on(o, op, now_ms);
        }
    }
}
