/* Operators: each asks once, hears its answer (in order, and what is durable after it is
 * on the disk), or follows until the job's end, or for a while: where the server keeps
 * its state through restarts of it, too. What they hear is valid, never goes back, and is
 * never told otherwise; nobody is left without an answer. */

#include "tests/lib/cluster.h"

#include "common/exit_code.h"
#include "common/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    ANSWER_MAX = 4 * 1024 * 1024,
    ANSWER_MS = 60000, /* at the latest; agents have 10 s for each piece of a log */
    BEHIND_PERCENT = 10,
    DOOMED_PERCENT = 25,
    AGAIN_MS = 3000, /* a cancel that was not answered */
    BACK_MS = 2000,  /* who follows looks for the server at least so often */
};

struct sim_operator {
    struct cluster *cluster;
    uint64_t conn, server_life; /* 0: it has not arrived yet */
    char verb[16];
    struct msg_ask ask;
    uint64_t asked_ms;
    bool is_over; /* answered, refused, or its connection has ended */
    struct buf answer;
    size_t n_read; /* bytes of it that were checked */
    uint64_t last_number;
    int64_t log_generation;
    int64_t *log_line;   /* owned; by rank, the last one; -1: none */
    uint64_t *log_place; /* owned; … and where the next begins */
    bool has_returned;   /* it followed an earlier start of the server … */
    struct buf places;   /* … and says where it was */
};

static void arm(struct cluster *c);

/* --- what they hear --- */

static json_int_t integer_of(const json_t *json, const char *key)
{
    return json_integer_value(json_object_get(json, key));
}

/* Of a job that lives neither the generation nor the last commit goes back. */
static void check_job(struct cluster *c, const json_t *job)
{
    const char *state = json_string_value(json_object_get(job, "state"));
    uint64_t generation = (uint64_t)integer_of(job, "generation");
    uint64_t step = (uint64_t)integer_of(job, "committed_step");
    bool is_live =
        state && (strcmp(state, "forming") == 0 || strcmp(state, "running") == 0 ||
                  strcmp(state, "draining") == 0);

    if (!state ||
        (is_live && (generation < c->seen_generation || step < c->seen_step))) {
        cluster_violate(c,
                        "an operator sees generation %" PRIu64 ", step %" PRIu64
                        " (%s) after %" PRIu64 ", %" PRIu64,
                        generation, step, state ? state : "?", c->seen_generation,
                        c->seen_step);
    }
    c->seen_generation = is_live ? generation : 0;
    c->seen_step = is_live && generation > 0 ? step : 0; /* else it may be forgotten */
}

static void check_status(struct sim_operator *op, const json_t *root)
{
    const json_t *list = json_object_get(root, "jobs");

    if (!json_is_array(list)) {
        cluster_violate(op->cluster, "status without jobs");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        check_job(op->cluster, json_array_get(list, i));
    }
}

/* Each rank once, in order. */
static void check_ranks(struct sim_operator *op, const json_t *root)
{
    const json_t *list = json_object_get(root, "ranks");

    for (size_t i = 1; i < json_array_size(list); i++) {
        if (integer_of(json_array_get(list, i), "rank") <=
            integer_of(json_array_get(list, i - 1), "rank")) {
            cluster_violate(op->cluster, "ps: ranks out of order");
        }
    }
}

/* An event's number is told with that event alone, by whichever start of the server. */
static void check_event(struct sim_operator *op, const json_t *event, const char *text,
                        size_t size)
{
    struct cluster *c = op->cluster;
    uint64_t number = (uint64_t)integer_of(event, "number");
    uint64_t hash = linear_hash(LINEAR_EMPTY, (const uint8_t *)text, size);

    if (number <= op->last_number || number > UINT32_MAX) {
        cluster_violate(c, "event %" PRIu64 " after %" PRIu64, number, op->last_number);
        return;
    }
    op->last_number = number;
    while (c->n_told <= number) {
        c->told = mem_grow(c->told, c->n_told + 1, sizeof(*c->told));
        c->told[c->n_told++] = 0;
    }
    if (c->told[number] != 0 && c->told[number] != hash) {
        cluster_violate(c, "event %" PRIu64 " is another: %.*s", number, (int)size,
                        text);
    }
    c->told[number] = hash;
}

/* Line by line, none twice, none left out but before the first. */
static void check_log_line(struct sim_operator *op, const json_t *line)
{
    size_t n = (size_t)op->cluster->config.n_nodes * op->cluster->config.nproc;
    size_t rank = (size_t)integer_of(line, "rank");
    const char *text = json_string_value(json_object_get(line, "text"));
    long long number = 0;

    if (!text) {
        return; /* a note */
    }
    if (integer_of(line, "generation") != op->log_generation) {
        op->log_generation = integer_of(line, "generation");
        memset(op->log_line, 0xff, n * sizeof(*op->log_line));
    }
    if (sscanf(text, "%lld", &number) != 1 || rank >= n ||
        (op->log_line[rank] >= 0 && number != op->log_line[rank] + 1) ||
        (op->log_line[rank] < 0 && number != 0 && op->ask.after == 0)) {
        cluster_violate(op->cluster, "line %s of rank %zu after %" PRId64, text, rank,
                        rank < n ? op->log_line[rank] : 0);
        return;
    }
    op->log_line[rank] = number;
    op->log_place[rank] = (uint64_t)integer_of(line, "next");
}

/* One node goes, or several are named. */
static void check_drain(struct sim_operator *op, const json_t *root)
{
    size_t n_gone = json_array_size(json_object_get(root, "nodes"));
    size_t n_meant = json_array_size(json_object_get(root, "meant"));

    if (!(n_gone == 1 && n_meant == 0) && !(n_gone == 0 && n_meant > 1)) {
        cluster_violate(op->cluster, "drain: %zu nodes go, %zu are meant", n_gone,
                        n_meant);
    }
}

static void check_line(struct sim_operator *op, const char *text, size_t size)
{
    json_t *json = json_loadb(text, size, 0, NULL);

    if (!json) {
        cluster_violate(op->cluster, "%s: no JSON: %.*s", op->verb, (int)MIN(size, 200),
                        text);
        return;
    }
    if (strcmp(op->verb, "status") == 0) {
        check_status(op, json);
    } else if (strcmp(op->verb, "ps") == 0) {
        check_ranks(op, json);
    } else if (strcmp(op->verb, "events") == 0) {
        check_event(op, json, text, size);
    } else if (strcmp(op->verb, "logs") == 0) {
        check_log_line(op, json);
    } else if (strcmp(op->verb, "drain_one") == 0) {
        check_drain(op, json);
    }
    json_decref(json);
}

static void check_lines(struct sim_operator *op)
{
    const char *text = (const char *)buf_bytes(&op->answer);

    for (;;) {
        const char *at = text + op->n_read;
        size_t left = buf_len(&op->answer) - op->n_read;
        const char *end = left > 0 ? memchr(at, '\n', left) : NULL;

        if (!end) {
            return;
        }
        check_line(op, at, (size_t)(end - at));
        op->n_read += (size_t)(end - at) + 1;
    }
}

/* It is a fact from here on, or was one before. */
static void note_cancel(struct cluster *c)
{
    c->is_cancelled = true;
    c->cancelled_at = c->highest;
    c->cancelled_by = c->server_life;
    c->result->was_cancelled = true;
}

/* The last of an answer. */
static void on_end(struct sim_operator *op, uint32_t exit_code, struct bytes text)
{
    struct cluster *c = op->cluster;
    bool is_bogus = strcmp(op->verb, "bogus") == 0;
    bool is_cancel = strcmp(op->verb, "cancel") == 0;
    bool is_late = is_cancel && exit_code == EXIT_NO_SUCH && text.size > 8 &&
                   memcmp(text.data + text.size - 7, "is over", 7) == 0 &&
                   watch_was_cancelled(c); /* or its last node has left, say */

    op->is_over = true;
    if (exit_code != 0 && text.size == 0) {
        cluster_violate(c, "%s is refused without a word", op->verb);
    }
    if (is_bogus ? exit_code == 0
                 : exit_code != 0 && exit_code != EXIT_NO_SUCH &&
                       exit_code != EXIT_MISTAKE) {
        cluster_violate(c, "%s ends with %u", op->verb, exit_code);
    }
    if (exit_code == 0 && op->n_read != buf_len(&op->answer)) {
        cluster_violate(c, "%s: half a line", op->verb);
    }
    c->result->n_asked += exit_code == 0;
    c->result->n_refused += exit_code != 0;
    if (is_cancel && (exit_code == 0 || is_late)) {
        note_cancel(c);
    }
}

static struct sim_operator *find(const struct cluster *c, uint64_t conn)
{
    return c->asking[conn - OPERATOR_CONN];
}

void operator_hears(struct cluster *c, uint64_t conn, const struct msg *m)
{
    struct sim_operator *op = find(c, conn);
    const struct msg_answer *answer = &m->u.answer;

    if (op->is_over || m->type == MSG_WELCOME) {
        return;
    }
    if (m->type == MSG_REFUSED) {
        c->result->n_refused++;
        op->is_over = true;
        return;
    }
    if (m->type != MSG_ANSWER || answer->request != op->ask.request) {
        cluster_violate(c, "an operator hears %s", msg_name(m->type));
        return;
    }
    sim_note(&c->sim, "operator %" PRIu64 ": %s: %zu bytes", conn - OPERATOR_CONN,
             op->verb, answer->body.size);
    if (answer->exit_code == 0) {
        if (buf_append(&op->answer, answer->body.data, answer->body.size) < 0) {
            UNREACHABLE();
        }
        check_lines(op);
    }
    if (answer->more == 0) {
        on_end(op, answer->exit_code, answer->body);
    }
}

void operator_loses(struct cluster *c, uint64_t conn)
{
    struct sim_operator *op = find(c, conn);

    if (!op->is_over) {
        cluster_violate(c, "%s: the server closes, and has not answered", op->verb);
    }
}

/* --- what they do --- */

/* `tag`: the server's life; who follows has seen enough. */
static void on_enough(void *arg, uint64_t tag)
{
    struct sim_operator *op = arg;
    struct cluster *c = op->cluster;

    if (op->is_over || tag != c->server_life || !c->service) {
        return;
    }
    if (serving_busy_until(c) > c->sim.now_ms) {
        sim_put_off(&c->sim, &c->event, serving_busy_until(c));
        return;
    }
    op->is_over = true;
    operators_closed(c->operators, op->conn);
}

/* While it does what it was told, now and then. */
static void doom_server(struct cluster *c, const struct sim_operator *op)
{
    bool is_act = strcmp(op->verb, "drain_one") == 0 || strcmp(op->verb, "cancel") == 0;

    if (is_act && c->config.is_durable && (c->config.faults & FAULT_SERVER) &&
        c->sim.now_ms < c->config.faults_until_ms &&
        sim_chance(&c->sim, DOOMED_PERCENT)) {
        c->is_doomed = true;
    }
}

static void on_arrival(void *arg, uint64_t tag);

/* As launcher/verbs/standing.c has it. */
static void say_places(struct sim_operator *op)
{
    size_t n = (size_t)op->cluster->config.n_nodes * op->cluster->config.nproc;

    buf_clear(&op->places);
    for (size_t i = 0; i < n && op->log_generation > 0; i++) {
        const struct msg_place place = {(uint32_t)i, INSPECT_LOG, op->log_place[i]};

        if (op->log_line[i] >= 0 && msg_place_encode(&place, &op->places) < 0) {
            UNREACHABLE();
        }
    }
    op->ask.generation = op->log_generation > 0 ? (uint64_t)op->log_generation : 0;
    op->ask.places = (struct bytes){buf_bytes(&op->places), buf_len(&op->places)};
}

static void look_again(struct sim_operator *op)
{
    op->has_returned = true;
    op->server_life = 0;
    sim_after(&op->cluster->sim, sim_between(&op->cluster->sim, 1, BACK_MS), on_arrival,
              op, 0);
}

/* Its server has died. */
static void lose_server(struct sim_operator *op)
{
    struct cluster *c = op->cluster;

    if (!c->config.is_durable || !op->ask.follow || c->is_ending) {
        op->is_over = true;
        return;
    }
    buf_clear(&op->answer); /* half a line comes again */
    op->n_read = 0;
    if (strcmp(op->verb, "logs") == 0) {
        say_places(op);
    } else {
        op->ask.after = op->last_number;
    }
    look_again(op);
}

static void on_arrival(void *arg, uint64_t tag)
{
    struct sim_operator *op = arg;
    struct cluster *c = op->cluster;
    const struct msg_operator hello = {.version = MSG_VERSION, .who = "somebody"};
    const struct msg ask = {.type = MSG_ASK, .u.ask = op->ask};

    (void)tag;
    if (!c->service) { /* nobody listens */
        op->is_over = !op->has_returned || c->is_ending;
        if (!op->is_over) {
            look_again(op);
        }
        return;
    }
    if (serving_busy_until(c) > c->sim.now_ms) {
        sim_put_off(&c->sim, &c->event, serving_busy_until(c));
        return;
    }
    op->server_life = c->server_life;
    op->asked_ms = c->sim.now_ms;
    c->result->n_returned += op->has_returned;
    doom_server(c, op);
    sim_note(&c->sim, "operator %" PRIu64 ": asks: %s %s", op->conn - OPERATOR_CONN,
             op->verb, op->ask.arg);
    if (operators_open(c->operators, op->conn, &hello, NULL) &&
        operators_message(c->operators, op->conn, &ask, c->sim.now_ms) < 0) {
        cluster_violate(c, "the service does not accept %s", op->verb);
    }
    if (op->ask.follow) {
        sim_after(&c->sim, sim_between(&c->sim, 1000, 60000), on_enough, op,
                  c->server_life);
    }
    serving_after_call(c);
}

/* Until there is an answer: the job may not be there yet, or the server may die. */
static void on_cancel_again(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    (void)tag;
    if (!c->is_cancelled && !c->is_ending) {
        operator_comes(c, "cancel");
    }
}

static void choose_words(struct cluster *c, struct msg_ask *ask)
{
    bool has_job = strcmp(ask->verb, "logs") == 0 || sim_chance(&c->sim, 70);

    ask->request = 1 + sim_random(&c->sim, 1000);
    ask->rank = -1;
    (void)snprintf(ask->job, sizeof(ask->job), "%s", has_job ? "job" : "");
    if (strcmp(ask->verb, "drain_one") == 0) {
        bool is_host = !has_job || sim_chance(&c->sim, 30);

        (void)snprintf(ask->arg, sizeof(ask->arg), "%s%u", is_host ? "host" : "",
                       (unsigned)sim_random(&c->sim, c->config.n_nodes));
    } else if (strcmp(ask->verb, "logs") == 0) {
        ask->rank = (int32_t)sim_random(&c->sim, 4) - 1;
        ask->after = sim_chance(&c->sim, 50); /* the last lines */
        ask->follow = sim_chance(&c->sim, 50);
    } else if (strcmp(ask->verb, "events") == 0) {
        ask->after = sim_random(&c->sim, 30);
        ask->follow = sim_chance(&c->sim, 50);
    }
}

void operator_comes(struct cluster *c, const char *verb)
{
    struct sim_operator *op = mem_zalloc(sizeof(*op));

    op->cluster = c;
    op->conn = OPERATOR_CONN + c->n_asking;
    op->asked_ms = c->sim.now_ms;
    (void)snprintf(op->verb, sizeof(op->verb), "%s", verb);
    (void)snprintf(op->ask.verb, sizeof(op->ask.verb), "%s", verb);
    choose_words(c, &op->ask);
    op->last_number = strcmp(verb, "events") == 0 ? op->ask.after : 0;
    op->log_generation = -1;
    op->log_line =
        mem_array((size_t)c->config.n_nodes * c->config.nproc, sizeof(*op->log_line));
    op->log_place =
        mem_array((size_t)c->config.n_nodes * c->config.nproc, sizeof(*op->log_place));
    buf_init(&op->answer, ANSWER_MAX);
    buf_init(&op->places, ANSWER_MAX);
    c->asking = mem_grow(c->asking, c->n_asking + 1, sizeof(struct sim_operator *));
    c->asking[c->n_asking++] = op;
    sim_after(&c->sim, net_latency(c), on_arrival, op, 0);
    if (strcmp(verb, "cancel") == 0) {
        sim_after(&c->sim, AGAIN_MS, on_cancel_again, c, 0);
    }
}

/* --- at the server --- */

static bool on_is_behind(void *arg, uint64_t conn)
{
    struct cluster *c = arg;

    (void)conn;
    return sim_chance(&c->sim, BEHIND_PERCENT);
}

static void on_inspected(void *arg, uint64_t session, const struct msg_inspected *m)
{
    struct cluster *c = arg;

    operators_inspected(c->operators, session, m, c->sim.now_ms);
}

static void on_note(void *arg, const struct job_event *e)
{
    watch_note(arg, e);
}

void operators_start(struct cluster *c, struct service_config *config)
{
    history_init(&c->history, &(struct history_config){
                                  .seed = 5, .save = config->sink.save, .arg = c});
    if (!c->config.is_durable) {
        c->n_told = 0;
        c->seen_generation = 0;
        c->seen_step = 0;
    }
    config->sink.note = on_note;
    config->sink.inspected = on_inspected;
}

void operators_open_to(struct cluster *c)
{
    c->operators_tick_ms = 0;
    c->operators = operators_new(&(struct operators_config){
        .service = c->service,
        .history = &c->history,
        .welcome = {.boot = c->server_life},
        .arg = c,
        .send = c->config.is_durable ? disk_send : serving_sends,
        .close = c->config.is_durable ? disk_close : serving_closes,
        .is_behind = on_is_behind,
    });
}

void operators_end(struct cluster *c)
{
    operators_free(c->operators);
    c->operators = NULL;
    history_release(&c->history);
    for (size_t i = 0; i < c->n_asking; i++) {
        if (!c->asking[i]->is_over && c->asking[i]->server_life == c->server_life) {
            lose_server(c->asking[i]);
        }
    }
}

static void on_tick(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    if (!c->operators || tag != c->operators_tick_ms) {
        return;
    }
    c->operators_tick_ms = 0;
    if (serving_busy_until(c) <= c->sim.now_ms) {
        serving_after_call(c);
    } else {
        arm(c);
    }
}

static void arm(struct cluster *c)
{
    uint64_t next = operators_deadline(c->operators);

    if (next == UINT64_MAX) {
        return;
    }
    next = MAX(MAX(next, c->sim.now_ms + 1), serving_busy_until(c));
    if (c->operators_tick_ms == 0 || next < c->operators_tick_ms) {
        c->operators_tick_ms = next;
        sim_at(&c->sim, next, on_tick, c, next);
    }
}

void operators_after_call(struct cluster *c)
{
    operators_go_on(c->operators, c->sim.now_ms);
    arm(c);
}

void operators_check_end(struct cluster *c)
{
    for (size_t i = 0; i < c->n_asking; i++) {
        const struct sim_operator *op = c->asking[i];

        if (!op->is_over && op->asked_ms + ANSWER_MS < c->sim.now_ms) {
            cluster_violate(c, "%s of %" PRIu64 " ms was never answered", op->verb,
                            op->asked_ms);
        }
    }
}

void operators_release(struct cluster *c)
{
    for (size_t i = 0; i < c->n_asking; i++) {
        buf_release(&c->asking[i]->answer);
        buf_release(&c->asking[i]->places);
        mem_free(c->asking[i]->log_place);
        mem_free(c->asking[i]->log_line);
        mem_free(c->asking[i]);
    }
    mem_free(c->asking);
    mem_free(c->told);
}
