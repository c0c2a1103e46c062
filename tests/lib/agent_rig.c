#include "tests/lib/agent_rig.h"

#include "tests/lib/cmocka.h"

#include "common/check.h"
#include "common/err.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    TRACE_MAX = 1024 * 1024,
    JOIN_TIMEOUT_MS = 60000,
    FIRST_PORT = 1001,
};

#define RIG_ROLE "trainer"

static void trace(struct agent_rig *rig, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void trace(struct agent_rig *rig, const char *fmt, ...)
{
    char text[256];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args); /* cut is fine */
    va_end(args);
    if (buf_append(&rig->trace, text, strlen(text)) < 0) {
        UNREACHABLE();
    }
}

static void act_connect(void *arg)
{
    struct agent_rig *rig = arg;

    trace(rig, "connect; ");
}

static void act_disconnect(void *arg)
{
    struct agent_rig *rig = arg;

    trace(rig, "disconnect; ");
}

static void act_name_holder(void *arg, char *ret, size_t size)
{
    struct agent_rig *rig = arg;

    rig->n_asked++;
    (void)snprintf(ret, size, "%s", rig->holder);
}

static void act_look(void *arg, struct agent_route *ret)
{
    struct agent_rig *rig = arg;

    *ret = rig->route;
}

/* The fields that matter of what is sent most. */
static void trace_world(struct agent_rig *rig, uint32_t max_world)
{
    if (max_world > 0) {
        trace(rig, " world=%u", max_world);
    }
}

static void trace_message(struct agent_rig *rig, const struct msg *m)
{
    trace(rig, "send %s", msg_name(m->type));
    if (m->type == MSG_HELLO) {
        rig->hello = m->u.hello;
        trace(rig, " session=%" PRIu64 " g=%" PRIu64, m->u.hello.session,
              m->u.hello.generation);
    } else if (m->type == MSG_JOIN) {
        trace(rig, " after=%" PRIu64 " port=%u", m->u.join.after, m->u.join.port);
        trace_world(rig, m->u.join.max_world);
        assert_string_equal(m->u.join.role, RIG_ROLE);
    } else if (m->type == MSG_REFUSE) {
        trace_world(rig, m->u.refuse.max_world);
    } else if (m->type == MSG_RANK_ENDED && m->u.rank_ended.tail[0] != '\0') {
        trace(rig, " rank=%u tail", m->u.rank_ended.rank);
    } else if (m->type == MSG_RANK_ENDED) {
        trace(rig, " rank=%u code=%d signal=%d stopped=%u", m->u.rank_ended.rank,
              m->u.rank_ended.exit_code, m->u.rank_ended.signal,
              m->u.rank_ended.stopped);
    } else if (m->type == MSG_STOPPED) {
        trace(rig, " g=%" PRIu64 " done=%u", m->u.stopped.generation,
              m->u.stopped.done);
    } else if (m->type == MSG_COMMIT) {
        trace(rig, " step=%" PRIu64, m->u.commit.step);
    } else if (m->type == MSG_LEAVE) {
        trace(rig, " g=%" PRIu64 " signal=%d", m->u.leave.generation,
              m->u.leave.signal);
        if (m->u.leave.told_ms != 0) {
            trace(rig, " at=%" PRIu64, m->u.leave.told_ms);
        }
    } else if (m->type == MSG_PROGRESS) {
        trace(rig, " step=%" PRIu64, m->u.progress.step);
        rig->progress = m->u.progress;
    } else if (m->type == MSG_INSPECTED) {
        trace(rig, " rank=%u %s", m->u.inspected.rank, m->u.inspected.state);
    }
    trace(rig, "; ");
}

static void act_send(void *arg, const struct msg *m)
{
    struct agent_rig *rig = arg;

    if (m->type == MSG_HEARTBEAT) {
        return; /* would be everywhere */
    }
    if (m->type == MSG_RANK_ENDED) {
        rig->ended = m->u.rank_ended;
    } else if (m->type == MSG_COMMIT) {
        rig->last_request = m->u.commit.request;
    } else if (m->type == MSG_RESUMED) {
        rig->last_request = m->u.resumed.request;
    }
    trace_message(rig, m);
}

static int act_relay_open(void *arg, struct agent_relay *ret, struct errmsg *msg)
{
    struct agent_rig *rig = arg;

    (void)msg;
    *ret = (struct agent_relay){.addr = "127.0.0.1", .port = rig->next_port++};
    return 0;
}

static void act_relay_close(void *arg)
{
    struct agent_rig *rig = arg;

    trace(rig, "relay close; ");
}

static void act_relay_resend(void *arg)
{
    struct agent_rig *rig = arg;

    trace(rig, "relay resend; ");
}

static void act_spawn(void *arg, const struct agent_round *round)
{
    struct agent_rig *rig = arg;

    trace(rig, "spawn g=%" PRIu64 " first=%u world=%u; ", round->generation,
          round->topology.first_rank, round->topology.world_size);
}

static void act_control(void *arg, uint32_t slot, const struct control *c)
{
    struct agent_rig *rig = arg;

    if (c->type == CONTROL_START) {
        trace(rig, "start %u step=%" PRIu64 "; ", slot, c->step);
    } else if (c->type == CONTROL_DECISION) {
        trace(rig, "decide %u step=%" PRIu64 " %s %s; ", slot, c->step,
              c->is_commit ? "commit" : "resumed", c->accepted ? "yes" : "no");
    } else {
        trace(rig, "%s %u; ", c->type == CONTROL_LEAVE ? "leave" : "abort", slot);
    }
}

static void act_engine(void *arg, uint32_t slot, const char *folder)
{
    struct agent_rig *rig = arg;

    trace(rig, "engine %u %s; ", slot, folder);
}

static void act_kill(void *arg, uint32_t slot, int signal)
{
    struct agent_rig *rig = arg;

    trace(rig, "kill %u %d; ", slot, signal);
}

static void act_inspect(void *arg, uint32_t slot, const struct msg_inspect *m)
{
    struct agent_rig *rig = arg;

    trace(rig, "inspect %u what=%u; ", slot, m->what);
}

static void act_report(void *arg, const struct msg_report *report)
{
    struct agent_rig *rig = arg;

    trace(rig, "report %s; ", report->text);
}

static void act_say(void *arg, enum log_level level, const char *text)
{
    struct agent_rig *rig = arg;

    (void)level;
    (void)snprintf(rig->said, sizeof(rig->said), "%s", text);
    trace(rig, "say %.24s; ", text);
}

static void act_end(void *arg, int exit_code)
{
    struct agent_rig *rig = arg;

    rig->exit_code = exit_code;
    trace(rig, "end %d; ", exit_code);
}

void agent_rig_init(struct agent_rig *rig, const struct agent_rig_config *c)
{
    struct agent_config config = {
        .job = "job",
        .host = "host",
        .role = RIG_ROLE,
        .program = "prog",
        .endpoint = "there:1",
        .agent_id = 42,
        .min_nodes = 1,
        .max_nodes = 2,
        .nproc = c->nproc,
        .max_restarts = 3,
        .node_rank = -1,
        .join_timeout_ms = JOIN_TIMEOUT_MS,
        .shutdown_ms = c->shutdown_ms,
        .maybe_engine = c->is_engine,
        .actions = {.arg = rig,
                    .connect = act_connect,
                    .disconnect = act_disconnect,
                    .name_holder = act_name_holder,
                    .look = act_look,
                    .send = act_send,
                    .relay_open = act_relay_open,
                    .relay_close = act_relay_close,
                    .relay_resend = act_relay_resend,
                    .spawn = act_spawn,
                    .control = act_control,
                    .engine = act_engine,
                    .kill = act_kill,
                    .inspect = act_inspect,
                    .report = act_report,
                    .say = act_say,
                    .end = act_end},
    };

    *rig = (struct agent_rig){.now_ms = 1000, .next_port = FIRST_PORT, .exit_code = -1};
    buf_init(&rig->trace, TRACE_MAX);
    rig->agent = agent_new(&config);
    agent_start(rig->agent, rig->now_ms);
}

void agent_rig_release(struct agent_rig *rig)
{
    agent_free(rig->agent);
    buf_release(&rig->trace);
}

void agent_rig_skip(struct agent_rig *rig)
{
    buf_clear(&rig->trace);
}

void agent_rig_expect(struct agent_rig *rig, const char *lines)
{
    char text[8192];
    size_t n = MIN(buf_len(&rig->trace), sizeof(text) - 1);

    if (n > 0) {
        memcpy(text, buf_bytes(&rig->trace), n);
    }
    n -= n >= 2 ? 2 : 0; /* the last separator */
    text[n] = '\0';
    buf_clear(&rig->trace);
    assert_string_equal(text, lines);
}

void agent_rig_expect_said(struct agent_rig *rig, const char *line)
{
    assert_string_equal(rig->said, line);
    rig->said[0] = '\0';
}

void agent_rig_pass(struct agent_rig *rig, uint64_t ms)
{
    uint64_t until = rig->now_ms + ms;
    uint64_t next;

    while ((next = agent_deadline(rig->agent)) <= until) {
        rig->now_ms = MAX(rig->now_ms, next);
        agent_tick(rig->agent, rig->now_ms);
    }
    rig->now_ms = until;
}

void agent_rig_tell(struct agent_rig *rig, const struct msg *m)
{
    assert_int_equal(agent_message(rig->agent, m, rig->now_ms), 0);
}

void agent_rig_reconnect(struct agent_rig *rig)
{
    agent_disconnected(rig->agent, LOSS_CLOSED, rig->now_ms);
    agent_rig_pass(rig, 1000);
    agent_connected(rig->agent, "", rig->now_ms);
    agent_rig_skip(rig);
}

void agent_rig_welcome(struct agent_rig *rig, uint64_t session, bool is_ephemeral)
{
    struct msg m = {.type = MSG_WELCOME,
                    .u.welcome = {.session = session,
                                  .cluster = 5,
                                  .boot = ++rig->boot,
                                  .start = is_ephemeral ? 0 : 100 + rig->boot,
                                  .ephemeral = is_ephemeral,
                                  .lease_ms = 3000,
                                  .generation = 1000,
                                  .kept = 1000,
                                  .had = 2000}};

    agent_rig_tell(rig, &m);
}

void agent_rig_round(struct agent_rig *rig, uint64_t generation, uint32_t group_rank,
                     uint32_t group_world)
{
    struct msg m = {.type = MSG_ROUND,
                    .u.round = {.generation = generation,
                                .group_rank = group_rank,
                                .group_world = group_world,
                                .first_rank = 2 * group_rank,
                                .world_size = 2 * group_world,
                                .cluster = 5,
                                .role_first_rank = 2 * group_rank,
                                .role_world_size = 2 * group_world}};
    struct msg_node node = {.nproc = 2, .addr = "127.0.0.1", .port = 9, .host = "h"};
    struct buf table;

    buf_init(&table, 1024);
    for (uint32_t i = 0; i < msg_round_nodes(&m.u.round); i++) {
        if (msg_node_encode(&node, &table) < 0) {
            UNREACHABLE();
        }
    }
    m.u.round.nodes = (struct bytes){buf_bytes(&table), buf_len(&table)};
    agent_rig_tell(rig, &m);
    buf_release(&table);
}

void agent_rig_stop(struct agent_rig *rig, uint64_t generation, enum stop_mode mode)
{
    struct msg m = {.type = MSG_STOP,
                    .u.stop = {.generation = generation, .mode = (uint8_t)mode}};

    agent_rig_tell(rig, &m);
}

void agent_rig_closed(struct agent_rig *rig, uint32_t exit_code)
{
    struct msg m = {.type = MSG_CLOSED, .u.closed = {.exit_code = exit_code}};

    agent_rig_tell(rig, &m);
}

static void end(struct agent_rig *rig, uint32_t slot, int status)
{
    struct agent_end last = {.message = "why", .tail = "last line", .log_path = ""};

    agent_exited(rig->agent, slot, &(struct agent_exit){status, rig->now_ms, 0},
                 rig->now_ms);
    agent_drained(rig->agent, slot, &last, rig->now_ms);
}

void agent_rig_exit(struct agent_rig *rig, uint32_t slot, int code)
{
    end(rig, slot, code << 8); /* as waitpid has it */
}

void agent_rig_die(struct agent_rig *rig, uint32_t slot, int signal)
{
    end(rig, slot, signal);
}

void agent_rig_run(struct agent_rig *rig, bool is_ephemeral)
{
    agent_connected(rig->agent, "", rig->now_ms);
    agent_rig_welcome(rig, 7, is_ephemeral);
    agent_rig_round(rig, 1, 0, 1);
    agent_rig_skip(rig);
}
