/* What is counted, and how it is shown to Prometheus; tests/system/test_status.py has a
 * parser that nobody here wrote read it. */

#include "rendezvous/metrics.h"
#include "rendezvous/routes.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"

#include "common/check.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* The text with a terminator, mem_alloc'ed. */
static char *write_metrics(struct stage *st, const struct tally *t)
{
    const struct view v = {stage_service(st), stage_history(st), stage_now(st), NULL};
    const struct metrics_shell shell = {.is_ready = true, .lease_ms = 3000};
    struct buf out;
    char *text;

    buf_init(&out, METRICS_MAX_BYTES);
    metrics_write(&v, t, &shell, &out);
    text = mem_zalloc(buf_len(&out) + 1);
    memcpy(text, buf_bytes(&out), buf_len(&out));
    buf_release(&out);
    return text;
}

static void assert_has(const char *text, const char *line)
{
    if (!strstr(text, line)) {
        fail_msg("no '%s' in:\n%s", line, text);
    }
}

static void a_histogram_counts_all_below_its_bounds(void **state)
{
    struct stage *st = stage_new();
    struct tally t = {0};
    char *text;

    (void)state;
    tally_lease(&t, 3000, 3000); /* none left */
    tally_lease(&t, 3000, 9000);
    tally_lease(&t, 3000, 2700); /* a tenth */
    tally_lease(&t, 3000, 0);    /* all of it */
    tally_store(&t, TCPSTORE_GET, 999);
    tally_store(&t, TCPSTORE_GET, 5000000);
    tally_store(&t, TCPSTORE_GET, 1000000000);
    tally_store(&t, 255, 1);
    text = write_metrics(st, &t);
    assert_has(text, "\nctrun_lease_margin_ratio_bucket{le=\"0.05\"} 2\n");
    assert_has(text, "\nctrun_lease_margin_ratio_bucket{le=\"0.1\"} 3\n");
    assert_has(text, "\nctrun_lease_margin_ratio_bucket{le=\"0.9\"} 3\n");
    assert_has(text, "\nctrun_lease_margin_ratio_bucket{le=\"+Inf\"} 4\n");
    assert_has(text, "\nctrun_lease_margin_ratio_sum 1.1\n");
    assert_has(text, "\nctrun_lease_margin_ratio_count 4\n");
    assert_has(text,
               "\nctrun_store_operation_seconds_bucket{op=\"get\",le=\"1e-06\"} 1\n");
    assert_has(text,
               "\nctrun_store_operation_seconds_bucket{op=\"get\",le=\"0.016\"} 2\n");
    assert_has(text,
               "\nctrun_store_operation_seconds_bucket{op=\"get\",le=\"+Inf\"} 3\n");
    assert_has(text, "\nctrun_store_operation_seconds_sum{op=\"get\"} 1.005000999\n");
    assert_has(text, "\nctrun_store_operation_seconds_count{op=\"get\"} 3\n");
    assert_null(strstr(text, "op=\"set\"")); /* was not asked for */
    mem_free(text);
    stage_free(st);
}

static void a_job_has_its_series_and_its_name_is_escaped(void **state)
{
    struct stage *st = stage_new();
    struct tally t = {0};
    char *text;

    (void)state;
    stage_play(st, "shape nodes=1 nproc=4\n"
                   "a enters job=x\"\\y\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a progress step=7 loss=2.5\n");
    text = write_metrics(st, &t);
    assert_has(text, "\nctrun_jobs{state=\"running\"} 1\n");
    assert_has(text, "\nctrun_jobs{state=\"forming\"} 0\n");
    assert_has(text, "\nctrun_nodes{state=\"running\"} 1\n");
    assert_has(text, "\nctrun_ranks 4\n");
    assert_has(text, "\nctrun_generations_total 1\n");
    assert_has(text, "\nctrun_job_ranks{job=\"x\\\"\\\\y\"} 4\n");
    assert_has(text, "\nctrun_job_step{job=\"x\\\"\\\\y\"} 7\n");
    assert_has(text, "\nctrun_job_loss{job=\"x\\\"\\\\y\"} 2.5\n");
    mem_free(text);
    stage_free(st);
}

static void a_step_that_json_would_have_below_zero_is_not_heard(void **state)
{
    struct stage *st = stage_new();
    struct tally t = {0};
    char *text;

    (void)state;
    stage_play(st, "shape nodes=1\n"
                   "a enters job=x\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a progress step=7 loss=2.5\n"
                   "a progress step=-1 loss=9.5\n");
    text = write_metrics(st, &t);
    assert_has(text, "\nctrun_job_step{job=\"x\"} 7\n");
    assert_has(text, "\nctrun_job_loss{job=\"x\"} 2.5\n");
    mem_free(text);
    stage_free(st);
}

static void
a_loss_that_is_no_number_and_one_that_is_not_known_are_told_apart(void **state)
{
    struct stage *st = stage_new();
    struct tally t = {0};
    char *text;

    (void)state;
    stage_play(st, "shape nodes=1\n"
                   "a enters job=x\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a progress step=7 loss=nan\n"
                   "b enters job=y\n"
                   "> b ROUND g=1 b failures=0\n");
    text = write_metrics(st, &t);
    assert_has(text, "\nctrun_job_loss{job=\"x\"} NaN\n");
    assert_null(strstr(text, "ctrun_job_loss{job=\"y\"}"));
    assert_null(strstr(text, "ctrun_job_committed_step{")); /* no checkpoint is not 0 */
    mem_free(text);
    stage_free(st);
}

static void a_job_that_was_cancelled_is_counted_as_such(void **state)
{
    struct stage *st = stage_new();
    struct tally t = {0};
    char *text;

    (void)state;
    stage_play(st, "shape nodes=2\n"
                   "a enters\n"
                   "operator cancels\n"
                   "> a CLOSED 143: job job was cancelled by op\n");
    text = write_metrics(st, &t);
    assert_has(text, "\nctrun_jobs{state=\"cancelled\"} 1\n");
    assert_has(text, "\nctrun_jobs{state=\"failed\"} 0\n");
    assert_has(text, "\nctrun_jobs_ended_total{state=\"cancelled\"} 1\n");
    assert_has(text, "\nctrun_jobs_ended_total{state=\"failed\"} 0\n");
    mem_free(text);
    stage_free(st);
}

/* --- many --- */

static void enter(struct service *s, uint64_t conn, const char *job, uint32_t nproc,
                  uint32_t nodes)
{
    struct msg *m = mem_zalloc(sizeof(*m));
    struct msg_hello *h = &m->u.hello;

    service_opened(s, conn, "10.0.0.1", 1000);
    m->type = MSG_HELLO;
    h->version = MSG_VERSION;
    h->agent_id = conn;
    h->min_nodes = h->max_nodes = nodes;
    h->nproc = nproc;
    h->node_rank = -1;
    h->group_rank = -1;
    h->last_call_ms = 30000;
    (void)snprintf(h->job, sizeof(h->job), "%s", job);
    (void)snprintf(h->host, sizeof(h->host), "host-%05llu", (unsigned long long)conn);
    assert_int_equal(service_message(s, conn, m, 1000), 0);
    *m = (struct msg){.type = MSG_JOIN};
    (void)snprintf(m->u.join.addr, sizeof(m->u.join.addr), "10.0.0.1");
    assert_int_equal(service_message(s, conn, m, 1000), 0);
    mem_free(m);
}

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    (void)arg;
    (void)conn;
    (void)m;
}

static void on_close(void *arg, uint64_t conn)
{
    (void)arg;
    (void)conn;
}

static void on_note(void *arg, const struct job_event *e)
{
    (void)history_note(arg, e, 1000);
}

struct crowd {
    struct service *service;
    struct history history;
    struct tally tally;
};

static struct crowd *new_crowd(void)
{
    struct crowd *c = mem_zalloc(sizeof(*c));

    history_init(&c->history, &(struct history_config){.seed = 5});
    c->service = service_new(&(struct service_config){
        .cluster = 1,
        .boot = 1,
        .lease_ms = 3000,
        .seed = 5,
        .sink = {
            .arg = &c->history, .send = on_send, .close = on_close, .note = on_note}});
    return c;
}

static void free_crowd(struct crowd *c)
{
    service_free(c->service);
    history_release(&c->history);
    mem_free(c);
}

static uint64_t cpu_us(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* What a request costs the loop that the agents are on: 50 ms at most. */
static void ask(struct crowd *c, const char *path, struct buf *out)
{
    struct routes r = {.view = {c->service, &c->history, 1000},
                       .tally = &c->tally,
                       .date = "",
                       .nonce = "x"};
    struct http_request q = {.path = ""};
    const char *mark = strchr(path, '?');
    uint64_t begun_us = cpu_us();
    uint64_t took_us;

    (void)snprintf(q.path, sizeof(q.path), "%.*s", (int)strcspn(path, "?"), path);
    (void)snprintf(q.query, sizeof(q.query), "%s", mark ? mark + 1 : "");
    buf_init(out, ROUTES_MAX_BYTES);
    routes_answer(&r, &q, 0, out);
    assert_memory_equal(buf_bytes(out), "HTTP/1.1 200", 12);
    took_us = cpu_us() - begun_us;
    print_message("%s: %zu bytes, %.1f ms\n", path, buf_len(out),
                  (double)took_us / 1000);
#ifndef FAULTS /* a build for tests is slow */
    assert_in_range(took_us, 0, 50000);
#endif
}

static size_t count_lines(const struct buf *out, const char *begin)
{
    const char *at = (const char *)buf_bytes(out);
    const char *end = at + buf_len(out);
    size_t n = 0;

    while ((at = memmem(at, (size_t)(end - at), begin, strlen(begin))) != NULL) {
        at += strlen(begin);
        n++;
    }
    return n;
}

static void
many_jobs_cost_a_scrape_little_and_have_a_bounded_number_of_series(void **state)
{
    struct crowd *c = new_crowd();
    char job[64];
    struct buf out;

    (void)state;
    for (uint64_t i = 1; i <= REGISTRY_MAX; i++) {
        (void)snprintf(job, sizeof(job), "job-%04llu", (unsigned long long)i);
        enter(c->service, i, job, 8, i <= 1000 ? 2 : 1); /* some run, most wait */
    }
    ask(c, "/metrics", &out);
    assert_int_equal(count_lines(&out, "\nctrun_job_ranks{"), METRICS_MAX_JOBS);
    assert_int_equal(count_lines(&out, "\nctrun_job_ranks{job=\"job-1024\"} 8\n"), 1);
    assert_int_equal(count_lines(&out, "\nctrun_jobs{state=\"forming\"} 1000\n"), 1);
    buf_release(&out);
    ask(c, "/api/v1/jobs", &out);
    assert_int_equal(count_lines(&out, "\"id\":\"job-"), REGISTRY_MAX);
    buf_release(&out);
    ask(c, "/api/v1/events", &out);
    buf_release(&out);
    free_crowd(c);
}

static void a_large_job_comes_in_pages_that_cost_little(void **state)
{
    enum { NODES = 1250 };
    struct crowd *c = new_crowd();
    struct buf out;

    (void)state;
    for (uint64_t i = 1; i <= NODES; i++) {
        enter(c->service, i, "big", 8, NODES);
    }
    ask(c, "/api/v1/jobs/big", &out);
    assert_int_equal(count_lines(&out, "\"ranks\":10000"), 1);
    buf_release(&out);
    ask(c, "/api/v1/jobs/big/ranks?first=9000&limit=5000", &out);
    assert_int_equal(count_lines(&out, "\"local_rank\":"), 1000);
    assert_int_equal(count_lines(&out, "\"rank\":9999,"), 1);
    buf_release(&out);
    ask(c, "/api/v1/jobs/big/nodes?limit=5000", &out);
    assert_int_equal(count_lines(&out, "\"host\":"), 1000);
    buf_release(&out);
    ask(c, "/metrics", &out);
    buf_release(&out);
    free_crowd(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_histogram_counts_all_below_its_bounds),
        cmocka_unit_test(a_job_has_its_series_and_its_name_is_escaped),
        cmocka_unit_test(a_job_that_was_cancelled_is_counted_as_such),
        cmocka_unit_test(a_step_that_json_would_have_below_zero_is_not_heard),
        cmocka_unit_test(
            a_loss_that_is_no_number_and_one_that_is_not_known_are_told_apart),
        cmocka_unit_test(
            many_jobs_cost_a_scrape_little_and_have_a_bounded_number_of_series),
        cmocka_unit_test(a_large_job_comes_in_pages_that_cost_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
