#include "rendezvous/lookout.h"

#include "rendezvous/http_server.h"
#include "rendezvous/routes.h"

#include "common/clock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static void on_save(void *arg, const struct record *r)
{
    const struct lookout *l = arg;

    l->durable->save(l->durable->arg, r);
}

void lookout_init(struct lookout *l, uint64_t seed, uint64_t history_ms,
                  const struct durable *durable)
{
    *l = (struct lookout){
        .durable = durable, .space = SPACE_FINE, .started_ms = clock_wall_ms()};
    history_init(&l->history, &(struct history_config){.seed = seed,
                                                       .span_ms = history_ms,
                                                       .save = durable ? on_save : NULL,
                                                       .arg = l});
}

void lookout_set_space(struct lookout *l, enum durable_space space)
{
    l->space = space;
    history_be_terse(&l->history, space == SPACE_SPENT);
}

void lookout_release(struct lookout *l)
{
    history_release(&l->history);
}

bool lookout_note(struct lookout *l, const struct job_event *e, uint64_t now_ms)
{
    history_run(&l->history, now_ms);
    return history_note(&l->history, e, clock_wall_ms());
}

void lookout_stop(struct lookout *l)
{
    history_stop(&l->history, clock_wall_ms());
}

/* ---- HTTP ---- */

static void count_connections(const struct connection_pool *p,
                              struct metrics_shell *ret)
{
    const struct connection *c = NULL;

    while ((c = pool_next(p, c)) != NULL) {
        ret->operators += c->is_operator;
        ret->agents += c->kind == CONN_AGENT && !c->is_operator;
        ret->store_clients += c->kind == CONN_STORE;
        ret->connections++;
    }
}

/* None of it takes longer where many are connected: the loop waits for it. */
static void read_usage(struct metrics_shell *ret)
{
    struct rusage usage;
    size_t resident = 0;
    struct stat files;

    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        ret->cpu_us =
            (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
            (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    }
    if (uv_resident_set_memory(&resident) == 0) {
        ret->resident = resident;
    }
    if (stat("/proc/self/fd", &files) == 0) {
        ret->descriptors = (uint64_t)files.st_size; /* from Linux 6.2 on; before, 0 */
    }
}

/* Nobody can guess it; without random numbers the page's script does not run, no more. */
static void make_nonce(char ret[33])
{
    uint64_t random[2] = {0};

    if (getrandom(random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random)) {
        ret[0] = '\0';
        return;
    }
    (void)snprintf(ret, 33, "%016llx%016llx", (unsigned long long)random[0],
                   (unsigned long long)random[1]);
}

/* Day and month are English here, whatever the locale. */
static void write_date(char *ret, size_t size)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = (time_t)(clock_wall_ms() / 1000);
    struct tm tm;

    ret[0] = '\0';
    if (gmtime_r(&now, &tm)) {
        (void)snprintf(ret, size, "%s, %02d %s %04d %02d:%02d:%02d GMT",
                       days[tm.tm_wday], tm.tm_mday, months[tm.tm_mon],
                       tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
    }
}

static void on_request(void *arg, const struct http_request *q, int status,
                       struct buf *out)
{
    const struct lookout *l = arg;
    const struct durable *durable = l->durable;
    char nonce[33];
    char date[64];
    struct routes r = {
        .view = {l->config.service, &l->history,
                 clock_ms() + (durable ? durable->clock_offset_ms : 0), NULL},
        .tally = &l->tally,
        .shell = {.is_ready = l->space == SPACE_FINE,
                  .is_durable = durable != NULL,
                  .refusals = l->config.refusals,
                  .lease_ms = l->config.lease_ms,
                  .http_requests = http_server_requests(l->http),
                  .store_used = service_store_used(l->config.service),
                  .store_max = service_store_max(l->config.service),
                  .started_ms = l->started_ms},
        .names = l->http_config.names,
        .n_names = l->http_config.n_names,
        .date = date,
        .nonce = nonce,
    };

    make_nonce(nonce);
    write_date(date, sizeof(date));
    count_connections(l->config.pool, &r.shell);
    read_usage(&r.shell);
    routes_answer(&r, q, status, out);
}

static bool may_answer(void *arg, const struct http_request *q)
{
    const struct lookout *l = arg;
    bool is_settled = !l->durable || (l->config.pool->hold != HOLD_ALL &&
                                      !l->durable->has_saved(l->durable->arg));

    return is_settled || !routes_show_jobs(q);
}

void lookout_go_on(const struct lookout *l)
{
    if (l->http) {
        http_server_go_on(l->http);
    }
}

int lookout_listen(struct lookout *l, const struct lookout_config *config,
                   const struct server_http *http, int *ret_port, struct errmsg *msg)
{
    const struct http_server_config shell = {config->loop, on_request, may_answer, l};
    int rv;

    ASSERT(!l->http);
    l->config = *config;
    l->http_config = *http;
    rv = http_server_open(&shell, http->addr, http->port, &l->http, msg);
    if (rv == 0) {
        *ret_port = http_server_port(l->http);
    }
    return rv;
}

void lookout_close(struct lookout *l, void (*on_closed)(void *arg), void *arg)
{
    http_server_close(l->http, on_closed, arg);
    l->http = NULL;
}
