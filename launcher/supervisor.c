/* Happy path: 1. what the command line asks for is resolved and checked; 2. the agent
 * is started and the loop runs; 3. the agent says end; 4. everything is closed and the
 * loop runs empty; 5. the keeper is stopped. Failures before 2 are the user's: one
 * line, exit 2. */

#include "launcher/supervisor.h"

#include "launcher/output/own_lines.h"
#include "launcher/path.h"
#include "launcher/place/devices.h"
#include "launcher/rdzv/local_addr.h"
#include "launcher/supervisor_core.h"

#include "common/clock.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    LINGER_MS = 5000, /* the exit barrier of the node that serves the rendezvous */
    LEAVE_MS = 3000,  /* … which was told to go: the others stop since we do */
    FILES_OWN = 32,
    FILES_PER_WORKER = 16, /* pipes, channels, connections to the store */
};

/* --- the agent's events --- */

static void on_connected(void *arg, const char *taken)
{
    const struct supervisor *s = arg;

    agent_connected(s->agent, taken, clock_ms());
}

static void on_connect_failed(void *arg, const char *text)
{
    const struct supervisor *s = arg;

    agent_connect_failed(s->agent, text, clock_ms());
}

static void on_port_taken(void *arg, const char *text, const char *taken)
{
    const struct supervisor *s = arg;

    agent_port_taken(s->agent, text, taken, clock_ms());
}

static void on_impossible(void *arg, const char *text)
{
    const struct supervisor *s = arg;

    agent_cannot_connect(s->agent, text, clock_ms());
}

static void on_moved(void *arg, const char *endpoint)
{
    struct supervisor *s = arg;

    (void)snprintf(s->endpoint, sizeof(s->endpoint), "%s", endpoint);
}

static void on_refused(void *arg, const char *text)
{
    const struct supervisor *s = arg;

    agent_refused(s->agent, text, clock_ms());
}

static int on_message(void *arg, const struct msg *m)
{
    const struct supervisor *s = arg;

    if (m->type == MSG_STORE_REPLY) {
        agent_keeps(s->agent, m->u.store_reply.kept);
        if (s->relay) {
            relay_reply(s->relay, &m->u.store_reply);
        }
        return 0;
    }
    return agent_message(s->agent, m, clock_ms());
}

static void on_disconnected(void *arg, enum agent_loss loss)
{
    const struct supervisor *s = arg;

    agent_disconnected(s->agent, loss, clock_ms());
}

static void on_pause(void *arg, bool is_paused)
{
    const struct supervisor *s = arg;

    if (s->relay) {
        relay_pause(s->relay, is_paused);
    }
}

/* A worker that has come to the endpoint of a static world. */
static void on_store(void *arg, int fd, const uint8_t *bytes, size_t size)
{
    const struct supervisor *s = arg;

    if (s->relay) {
        relay_adopt(s->relay, fd, bytes, size);
    } else {
        (void)close(fd); /* of a generation that is over */
    }
}

static void on_keeper(uv_poll_t *poll, int status, int events)
{
    (void)status; /* keeper_receive tells */
    (void)events;
    supervisor_on_keeper(poll->data);
}

static void on_timer(uv_timer_t *timer)
{
    const struct supervisor *s = timer->data;

    agent_tick(s->agent, clock_ms());
}

void supervisor_watch_wall_clock(struct supervisor *s)
{
    uint64_t now_ms = clock_ms();
    uint64_t wall_ms = clock_wall_ms();

    if (clock_ms() - now_ms <= 1) { /* else they were not read together */
        wall_watch_look(&s->wall_watch, now_ms, wall_ms);
    }
}

/* Once in each turn, before the loop sleeps. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct supervisor *s = prepare->data;
    uint64_t now_ms = clock_ms();
    uint64_t deadline;

    supervisor_watch_wall_clock(s);
    if (!s->is_ending) {
        supervisor_report_failed_spawns(s);
    }
    if (s->is_ending) {
        return; /* before, or by what was reported */
    }
    deadline = agent_deadline(s->agent);
    if (deadline == UINT64_MAX) {
        (void)uv_timer_stop(&s->timer); /* always 0 */
        return;
    }
    uv_update_time(&s->loop);
    (void)uv_timer_start(&s->timer, on_timer, deadline > now_ms ? deadline - now_ms : 0,
                         0); /* fails without a callback only */
}

/* --- the end --- */

static void on_client_stopped(void *arg)
{
    struct supervisor *s = arg;

    s->client = NULL;
}

static void on_output_stopped(void *arg)
{
    struct supervisor *s = arg;

    s->output = NULL;
}

/* Closes everything; the loop then runs until it is empty. */
void supervisor_end(struct supervisor *s, int exit_code)
{
    bool is_closed = agent_was_closed(s->agent);
    struct rdzv_linger linger = {.is_leaving =
                                     !is_closed && agent_is_leaving(s->agent)};

    if (s->options->max_nodes > 1) {
        linger.ms = is_closed ? LINGER_MS : linger.is_leaving ? LEAVE_MS : 0;
    }
    ASSERT(!s->is_ending);
    s->is_ending = true;
    s->exit_code = exit_code;
    supervisor_event_over(s);
    relay_stop(s->relay);
    s->relay = NULL;
    supervisor_timers_close(s);
    supervisor_close_logs(s);
    supervisor_inspect_no_more(s);
    supervisor_close_workers(s);
    keeper_dismiss(s->keeper); /* it ends beside us */
    rdzv_client_stop(s->client, &linger, on_client_stopped, s);
    output_stop(s->output, on_output_stopped, s);
    uv_close((uv_handle_t *)&s->keeper_poll, NULL);
    uv_close((uv_handle_t *)&s->keeper_timer, NULL);
    uv_close((uv_handle_t *)&s->prepare, NULL);
    uv_close((uv_handle_t *)&s->timer, NULL);
    supervisor_close_signals(s);
}

/* --- the start --- */

static int open_handles(struct supervisor *s, struct errmsg *msg)
{
    int rv = uv_prepare_init(&s->loop, &s->prepare);

    rv = rv < 0 ? rv : uv_timer_init(&s->loop, &s->timer);
    rv = rv < 0 ? rv : uv_poll_init(&s->loop, &s->keeper_poll, s->keeper->fd);
    s->prepare.data = s;
    s->timer.data = s;
    s->keeper_poll.data = s;
    rv = rv < 0 ? rv : uv_prepare_start(&s->prepare, on_prepare);
    rv = rv < 0 ? rv : uv_poll_start(&s->keeper_poll, UV_READABLE, on_keeper);
    rv = rv < 0 ? rv : supervisor_watch_keeper(s);
    rv = rv < 0 ? rv : supervisor_watch_signals(s);
    rv = rv < 0 ? rv : supervisor_timers_start(s);
    return rv < 0 ? errmsg_set(msg, rv, "event loop: %s", err_text(rv)) : 0;
}

/* The option beats the environment; NULL: neither. */
static const char *choose_prefix(const struct launch_options *o)
{
    const char *text = getenv(/* NOLINT(concurrency-mt-unsafe): nobody sets it */
                              "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");

    return o->prefix || !text || *text == '\0' ? o->prefix : text;
}

static void on_cut(void *arg)
{
    struct supervisor *s = arg;

    s->was_cut = true;
    log_warn("nobody reads what the workers say: the end of it is in their files only",
             "path=%s", s->logs.path[0] != '\0' ? s->logs.path : "none");
}

/* The store is where --store-access=auto would not be without a secret. */
static bool is_hidden(const struct supervisor *s)
{
    return keys_any(&s->keys) && s->options->store_access == STORE_ACCESS_AUTO;
}

static void say_access(const struct supervisor *s)
{
    if (is_hidden(s) && !s->is_engine && s->options->max_nodes > 1) {
        log_info("--store-access is local, for the job has keys: MASTER_ADDR is "
                 "127.0.0.1 on each node, and what the workers tell the store goes "
                 "encrypted (direct: rank 0's address, for sockets of their own)",
                 "%s", "");
    }
}

static int open_parts(struct supervisor *s, struct errmsg *msg)
{
    const struct launch_options *o = s->options;
    struct output_config output = {
        .loop = &s->loop,
        .maybe_engine = s->is_engine,
        .log_base = s->logs.path[0] ? s->logs.path : NULL,
        .makes_files_late = s->logs.is_unasked,
        .max_size = s->logs.max_size,
        .redirects = &o->redirects,
        .prefix = choose_prefix(o),
        .role = s->options->role,
        .host = s->host,
        .filters = {o->filters[0], o->filters[1]},
        .on_resized = supervisor_on_resized,
        .on_cut = on_cut,
        .arg = s,
    };
    struct rdzv_client_config client = {
        .loop = &s->loop,
        .host = s->options->rdzv_host,
        .port = s->options->rdzv_port,
        .standalone = s->options->standalone,
        .max_nodes = s->options->max_nodes,
        .serving = s->options->serving,
        .is_static = s->options->is_static && !is_hidden(s),
        .keys = &s->keys,
        .is_anonymous = strcmp(s->options->rdzv_id, MSG_NO_ID) == 0,
        .arg = s,
        .on_connected = on_connected,
        .on_failed = on_connect_failed,
        .on_port_taken = on_port_taken,
        .on_impossible = on_impossible,
        .on_moved = on_moved,
        .on_refused = on_refused,
        .on_message = on_message,
        .on_disconnected = on_disconnected,
        .on_store = on_store,
        .on_pause = on_pause,
    };
    int rv = output_new(&output, &s->output, msg);

    return rv < 0 ? rv : rdzv_client_new(&client, &s->client, msg);
}

static void make_agent(struct supervisor *s, uint64_t agent_id)
{
    const struct launch_options *o = s->options;
    struct agent_config config = {
        .job = o->rdzv_id,
        .host = s->host,
        .role = o->role,
        .program = o->program[0],
        .endpoint = s->endpoint,
        .agent_id = agent_id,
        .min_nodes = o->min_nodes,
        .max_nodes = o->max_nodes,
        .nproc = s->nproc,
        .max_restarts = o->max_restarts,
        .node_rank = o->node_rank,
        .join_timeout_ms = o->join_timeout_ms,
        .last_call_ms = (uint32_t)MIN(o->last_call_timeout_ms, UINT32_MAX),
        .shutdown_ms = (uint64_t)o->shutdown_s * 1000,
        .on_hang = o->on_hang,
        .maybe_engine = s->is_engine,
    };

    supervisor_actions(s, &config.actions);
    s->agent = agent_new(&config);
}

static void name_endpoint(struct supervisor *s)
{
    const struct launch_options *o = s->options;

    if (o->standalone) {
        (void)snprintf(s->endpoint, sizeof(s->endpoint), "this node (standalone)");
    } else {
        char host[sizeof(o->rdzv_host) + 2];

        str_format_host(host, sizeof(host), o->rdzv_host);
        (void)snprintf(s->endpoint, sizeof(s->endpoint), "%s:%d", host, o->rdzv_port);
    }
}

/* Many workers, each with a handful of descriptors. Workers keep the limit ctrun was
 * given: they are the keeper's children. */
static void raise_limits(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* else the old limit holds */
    }
}

static int check_limits(uint32_t nproc, struct errmsg *msg)
{
    const rlim_t needed = FILES_OWN + (rlim_t)FILES_PER_WORKER * nproc;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= needed) {
        return 0; /* RLIM_INFINITY is the largest */
    }
    return errmsg_set(
        msg, ERR_INVALID,
        "the workers here (%u) need %llu open files, and ctrun may have %llu: "
        "raise the limit (ulimit -Hn %llu; LimitNOFILE= of systemd)",
        nproc, (unsigned long long)needed, (unsigned long long)limit.rlim_cur,
        (unsigned long long)needed);
}

int supervisor_resolve(struct supervisor *s, uint32_t random, struct errmsg *msg)
{
    /* NOLINTBEGIN(concurrency-mt-unsafe): nobody sets the environment */
    struct device_list visible = device_list_choose(getenv("CUDA_VISIBLE_DEVICES"),
                                                    getenv("HIP_VISIBLE_DEVICES"));
    const char *python = getenv("PYTHON_EXEC");
    const char *path = getenv("PATH");
    /* NOLINTEND(concurrency-mt-unsafe) */
    char **argv = NULL;
    int rv;

    raise_limits();
    path_own_folder(s->self_dir, sizeof(s->self_dir));
    name_endpoint(s);
    if (gethostname(s->host, sizeof(s->host) - 1) < 0) {
        (void)snprintf(s->host, sizeof(s->host), "localhost");
    }
    s->is_engine = worker_command_is_engine(s->options->program);
    if (s->is_engine && s->options->store_access == STORE_ACCESS_DIRECT) {
        log_info("--store-access has no effect: ctrun-worker finds the store through "
                 "its own ctrun",
                 "%s", "");
    }
    s->command = (struct worker_command){.module = s->options->module,
                                         .no_python = s->options->no_python,
                                         .run_path = s->options->run_path,
                                         .self_dir = s->self_dir,
                                         .python = python,
                                         .path = path};
    rv = s->options->local_addr[0] == '\0'
             ? 0
             : local_addr_resolve(s->options->local_addr, s->options->max_nodes > 1,
                                  s->local_addr, sizeof(s->local_addr), msg);
    if (rv == 0 && !s->options->standalone) {
        rv = keys_find(&s->options->keys, &s->keys, msg);
    }
    rv = rv < 0 ? rv : devices_count(s->options, &visible, &s->nproc, msg);
    rv = rv < 0 ? rv : check_limits(s->nproc, msg);
    rv = rv < 0 ? rv
                : placement_make(s->options, s->is_engine, s->nproc, "", &s->placement,
                                 msg);
    rv = rv < 0 ? rv
                : worker_command_make(&s->command, s->options->program, 0, &argv, msg);
    mem_free(argv);
    if (rv < 0 || s->options->dry_run) {
        return rv;
    }
    rv = log_folder_choose(s->options, s->is_engine, random, &s->logs, msg);
    return rv < 0 ? rv : supervisor_timers_make(s, msg);
}

static void make_slots(struct supervisor *s)
{
    s->slots = mem_array(s->nproc, sizeof(*s->slots));
    for (uint32_t i = 0; i < s->nproc; i++) {
        s->slots[i].supervisor = s;
        s->slots[i].number = i;
    }
}

/* As torchrun does: several workers with a thread for every core each would be slow, and
 * one thread may be too few. ctrun-worker has its own rule. */
static void say_threads(const struct supervisor *s)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment */
    if (s->nproc > 1 && !s->is_engine && !getenv("OMP_NUM_THREADS")) {
        log_info("OMP_NUM_THREADS is not set: it is 1 in each of the workers here; set "
                 "it to the threads that suit them",
                 "workers=%u", s->nproc);
    }
}

static int start(struct supervisor *s, uint64_t agent_id, struct errmsg *msg)
{
    int rv = open_handles(s, msg);

    keys_set_agent(&s->keys, agent_id, s->options->rdzv_id);

    rv = rv < 0 ? rv : open_parts(s, msg);
    if (rv < 0) {
        return rv;
    }
    own_lines_start(); /* no failure from here on */
    if (s->logs.is_unasked && s->logs.path[0] != '\0') {
        supervisor_give_folder(s, s->logs.path);
    }
    s->started_ms = clock_ms();
    say_threads(s);
    say_access(s);
    make_slots(s);
    make_agent(s, agent_id);
    agent_start(s->agent, clock_ms());
    return 0;
}

/* Whether there may be something to look for in files that nobody asked for: not where
 * the user has stopped the job, and nothing of it had failed before. */
static bool keeps_logs(const struct supervisor *s)
{
    bool was_told = s->exit_code > EXIT_SIGNAL || agent_is_drained(s->agent);
    bool was_stopped = was_told && !s->report;

    return s->was_cut || s->has_had_failure || (s->exit_code != 0 && !was_stopped);
}

/* The loop, until nothing is open any more. */
static void run(struct supervisor *s)
{
    int rv;

    (void)uv_run(&s->loop, UV_RUN_DEFAULT); /* 0: it is empty */
    ASSERT(s->is_ending && !s->client && !s->output);
    rv = uv_loop_close(&s->loop);
    ASSERT(rv == 0);
    own_lines_stop();
    if (!s->is_private_dir_mute) { /* both are in $TMPDIR */
        log_folder_end(&s->logs, !keeps_logs(s));
    }
    agent_free(s->agent);
    mem_free(s->slots);
}

int supervisor_run(struct launch_options *options, struct keeper *keeper,
                   char *const *env)
{
    struct supervisor *s = mem_zalloc(sizeof(*s));
    struct errmsg msg = {0};
    uint8_t uuid[16];
    uint64_t random[2];
    int exit_code;
    int rv;

    s->exit_code = EXIT_MISTAKE;
    s->options = options;
    s->keeper = keeper;
    s->env = env;
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random) ||
        getrandom(uuid, sizeof(uuid), 0) != (ssize_t)sizeof(uuid)) {
        UNREACHABLE(); /* so few bytes always come, once the kernel is up */
    }
    if (options->rdzv_id[0] == '\0') {
        launch_options_make_id(options, uuid);
    }
    supervisor_hold_signals(s);
    (void)signal(SIGPIPE, SIG_IGN); /* known signals */
    (void)signal(SIGXFSZ, SIG_IGN); /* EFBIG says as much */
    rv = supervisor_resolve(s, (uint32_t)random[1], &msg);
    if (rv == 0) {
        rv = uv_loop_init(&s->loop);
        rv = rv < 0 ? errmsg_set(&msg, rv, "event loop: %s", err_text(rv))
                    : start(s, random[0], &msg);
    }
    if (rv < 0) {
        log_error(msg.text, "%s", "");
        (void)snprintf(s->trouble, sizeof(s->trouble), "%s", msg.text);
        supervisor_timers_abandon(s);
        log_folder_end(&s->logs, true);
    } else {
        run(s);
    }
    supervisor_leave_error(s);
    exit_code = s->exit_code;
    mem_free(s->report);
    placement_release(&s->placement);
    keys_release(&s->keys);
    mem_free(s);
    return exit_code;
}
