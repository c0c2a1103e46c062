/* PURE. An operator's questions, and what is answered at once; events that are followed.
 * Ranks: operator_ranks.c; logs: operator_logs.c. */

#include "rendezvous/operator.h"

#include "rendezvous/event_json.h"
#include "rendezvous/history.h"
#include "rendezvous/operator_core.h"
#include "rendezvous/permit.h"
#include "rendezvous/service.h"
#include "rendezvous/steering.h"
#include "rendezvous/view.h"

#include "common/err.h"
#include "common/exit_code.h"
#include "common/mem.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Agents outlive us, and know our requests by their numbers: of one start none is another
 * start's. */
#define REQUESTS_OF_A_BOOT (1ULL << 40)
#define MAX_BOOTS          (OPERATOR_REQUESTS / REQUESTS_OF_A_BOOT)

struct operators *operators_new(const struct operators_config *config)
{
    struct operators *o = mem_zalloc(sizeof(*o));

    o->config = *config;
    o->n_requests = (config->welcome.boot % MAX_BOOTS) * REQUESTS_OF_A_BOOT;
    o->list = mem_array(OPERATORS_MAX, sizeof(*o->list));
    return o;
}

void operators_free(struct operators *o)
{
    if (!o) {
        return;
    }
    for (size_t i = 0; i < o->n; i++) {
        operator_logs_release(&o->list[i]);
    }
    mem_free(o->list);
    mem_free(o);
}

static struct asker *find(const struct operators *o, uint64_t conn)
{
    for (size_t i = 0; i < o->n; i++) {
        if (o->list[i].conn == conn) {
            return &o->list[i];
        }
    }
    return NULL;
}

static bool may_see(const struct asker *op, const struct job *j)
{
    return permit_job(op->key, j->id, j->owner);
}

struct job *operator_job(const struct operators *o, const struct asker *op,
                         const char *id)
{
    const struct entry *entry = registry_find(service_jobs(o->config.service), id);

    return entry && may_see(op, entry->job) ? entry->job : NULL;
}

bool operator_job_ended(const struct job *j)
{
    return !j || job_is_over(j) || job_is_stopped(j);
}

/* ---- coming and going ---- */

void operators_refuse(const struct operators *o, uint64_t conn, const char *why)
{
    struct msg m = {.type = MSG_REFUSED, .u.refused = {.exit_code = EXIT_RENDEZVOUS}};

    (void)snprintf(m.u.refused.text, sizeof(m.u.refused.text), "%s", why);
    o->config.send(o->config.arg, conn, &m);
    o->config.close(o->config.arg, conn);
}

static void welcome(const struct operators *o, uint64_t conn)
{
    struct msg m = {.type = MSG_WELCOME, .u.welcome = o->config.welcome};

    o->config.send(o->config.arg, conn, &m);
}

/* `owner` NULL: of all owners. */
static size_t count_of(const struct operators *o, const char *owner)
{
    size_t n = 0;

    for (size_t i = 0; i < o->n; i++) {
        const struct identity *key = o->list[i].key;

        n += !permit_every_job(key) && (!owner || strcmp(key->owner, owner) == 0);
    }
    return n;
}

static int find_room(const struct operators *o, const struct identity *who,
                     struct errmsg *msg)
{
    bool is_owner = !permit_every_job(who);
    char name[IDENTITY_OWNER_MAX];

    if (o->n == OPERATORS_MAX) {
        return errmsg_set(msg, ERR_REFUSED,
                          "%d operators are here already, and there is no room for "
                          "more: end one of them (--follow?)",
                          OPERATORS_MAX);
    }
    if (is_owner && count_of(o, who->owner) >= OPERATORS_OF_ONE) {
        identity_describe(who, name, sizeof(name));
        return errmsg_set(msg, ERR_REFUSED,
                          "%d operators with this key (%s) are here already, and one "
                          "owner may have no more: end one of them (--follow?)",
                          OPERATORS_OF_ONE, name);
    }
    if (is_owner && count_of(o, NULL) >= OPERATORS_OF_OWNERS) {
        return errmsg_set(msg, ERR_REFUSED,
                          "%d operators who see their own jobs alone are here already, "
                          "and the other %d places are kept for those who see all: end "
                          "one of yours (--follow?), or try again later",
                          OPERATORS_OF_OWNERS, OPERATORS_MAX - OPERATORS_OF_OWNERS);
    }
    return 0;
}

bool operators_open(struct operators *o, uint64_t conn, const struct msg_operator *m,
                    const struct identity *who)
{
    struct errmsg msg = {""};
    int rv;

    if (m->version != MSG_VERSION) {
        rv = errmsg_set(&msg, ERR_REFUSED,
                        "this service speaks version %d of the protocol, you speak "
                        "version %u: use the ctrun that the job was started with",
                        MSG_VERSION, m->version);
    } else {
        rv = find_room(o, who, &msg);
    }
    if (rv < 0) {
        operators_refuse(o, conn, msg.text);
        return false;
    }
    o->list[o->n] = (struct asker){.conn = conn, .due_ms = UINT64_MAX};
    memcpy(o->list[o->n].who, m->who, sizeof(m->who));
    o->list[o->n].key = who;
    o->n++;
    welcome(o, conn);
    return true;
}

static void forget(struct operators *o, struct asker *op)
{
    operator_logs_release(op);
    *op = o->list[--o->n];
}

void operators_closed(struct operators *o, uint64_t conn)
{
    struct asker *op = find(o, conn);

    if (op) {
        forget(o, op);
    }
}

void operators_stop(struct operators *o)
{
    while (o->n > 0) {
        forget(o, &o->list[o->n - 1]);
    }
}

/* At the end of every call: nobody looks at them any more. */
static void forget_done(struct operators *o)
{
    for (size_t i = o->n; i > 0; i--) {
        if (o->list[i - 1].is_done) {
            forget(o, &o->list[i - 1]);
        }
    }
}

/* ---- answers ---- */

static void send_answer(const struct operators *o, const struct asker *op,
                        struct msg_answer answer)
{
    struct msg m = {.type = MSG_ANSWER, .u.answer = answer};

    m.u.answer.request = op->request;
    o->config.send(o->config.arg, op->conn, &m);
}

void operator_answer(const struct operators *o, const struct asker *op,
                     const void *data, size_t size)
{
    const uint8_t *at = data;

    while (size > 0) {
        size_t n = MIN(size, (size_t)OPERATOR_PIECE);

        send_answer(o, op, (struct msg_answer){.more = 1, .body = {at, n}});
        at += n;
        size -= n;
    }
}

static void end(const struct operators *o, struct asker *op)
{
    operator_logs_release(op);
    op->asking = ASKING_NOTHING;
    op->due_ms = UINT64_MAX;
    op->is_done = true;
    o->config.close(o->config.arg, op->conn);
}

void operator_finish(const struct operators *o, struct asker *op)
{
    send_answer(o, op, (struct msg_answer){.more = 0});
    end(o, op);
}

void operator_fail(const struct operators *o, struct asker *op, uint32_t exit_code,
                   const char *fmt, ...)
{
    char text[MSG_TEXT_MAX];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text, sizeof(text), fmt, args); /* cut is fine */
    va_end(args);
    ASSERT(n >= 0);
    send_answer(o, op,
                (struct msg_answer){.exit_code = exit_code,
                                    .body = {(const uint8_t *)text, strlen(text)}});
    end(o, op);
}

/* Takes the JSON over; NULL is for want of memory. */
static void put_json(const struct operators *o, const struct asker *op, json_t *json)
{
    char *text = json ? json_dumps(json, VIEW_JSON) : NULL;

    json_decref(json);
    if (text) {
        size_t len = strlen(text);

        text[len] = '\n'; /* where its end was */
        operator_answer(o, op, text, len + 1);
        free(text); /* jansson's */
    }
}

/* ---- what there is ---- */

static bool is_known(const struct operators *o, const struct asker *op)
{
    const struct view v = {o->config.service, o->config.history, 0, op->key};

    return op->job[0] == '\0' || operator_job(o, op, op->job) ||
           view_find_past(&v, op->job);
}

/* Of its own job there is the past alone: one of another owner has the name by now. */
static bool is_anothers(const struct operators *o, const struct asker *op)
{
    return registry_find(service_jobs(o->config.service), op->job) &&
           !operator_job(o, op, op->job);
}

static void fail_unknown(const struct operators *o, struct asker *op)
{
    operator_fail(o, op, EXIT_NO_SUCH, "this server knows no job %s", op->job);
}

/* Moves what is in the page's list to the end of `list`; where the next one begins, 0:
 * this was the last. NULL, for a job that is gone: nothing. */
static size_t take_page(json_t *page, const char *key, json_t *list)
{
    size_t next = (size_t)json_integer_value(json_object_get(page, "next"));

    (void)json_array_extend(list, json_object_get(page, key));
    json_decref(page);
    return next;
}

static json_t *all_nodes(const struct view *v, const char *id)
{
    json_t *list = json_array();
    size_t next = 0;

    do {
        next = take_page(view_nodes(v, id, next, VIEW_MAX_PAGE), "nodes", list);
    } while (next > 0);
    return list;
}

/* One job's summary, and its nodes. */
static json_t *make_status(const struct view *v, const char *id)
{
    json_t *job = view_job(v, id);
    json_t *list = json_array();

    (void)json_object_set_new(job, "nodes_list", all_nodes(v, id));
    (void)json_array_append_new(list, job);
    return json_pack("{s:o}", "jobs", list);
}

static void on_view(struct operators *o, struct asker *op, const struct msg_ask *ask,
                    uint64_t now_ms)
{
    const struct view v = {o->config.service, o->config.history, now_ms, op->key};
    bool is_status = strcmp(ask->verb, "status") == 0;
    json_t *json;

    if (!is_known(o, op)) {
        fail_unknown(o, op);
        return;
    }
    if (is_status && is_anothers(o, op)) {
        operator_fail(o, op, EXIT_NO_SUCH,
                      "no job %s of yours runs (ctrun history %s says what has become "
                      "of it)",
                      op->job, op->job);
        return;
    }
    if (strcmp(ask->verb, "ps") == 0) {
        operator_ranks_begin(o, op, now_ms);
        return;
    }
    if (strcmp(ask->verb, "history") == 0) {
        json = view_history(&v, op->job);
    } else {
        json = op->job[0] != '\0' ? make_status(&v, op->job) : view_jobs(&v, NULL);
    }
    put_json(o, op, json);
    operator_finish(o, op);
}

/* ---- events ---- */

static void tell_events(const struct operators *o, struct asker *op)
{
    const struct history_event *e;

    while ((e = history_after(o->config.history, op->after)) != NULL) {
        op->after = e->number;
        if ((op->job[0] == '\0' || strcmp(op->job, e->job) == 0) &&
            permit_job(op->key, e->job, e->owner)) {
            put_json(o, op, event_json_make(e));
        }
    }
}

/* Its end was told: nothing more will come. */
static bool is_over(const struct operators *o, const struct asker *op)
{
    return op->job[0] != '\0' && operator_job_ended(operator_job(o, op, op->job));
}

/* Who does not read what it was told is told more when it has: the history has it. */
static void go_on_with_events(const struct operators *o, struct asker *op,
                              uint64_t now_ms)
{
    if (is_over(o, op) || !op->follows) {
        tell_events(o, op);
        operator_finish(o, op);
    } else if (o->config.is_behind(o->config.arg, op->conn)) {
        op->due_ms = now_ms + OPERATOR_BEHIND_MS;
    } else {
        op->due_ms = UINT64_MAX;
        tell_events(o, op);
    }
}

static void on_events(struct operators *o, struct asker *op, const struct msg_ask *ask,
                      uint64_t now_ms)
{
    if (!is_known(o, op)) {
        fail_unknown(o, op);
        return;
    }
    op->asking = ASKING_EVENTS;
    op->after = ask->after;
    go_on_with_events(o, op, now_ms);
}

/* ---- the rest ---- */

static void on_logs(struct operators *o, struct asker *op, const struct msg_ask *ask,
                    uint64_t now_ms)
{
    if (!is_known(o, op)) {
        fail_unknown(o, op);
    } else if (operator_job_ended(operator_job(o, op, op->job))) {
        operator_fail(o, op, EXIT_NO_SUCH,
                      "job %s is over, and its nodes are gone: its logs are where they "
                      "were told to be (--log-dir, or the run directory of "
                      "ctrun-worker; else, where something failed, a folder "
                      "ctrun_ID_* in $TMPDIR on its nodes)",
                      op->job);
    } else {
        operator_logs_begin(o, op, ask, now_ms);
    }
}

static size_t max_drained(const char *verb)
{
    return strcmp(verb, "drainable") == 0   ? 0
           : strcmp(verb, "drain_one") == 0 ? 1
                                            : SIZE_MAX;
}

static void on_steering(struct operators *o, struct asker *op,
                        const struct msg_ask *ask, uint64_t now_ms)
{
    const struct steering by = {o->config.service, op->who, op->key,
                                max_drained(ask->verb)};
    struct errmsg msg = {""};
    json_t *done = NULL;
    int rv;

    if (op->job[0] != '\0' && !operator_job(o, op, op->job) && is_known(o, op)) {
        operator_fail(o, op, EXIT_NO_SUCH,
                      "job %s does not run any more (ctrun status %s says how it is)",
                      op->job, op->job);
        return;
    }
    if (strcmp(ask->verb, "cancel") == 0) {
        rv = steering_cancel(&by, op->job, now_ms, &done, &msg);
    } else {
        rv = steering_drain(&by, op->job, ask->arg, &done, &msg);
    }
    if (rv < 0) {
        operator_fail(o, op, rv == ERR_MISSING ? EXIT_NO_SUCH : EXIT_MISTAKE, "%s",
                      msg.text);
    } else {
        put_json(o, op, done);
        operator_finish(o, op);
    }
}

static bool is_one_of(const char *verb, const char *const *verbs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(verb, verbs[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void on_ask(struct operators *o, struct asker *op, const struct msg_ask *ask,
                   uint64_t now_ms)
{
    static const char *const views[] = {"status", "ps", "history"};
    static const char *const acts[] = {"cancel", "drain", "drain_one", "drainable"};

    op->request = ask->request;
    op->follows = ask->follow != 0;
    memcpy(op->job, ask->job, sizeof(op->job));
    if (is_one_of(ask->verb, views, ARRAY_LEN(views))) {
        on_view(o, op, ask, now_ms);
    } else if (strcmp(ask->verb, "events") == 0) {
        on_events(o, op, ask, now_ms);
    } else if (strcmp(ask->verb, "logs") == 0) {
        on_logs(o, op, ask, now_ms);
    } else if (is_one_of(ask->verb, acts, ARRAY_LEN(acts))) {
        on_steering(o, op, ask, now_ms);
    } else {
        operator_fail(o, op, EXIT_MISTAKE, "this server does not know the verb %s",
                      ask->verb);
    }
}

int operators_message(struct operators *o, uint64_t conn, const struct msg *m,
                      uint64_t now_ms)
{
    struct asker *op = find(o, conn);

    if (!op) {
        return 0; /* it was refused, or closed a moment ago */
    }
    if (m->type != MSG_ASK || op->asking != ASKING_NOTHING) {
        return ERR_PROTOCOL;
    }
    on_ask(o, op, &m->u.ask, now_ms);
    forget_done(o);
    return 0;
}

/* ---- what goes on ---- */

void operators_inspected(struct operators *o, uint64_t session,
                         const struct msg_inspected *m, uint64_t now_ms)
{
    for (size_t i = 0; i < o->n; i++) {
        struct asker *op = &o->list[i];
        const struct log_stream *stream =
            op->asking == ASKING_LOGS ? operator_logs_find(op, m->request) : NULL;

        if (stream && stream->session == session) {
            operator_logs_take(o, op, m, now_ms);
            forget_done(o);
            return;
        }
    }
}

void operators_go_on(struct operators *o, uint64_t now_ms)
{
    for (size_t i = 0; i < o->n; i++) {
        struct asker *op = &o->list[i];

        switch (op->asking) {
        case ASKING_NOTHING:
        case ASKING_RANKS: /* in turns: below */
            break;
        case ASKING_EVENTS:
            go_on_with_events(o, op, now_ms);
            break;
        case ASKING_LOGS:
            operator_logs_go_on(o, op, now_ms);
            break;
        }
    }
    operator_ranks_go_on(o, now_ms);
    forget_done(o);
}

uint64_t operators_deadline(const struct operators *o)
{
    uint64_t first = UINT64_MAX;

    for (size_t i = 0; i < o->n; i++) {
        first = MIN(first, o->list[i].due_ms);
    }
    return first;
}
