#include "rendezvous/routes.h"

#include "rendezvous/page.h"

#include "common/err.h"
#include "common/mem.h"
#include "common/str.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define JSON_TYPE "application/json"
#define TEXT_TYPE "text/plain; charset=utf-8"
#define HTML_TYPE "text/html; charset=utf-8"
#define API       "/api/v1/"

enum { PAGE_DEFAULT = 1000 };

struct reply {
    bool is_api; /* its errors are JSON, too */
    int status;
    const char *type;
    char policy[256]; /* "": as http.h has it */
    struct buf body;
};

/* ---- bodies ---- */

static void put_text(struct reply *a, int status, const char *text)
{
    a->status = status;
    a->type = TEXT_TYPE;
    (void)buf_printf(&a->body, "%s\n", text);
}

static int on_json(const char *text, size_t size, void *arg)
{
    return buf_append(arg, text, size) == 0 ? 0 : -1;
}

/* Takes the object over. What is too large is answered so, once. */
static void put_object(struct reply *a, int status, json_t *json)
{
    a->status = status;
    a->type = JSON_TYPE;
    if (json_dump_callback(json, on_json, &a->body, VIEW_JSON) < 0) {
        buf_clear(&a->body);
        a->status = 503;
        (void)buf_printf(&a->body, "{\"error\": \"too much to show at once\"}");
    }
    json_decref(json);
}

static void put_error(struct reply *a, int status, const char *text)
{
    if (a->is_api) {
        put_object(a, status, json_pack("{s:s}", "error", text));
    } else {
        put_text(a, status, text);
    }
}

static void refuse_value(struct reply *a, const char *name, const char *expected)
{
    char text[128];

    (void)snprintf(text, sizeof(text), "the value of %s is not %s", name, expected);
    put_error(a, 400, text);
}

/* NULL: there is no such thing. */
static void put_json(struct reply *a, json_t *json)
{
    if (json) {
        put_object(a, 200, json);
    } else {
        put_error(a, 404, "there is no such job");
    }
}

/* The page with the nonce in its places. */
static void put_page(const struct routes *r, struct reply *a)
{
    const char *at = _binary_rendezvous_status_html_start;
    const char *end = _binary_rendezvous_status_html_end;
    const char *mark;

    while ((mark = memmem(at, (size_t)(end - at), PAGE_NONCE, strlen(PAGE_NONCE))) !=
           NULL) {
        (void)buf_printf(&a->body, "%.*s%s", (int)(mark - at), at, r->nonce);
        at = mark + strlen(PAGE_NONCE);
    }
    (void)buf_printf(&a->body, "%.*s", (int)(end - at), at); /* far below its ceiling */
    a->status = 200;
    a->type = HTML_TYPE;
    (void)snprintf(a->policy, sizeof(a->policy),
                   "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; "
                   "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                   "frame-ancestors 'none'",
                   r->nonce, r->nonce);
}

/* ---- the API ---- */

/* `fallback` where it is not there; false: it is no number, and that is answered. */
static bool get_number(const struct http_request *q, const char *name,
                       uint64_t fallback, uint64_t *ret, struct reply *a)
{
    char text[32];
    int rv = http_query(q->query, name, text, sizeof(text));

    *ret = fallback;
    rv = rv == 0 ? str_parse_u64(text, ret) : rv;
    if (rv == ERR_INVALID) {
        refuse_value(a, name, "a number from 0 to 2^64 - 1");
    }
    return rv != ERR_INVALID;
}

static bool get_limit(const struct http_request *q, uint64_t *ret, struct reply *a)
{
    if (!get_number(q, "limit", PAGE_DEFAULT, ret, a)) {
        return false;
    }
    if (*ret == 0) {
        refuse_value(a, "limit", "a number from 1 on");
    }
    return *ret > 0;
}

/* "" where it is not there; false: it is no job's, and that is answered. */
static bool get_job(const struct http_request *q, char *ret, size_t size,
                    struct reply *a)
{
    int rv = http_query(q->query, "job", ret, size);

    if (rv == ERR_MISSING) {
        ret[0] = '\0';
        return true;
    }
    if (rv < 0 || ret[0] == '\0') {
        refuse_value(a, "job", "the %-encoded id of a job");
        return false;
    }
    return true;
}

static void answer_events(const struct view *v, const struct http_request *q,
                          struct reply *a)
{
    char job[MSG_ID_MAX];
    uint64_t after;
    uint64_t limit;

    if (get_job(q, job, sizeof(job), a) && get_number(q, "after", 0, &after, a) &&
        get_limit(q, &limit, a)) {
        put_json(a, view_events(v, job, after, limit));
    }
}

/* "ID", "ID/nodes", "ID/ranks" */
static void answer_job(const struct view *v, const struct http_request *q,
                       const char *rest, struct reply *a)
{
    char id[MSG_ID_MAX];
    int n = http_decode(rest, '/', id, sizeof(id));
    uint64_t first;
    uint64_t limit;

    if (n < 0) {
        put_error(a, 400, "what follows jobs/ is not the %-encoded id of a job");
    } else if (n == 0) {
        put_error(a, 404, "there is no such job");
    } else if (!get_number(q, "first", 0, &first, a) || !get_limit(q, &limit, a)) {
        return; /* that was answered */
    } else if (rest[n] == '\0') {
        put_json(a, view_job(v, id));
    } else if (strcmp(rest + n, "/nodes") == 0) {
        put_json(a, view_nodes(v, id, first, limit));
    } else if (strcmp(rest + n, "/ranks") == 0) {
        put_json(a, view_ranks(v, id, first, limit));
    } else {
        put_error(a, 404, "a job has /nodes and /ranks");
    }
}

static void answer_api(const struct view *v, const struct http_request *q,
                       const char *what, struct reply *a)
{
    char job[MSG_ID_MAX];

    if (strcmp(what, "jobs") == 0) {
        if (get_job(q, job, sizeof(job), a)) {
            put_json(a, view_jobs(v, job));
        }
    } else if (strcmp(what, "events") == 0) {
        answer_events(v, q, a);
    } else if (strcmp(what, "history") == 0) {
        if (get_job(q, job, sizeof(job), a)) {
            put_json(a, view_history(v, job));
        }
    } else if (str_starts_with(what, "jobs/")) {
        answer_job(v, q, what + strlen("jobs/"), a);
    } else {
        put_error(a, 404, "there are jobs, events and history");
    }
}

/* ---- all ---- */

static void answer_path(const struct routes *r, const struct http_request *q,
                        struct reply *a)
{
    if (strcmp(q->path, "/") == 0) {
        put_page(r, a);
    } else if (strcmp(q->path, "/healthz") == 0) {
        put_text(a, 200, "ok");
    } else if (strcmp(q->path, "/readyz") == 0) {
        put_text(a, r->shell.is_ready ? 200 : 503,
                 r->shell.is_ready
                     ? "ready"
                     : "not ready: there is too little room for the state");
    } else if (strcmp(q->path, "/metrics") == 0) {
        a->status = 200;
        a->type = METRICS_TYPE;
        metrics_write(&r->view, r->tally, &r->shell, &a->body);
    } else if (str_starts_with(q->path, API)) {
        answer_api(&r->view, q, q->path + strlen(API), a);
    } else {
        put_error(a, 404, "nothing is here; the status page is at /");
    }
}

bool routes_show_jobs(const struct http_request *q)
{
    return strcmp(q->path, "/metrics") == 0 || str_starts_with(q->path, API);
}

static bool is_ours(const struct routes *r, const char *host)
{
    for (size_t i = 0; i < r->n_names; i++) {
        if (strcasecmp(r->names[i], host) == 0) {
            return true;
        }
    }
    return http_host_is_numeric(host);
}

void routes_answer(const struct routes *r, const struct http_request *q, int status,
                   struct buf *out)
{
    struct reply a = {.status = status, .is_api = str_starts_with(q->path, API)};
    struct http_response head;

    buf_init(&a.body, ROUTES_MAX_BYTES - 4096);
    if (status != 0) {
        put_error(&a, status, http_reason(status));
    } else if (q->host[0] != '\0' && !is_ours(r, q->host)) {
        put_error(&a, 421,
                  "this is not a name of the service; --http-name gives it one");
    } else {
        answer_path(r, q, &a);
    }
    head = (struct http_response){.status = a.status,
                                  .type = a.type,
                                  .date = r->date,
                                  .policy = a.policy[0] != '\0' ? a.policy : NULL,
                                  .size = buf_len(&a.body),
                                  .keeps_alive = q->keeps_alive};
    if (http_put_head(out, &head) < 0 ||
        (!q->is_head && buf_append(out, buf_bytes(&a.body), buf_len(&a.body)) < 0)) {
        UNREACHABLE(); /* both have a ceiling */
    }
    buf_release(&a.body);
}
