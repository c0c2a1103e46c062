/* Processes. Spawn: channel, output pipes, environment, arguments → keeper. End: the
 * keeper's EXITED → what the worker still said on its channel → agent_exited → its
 * output is read to the end → its error file is read → agent_drained with its last
 * words. */

#include "launcher/keeper/private_dir.h"
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
#include <sys/wait.h>
#include <unistd.h>

enum {
    KEEPER_TURN = 256, /* messages in one turn of the loop */
    MAX_FORCED_SAID = 4,
};

static void on_control(void *arg, uint32_t slot, const struct control *c)
{
    struct supervisor *s = arg;

    if (c->type == CONTROL_REFUSE) {
        output_has_refused(s->output, slot);
    }
    agent_control(s->agent, slot, c, clock_ms());
}

/* --- the last words --- */

static void tell_failed_spawn(struct slot *slot)
{
    struct agent_end end = {.message = slot->trouble,
                            .error = slot->trouble,
                            .tail = "",
                            .log_path = "",
                            .wall_ms = clock_wall_ms()};

    slot->has_failed = false;
    if (slot->is_mistake) {
        struct control refusal = {.type = CONTROL_REFUSE, .code = EXIT_MISTAKE};

        (void)snprintf(refusal.text, sizeof(refusal.text), "%s", slot->trouble);
        agent_control(slot->supervisor->agent, slot->number, &refusal, clock_ms());
    }
    agent_spawn_failed(slot->supervisor->agent, slot->number, &end, clock_ms());
}

/* Below its last words, and in torchrun's, at once: the others may take their time to
 * stop, and the report comes when they have. */
static void say_failed(const struct slot *slot)
{
    char words[96];

    (void)snprintf(words, sizeof(words),
                   "rank %u failed (exitcode: %d) local_rank: %u (pid: %d) of binary:",
                   slot->rank, slot->failed_code, slot->number, (int)slot->pid);
    log_warn(words, "%s", slot->supervisor->options->program[0]);
}

static void on_output_closed(void *arg)
{
    struct slot *slot = arg;

    slot->is_open = false;
    slot->is_closing = false;
    if (slot->has_failed || !supervisor_tell_last_words(slot)) {
        supervisor_drained(slot);
    }
}

void supervisor_drained(struct slot *slot)
{
    if (slot->failed_code != 0) {
        say_failed(slot);
    }
    if (slot->has_failed) {
        tell_failed_spawn(slot);
    } else {
        supervisor_read_error(slot);
    }
}

void supervisor_tell_end(struct slot *slot, struct agent_end *end)
{
    struct supervisor *s = slot->supervisor;

    if (end->message[0] == '\0') {
        end->message = slot->expired;
    }
    supervisor_event_end(slot, end->message);
    end->wall_ms = slot->wall_ms;
    end->tail = output_tail(s->output, slot->number);
    end->log_path = output_log_path(s->output, slot->number);
    agent_drained(s->agent, slot->number, end, clock_ms());
}

static void close_slot(struct slot *slot)
{
    struct supervisor *s = slot->supervisor;

    channel_close(slot->channel);
    slot->channel = NULL;
    if (slot->is_open && !slot->is_closing) {
        slot->is_closing = true;
        output_close_rank(s->output, slot->number, on_output_closed, slot);
    }
}

/* --- spawn --- */

void supervisor_give_folder(struct supervisor *s, const char *path)
{
    int rv = keeper_give_folder(s->keeper, path);

    if (rv < 0) { /* the keeper is gone: its socket tells, too */
        log_debug("the keeper does not take the folder", "error=%s", err_name(rv));
    }
}

bool supervisor_has_private_dir(struct supervisor *s)
{
    int rv;

    if (s->private_dir[0] != '\0') {
        return true;
    }
    rv = private_dir_make(s->private_dir, sizeof(s->private_dir));
    if (rv < 0) {
        log_warn("no folder for the workers' error files", "path=%s error=%s",
                 s->private_dir, err_name(rv));
        s->private_dir[0] = '\0';
        return false;
    }
    supervisor_give_folder(s, s->private_dir);
    return true;
}

/* Where workers that know torchrun's contract leave their exception. */
static void choose_error_file(struct slot *slot, uint64_t generation)
{
    struct supervisor *s = slot->supervisor;

    slot->error_file[0] = '\0';
    if (!s->is_engine && s->private_dir[0] != '\0' &&
        !str_format(slot->error_file, sizeof(slot->error_file), "%s/%llu-%u.json",
                    s->private_dir, (unsigned long long)generation, slot->number)) {
        slot->error_file[0] = '\0';
    }
}

struct worker_env supervisor_env(const struct slot *slot,
                                 const struct agent_round *round,
                                 const struct access_master *master)
{
    const struct supervisor *s = slot->supervisor;

    return (struct worker_env){
        .topology = &round->topology,
        .local_rank = slot->number,
        .generation = round->generation,
        .master_addr = master->addr,
        .master_port = master->port,
        .node_addr = s->access.addr,
        .run_id = s->options->rdzv_id,
        .restart_count = round->failures,
        .max_restarts = s->options->max_restarts,
        .error_file = slot->error_file,
        .role = s->options->role,
        .signals = s->options->signals.text,
        .virtual_local_rank = s->options->virtual_local_rank,
        .cpu_share = s->placement.share ? &s->placement.share[slot->number] : NULL,
        .timer_file = supervisor_timers_path(s),
        .control_fd = KEEPER_CONTROL_FD,
        .progress_fd = KEEPER_PROGRESS_FD,
    };
}

static char **make_env(const struct slot *slot, const struct agent_round *round)
{
    struct supervisor *s = slot->supervisor;
    struct access_master master =
        access_master(&s->access, round->nodes, relay_port(s->relay));
    struct worker_env env = supervisor_env(slot, round, &master);

    return worker_env_make(s->env, &env);
}

/* Nodes that were told different things: else the workers would knock for minutes. */
static int check_master(const struct supervisor *s, const struct agent_round *round,
                        struct errmsg *msg)
{
    if (access_master(&s->access, round->nodes, relay_port(s->relay)).port != 0) {
        return 0;
    }
    return errmsg_set(
        msg, ERR_REFUSED,
        "--store-access: the store is on rank 0's node, %s, which lets no "
        "other node in; give the same --store-access on all nodes",
        round->nodes[0].host);
}

/* Opens what the worker talks through; fds as keeper_spawn wants them. */
static int open_slot(struct slot *slot, const struct agent_round *round, int fds[5],
                     struct errmsg *msg)
{
    struct supervisor *s = slot->supervisor;
    struct channel_config config = {
        .loop = &s->loop, .slot = slot->number, .arg = s, .on_control = on_control};
    int rv;

    rv = channel_open(&config, &slot->channel, &fds[3], &fds[4], msg);
    if (rv < 0) {
        return rv;
    }
    rv = output_open_rank(s->output, slot->number,
                          round->topology.first_rank + slot->number, round->generation,
                          &fds[1], msg);
    slot->is_open = rv == 0;
    return rv;
}

static int spawn_slot(struct slot *slot, const struct agent_round *round, int fds[5],
                      struct errmsg *msg)
{
    struct supervisor *s = slot->supervisor;
    const struct cpuset *cpus = s->placement.cpus;
    struct keeper_spawn spawn = {.id = slot->number,
                                 .cpus = cpus ? &cpus[slot->number] : NULL};
    char **argv = NULL;
    char **env;
    int rv = check_master(s, round, msg);

    rv = rv < 0 ? rv : open_slot(slot, round, fds, msg);
    if (rv < 0) {
        return rv;
    }
    rv =
        worker_command_make(&s->command, s->options->program, slot->number, &argv, msg);
    if (rv < 0) {
        return rv;
    }
    choose_error_file(slot, round->generation);
    env = make_env(slot, round);
    spawn.argv = argv;
    spawn.env = env;
    memcpy(spawn.fds, fds, sizeof(spawn.fds));
    rv = keeper_spawn(s->keeper, &spawn, msg);
    mem_free(env);
    mem_free(argv);
    return rv;
}

static void spawn_one(struct slot *slot, const struct agent_round *round)
{
    int fds[5] = {-1, -1, -1, -1, -1};
    struct errmsg msg = {0};
    int rv;

    slot->expired[0] = '\0';
    rv = spawn_slot(slot, round, fds, &msg);
    slot->has_failed = rv < 0;
    slot->is_mistake = rv == ERR_REFUSED;
    if (slot->has_failed) {
        (void)snprintf(slot->trouble, sizeof(slot->trouble), "%s", msg.text);
    }
    for (int i = 0; i < 5; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]); /* the worker has its own copy */
        }
    }
}

void supervisor_explain_console(struct supervisor *s, uint32_t n_world)
{
    struct redirects_ranks ranks = {n_world, s->nproc};
    char text[256];

    if (n_world != s->explained_world &&
        redirects_explain(&s->options->redirects, &ranks, text, sizeof(text))) {
        log_info(text, "%s", "");
    }
    s->explained_world = n_world;
}

void supervisor_spawn(struct supervisor *s, const struct agent_round *round)
{
    struct errmsg msg = {0};

    supervisor_timers_clear(s);
    if (relay_serve(s->relay, round->generation, round->nodes, round->n_nodes, &msg) <
        0) {
        log_error(msg.text, "%s", ""); /* the workers will say that nobody answers */
    }
    s->topology = round->topology;
    supervisor_explain_console(s, s->topology.world_size);
    s->failures = round->failures;
    s->has_first_failed = false;
    s->n_forced = 0;
    if (!s->is_engine) {
        (void)supervisor_has_private_dir(s); /* without one no rank has an error file */
    }
    for (uint32_t i = 0; i < s->nproc; i++) {
        s->slots[i].rank = round->topology.first_rank + i;
        s->slots[i].generation = round->generation;
        s->slots[i].n_last_words = 0;
        s->slots[i].pid = 0;
        s->slots[i].was_stopped = false;
        s->slots[i].last_signal = 0;
        s->slots[i].failed_code = 0;
        spawn_one(&s->slots[i], round);
    }
}

static void report_failed_spawn(struct slot *slot)
{
    bool was_open = slot->is_open;

    close_slot(slot);
    if (!was_open) { /* else on_output_closed tells */
        tell_failed_spawn(slot);
    }
}

/* Outside the agent's call. */
void supervisor_report_failed_spawns(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->nproc && !s->is_ending; i++) {
        if (s->slots[i].has_failed && !s->slots[i].is_closing) {
            report_failed_spawn(&s->slots[i]);
        }
    }
}

/* --- the keeper --- */

/* In torchrun's words, which scripts look for; of many the first few will do. */
static void say_signal(struct slot *slot, int signal)
{
    struct supervisor *s = slot->supervisor;
    char name[SIGNALS_NAME_MAX];
    char words[96];

    if (signal != SIGKILL) {
        signals_name(signal, name);
        (void)snprintf(words, sizeof(words), "Sending process %d closing signal %s",
                       (int)slot->pid, name);
        log_debug(words, "rank=%u", slot->rank);
    } else if (slot->last_signal != 0 && s->n_forced++ < MAX_FORCED_SAID) {
        (void)snprintf(words, sizeof(words),
                       "Unable to shutdown process %d via %d, forcefully exiting via 9",
                       (int)slot->pid, slot->last_signal);
        log_warn(words, "rank=%u%s", slot->rank,
                 s->n_forced == MAX_FORCED_SAID ? " (and maybe others here)" : "");
    }
    slot->last_signal = signal;
}

/* One that is stopped (by hand, or kill -STOP) could not do what the signal asks. */
void supervisor_kill(struct supervisor *s, uint32_t number, int signal)
{
    int rv = keeper_kill(s->keeper, number, signal);

    if (rv == 0 && signal != SIGKILL) {
        rv = keeper_kill(s->keeper, number, SIGCONT);
    }
    s->slots[number].was_stopped = true;
    say_signal(&s->slots[number], signal);
    if (rv < 0) { /* the keeper is gone, which its socket tells too */
        log_debug("cannot signal a worker", "local_rank=%u error=%s", number,
                  err_name(rv));
    }
}

/* Their terminal is not their controlling one: the kernel tells nobody. */
void supervisor_on_resized(void *supervisor)
{
    const struct supervisor *s = supervisor;
    int rv = 0;

    /* an error: the keeper is gone, which its socket tells too */
    for (uint32_t i = 0; i < s->nproc && !s->is_ending && rv == 0; i++) {
        if (s->slots[i].is_open && !s->slots[i].is_closing) {
            rv = keeper_kill(s->keeper, i, SIGWINCH);
        }
    }
}

static void on_failed(struct slot *slot, int error)
{
    struct supervisor *s = slot->supervisor;
    char *cpus =
        error == -EINVAL ? placement_format_cpus(&s->placement, slot->number) : NULL;

    (void)snprintf(slot->trouble, sizeof(slot->trouble), "cannot start %s: %s%s%s%s",
                   s->options->program[0], err_text(error),
                   cpus ? " (may it use CPUs " : "", cpus ? cpus : "",
                   cpus ? " no more?)" : "");
    mem_free(cpus);
    slot->has_failed = true;
    close_slot(slot);
}

/* Whether it is the first of this node that failed by itself. An engine has said itself
 * what was wrong, unless it was killed. */
static void note_failed(struct slot *slot, int status)
{
    struct supervisor *s = slot->supervisor;
    int code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);

    slot->failed_code = 0;
    if (!slot->was_stopped && !s->has_first_failed && !(s->is_engine && code > 0)) {
        slot->failed_code = code;
        s->has_first_failed = code != 0;
    }
}

/* A scheduler's signal may reach a worker before our own. */
static bool has_failed_unasked(const struct slot *slot, int status)
{
    return status != 0 && !slot->was_stopped &&
           !agent_is_leaving(slot->supervisor->agent);
}

static void on_exited(struct slot *slot, const struct keeper_event *event)
{
    struct supervisor *s = slot->supervisor;
    struct agent_exit end = {.status = event->status, .ended_ms = event->ended_ms};
    uint64_t now_ms = clock_ms();

    slot->wall_ms = clock_wall_ms() - (now_ms - MIN(event->ended_ms, now_ms));
    end.wall_ms = slot->wall_ms;
    channel_close(slot->channel); /* what it said last comes before its end */
    slot->channel = NULL;
    slot->status = event->status;
    supervisor_timers_forget(s, event->pid);
    s->has_had_failure = s->has_had_failure || has_failed_unasked(slot, event->status);
    note_failed(slot, event->status);
    agent_exited(s->agent, slot->number, &end, now_ms);
    close_slot(slot);
}

static void on_event(struct supervisor *s, const struct keeper_event *event)
{
    struct slot *slot;

    if (event->id >= s->nproc) {
        return;
    }
    slot = &s->slots[event->id];
    switch (event->type) {
    case KEEPER_SPAWNED:
        slot->pid = (uint32_t)event->pid;
        supervisor_event_start(slot);
        agent_spawned(s->agent, slot->number, (uint32_t)event->pid, clock_ms());
        break;
    case KEEPER_FAILED:
        on_failed(slot, event->error);
        break;
    case KEEPER_EXITED:
        on_exited(slot, event);
        break;
    case KEEPER_ALIVE:
        break; /* as every event says */
    }
}

void supervisor_on_keeper(struct supervisor *s)
{
    struct keeper_event event;
    int rv = 0;

    for (int i = 0; i < KEEPER_TURN && rv == 0 && !s->is_ending; i++) {
        rv = keeper_receive(s->keeper, &event);
        if (rv == 0) {
            keeper_watch_answered(&s->keeper_watch);
            on_event(s, &event);
        }
    }
    if (rv < 0 && rv != -EAGAIN) {
        (void)uv_poll_stop(&s->keeper_poll);   /* always 0 */
        (void)uv_timer_stop(&s->keeper_timer); /* always 0 */
        keeper_clean_up();
        agent_keeper_lost(s->agent, clock_ms());
    }
}

void supervisor_close_workers(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->nproc; i++) {
        channel_close(s->slots[i].channel);
        s->slots[i].channel = NULL;
    }
    if (s->private_dir[0] != '\0' && !s->is_private_dir_mute) {
        private_dir_remove(s->private_dir); /* else the keeper will, when it can */
    }
}
