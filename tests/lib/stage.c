#include "tests/lib/stage.h"

#include "tests/lib/cmocka.h"
#include "tests/lib/stage_core.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEASE_MS = 3000, FIRST_MS = 1000, BEAT_MS = 500 };

/* --- what is heard --- */

/* Group rank 0 is told of all nodes, and first; the others of what is theirs. */
static void check_round(struct stage *st, const struct msg_round *m)
{
    struct msg_node first;
    uint32_t n_before = 0;
    uint32_t n_all = 0;

    assert_in_range(m->group_world, 1, MAX_ACTORS);
    if (m->group_rank == 0) {
        assert_int_equal(msg_nodes_decode(m->nodes, st->round, m->group_world), 0);
    } else {
        assert_int_equal(msg_nodes_decode(m->nodes, &first, 1), 0);
        assert_string_equal(first.host, st->round[0].host);
        assert_string_equal(first.addr, st->round[0].addr);
        assert_int_equal(first.port, st->round[0].port);
    }
    for (uint32_t i = 0; i < m->group_world; i++) {
        n_before += i < m->group_rank ? st->round[i].nproc : 0;
        n_all += st->round[i].nproc;
    }
    assert_int_equal(m->first_rank, n_before);
    assert_int_equal(m->world_size, n_all);
}

static int describe_round(const struct stage *st, const struct msg_round *m, char *ret,
                          size_t size)
{
    int n = snprintf(ret, size, "ROUND g=%" PRIu64, m->generation);

    for (uint32_t i = 0; i < m->group_world; i++) {
        n += snprintf(ret + n, size - (size_t)n, " %s", st->round[i].host);
    }
    n += snprintf(ret + n, size - (size_t)n, " failures=%u", m->failures);
    if (m->commit_hash[0] != '\0') {
        n += snprintf(ret + n, size - (size_t)n, " commit=%u:%" PRIu64 ":%s",
                      m->commit_run, m->commit_step, m->commit_hash);
    }
    if (m->role_world_size != m->world_size) {
        n += snprintf(ret + n, size - (size_t)n, " role=%u/%u", m->role_first_rank,
                      m->role_world_size);
    } else {
        assert_int_equal(m->role_first_rank, m->first_rank);
    }
    return n;
}

static int describe_report(const struct msg_report *m, char *ret, size_t size)
{
    int n = snprintf(ret, size, "REPORT g=%" PRIu64 " %s failures=%u/%u", m->generation,
                     m->final ? "final" : "again", m->failures, m->max_restarts);

    if (m->final) {
        n += snprintf(ret + n, size - (size_t)n, " exit=%u", m->exit_code);
    }
    if (m->rank >= 0) {
        n += snprintf(ret + n, size - (size_t)n, " rank %d on %s code=%d signal=%d",
                      m->rank, m->host, m->code, m->signal);
    }
    if (m->tail[0] != '\0') {
        n += snprintf(ret + n, size - (size_t)n, " (%s)", m->tail);
    }
    if (m->commit_hash[0] != '\0') {
        n += snprintf(ret + n, size - (size_t)n, " commit=%u:%" PRIu64 ":%s",
                      m->commit_run, m->commit_step, m->commit_hash);
    }
    return n + snprintf(ret + n, size - (size_t)n, ": %s", m->text);
}

static void describe_rest(const struct msg *m, char *ret, size_t size)
{
    if (m->type == MSG_NOTICE) {
        (void)snprintf(ret, size, "NOTICE %s%s%.900s%s", m->u.notice.text,
                       m->u.notice.detail[0] != '\0' ? " (" : "", m->u.notice.detail,
                       m->u.notice.detail[0] != '\0' ? ")" : "");
    } else if (m->type == MSG_INSPECT) {
        (void)snprintf(ret, size, "INSPECT g=%" PRIu64 " rank=%u%s",
                       m->u.inspect.generation, m->u.inspect.rank,
                       m->u.inspect.what == INSPECT_STACK ? " stack" : "");
    } else if (m->type == MSG_PONG && m->u.pong.n_joined > 0) {
        (void)snprintf(ret, size, "PONG joined=%u also=%s", m->u.pong.n_joined,
                       m->u.pong.also_waiting);
    } else {
        (void)snprintf(ret, size, "%s", msg_name(m->type));
    }
}

static void describe(const struct stage *st, const struct msg *m, char *ret,
                     size_t size)
{
    if (m->type == MSG_ROUND) {
        (void)describe_round(st, &m->u.round, ret, size);
    } else if (m->type == MSG_REPORT) {
        (void)describe_report(&m->u.report, ret, size);
    } else if (m->type == MSG_STOP) {
        (void)snprintf(ret, size, "STOP g=%" PRIu64 " %s%.*s: %s", m->u.stop.generation,
                       m->u.stop.mode == STOP_LEAVE ? "leave" : "abort",
                       m->u.stop.hung != 0 ? 5 : 0, " hung", m->u.stop.text);
    } else if (m->type == MSG_STANDBY) {
        (void)snprintf(ret, size, "STANDBY %s", m->u.standby.text);
    } else if (m->type == MSG_REFUSED) {
        (void)snprintf(ret, size, "REFUSED %u: %s", m->u.refused.exit_code,
                       m->u.refused.text);
    } else if (m->type == MSG_CLOSED) {
        (void)snprintf(ret, size, "CLOSED %u%s%s", m->u.closed.exit_code,
                       m->u.closed.text[0] != '\0' ? ": " : "", m->u.closed.text);
    } else if (m->type == MSG_DECISION) {
        (void)snprintf(
            ret, size, "DECISION g=%" PRIu64 " #%" PRIu64 " %s%s",
            m->u.decision.generation, m->u.decision.request,
            m->u.decision.accepted ? "accepted" : "refused: ", m->u.decision.text);
    } else if (m->type == MSG_STORE_REPLY) {
        (void)snprintf(ret, size, "STORE_REPLY g=%" PRIu64,
                       m->u.store_reply.generation);
    } else {
        describe_rest(m, ret, size);
    }
}

static struct actor *find_by_conn(struct stage *st, uint64_t conn)
{
    for (size_t i = 0; i < st->n_actors; i++) {
        if (st->actor[i].conn == conn) {
            return &st->actor[i];
        }
    }
    return NULL;
}

void stage_hear(struct stage *st, const struct actor *a, const char *body)
{
    struct heard *h = &st->heard[st->n_heard++];

    assert_true(st->n_heard <= MAX_HEARD);
    h->actor = (size_t)(a - st->actor);
    (void)snprintf(h->body, sizeof(h->body), "%s", body);
    if ((st->n_past & (st->n_past - 1)) == 0) { /* full: 0, 1, 2, 4 … */
        st->past = mem_grow(st->past, MAX(2 * st->n_past, 1), sizeof(*st->past));
    }
    st->past[st->n_past++] = *h;
}

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    struct stage *st = arg;
    struct actor *a = find_by_conn(st, conn);
    char body[HEARD_MAX];

    if (m->type == MSG_ROUND) {
        check_round(st, &m->u.round);
    }
    if (!a || st->is_deaf) {
        return;
    }
    if (m->type == MSG_WELCOME) {
        a->is_welcome = true;
        a->session = m->u.welcome.session;
        a->kept = m->u.welcome.kept;
    } else if (m->type == MSG_PONG) {
        a->kept = MAX(a->kept, m->u.pong.kept);
    } else if (m->type == MSG_STORE_REPLY) {
        a->kept = MAX(a->kept, m->u.store_reply.kept);
    } else if (m->type == MSG_ROUND) {
        a->generation = m->u.round.generation;
        a->group_rank = (int32_t)m->u.round.group_rank;
        a->failures = m->u.round.failures;
        a->n_said = 0;
        a->is_standby = false;
    } else if (m->type == MSG_STANDBY && a->is_standby && st->is_unordered) {
        return; /* as an agent ignores it */
    }
    a->is_standby = a->is_standby || m->type == MSG_STANDBY;
    if ((m->type != MSG_WELCOME && m->type != MSG_PONG) || st->traces_all) {
        describe(st, m, body, sizeof(body));
        stage_hear(st, a, body);
    }
}

static void on_close(void *arg, uint64_t conn)
{
    struct stage *st = arg;
    struct actor *a = find_by_conn(st, conn);

    if (a && !st->is_deaf) {
        stage_hear(st, a, "(closed)");
        a->conn = 0;
        a->is_welcome = false;
    }
}

/* --- the agents --- */

static struct actor *take_actor(struct stage *st, const char *name)
{
    struct actor *a = st->actor;

    while (a < st->actor + st->n_actors && strcmp(a->name, name) != 0) {
        a++;
    }
    if (a == st->actor + st->n_actors) {
        assert_true(++st->n_actors <= MAX_ACTORS);
        (void)snprintf(a->name, sizeof(a->name), "%s", name);
        a->group_rank = -1;
    }
    return a;
}

/* --- time --- */

static void beat_all(struct stage *st)
{
    for (size_t i = 0; i < st->n_actors; i++) {
        if (st->actor[i].is_welcome && !st->actor[i].is_mute && !st->actor[i].is_away) {
            stage_beat(st, &st->actor[i]);
        }
    }
}

static void wait(struct stage *st, uint64_t ms)
{
    uint64_t end_ms = st->now_ms + ms;

    while (st->now_ms < end_ms) {
        uint64_t due = MIN(service_deadline(st->service), st->beat_ms + BEAT_MS);

        assert_true(due > st->now_ms); /* else the shell would spin */
        st->now_ms = MIN(due, end_ms);
        if (st->now_ms == st->beat_ms + BEAT_MS) {
            beat_all(st);
            st->beat_ms = st->now_ms;
        }
        if (st->now_ms >= service_deadline(st->service)) {
            service_tick(st->service, st->now_ms);
        }
    }
}

static void sleep_through(struct stage *st, uint64_t ms)
{
    st->now_ms += ms;
    st->beat_ms = st->now_ms;
    service_tick(st->service, st->now_ms);
}

/* --- playing --- */

void stage_play_line(struct stage *st, const char *line)
{
    char first[16] = "";
    char second[16] = "";
    int used = 0;

    assert_true(sscanf(line, "%15s %15s%n", first, second, &used) == 2);
    if (strcmp(first, "wait") == 0) {
        wait(st, strtoull(second, NULL, 10));
        return;
    }
    st->is_timed = st->is_timed || strcmp(second, "mute") == 0;
    if (strcmp(first, "sleep") == 0) {
        st->is_timed = true;
        sleep_through(st, strtoull(second, NULL, 10));
        return;
    }
    if (strcmp(first, "shape") == 0) {
        stage_set_shape(&st->shape, line);
        return;
    }
    if (strcmp(first, "trace") == 0 || strcmp(first, "unkilled") == 0) {
        st->traces_all = st->traces_all || strcmp(first, "trace") == 0;
        st->is_timed = true;
        return;
    }
    if (strcmp(first, "operator") == 0) {
        stage_operate(st, second, line + used);
        return;
    }
    if (strcmp(first, "service") == 0) {
        stage_kill_for(st, second, line + used);
        return;
    }
    if (stage_act(st, take_actor(st, first), second, line + used)) {
        return;
    }
    fail_msg("no such verb: %s", line);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* "a,b BODY", for the first body that is left; marks those as read. */
static bool next_heard(struct stage *st, char *ret, size_t size)
{
    const char *names[MAX_ACTORS];
    const char *body = NULL;
    bool was_seen[MAX_ACTORS] = {false};
    size_t n = 0;
    size_t at = 0;
    char *marks[MAX_ACTORS];

    for (size_t i = 0; i < st->n_heard; i++) {
        struct heard *h = &st->heard[i];

        if (h->body[0] == '\0' || (body && strcmp(h->body, body) != 0) ||
            was_seen[h->actor]) {
            continue;
        }
        body = h->body;
        was_seen[h->actor] = true;
        marks[n] = h->body;
        names[n++] = st->actor[h->actor].name;
    }
    if (n == 0) {
        return false;
    }
    qsort(names, n, sizeof(names[0]), compare_names);
    for (size_t i = 0; i < n; i++) {
        at += (size_t)snprintf(ret + at, size - at, "%s%s", i ? "," : "", names[i]);
    }
    (void)snprintf(ret + at, size - at, " %s", body);
    for (size_t i = 0; i < n; i++) {
        marks[i][0] = '\0';
    }
    return true;
}

/* One of those heard; NULL: `name` (up to a comma or blank) has not heard it. */
static struct heard *find_one(struct stage *st, const char *name, const char *body)
{
    size_t size = strcspn(name, ", ");

    for (size_t i = 0; i < st->n_heard; i++) {
        struct heard *h = &st->heard[i];
        const char *whose = st->actor[h->actor].name;

        if (strcmp(h->body, body) == 0 && strlen(whose) == size &&
            strncmp(whose, name, size) == 0) {
            return h;
        }
    }
    return NULL;
}

/* "a,b BODY", in whatever order they came; marks them as read. */
static bool find_heard(struct stage *st, const char *line)
{
    const char *body = strchr(line, ' ') + 1;

    for (const char *name = line; name < body; name += strcspn(name, ", ") + 1) {
        struct heard *h = find_one(st, name, body);

        if (!h) {
            return false;
        }
        h->body[0] = '\0';
    }
    return true;
}

static const char *describe_kill(const struct stage *st)
{
    static char text[64];

    (void)snprintf(text, sizeof(text),
                   " (service killed after line %u that is played%s)", st->kill.after,
                   st->kill.is_deaf ? ", unheard" : "");
    return st->kill.after > 0 ? text : "";
}

static void expect(struct stage *st, const char *line, int number)
{
    char heard[2 * HEARD_MAX] = "(nothing)";

    if (st->is_unordered && find_heard(st, line)) {
        return;
    }
    if (!next_heard(st, heard, sizeof(heard)) || strcmp(heard, line) != 0) {
        print_error("line %d%s\n  expected: %s\n  heard:    %s\n", number,
                    describe_kill(st), line, heard);
        while (next_heard(st, heard, sizeof(heard))) {
            print_error("  then:     %s\n", heard);
        }
        fail();
    }
}

static void expect_silence(struct stage *st, int number)
{
    char heard[2 * HEARD_MAX];

    if (next_heard(st, heard, sizeof(heard))) {
        do {
            print_error("before line %d%s, not expected: %s\n", number,
                        describe_kill(st), heard);
        } while (next_heard(st, heard, sizeof(heard)));
        fail();
    }
    st->n_heard = 0;
}

/* Kills the service after the line that was played last, once all was heard. */
static void kill_heard(struct stage *st, struct stage_kill kill, unsigned n_played)
{
    if (kill.after == n_played && !kill.is_deaf && kill.after > 0) {
        stage_restart(st, NULL);
    }
}

static void play_and_kill(struct stage *st, const char *line, struct stage_kill kill,
                          unsigned n_played)
{
    st->is_deaf = kill.is_deaf && kill.after == n_played;
    stage_play_line(st, line);
    if (st->is_deaf) {
        st->is_deaf = false;
        if (!st->is_timed) {
            stage_restart(st, line);
        }
    }
}

bool stage_play_with(struct stage *st, const char *script, struct stage_kill kill,
                     unsigned *n_played)
{
    char line[HEARD_MAX];
    int number = 1;

    st->kill = kill;
    for (const char *at = script; *at; number++) {
        size_t size = strcspn(at, "\n");

        assert_true(size < sizeof(line));
        (void)snprintf(line, sizeof(line), "%.*s", (int)size, at);
        if (strncmp(line, "> ", 2) == 0) {
            expect(st, line + 2, number);
        } else if (line[0] != '\0') {
            expect_silence(st, number);
            kill_heard(st, kill, *n_played);
            play_and_kill(st, line, kill, ++*n_played);
        }
        if (st->is_timed && *n_played <= kill.after) {
            return false;
        }
        at += size + (at[size] == '\n');
    }
    expect_silence(st, number);
    kill_heard(st, kill, *n_played);
    return *n_played >= kill.after;
}

void stage_play(struct stage *st, const char *script)
{
    unsigned n_played = 0;

    (void)stage_play_with(st, script, (struct stage_kill){0}, &n_played);
}

const struct history *stage_history(const struct stage *st)
{
    return &st->history;
}

uint64_t stage_now(const struct stage *st)
{
    return st->now_ms;
}

struct service *stage_service(struct stage *st)
{
    return st->service;
}

static void on_note(void *arg, const struct job_event *e)
{
    struct stage *st = arg;

    (void)history_note(&st->history, e, st->now_ms);
}

struct stage *stage_new(void)
{
    struct stage *st = mem_zalloc(sizeof(*st));

    st->now_ms = FIRST_MS;
    st->beat_ms = FIRST_MS;
    st->shape = (struct msg_hello){.min_nodes = 2,
                                   .max_nodes = 2,
                                   .nproc = 1,
                                   .last_call_ms = 30000,
                                   .node_rank = -1,
                                   .group_rank = -1};
    stage_start(st);
    return st;
}

static void on_save(void *arg, const struct record *r)
{
    struct stage *st = arg;

    shelf_save(&st->shelf, r);
}

static uint64_t on_kept(void *arg)
{
    const struct stage *st = arg;

    return shelf_kept(&st->shelf);
}

void stage_start(struct stage *st)
{
    struct start now = {++st->boot, STAGE_START(st->boot), st->shelf.n_commits};
    struct errmsg msg = {""};

    st->service = service_new(&(struct service_config){.cluster = STAGE_CLUSTER,
                                                       .boot = now.boot,
                                                       .start = now.id,
                                                       .found = now.found,
                                                       .ephemeral = false,
                                                       .lease_ms = LEASE_MS,
                                                       .seed = 5 + st->boot,
                                                       .sink = {.arg = st,
                                                                .send = on_send,
                                                                .close = on_close,
                                                                .note = on_note,
                                                                .save = on_save,
                                                                .kept = on_kept}});
    history_init(&st->history,
                 &(struct history_config){.seed = 5, .save = on_save, .arg = st});
    if (shelf_restore(&st->shelf, st->service, &st->history, st->now_ms, &msg) < 0) {
        fail_msg("%s", msg.text);
    }
    shelf_begin(&st->shelf, &now);
}

void stage_end(struct stage *st)
{
    service_free(st->service);
    history_release(&st->history);
    shelf_commit(&st->shelf);
}

void stage_free(struct stage *st)
{
    stage_end(st);
    shelf_release(&st->shelf);
    mem_free(st->past);
    mem_free(st);
}
