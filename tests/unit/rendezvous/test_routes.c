/* Which paths there are, and what is refused; the bodies are test_view's. */

#include "rendezvous/page.h"
#include "rendezvous/routes.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"

#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct visit {
    struct stage *st;
    bool is_ready;
    const char *name;
};

/* The whole answer to "GET <path> HTTP/1.1" for this host; free it. */
static char *get(const struct visit *v, const char *method, const char *path,
                 const char *host)
{
    static const struct tally tally;
    const struct routes r = {
        .view = {stage_service(v->st), stage_history(v->st), stage_now(v->st)},
        .tally = &tally,
        .shell = {.is_ready = v->is_ready},
        .names = &v->name,
        .n_names = v->name ? 1 : 0,
        .date = "now",
        .nonce = "n0nce",
    };
    struct http_request q;
    struct buf out;
    char text[1024];
    char *ret;
    int status;

    (void)snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: %s\r\n\r\n", method,
                   path, host);
    assert_int_not_equal(http_parse((const uint8_t *)text, strlen(text), &q, &status),
                         0);
    buf_init(&out, ROUTES_MAX_BYTES);
    routes_answer(&r, &q, status, &out);
    ret = strndup((const char *)buf_bytes(&out), buf_len(&out));
    assert_non_null(ret);
    buf_release(&out);
    return ret;
}

static const struct route_case {
    const char *path;
    int status;
    const char *body; /* in it; may use ' in place of " */
} route_cases[] = {
    {"/healthz", 200, "ok\n"},
    {"/readyz", 200, "ready\n"},
    {"/metrics", 200, "# TYPE ctrun_jobs gauge\n"},
    {"/", 200, "<!DOCTYPE html>"},
    {"/?x=y", 200, "<!DOCTYPE html>"},
    {"/api/v1/jobs", 200, "{\"jobs\":[{\"id\":\"a/b c\","},
    {"/api/v1/jobs?job=none", 200, "{\"jobs\":[]}"},
    {"/api/v1/jobs?job=a%2Fb%20c%zz", 400,
     "{\"error\":\"the value of job is not the %-encoded id of a job\"}"},
    {"/api/v1/jobs/a%2Fb%20c", 200, "{\"id\":\"a/b c\","},
    {"/api/v1/jobs/a%2Fb%20c/nodes", 200, "{\"nodes\":["},
    {"/api/v1/jobs/a%2Fb%20c/ranks?first=0&limit=1", 200, "{\"ranks\":["},
    {"/api/v1/jobs/a%2Fb%20c/ranks?limit=x", 400,
     "{\"error\":\"the value of limit is not a number"},
    {"/api/v1/jobs/a%2Fb%20c/nodes?first=%zz", 400,
     "{\"error\":\"the value of first is not a number"},
    {"/api/v1/jobs/a%2Fb%20c/nothing", 404, "/nodes and /ranks"},
    {"/api/v1/jobs/none", 404, "no such job"},
    {"/api/v1/jobs/none/ranks", 404, "{\"error\":\"there is no such job"},
    {"/api/v1/jobs/%", 400,
     "{\"error\":\"what follows jobs/ is not the %-encoded id of a job\"}"},
    {"/api/v1/jobs/%zz", 400, "is not the %-encoded id"},
    {"/api/v1/jobs/%zz/ranks", 400, "is not the %-encoded id"},
    {"/api/v1/jobs/a%0ab", 400, "is not the %-encoded id"},
    {"/api/v1/jobs/", 404, "no such job"},
    {"/api/v1/jobs//ranks", 404, "no such job"},
    {"/api/v1/events?after=0", 200, "\"kind\":\"node_joined\""},
    {"/api/v1/events?after=-1", 400, "of after is not a number"},
    {"/api/v1/events?after=99999999999999999999999999999999999", 400, "of after is"},
    {"/api/v1/events?after=0&limit=1%zz", 400, "of limit is not a number"},
    {"/api/v1/events?job=abc%zz", 400,
     "{\"error\":\"the value of job is not the %-encoded id of a job\"}"},
    {"/api/v1/events?job=", 400, "the value of job is not"},
    {"/api/v1/events?limit=0", 400, "the value of limit is not a number from 1 on"},
    {"/api/v1/jobs/a%2Fb%20c/ranks?limit=0", 400, "the value of limit is not"},
    {"/api/v1/events?after=18446744073709551615", 200, "{\"events\":[],\"last\":"},
    {"/api/v1/history", 200, "{\"jobs\":[]}"},
    {"/api/v1/history?job=%0a", 400,
     "{\"error\":\"the value of job is not the %-encoded id of a job\"}"},
    {"/api/v1/", 404, "{\"error\":\"there are jobs"},
    {"/api/v1", 404, "nothing is here"},
    {"/healthz/", 404, "nothing is here"},
    {"/../etc/passwd", 404, "nothing is here"},
};

static void every_path_is_there_or_says_what_is(void **state)
{
    struct visit v = {stage_new(), true, NULL};

    (void)state;
    stage_play(v.st, "shape nodes=1\n"
                     "a enters job=a/b_c\n"
                     "> a ROUND g=1 a failures=0\n");
    for (size_t i = 0; i < ARRAY_LEN(route_cases); i++) {
        const struct route_case *c = &route_cases[i];
        char *text = get(&v, "GET", c->path, "127.0.0.1");
        int status = atoi(text + strlen("HTTP/1.1 "));

        if (status != c->status || !strstr(text, c->body)) {
            fail_msg("%s: expected %d with '%s', got %.900s", c->path, c->status,
                     c->body, text);
        }
        free(text);
    }
    stage_free(v.st);
}

static void a_service_that_takes_no_work_is_not_ready(void **state)
{
    struct visit v = {stage_new(), false, NULL};
    char *text = get(&v, "GET", "/readyz", "localhost");

    (void)state;
    assert_memory_equal(text, "HTTP/1.1 503", 12);
    assert_non_null(strstr(text, "too little room for the state\n"));
    free(text);
    text = get(&v, "GET", "/healthz", "localhost");
    assert_memory_equal(text, "HTTP/1.1 200", 12);
    free(text);
    stage_free(v.st);
}

static void a_foreign_name_is_misdirected(void **state)
{
    static const struct {
        const char *host;
        int status;
    } cases[] = {
        {"evil.example", 421}, {"evil.example:29401", 421}, {"node1", 200},
        {"NODE1:80", 200},     {"127.0.0.1.evil.a", 421},   {"[::1]:29401", 200},
        {"10.0.0.1", 200},     {"localhost", 200}};
    struct visit v = {stage_new(), true, "node1"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *text = get(&v, "GET", "/metrics", cases[i].host);

        assert_int_equal(atoi(text + strlen("HTTP/1.1 ")), cases[i].status);
        free(text);
    }
    stage_free(v.st);
}

static void head_has_the_length_and_no_body(void **state)
{
    struct visit v = {stage_new(), true, NULL};
    char *text = get(&v, "HEAD", "/healthz", "::1");

    (void)state;
    free(text);
    text = get(&v, "HEAD", "/healthz", "[::1]");
    assert_non_null(strstr(text, "\r\nContent-Length: 3\r\n"));
    assert_string_equal(text + strlen(text) - 4, "\r\n\r\n");
    free(text);
    stage_free(v.st);
}

static void other_methods_are_refused_with_those_that_there_are(void **state)
{
    struct visit v = {stage_new(), true, NULL};
    char *text = get(&v, "DELETE", "/api/v1/jobs/x", "127.0.0.1");

    (void)state;
    assert_memory_equal(text, "HTTP/1.1 405", 12);
    assert_non_null(strstr(text, "\r\nAllow: GET, HEAD\r\n"));
    assert_non_null(strstr(text, "\r\nConnection: close\r\n"));
    free(text);
    stage_free(v.st);
}

static void the_page_runs_its_own_script_alone(void **state)
{
    struct visit v = {stage_new(), true, NULL};
    char *text = get(&v, "GET", "/", "127.0.0.1");
    const char *body = strstr(text, "\r\n\r\n");

    (void)state;
    assert_non_null(body);
    assert_non_null(
        strstr(text, "script-src 'nonce-n0nce'; style-src 'nonce-n0nce'; "));
    assert_non_null(strstr(text, "default-src 'none'; "));
    assert_non_null(strstr(body, "<script nonce=\"n0nce\">"));
    assert_non_null(strstr(body, "<style nonce=\"n0nce\">"));
    assert_null(strstr(body, PAGE_NONCE));
    assert_null(strstr(body, "innerHTML")); /* text is text */
    assert_null(strstr(body, " style=\""));
    free(text);
    stage_free(v.st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_is_there_or_says_what_is),
        cmocka_unit_test(a_service_that_takes_no_work_is_not_ready),
        cmocka_unit_test(a_foreign_name_is_misdirected),
        cmocka_unit_test(head_has_the_length_and_no_body),
        cmocka_unit_test(other_methods_are_refused_with_those_that_there_are),
        cmocka_unit_test(the_page_runs_its_own_script_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
