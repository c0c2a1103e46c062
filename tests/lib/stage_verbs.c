#include "tests/lib/cmocka.h"
#include "tests/lib/stage_core.h"

#include "common/err.h"
#include "common/tcpstore.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_flag(const char *words, const char *flag)
{
    size_t size = strlen(flag);

    for (const char *at = strstr(words, flag); at; at = strstr(at + 1, flag)) {
        if ((at == words || at[-1] == ' ') && (at[size] == ' ' || at[size] == '\0')) {
            return true;
        }
    }
    return false;
}

/* The value of key=; NULL when it is not there. Valid until the next call but three. */
static const char *value_of(const char *words, const char *key)
{
    static char ring[4][256];
    static unsigned next;
    char pattern[32];
    const char *at;
    char *value = ring[next++ % 4];

    (void)snprintf(pattern, sizeof(pattern), " %s=", key);
    at = strstr(words, pattern);
    if (!at) {
        return NULL;
    }
    at += strlen(pattern);
    (void)snprintf(value, sizeof(ring[0]), "%.*s", (int)strcspn(at, " "), at);
    return value;
}

static uint64_t number_of(const char *words, const char *key, uint64_t fallback)
{
    const char *value = value_of(words, key);

    return value ? (uint64_t)strtoll(value, NULL, 10) : fallback;
}

static void text_of(const char *words, const char *key, const char *fallback, char *ret,
                    size_t size)
{
    const char *value = value_of(words, key);

    (void)snprintf(ret, size, "%s", value ? value : fallback);
    for (char *at = strchr(ret, '_'); at; at = strchr(at, '_')) {
        *at = ' ';
    }
}

void stage_set_shape(struct msg_hello *h, const char *words)
{
    const char *nodes = value_of(words, "nodes");

    if (nodes) {
        const char *colon = strchr(nodes, ':');

        h->min_nodes = (uint32_t)strtoul(nodes, NULL, 10);
        h->max_nodes = colon ? (uint32_t)strtoul(colon + 1, NULL, 10) : h->min_nodes;
    }
    h->max_restarts = (uint32_t)number_of(words, "restarts", h->max_restarts);
    h->nproc = (uint32_t)number_of(words, "nproc", h->nproc);
    h->on_hang = (uint8_t)number_of(words, "on_hang", h->on_hang);
    h->last_call_ms = (uint32_t)number_of(words, "call", h->last_call_ms);
}

static bool is_said_again(const struct msg *m)
{
    return m->type == MSG_JOIN || m->type == MSG_RANK_ENDED || m->type == MSG_STOPPED ||
           m->type == MSG_LEAVE || m->type == MSG_REFUSE;
}

static void say(struct stage *st, struct actor *a, const struct msg *m)
{
    if (is_said_again(m) && a->n_said < MAX_SAID) {
        a->said[a->n_said++] = *m;
    }
    stage_say(st, a, m);
}

void stage_say(struct stage *st, struct actor *a, const struct msg *m)
{
    char body[64];
    int rv = service_message(st->service, a->conn, m, st->now_ms);

    if (rv < 0 && st->is_deaf) {
        service_closed(st->service, a->conn, st->now_ms);
    } else if (rv < 0) { /* as the shell does */
        (void)snprintf(body, sizeof(body), "(%s)", err_name(rv));
        stage_hear(st, a, body);
        service_closed(st->service, a->conn, st->now_ms);
        a->conn = 0;
        a->is_welcome = false;
    }
}

static void act_opens(struct stage *st, struct actor *a, const char *words)
{
    char peer[MSG_ADDR_MAX];

    text_of(words, "peer", "10.0.0.1", peer, sizeof(peer));
    memcpy(a->peer, peer, sizeof(a->peer));
    a->conn = ++st->last_conn;
    a->is_welcome = false;
    a->is_mute = false;
    service_opened(st->service, a->conn, peer, st->now_ms);
}

static void set_commit(struct msg_hello *h, const char *commit)
{
    char *end;

    if (commit) {
        h->commit_run = (uint32_t)strtoul(commit, &end, 10);
        h->commit_step = strtoull(end + 1, &end, 10);
        (void)snprintf(h->commit_hash, sizeof(h->commit_hash), "%s", end + 1);
    }
}

static void act_hello(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = MSG_HELLO, .u.hello = st->shape};
    struct msg_hello *h = &m.u.hello;

    if (!has_flag(words, "again")) {
        act_opens(st, a, words);
    }
    stage_set_shape(h, words);
    h->version = (uint16_t)number_of(words, "version", MSG_VERSION);
    h->agent_id = number_of(words, "id", (uint64_t)(a - st->actor) + 1);
    h->generation = number_of(words, "gen", a->generation);
    h->cluster = number_of(words, "cluster", h->generation > 0 ? STAGE_CLUSTER : 0);
    h->group_rank = (int32_t)number_of(words, "group", (uint64_t)a->group_rank);
    h->failures = (uint32_t)number_of(words, "failures", a->failures);
    h->node_rank = (int32_t)number_of(words, "rank", (uint64_t)-1);
    text_of(words, "job", "job", h->job, sizeof(h->job));
    text_of(words, "host", a->name, h->host, sizeof(h->host));
    set_commit(h, value_of(words, "commit"));
    a->hello = *h;
    a->n_said = 0;
    a->is_standby = false;
    say(st, a, &m);
}

static void act_join(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = MSG_JOIN};

    m.u.join.after = number_of(words, "after", a->generation);
    m.u.join.max_world = (uint32_t)number_of(words, "world", 0);
    m.u.join.port = 7000;
    text_of(words, "addr", "10.0.0.1", m.u.join.addr, sizeof(m.u.join.addr));
    text_of(words, "role", "default", m.u.join.role, sizeof(m.u.join.role));
    say(st, a, &m);
}

static void act_enters(struct stage *st, struct actor *a, const char *words)
{
    act_hello(st, a, words);
    if (a->is_welcome) {
        act_join(st, a, words);
    }
}

static void act_ended(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = MSG_RANK_ENDED};
    struct msg_rank_ended *e = &m.u.rank_ended;

    e->generation = number_of(words, "gen", a->generation);
    e->rank = (uint32_t)number_of(words, "rank", (uint64_t)a->group_rank);
    e->exit_code = (int32_t)number_of(words, "code", 0);
    e->signal = (int32_t)number_of(words, "signal", 0);
    e->step = number_of(words, "step", 0);
    e->ended_ms = number_of(words, "at", st->now_ms);
    e->engine = has_flag(words, "engine");
    e->stopped = has_flag(words, "stopped");
    text_of(words, "tail", "", e->tail, sizeof(e->tail));
    say(st, a, &m);
}

static void send_stopped(struct stage *st, struct actor *a, const char *words,
                         bool done)
{
    struct msg m = {.type = MSG_STOPPED};

    m.u.stopped.generation = number_of(words, "gen", a->generation);
    m.u.stopped.done = done;
    say(st, a, &m);
}

static void act_stopped(struct stage *st, struct actor *a, const char *words)
{
    send_stopped(st, a, words, false);
}

static void act_done(struct stage *st, struct actor *a, const char *words)
{
    send_stopped(st, a, words, true);
}

static void act_leave(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = MSG_LEAVE};

    m.u.leave.generation = number_of(words, "gen", a->generation);
    m.u.leave.signal = (int32_t)number_of(words, "signal", SIGTERM);
    m.u.leave.told_ms = number_of(words, "at", st->now_ms);
    say(st, a, &m);
}

static void act_refuse(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = MSG_REFUSE};

    m.u.refuse.generation = number_of(words, "gen", a->generation);
    m.u.refuse.exit_code = (uint32_t)number_of(words, "code", 2);
    m.u.refuse.max_world = (uint32_t)number_of(words, "world", 0);
    text_of(words, "text", "no", m.u.refuse.text, sizeof(m.u.refuse.text));
    say(st, a, &m);
}

static void act_resumed(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = MSG_RESUMED};

    m.u.resumed.generation = number_of(words, "gen", a->generation);
    m.u.resumed.request = number_of(words, "request", 1);
    m.u.resumed.run = (uint32_t)number_of(words, "run", 1);
    m.u.resumed.step = number_of(words, "step", 0);
    say(st, a, &m);
}

static void act_commit(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = MSG_COMMIT};

    m.u.commit.generation = number_of(words, "gen", a->generation);
    m.u.commit.request = number_of(words, "request", 2);
    m.u.commit.run = (uint32_t)number_of(words, "run", 1);
    m.u.commit.step = number_of(words, "step", 0);
    text_of(words, "hash", "h", m.u.commit.hash, sizeof(m.u.commit.hash));
    say(st, a, &m);
}

static void act_progress(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = MSG_PROGRESS};
    struct msg_progress *p = &m.u.progress;

    p->generation = number_of(words, "gen", a->generation);
    p->rank = (uint32_t)number_of(words, "rank", (uint64_t)a->group_rank);
    p->step = number_of(words, "step", 0);
    p->tok_s = (uint32_t)number_of(words, "tok", 0);
    p->pid = (uint32_t)number_of(words, "pid", 100 + p->rank);
    p->waits_for = (int32_t)number_of(words, "waits", (uint64_t)-1);
    p->age_ms = (uint32_t)number_of(words, "age", 0);
    text_of(words, "phase", "", p->phase, sizeof(p->phase));
    text_of(words, "loss", "", p->loss, sizeof(p->loss));
    p->loss_step = number_of(words, "of", p->step);
    say(st, a, &m);
}

static void act_inspected(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = MSG_INSPECTED};
    struct msg_inspected *i = &m.u.inspected;
    char stack[256];

    i->generation = number_of(words, "gen", a->generation);
    i->rank = (uint32_t)number_of(words, "rank", (uint64_t)a->group_rank);
    i->more = (uint8_t)number_of(words, "more", 0);
    text_of(words, "state", "", i->state, sizeof(i->state));
    text_of(words, "stack", "", stack, sizeof(stack));
    i->what = i->state[0] != '\0' ? INSPECT_HANG : INSPECT_STACK;
    i->body = (struct bytes){(const uint8_t *)stack, strlen(stack)};
    say(st, a, &m);
}

static void act_ping(struct stage *st, struct actor *a, const char *words)
{
    static const uint8_t nonce[4] = {1, 2, 3, 4};
    struct msg m = {.type = MSG_STORE,
                    .u.store = {.client = 1,
                                .seq = 1,
                                .op = TCPSTORE_PING,
                                .body = {nonce, sizeof(nonce)}}};

    m.u.store.generation = number_of(words, "gen", a->generation);
    say(st, a, &m);
}

static void act_stores(struct stage *st, struct actor *a, const char *words)
{
    static const uint8_t key_and_value[] = "\1\0\0\0\0\0\0\0k"
                                           "\1\0\0\0\0\0\0\0v";
    struct msg m = {.type = MSG_STORE,
                    .u.store = {.client = 2,
                                .seq = 1,
                                .op = TCPSTORE_SET,
                                .body = {key_and_value, sizeof(key_and_value) - 1}}};

    (void)words;
    m.u.store.generation = a->generation;
    say(st, a, &m);
}

static void act_beat(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = MSG_HEARTBEAT, .u.heartbeat = {.sent_ms = st->now_ms}};

    (void)words;
    say(st, a, &m);
}

static void act_mute(struct stage *st, struct actor *a, const char *words)
{
    (void)st;
    (void)words;
    a->is_mute = true;
}

static void act_gone(struct stage *st, struct actor *a, const char *words)
{
    uint64_t conn = a->conn;

    (void)words;
    a->conn = 0;
    a->is_welcome = false;
    service_closed(st->service, conn, st->now_ms);
}

static void act_returns(struct stage *st, struct actor *a, const char *words)
{
    (void)words;
    assert_true(a->is_away && a->is_welcome);
    a->is_away = false;
    stage_return(st, a);
}

static void act_sends(struct stage *st, struct actor *a, const char *words)
{
    struct msg m = {.type = (enum msg_type)number_of(words, "type", 0)};

    say(st, a, &m);
}

static const struct verb {
    const char *name;
    void (*act)(struct stage *st, struct actor *a, const char *words);
} verbs[] = {
    {"opens", act_opens},       {"hello", act_hello},      {"enters", act_enters},
    {"join", act_join},         {"ended", act_ended},      {"stopped", act_stopped},
    {"done", act_done},         {"leave", act_leave},      {"refuse", act_refuse},
    {"resumed", act_resumed},   {"commit", act_commit},    {"ping", act_ping},
    {"stores", act_stores},     {"beat", act_beat},        {"mute", act_mute},
    {"gone", act_gone},         {"sends", act_sends},      {"returns", act_returns},
    {"progress", act_progress}, {"reports", act_progress}, {"inspected", act_inspected},
};

bool stage_act(struct stage *st, struct actor *a, const char *verb, const char *words)
{
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (strcmp(verbs[i].name, verb) == 0) {
            verbs[i].act(st, a, words);
            return true;
        }
    }
    return false;
}

void stage_beat(struct stage *st, struct actor *a)
{
    act_beat(st, a, "");
}
