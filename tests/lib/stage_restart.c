#include "rendezvous/registry.h"
#include "rendezvous/service_core.h"
#include "rendezvous/steering.h"
#include "tests/lib/stage_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What an agent, or its worker, asks again when there was no answer. The rest is among
 * what it says again, or nobody waits for an answer. */
static bool is_asked_again(const struct actor *a, const char *line)
{
    char verb[16] = "";
    bool is_hello;

    (void)sscanf(line, "%*s %15s", verb);
    is_hello = strcmp(verb, "hello") == 0 || strcmp(verb, "enters") == 0;
    return is_hello ? !a->is_welcome
                    : strcmp(verb, "commit") == 0 || strcmp(verb, "resumed") == 0 ||
                          strcmp(verb, "ping") == 0 || strcmp(verb, "sends") == 0;
}

static struct actor *actor_of(struct stage *st, const char *line)
{
    char first[16] = "";

    (void)sscanf(line, "%15s", first);
    for (size_t i = 0; i < st->n_actors; i++) {
        if (strcmp(st->actor[i].name, first) == 0) {
            return &st->actor[i];
        }
    }
    return NULL;
}

/* It knows that already. */
static bool was_heard(const struct stage *st, const struct heard *h, size_t n_past)
{
    if (strncmp(h->body, "DECISION ", 9) == 0 || strncmp(h->body, "REFUSED ", 8) == 0 ||
        h->body[0] == '(') {
        return false; /* an answer */
    }
    for (size_t i = 0; i < n_past; i++) {
        if (st->past[i].actor == h->actor && strcmp(st->past[i].body, h->body) == 0) {
            return true;
        }
    }
    return false;
}

/* As an agent ignores what it knows. */
static void forget_known(struct stage *st, size_t n_past)
{
    size_t n = 0;

    for (size_t i = 0; i < st->n_heard; i++) {
        if (!was_heard(st, &st->heard[i], n_past)) {
            st->heard[n++] = st->heard[i];
        }
    }
    st->n_heard = n;
    st->n_past = n_past;
    for (size_t i = 0; i < n; i++) { /* news: as if it had been heard in time */
        struct heard h = st->heard[i];

        st->n_heard = i;
        stage_hear(st, &st->actor[h.actor], h.body);
    }
    st->n_heard = n;
}

/* A new connection, the same session, and what was said last. */
void stage_return(struct stage *st, struct actor *a)
{
    struct msg m = {.type = MSG_HELLO, .u.hello = a->hello};
    struct msg said[MAX_SAID];
    size_t n_said = a->n_said;

    memcpy(said, a->said, sizeof(said));
    a->conn = ++st->last_conn;
    service_opened(st->service, a->conn, a->peer, st->now_ms);
    if (!a->is_welcome) {
        return;
    }
    m.u.hello.session = a->session;
    m.u.hello.cluster = STAGE_CLUSTER;
    m.u.hello.boot = st->boot - 1;
    m.u.hello.start = STAGE_START(st->boot - 1);
    m.u.hello.kept = a->kept;
    m.u.hello.generation = MAX(a->generation, m.u.hello.generation);
    m.u.hello.group_rank = a->group_rank;
    m.u.hello.failures = a->failures;
    stage_say(st, a, &m);
    for (size_t i = 0; i < n_said && a->conn != 0; i++) {
        stage_say(st, a, &said[i]);
    }
}

void stage_restart(struct stage *st, const char *line)
{
    size_t n_past = st->n_past;
    struct actor *last = line ? actor_of(st, line) : NULL;
    char *views = stage_views(st);

    stage_end(st);
    st->is_unordered = true;
    st->n_heard = 0;
    stage_start(st);
    stage_expect_views(st, views);
    free(views);
    for (size_t i = 0; i < st->n_actors; i++) {
        struct actor *a = &st->actor[i];
        uint64_t session = a->session;

        if (a->conn == 0) {
            continue;
        }
        stage_return(st, a);
        if (a->is_welcome) {
            assert_int_equal(a->session, session);
        }
    }
    if (last && last->conn != 0 && is_asked_again(last, line)) {
        stage_play_line(st, line);
    }
    assert_int_equal(st->service->n_away, 0);
    forget_known(st, n_past);
}

void stage_operate(struct stage *st, const char *verb, const char *words)
{
    const struct steering by = {
        .service = st->service, .who = "op", .max_drained = SIZE_MAX};
    struct errmsg msg = {""};
    json_t *answer = NULL;
    char node[16] = "";
    int rv;

    (void)sscanf(words, "%15s", node);
    if (strcmp(verb, "cancels") == 0) {
        rv = steering_cancel(&by, "job", st->now_ms, &answer, &msg);
    } else {
        assert_string_equal(verb, "drains");
        rv = steering_drain(&by, "job", node, &answer, &msg);
    }
    if (rv < 0) {
        fail_msg("%s", msg.text);
    }
    json_decref(answer);
}

void stage_kill_for(struct stage *st, const char *verb, const char *words)
{
    if (strcmp(verb, "finishes") == 0) {
        service_finish(st->service, "the service leaves", st->now_ms);
        return;
    }
    if (strcmp(verb, "fills") == 0) {
        service_set_space(st->service, SPACE_SPENT);
        return;
    }
    if (strcmp(verb, "empties") == 0) {
        service_set_space(st->service, SPACE_FINE);
        return;
    }
    assert_string_equal(verb, "dies");
    stage_end(st);
    st->now_ms += strtoull(words, NULL, 10);
    st->beat_ms = st->now_ms;
    st->is_timed = true;
    for (size_t i = 0; i < st->n_actors; i++) {
        st->actor[i].is_away = st->actor[i].conn != 0;
        st->actor[i].conn = 0;
    }
    stage_start(st);
}
