/* A state on disk that anything may have happened to: the records of a service in the
 * midst of a job, and of its history, some of them changed, dropped or made up by the
 * input. They are refused, or the service that takes them lives on with its agents
 * coming back, without breaking an assertion, leaking, or a spinning timer. And the
 * values by themselves: what is accepted is written again as the same bytes, and what is
 * renewed is accepted. */

#include "rendezvous/history.h"
#include "rendezvous/record_fields.h"
#include "rendezvous/record_renew.h"
#include "rendezvous/service.h"
#include "tests/lib/shelf.h"

#include "common/check.h"
#include "common/tcpstore.h"

#include <stdio.h>
#include <string.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    CLUSTER = 7,
    START = 100,
    NODES = 3,
    SCENES = 5,
    BASE_MS = 5000,
    CHANGED_MAX = 70000
};

struct input {
    const uint8_t *data;
    size_t size;
};

struct world {
    struct service *service;
    struct history history;
    struct shelf shelf;
    uint64_t session[NODES];
    uint64_t generation[NODES];
    bool is_open[NODES];
};

static uint8_t take(struct input *in)
{
    if (in->size == 0) {
        return 0;
    }
    in->size--;
    return *in->data++;
}

/* --- values --- */

#define CHECK_VALUE(NAME, name, version)                                \
    static void check_##name(struct bytes value)                        \
    {                                                                   \
        static struct record_##name v;                                  \
        struct buf again;                                               \
                                                                        \
        if (record_get_##name(value, &v) < 0) {                         \
            return;                                                     \
        }                                                               \
        buf_init(&again, value.size);                                   \
        ASSERT(record_put_##name(&v, &again) == 0);                     \
        ASSERT(buf_len(&again) == value.size);                          \
        ASSERT(memcmp(buf_bytes(&again), value.data, value.size) == 0); \
        buf_release(&again);                                            \
    }
RECORD_FIELDS_MAP(CHECK_VALUE)
#undef CHECK_VALUE

static void check_values(struct bytes value)
{
#define CALL_CHECK(NAME, name, version) check_##name(value);
    RECORD_FIELDS_MAP(CALL_CHECK)
#undef CALL_CHECK
}

/* Of an older schema: what is taken over can be read. */
static void check_renewed(enum record_kind kind, struct bytes value)
{
    const struct record r = {.kind = kind, .job = "j", .value = value};
    static struct record_cause cause;
    static struct record_report report;
    static struct record_finished finished;
    struct buf renewed;

    buf_init(&renewed, SIZE_MAX);
    if (record_renew(&r, &renewed) == 1) {
        const struct bytes now = {buf_bytes(&renewed), buf_len(&renewed)};

        ASSERT(kind != RECORD_CAUSE || record_get_cause(now, &cause) == 0);
        ASSERT(kind != RECORD_REPORT || record_get_report(now, &report) == 0);
        ASSERT(kind != RECORD_FINISHED || record_get_finished(now, &finished) == 0);
        check_values(now);
    }
    buf_release(&renewed);
}

/* --- a service in the midst of a job --- */

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    struct world *w = arg;

    ASSERT(conn >= 1 && conn <= NODES && w->is_open[conn - 1]);
    if (m->type == MSG_WELCOME) {
        w->session[conn - 1] = m->u.welcome.session;
    } else if (m->type == MSG_ROUND) {
        w->generation[conn - 1] = m->u.round.generation;
    }
}

static void on_close(void *arg, uint64_t conn)
{
    struct world *w = arg;

    w->is_open[conn - 1] = false;
}

static void on_save(void *arg, const struct record *r)
{
    struct world *w = arg;

    shelf_save(&w->shelf, r);
}

static void on_note(void *arg, const struct job_event *e)
{
    struct world *w = arg;

    (void)history_note(&w->history, e, BASE_MS);
}

static void start(struct world *w, uint64_t boot)
{
    history_init(&w->history,
                 &(struct history_config){.seed = boot, .save = on_save, .arg = w});
    w->service = service_new(&(struct service_config){.cluster = CLUSTER,
                                                      .boot = boot,
                                                      .start = START + boot,
                                                      .found = w->shelf.n_commits,
                                                      .lease_ms = 3000,
                                                      .store_max_bytes = 1 << 20,
                                                      .seed = boot,
                                                      .sink = {.arg = w,
                                                               .send = on_send,
                                                               .close = on_close,
                                                               .note = on_note,
                                                               .save = on_save}});
}

static void end(struct world *w)
{
    service_free(w->service);
    history_release(&w->history);
}

static void say(struct world *w, uint64_t node, const struct msg *m, uint64_t now_ms)
{
    if (w->is_open[node] && service_message(w->service, node + 1, m, now_ms) < 0) {
        w->is_open[node] = false;
        service_closed(w->service, node + 1, now_ms);
    }
}

static void enter(struct world *w, uint64_t node, uint64_t now_ms)
{
    struct msg m = {.type = MSG_HELLO,
                    .u.hello = {.version = MSG_VERSION,
                                .job = "j",
                                .agent_id = node + 1,
                                .session = w->session[node],
                                .cluster = CLUSTER,
                                .boot = 1,
                                .start = w->session[node] != 0 ? START + 1 : 0,
                                .generation = w->generation[node],
                                .group_rank = -1,
                                .node_rank = -1,
                                .min_nodes = 2,
                                .max_nodes = 2,
                                .nproc = 1,
                                .max_restarts = 1}};

    w->is_open[node] = true;
    service_opened(w->service, node + 1, "10.0.0.1", now_ms);
    (void)snprintf(m.u.hello.host, sizeof(m.u.hello.host), "h%d", (int)node);
    say(w, node, &m, now_ms);
    m = (struct msg){.type = MSG_JOIN,
                     .u.join = {.after = w->generation[node], .addr = "10.0.0.1"}};
    say(w, node, &m, now_ms);
}

static void ask(struct world *w, uint64_t node, uint64_t seq, enum tcpstore_op op,
                struct bytes body)
{
    struct msg m = {.type = MSG_STORE,
                    .u.store = {.generation = w->generation[node],
                                .client = 1,
                                .seq = seq,
                                .op = (uint8_t)op,
                                .body = body}};

    say(w, node, &m, BASE_MS);
}

static void use_store(struct world *w)
{
    static const uint8_t key_and_number[] = {1, 0, 0, 0, 0, 0, 0, 0, 'k',
                                             9, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t two_texts[] = {1, 0, 0, 0, 0, 0, 0, 0, 'q',
                                        1, 0, 0, 0, 0, 0, 0, 0, 'v'};
    struct bytes number = {key_and_number, sizeof(key_and_number)};
    struct bytes texts = {two_texts, sizeof(two_texts)};

    ask(w, 0, 1, TCPSTORE_ADD, number);
    ask(w, 0, 2, TCPSTORE_SET, texts);
    ask(w, 0, 3, TCPSTORE_QUEUE_PUSH, texts);
    ask(w, 0, 4, TCPSTORE_QUEUE_PUSH, texts);
    ask(w, 1, 1, TCPSTORE_BARRIER, number);
}

/* So many steps that it is known what one takes. */
static void train(struct world *w)
{
    for (uint64_t step = 1; step <= 12; step++) {
        uint32_t rank = step % 2;
        struct msg m = {.type = MSG_PROGRESS,
                        .u.progress = {.generation = w->generation[rank],
                                       .rank = rank,
                                       .step = (step + 1) / 2,
                                       .waits_for = -1,
                                       .phase = "forward",
                                       .loss = "1.5",
                                       .loss_step = (step + 1) / 2}};

        say(w, rank, &m, BASE_MS + 100 * step);
    }
}

static void fail(struct world *w)
{
    struct msg m = {.type = MSG_RANK_ENDED,
                    .u.rank_ended = {.generation = w->generation[0],
                                     .exit_code = 1,
                                     .ended_ms = BASE_MS,
                                     .error = "x"}};

    say(w, 0, &m, BASE_MS);
}

static void stop(struct world *w, uint64_t node)
{
    struct msg m = {.type = MSG_STOPPED,
                    .u.stopped = {.generation = w->generation[node]}};

    say(w, node, &m, BASE_MS);
}

/* Joining; running; … with a store, and a curve; draining; and forming anew. */
static void play(struct world *w, unsigned scene)
{
    start(w, 1);
    shelf_begin(&w->shelf, &(struct start){1, START + 1, 0});
    enter(w, 0, BASE_MS);
    if (scene > 0) {
        enter(w, 1, BASE_MS);
        enter(w, 2, BASE_MS);
    }
    if (scene > 1) {
        use_store(w);
        train(w);
    }
    if (scene > 2) {
        fail(w);
    }
    for (uint64_t node = 0; node < 2 && scene > 3; node++) {
        stop(w, node);
    }
    end(w);
    shelf_commit(&w->shelf);
    memset(w->is_open, 0, sizeof(w->is_open));
}

/* --- another one, with what is left of it --- */

struct changed {
    struct record r;
    char job[8];
    uint8_t key[256], value[CHANGED_MAX];
};

static void copy(struct changed *to, const struct record *r)
{
    to->r = *r;
    (void)snprintf(to->job, sizeof(to->job), "%s", r->job);
    ASSERT(r->key.size <= sizeof(to->key) && r->value.size <= sizeof(to->value));
    memcpy(to->key, r->key.data, r->key.size);
    memcpy(to->value, r->value.data, r->value.size);
    to->r.job = to->job;
    to->r.key.data = to->key;
    to->r.value.data = to->value;
}

static void change(struct changed *c, struct input *in)
{
    uint8_t what = take(in);
    size_t at = take(in) | (size_t)(take(in) << 8);
    uint8_t byte = take(in);

    if (what < 160 && c->r.value.size > 0) {
        c->value[at % c->r.value.size] = byte;
    } else if (what < 190 && c->r.key.size > 0) {
        c->key[at % c->r.key.size] = byte;
    } else if (what < 210) {
        c->r.value.size = MIN(c->r.value.size, at);
    } else if (what < 220) {
        c->r.key.size = MIN(c->r.key.size, byte);
    } else if (what < 230) {
        c->r.generation = byte;
    } else if (what < 240) {
        c->r.kind = (enum record_kind)byte;
    } else {
        c->job[0] = (char)byte;
        c->job[1] = '\0';
    }
}

static bool is_of_history(const struct record *r)
{
    return r->kind == RECORD_EVENT || r->kind == RECORD_CURVE;
}

/* `pick`: 0 leaves a record as it is; 1 drops it; 2 gives it twice; else it is
 * changed. */
static int restore(struct world *w, struct input *in)
{
    static struct changed c;
    const struct record *r;
    struct errmsg msg;
    int rv = 0;

    for (size_t i = 0; rv == 0 && (r = shelf_at(&w->shelf, i)) != NULL; i++) {
        uint8_t pick = take(in) % 8;

        if (pick == 1) {
            continue;
        }
        copy(&c, r);
        if (pick > 2) {
            change(&c, in);
        }
        check_values(c.r.value);
        if (is_of_history(&c.r)) {
            (void)history_restore(&w->history, &c.r); /* it is for people */
            continue;
        }
        rv = service_restore(w->service, &c.r, &msg);
        if (rv == 0 && pick == 2) {
            ASSERT(service_restore(w->service, &c.r, &msg) < 0);
            rv = ERR_CORRUPT;
        }
    }
    history_restored(&w->history, BASE_MS + 1000);
    return rv < 0 ? rv : service_restored(w->service, BASE_MS + 1000, &msg);
}

static void live_on(struct world *w, struct input *in)
{
    uint64_t now_ms = BASE_MS + 1000;

    for (uint64_t node = 0; node < NODES; node++) {
        if (take(in) % 4 != 0) {
            enter(w, node, now_ms);
        }
    }
    use_store(w);
    train(w);
    fail(w);
    for (uint64_t node = 0; node < NODES; node++) {
        stop(w, node);
    }
    for (unsigned i = 0; i < 40; i++) {
        now_ms += 250;
        service_tick(w->service, now_ms);
        ASSERT(service_deadline(w->service) > now_ms);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    static struct world w;

    check_values((struct bytes){data, size});
    check_renewed(RECORD_CAUSE, (struct bytes){data, size});
    check_renewed(RECORD_REPORT, (struct bytes){data, size});
    check_renewed(RECORD_FINISHED, (struct bytes){data, size});
    w = (struct world){0};
    play(&w, take(&in) % SCENES);
    start(&w, 2);
    if (restore(&w, &in) == 0) {
        live_on(&w, &in);
    }
    end(&w);
    shelf_release(&w.shelf);
    return 0;
}
