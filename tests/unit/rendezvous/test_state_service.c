/* The whole service on a disk that crashes between any two calls: three agents join,
 * count in the store, commit checkpoints and fail; nothing is heard before its turn is
 * on the disk. After each crash a new service goes on from what is found there, and the
 * agents with it: no number is lost or counted twice, no commit is forgotten, no
 * generation comes again, and each has one map of ranks. */

#include "rendezvous/service.h"
#include "rendezvous/state_batch.h"
#include "rendezvous/state_db.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/kept_agent.h"
#include "tests/lib/simdisk.h"

#include "common/mem.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES = 3,
    MAX_ACKS = 4096,
    MAX_GENERATIONS = 1024,
    MAX_HEARD = 64,
};

/* What was heard by anybody. */
struct facts {
    uint64_t generation;
    uint64_t step;                       /* of the last commit that was accepted */
    uint8_t map[MAX_GENERATIONS][NODES]; /* group ranks + 1; 0: not heard */
};

struct heard {
    uint64_t conn;
    enum msg_type type;
    uint64_t a, b, c; /* as the message has them */
    uint64_t start, had, kept;
};

struct ack {
    size_t calls;
    struct kept_agent nodes[NODES];
    struct facts *facts;   /* owned */
    unsigned next_node;    /* who speaks in the turn behind it … */
    struct kept_word next; /* … and what */
};

struct world {
    struct simdisk *disk;
    struct state_db *db;
    struct service *service;
    struct buf batch;
    struct heard heard[MAX_HEARD];
    size_t n_heard;
    struct kept_agent nodes[NODES];
    struct facts facts;
    struct ack *acks; /* owned; NULL: nobody wants them */
    size_t n_acks;
    uint64_t chance;
    uint64_t now_ms;
    uint64_t last_conn, last_request, last_start;
    const char *where;
};

static bool is_soak(void)
{
    return getenv("CTRUN_SOAK") != NULL; /* NOLINT(concurrency-mt-unsafe) */
}

static uint64_t draw(struct world *w, uint64_t below)
{
    w->chance = w->chance * 6364136223846793005 + 1442695040888963407;
    return (w->chance >> 33) % below;
}

#define CHECK(w, cond) check(w, cond, #cond, __LINE__)
static void check(const struct world *w, bool is_true, const char *what, int line)
{
    if (!is_true) {
        fail_msg("%s: not true in line %d: %s", w->where, line, what);
    }
}

/* ---- the service's side ---- */

static void on_save(void *arg, const struct record *r)
{
    struct world *w = arg;

    state_batch_add(&w->batch, r);
}

static uint64_t on_kept(void *arg)
{
    const struct world *w = arg;

    return state_db_kept(w->db) + (buf_len(&w->batch) > 0);
}

static void on_close(void *arg, uint64_t conn)
{
    struct world *w = arg;

    for (int i = 0; i < NODES; i++) {
        CHECK(w, w->nodes[i].conn != conn);
    }
}

static uint64_t number_in(struct bytes body)
{
    uint64_t value = 0;

    memcpy(&value, body.data, MIN(body.size, sizeof(value)));
    return le64toh(value);
}

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    struct world *w = arg;
    struct heard h = {.conn = conn, .type = m->type};

    if (m->type == MSG_WELCOME) {
        h.a = m->u.welcome.session;
        h.b = m->u.welcome.boot;
        h.start = m->u.welcome.start;
        h.had = m->u.welcome.had;
        CHECK(w, !m->u.welcome.lacks);
        h.kept = m->u.welcome.kept;
    } else if (m->type == MSG_ROUND) {
        h.a = m->u.round.generation;
        h.b = m->u.round.group_rank;
        h.c = m->u.round.commit_step;
    } else if (m->type == MSG_STOP) {
        h.a = m->u.stop.generation;
    } else if (m->type == MSG_DECISION) {
        h.a = m->u.decision.request;
        h.b = m->u.decision.accepted;
    } else if (m->type == MSG_STORE_REPLY) {
        CHECK(w, !m->u.store_reply.close);
        h.a = m->u.store_reply.seq;
        h.b = number_in(m->u.store_reply.body);
        h.kept = m->u.store_reply.kept;
        CHECK(w, h.kept == state_db_kept(w->db) + (buf_len(&w->batch) > 0));
    } else {
        CHECK(w, m->type == MSG_REPORT || m->type == MSG_PONG);
        h.kept = m->type == MSG_PONG ? m->u.pong.kept : 0;
    }
    CHECK(w, w->n_heard < MAX_HEARD);
    w->heard[w->n_heard++] = h;
}

static int on_record(void *arg, const struct record *r, struct errmsg *msg)
{
    struct world *w = arg;

    return service_restore(w->service, r, msg);
}

static void commit(struct world *w)
{
    struct errmsg msg = {""};

    if (buf_len(&w->batch) > 0) {
        assert_int_equal(
            state_db_commit(w->db,
                            (struct bytes){buf_bytes(&w->batch), buf_len(&w->batch)},
                            w->now_ms, &msg),
            0);
        buf_clear(&w->batch);
    }
}

/* A service with what is on the disk. */
static void start(struct world *w)
{
    const struct state_db_config config = {.path = "state.db",
                                           .vfs = "simdisk",
                                           .clock_ms = w->now_ms,
                                           .clock_name = 1,
                                           .seed = 5,
                                           .start = ++w->last_start,
                                           .history_ms = 1000000,
                                           .history_bytes = 1000000};
    const struct state_identity *identity;
    struct errmsg msg = {""};

    simdisk_use(w->disk);
    buf_init(&w->batch, SIZE_MAX);
    if (state_db_open(&config, &w->db, &msg) < 0) {
        fail_msg("%s: %s", w->where, msg.text);
    }
    identity = state_db_identity(w->db);
    w->now_ms += identity->clock_offset_ms;
    w->service = service_new(&(struct service_config){
        .cluster = identity->cluster,
        .boot = identity->boot,
        .start = identity->start,
        .found = identity->found,
        .lease_ms = 3000,
        .seed = identity->boot,
        .sink = {.arg = w,
                 .send = on_send,
                 .close = on_close,
                 .save = on_save,
                 .kept = on_kept},
    });
    if (state_db_load(w->db, on_record, w, &msg) < 0 ||
        state_db_begin(w->db, &msg) < 0 ||
        service_restored(w->service, w->now_ms, &msg) < 0) {
        fail_msg("%s: %s", w->where, msg.text);
    }
    commit(w);
}

/* ---- the agents' side ---- */

static void hear_round(struct world *w, struct kept_agent *node, const struct heard *h)
{
    uint8_t *known = &w->facts.map[h->a % MAX_GENERATIONS][node - w->nodes];

    CHECK(w, h->a < MAX_GENERATIONS);
    CHECK(w, h->a >= w->facts.generation); /* it never goes back … */
    CHECK(w, *known == 0 || *known == h->b + 1);
    CHECK(w, h->c >= w->facts.step || h->a == node->generation);
    for (int i = 0; i < NODES; i++) { /* … and a rank is one node's */
        CHECK(w, &w->nodes[i] == node || w->facts.map[h->a][i] != (uint8_t)(h->b + 1));
    }
    *known = (uint8_t)(h->b + 1);
    w->facts.generation = h->a;
    if (h->a != node->generation) {
        node->n_adds = 0;
        node->has_resumed = false;
        node->asked.type = 0;
        node->n_said = 0;
    }
    node->generation = h->a;
    node->group_rank = (int32_t)h->b;
    node->is_running = true;
    node->must_stop = false;
}

static void hear_answer(struct world *w, struct kept_agent *node, const struct heard *h)
{
    if (h->a != node->asked.number) {
        return; /* to what was asked before */
    }
    if (h->type == MSG_STORE_REPLY) {
        CHECK(w, h->b == node->asked.number); /* each adds one */
    } else if (node->asked.generation == node->generation && node->is_running) {
        CHECK(w, h->b == 1);
    }
    if (node->asked.type == MSG_COMMIT && h->b == 1) {
        w->facts.step = MAX(w->facts.step, node->asked.step);
    }
    node->asked.type = 0;
}

/* What it was told is on the disk was there after each crash. */
static void hear(struct world *w, struct kept_agent *node, const struct heard *h)
{
    if (h->type == MSG_WELCOME) {
        if (h->a != node->session) { /* it is not known: its generation is over */
            node->is_running = false;
            node->n_said = 0;
            node->asked.type = 0;
            node->must_join = true;
        }
        CHECK(w, h->had >= node->kept);
        node->session = h->a;
        node->boot = h->b;
        node->start = h->start;
        node->kept = h->kept;
    } else if (h->type == MSG_ROUND) {
        hear_round(w, node, h);
    } else if (h->type == MSG_STOP && h->a == node->generation && node->is_running) {
        node->must_stop = true;
    } else if (h->type == MSG_DECISION || h->type == MSG_STORE_REPLY) {
        hear_answer(w, node, h);
    }
    node->kept = MAX(node->kept, h->kept);
}

static void acknowledge(struct world *w)
{
    struct ack *a;

    if (w->acks) {
        CHECK(w, w->n_acks < MAX_ACKS);
        a = &w->acks[w->n_acks++];
        a->calls = simdisk_calls(w->disk);
        memcpy(a->nodes, w->nodes, sizeof(a->nodes));
        a->facts = mem_dup(&w->facts, sizeof(w->facts));
    }
}

/* What was decided goes to the disk; then it is heard. */
static void end_turn(struct world *w)
{
    commit(w);
    for (size_t i = 0; i < w->n_heard; i++) {
        for (int n = 0; n < NODES; n++) {
            if (w->nodes[n].conn == w->heard[i].conn) {
                hear(w, &w->nodes[n], &w->heard[i]);
            }
        }
    }
    w->n_heard = 0;
    acknowledge(w);
}

/* One turn of the service's loop. */
static void say(struct world *w, struct kept_agent *node, struct kept_word word)
{
    struct msg *m = mem_zalloc(sizeof(*m));
    const struct kept_place place = {(unsigned)(node - w->nodes), NODES,
                                     state_db_identity(w->db)->cluster};
    uint8_t body[KEPT_BODY_MAX];

    if (w->acks && w->n_acks > 0) {
        w->acks[w->n_acks - 1].next_node = (unsigned)(node - w->nodes);
        w->acks[w->n_acks - 1].next = word;
    }
    kept_agent_fill(node, &place, &word, body, m);
    w->now_ms += 1;
    CHECK(w, service_message(w->service, node->conn, m, w->now_ms) == 0);
    mem_free(m);
    end_turn(w);
}

/* … of what is said again after a restart. */
static void tell(struct world *w, struct kept_agent *node, enum msg_type type)
{
    struct kept_word word = {.type = type, .generation = node->generation};

    CHECK(w, node->n_said < KEPT_SAID_MAX);
    node->said[node->n_said++] = word;
    say(w, node, word);
}

static void ask(struct world *w, struct kept_agent *node, struct kept_word word)
{
    node->asked = word;
    say(w, node, word);
}

static void enter(struct world *w, struct kept_agent *node)
{
    node->conn = ++w->last_conn;
    service_opened(w->service, node->conn, "10.0.0.1", w->now_ms);
    say(w, node, (struct kept_word){.type = MSG_HELLO});
}

/* Until nobody has anything to do. */
static void settle(struct world *w)
{
    bool goes_on = true;

    for (int times = 0; goes_on; times++) {
        CHECK(w, times < 50);
        goes_on = false;
        for (int i = 0; i < NODES; i++) {
            struct kept_agent *node = &w->nodes[i];

            if (node->must_stop) {
                node->must_stop = false;
                node->is_running = false;
                node->must_join = true;
                tell(w, node, MSG_STOPPED);
                goes_on = true;
            } else if (node->must_join) {
                node->must_join = false;
                tell(w, node, MSG_JOIN);
                goes_on = true;
            }
        }
    }
}

static struct kept_agent *first_rank(struct world *w)
{
    for (int i = 0; i < NODES; i++) {
        if (w->nodes[i].group_rank == 0) {
            return &w->nodes[i];
        }
    }
    UNREACHABLE();
}

static void add(struct world *w, struct kept_agent *node)
{
    ask(w, node, (struct kept_word){MSG_STORE, node->generation, ++node->n_adds, 0});
    CHECK(w, node->asked.type == 0);
}

static void save_checkpoint(struct world *w)
{
    struct kept_agent *node = first_rank(w);
    uint64_t g = node->generation;

    if (!node->has_resumed) {
        node->has_resumed = true;
        ask(w, node,
            (struct kept_word){MSG_RESUMED, g, ++w->last_request, w->facts.step});
    }
    ask(w, node,
        (struct kept_word){MSG_COMMIT, g, ++w->last_request, w->facts.step + 1});
    CHECK(w, node->asked.type == 0);
}

static void fail_rank(struct world *w, struct kept_agent *node)
{
    uint64_t before = w->facts.generation;

    tell(w, node, MSG_RANK_ENDED);
    settle(w);
    CHECK(w, w->facts.generation > before);
}

static void check_all_run(struct world *w)
{
    for (int i = 0; i < NODES; i++) {
        CHECK(w, w->nodes[i].is_running);
        CHECK(w, w->nodes[i].generation == w->facts.generation);
    }
}

/* ---- the play ---- */

static struct world *world_new(struct simdisk *disk, const char *where)
{
    struct world *w = mem_zalloc(sizeof(*w));

    w->disk = disk;
    w->where = where;
    w->now_ms = 1000;
    for (int i = 0; i < NODES; i++) {
        w->nodes[i].group_rank = -1;
    }
    return w;
}

static void world_stop(struct world *w)
{
    service_free(w->service);
    state_db_close(w->db);
    buf_release(&w->batch);
}

static void world_free(struct world *w)
{
    for (size_t i = 0; i < w->n_acks; i++) {
        mem_free(w->acks[i].facts);
    }
    mem_free(w->acks);
    simdisk_free(w->disk);
    mem_free(w);
}

static struct world *play(unsigned n_steps)
{
    struct world *w = world_new(simdisk_new(), "the play");

    w->acks = mem_array(MAX_ACKS, sizeof(*w->acks));
    start(w);
    acknowledge(w);
    for (int i = 0; i < NODES; i++) {
        enter(w, &w->nodes[i]);
        settle(w);
    }
    check_all_run(w);
    for (unsigned i = 0; i < n_steps; i++) {
        uint64_t what = draw(w, 10);
        struct kept_agent *node = &w->nodes[draw(w, NODES)];

        if (what < 6) {
            add(w, node);
        } else if (what < 8) {
            save_checkpoint(w);
        } else {
            fail_rank(w, node);
        }
    }
    return w;
}

/* ---- after a crash ---- */

static void come_back(struct world *w, struct kept_agent *node)
{
    struct kept_word asked = node->asked;
    struct kept_word said[KEPT_SAID_MAX];
    unsigned n_said = node->n_said;
    uint64_t session = node->session;

    memcpy(said, node->said, sizeof(said));
    enter(w, node);
    if (session == 0 || node->session != session) {
        return;
    }
    for (unsigned i = 0; i < n_said && node->n_said > 0; i++) {
        say(w, node, said[i]);
    }
    if (asked.type != 0 && node->asked.type != 0) {
        say(w, node, asked);
    }
}

/* Who spoke in the turn that was lost does not know, and says it again. */
static void say_again(struct world *w, const struct ack *ack)
{
    struct kept_agent *node = &w->nodes[ack->next_node];

    enum msg_type type = ack->next.type;

    if (type == MSG_STORE || type == MSG_RESUMED || type == MSG_COMMIT) {
        node->n_adds = type == MSG_STORE ? ack->next.number : node->n_adds;
        node->asked = ack->next;
    } else if (type == MSG_JOIN || type == MSG_STOPPED || type == MSG_RANK_ENDED) {
        if (type == MSG_STOPPED) {
            node->is_running = false;
            node->must_stop = false;
            node->must_join = true;
        } else if (type == MSG_JOIN) {
            node->must_join = false;
        }
        node->said[node->n_said++] = ack->next;
    } /* a hello is said anyhow, or there was nothing */
}

static void crash(struct world *before, size_t calls, uint64_t seed)
{
    struct simdisk *found = simdisk_crash(before->disk, calls, seed);
    const struct ack *ack = NULL;
    struct world *w;
    char where[64];

    for (size_t i = 0; i < before->n_acks && before->acks[i].calls <= calls; i++) {
        ack = &before->acks[i];
    }
    (void)snprintf(where, sizeof(where), "crash at call %zu, seed %llu", calls,
                   (unsigned long long)seed);
    w = world_new(found, where);
    w->now_ms = before->now_ms;
    w->last_request = before->last_request;
    if (ack) {
        memcpy(w->nodes, ack->nodes, sizeof(w->nodes));
        w->facts = *ack->facts;
        say_again(w, ack);
    }
    start(w);
    for (int i = 0; i < NODES; i++) {
        come_back(w, &w->nodes[i]);
    }
    settle(w);
    check_all_run(w);
    for (int i = 0; i < NODES; i++) {
        add(w, &w->nodes[i]);
    }
    save_checkpoint(w);
    fail_rank(w, &w->nodes[seed % NODES]);
    check_all_run(w);
    world_stop(w);
    world_free(w);
}

static void service_goes_on_from_every_crash(void **unused)
{
    struct world *w = play(is_soak() ? 180 : 60);
    size_t n_calls = simdisk_calls(w->disk);
    size_t step = is_soak() ? 1 : n_calls / 150;
    size_t n = 0;

    (void)unused;
    for (size_t calls = 0; calls <= n_calls; calls += step) {
        crash(w, calls, calls);
        n++;
    }
    print_message("%zu turns, %zu calls, %zu crashes, %llu generations\n", w->n_acks,
                  n_calls, n, (unsigned long long)w->facts.generation);
    assert_true(n >= (is_soak() ? 2000 : 150));
    simdisk_use(w->disk);
    world_stop(w);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(service_goes_on_from_every_crash),
    };

    simdisk_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
