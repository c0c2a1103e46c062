/* The agent's actions, one function each. None calls back into the agent. */

#include "launcher/output/own_lines.h"
#include "launcher/own_error.h"
#include "launcher/rdzv/netaddr.h"
#include "launcher/report.h"
#include "launcher/supervisor_core.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void act_connect(void *arg)
{
    const struct supervisor *s = arg;

    rdzv_client_connect(s->client);
}

static void act_disconnect(void *arg)
{
    const struct supervisor *s = arg;

    rdzv_client_drop(s->client);
}

static void act_name_holder(void *arg, char *ret, size_t size)
{
    const struct supervisor *s = arg;

    rdzv_client_name_holder(s->client, ret, size);
}

static void act_look(void *arg, struct agent_route *ret)
{
    const struct supervisor *s = arg;

    ret->is_served_here = rdzv_client_serves(s->client);
    rdzv_client_describe(s->client, ret->attempt, sizeof(ret->attempt));
}

static void act_send(void *arg, const struct msg *m)
{
    const struct supervisor *s = arg;

    rdzv_client_send(s->client, m);
}

static void on_relay_send(void *arg, const struct msg *m)
{
    const struct supervisor *s = arg;

    agent_relay(s->agent, m);
}

static void act_relay_close(void *arg)
{
    struct supervisor *s = arg;

    relay_stop(s->relay);
    s->relay = NULL;
}

struct access_config supervisor_access(const struct supervisor *s, const char *own_addr)
{
    const struct launch_options *o = s->options;

    return (struct access_config){.asked = o->store_access,
                                  .is_engine = s->is_engine,
                                  .has_keys = keys_any(&s->keys),
                                  .max_nodes = o->max_nodes,
                                  .local_addr = s->local_addr,
                                  .own_addr = own_addr,
                                  .public_addr = "",
                                  .fixed_addr = o->is_static ? o->rdzv_host : NULL,
                                  .fixed_port = o->rdzv_port};
}

static int act_relay_open(void *arg, struct agent_relay *ret, struct errmsg *msg)
{
    struct supervisor *s = arg;
    struct relay_config config = {.loop = &s->loop, .arg = s, .send = on_relay_send};
    char own_addr[MSG_ADDR_MAX] = "";
    char public_addr[MSG_ADDR_MAX] = "";
    struct access_config access = supervisor_access(s, own_addr);
    int rv;

    act_relay_close(s);
    rdzv_client_local_addr(s->client, own_addr);
    access.public_addr = public_addr;
    if (access_wants_public(&access)) {
        netaddr_public(public_addr, sizeof(public_addr));
    }
    access_make(&access, &s->access);
    config.addr = access_listen_addr(&s->access);
    rv = relay_new(&config, &s->relay, msg);
    if (rv < 0) {
        return rv;
    }
    memcpy(ret->addr, s->access.addr, sizeof(ret->addr));
    ret->port = access_published_port(&s->access, relay_port(s->relay));
    return 0;
}

static void act_relay_resend(void *arg)
{
    const struct supervisor *s = arg;

    if (s->relay) {
        relay_resend(s->relay);
    }
}

static void act_spawn(void *arg, const struct agent_round *round)
{
    supervisor_spawn(arg, round);
}

static void act_control(void *arg, uint32_t number, const struct control *c)
{
    const struct supervisor *s = arg;
    int rv = s->slots[number].channel ? channel_send(s->slots[number].channel, c) : 0;

    if (c->type == CONTROL_ABORT || c->type == CONTROL_LEAVE) {
        s->slots[number].was_stopped = true;
    }
    if (rv < 0) { /* it does not read, or is gone: its end, or KILL, follows */
        log_debug("a worker did not take a control message", "local_rank=%u error=%s",
                  number, err_name(rv));
    }
}

static void act_engine(void *arg, uint32_t number, const char *folder)
{
    const struct supervisor *s = arg;

    output_is_engine(s->output, number, folder);
}

static void act_kill(void *arg, uint32_t number, int signal)
{
    supervisor_kill(arg, number, signal);
}

static void act_inspect(void *arg, uint32_t number, const struct msg_inspect *m)
{
    if (m->what == INSPECT_LOG || m->what == INSPECT_LOG_ERRORS) {
        supervisor_inspect_log(arg, number, m);
    } else {
        supervisor_inspect(arg, number, m);
    }
}

static void warn(const char *words, const char *pairs)
{
    char *line = report_escape(words);

    log_warn(line, "%s", pairs);
    mem_free(line);
}

/* What happened, in a line; why the job goes on, in another. */
static void print_restart(const struct msg_report *r)
{
    char what[MSG_TEXT_MAX + 64] = "";
    char pairs[MSG_TEXT_MAX];
    char *log_path;

    if (r->rank >= 0 && r->signal != 0) {
        char name[SIGNALS_NAME_MAX];

        signals_name(r->signal, name);
        (void)snprintf(what, sizeof(what), "rank %d on %s was ended by signal %d (%s)",
                       r->rank, r->host, r->signal, name);
    } else if (r->rank >= 0) {
        (void)snprintf(what, sizeof(what), "rank %d on %s ended with exit code %d",
                       r->rank, r->host, r->code);
    }
    if (what[0] != '\0') {
        log_path = report_escape(r->log_path);
        (void)snprintf(pairs, sizeof(pairs), "pid=%u%s%s", r->pid,
                       log_path[0] != '\0' ? " log=" : "", log_path);
        warn(what, pairs);
        mem_free(log_path);
    }
    (void)snprintf(what, sizeof(what), "generation %llu is over; %s",
                   (unsigned long long)r->generation, r->text);
    warn(what, "");
}

static void format_time(uint64_t wall_ms, char *text, size_t size)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;

    if (!localtime_r(&seconds, &tm) ||
        strftime(text, size, "%Y-%m-%d_%H:%M:%S", &tm) == 0) {
        (void)snprintf(text, size, "?");
    }
}

static void act_report(void *arg, const struct msg_report *report)
{
    struct supervisor *s = arg;
    char time[64];
    char *text;

    if (!report->final) {
        s->has_had_failure = s->has_had_failure || report->rank >= 0; /* it is named */
        print_restart(report);
        return;
    }
    mem_free(s->report);
    s->report = mem_alloc(sizeof(*report));
    *s->report = *report;
    format_time(report->wall_ms, time, sizeof(time));
    text = report_format(report, time);
    own_lines_put(text);
    mem_free(text);
}

static void act_say(void *arg, enum log_level level, const char *text)
{
    struct supervisor *s = arg;

    if (level == LOG_LEVEL_ERROR) {
        (void)snprintf(s->trouble, sizeof(s->trouble), "%s", text);
    }
    log_write(level, text, "%s", "");
}

static void act_end(void *arg, int exit_code)
{
    supervisor_end(arg, exit_code);
}

/* NULL: whoever told us to end knows why. */
static char *make_error(const struct supervisor *s)
{
    if (s->report) {
        return own_error_of_report(s->report);
    }
    return s->exit_code != 0 && s->trouble[0] != '\0'
               ? own_error_of_text(s->trouble, s->exit_code, clock_wall_ms())
               : NULL;
}

void supervisor_leave_error(const struct supervisor *s)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment */
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    char *text = path && path[0] != '\0' ? make_error(s) : NULL;
    struct errmsg msg = {0};

    if (text && own_error_write(path, text, &msg) < 0) {
        log_warn(msg.text, "%s", "");
    }
    mem_free(text);
}

void supervisor_actions(struct supervisor *s, struct agent_actions *ret)
{
    *ret = (struct agent_actions){
        .arg = s,
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
        .end = act_end,
    };
}
