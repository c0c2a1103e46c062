#ifndef LAUNCHER_SUPERVISOR_CORE_H
#define LAUNCHER_SUPERVISOR_CORE_H

/* What the supervisor's files share: supervisor.c (start, loop, end),
 * supervisor_actions.c (what the agent wants done), supervisor_workers.c (processes),
 * supervisor_signals.c, supervisor_events.c (--event-log-handler),
 * supervisor_dry_run.c (--dry-run), supervisor_timers.c (torch's file timers),
 * supervisor_keeper.c (whether the keeper is alive),
 * supervisor_inspect.c (hangs), supervisor_errors.c (workers' exceptions),
 * supervisor_logs.c (`ctrun logs`).
 */

#include "launcher/agent.h"
#include "launcher/channel.h"
#include "launcher/command.h"
#include "launcher/env.h"
#include "launcher/keeper/keeper_watch.h"
#include "launcher/log_reader.h"
#include "launcher/output/log_folder.h"
#include "launcher/output/output.h"
#include "launcher/place/placement.h"
#include "launcher/rdzv/rdzv_client.h"
#include "launcher/store/access.h"
#include "launcher/store/relay.h"
#include "launcher/supervisor.h"
#include "launcher/timers.h"
#include "launcher/wall_watch.h"

#include <limits.h>
#include <uv.h>

enum { SUPERVISOR_SIGNALS = SIGNALS_LAST + 1 }; /* … and CHLD */

/* One local rank. */
struct slot {
    struct supervisor *supervisor;
    uint32_t number;
    struct channel *channel; /* owned; NULL while there is no worker */
    bool is_open;            /* output has it */
    bool is_closing;         /* … and reads it to the end */
    uint32_t n_last_words;   /* … which so many are told, who follow it */
    uint64_t generation;
    bool has_failed;  /* to be started; `trouble` says why */
    bool is_mistake;  /* … another start would end the same way */
    bool was_stopped; /* by us: with its generation, or at the end … */
    int last_signal;  /* … by this; 0: none */
    uint32_t rank;
    uint32_t pid;      /* 0: not known */
    int status;        /* as of waitpid, once it has ended */
    int failed_code;   /* of the first to fail by itself, a signal's negative; else 0 */
    uint64_t wall_ms;  /* when it ended */
    char expired[512]; /* what of its file timers has; "": nothing */
    char trouble[512];
    char error_file[PATH_MAX]; /* "": none */
};

struct inspection;

struct supervisor {
    struct launch_options *options; /* borrowed */
    struct keeper *keeper;          /* borrowed */
    char *const *env;               /* borrowed */
    uv_loop_t loop;
    uv_prepare_t prepare; /* arms the timer for the agent's deadline */
    uv_timer_t timer;
    uv_poll_t keeper_poll;
    uv_timer_t keeper_timer;
    struct keeper_watch keeper_watch;
    uv_signal_t signals[SUPERVISOR_SIGNALS];
    unsigned n_signals;
    struct agent *agent;                /* owned */
    struct rdzv_client *client;         /* owned */
    struct relay *relay;                /* owned; of the generation at hand */
    struct output *output;              /* owned */
    struct slot *slots;                 /* owned; nproc of them */
    struct supervisor_timers *timers;   /* owned; NULL: they are off */
    struct supervisor_logs *log_access; /* owned; NULL: nobody has asked for logs */
    uint32_t nproc;
    bool has_first_failed; /* of this generation: some worker by itself … */
    unsigned n_forced;     /* … and how many had to be killed */
    bool is_engine;        /* by the program's name */
    bool is_ending;
    int exit_code;
    struct msg_report *report;  /* owned; the final one, NULL: none came */
    char trouble[MSG_TEXT_MAX]; /* the last that was an error; "" */
    char host[256];
    char endpoint[320];
    char local_addr[MSG_ADDR_MAX]; /* as --local-addr resolves; "": not given */
    char self_dir[PATH_MAX];
    struct log_folder logs;
    bool was_cut;               /* nobody took what the workers said last */
    bool has_had_failure;       /* some time, of a worker that nobody had told to end */
    char private_dir[PATH_MAX]; /* made with the first foreign worker; "": none … */
    bool is_private_dir_mute;   /* … and its file system has not answered once */
    struct worker_command command;
    struct keys keys;     /* what is shown to the rendezvous */
    struct access access; /* of the relay at hand */
    struct placement placement;
    struct topology topology; /* of the last round; world_size 0: none */
    uint32_t explained_world; /* see supervisor_explain_console */
    uint32_t failures;        /* of the job, as it was told then */
    uint64_t started_ms;
    struct wall_watch wall_watch;
    struct inspection *inspections; /* owned; listed */
    unsigned n_inspections;         /* … and threads of others that never came back */
};

/* supervisor.c: everything that may be the user's mistake, before anything starts. */
int supervisor_resolve(struct supervisor *s, uint32_t random,
                       struct errmsg *msg) MUST_CHECK;
void supervisor_watch_wall_clock(struct supervisor *s);
void supervisor_end(struct supervisor *s, int exit_code);

/* supervisor_actions.c */
void supervisor_actions(struct supervisor *s, struct agent_actions *ret);
/* But for public_addr: what the command line says. `own_addr` is borrowed. */
struct access_config supervisor_access(const struct supervisor *s,
                                       const char *own_addr);
/* After everything: may block. */
void supervisor_leave_error(const struct supervisor *s);

/* supervisor_events.c: nothing, unless they are wanted. `raw_error`: "" for none. */
void supervisor_event_start(const struct slot *slot);
void supervisor_event_end(const struct slot *slot, const char *raw_error);
void supervisor_event_over(const struct supervisor *s);

/* supervisor_workers.c: the environment of a slot's worker, as far as `round` tells. */
struct worker_env supervisor_env(const struct slot *slot,
                                 const struct agent_round *round,
                                 const struct access_master *master);
/* A line, where the options let nothing onto the console; once for each world. */
void supervisor_explain_console(struct supervisor *s, uint32_t n_world);
void supervisor_spawn(struct supervisor *s, const struct agent_round *round);
void supervisor_kill(struct supervisor *s, uint32_t number, int signal);
void supervisor_on_resized(void *supervisor); /* our terminal, and so the workers' */
void supervisor_on_keeper(struct supervisor *s);
void supervisor_report_failed_spawns(struct supervisor *s);
void supervisor_close_workers(struct supervisor *s);
/* So that it goes where ctrun is killed, unless a folder is in it. */
void supervisor_give_folder(struct supervisor *s, const char *path);
bool supervisor_has_private_dir(struct supervisor *s); /* made at the first need */

/* supervisor_keeper.c */
int supervisor_watch_keeper(struct supervisor *s) MUST_CHECK;
/* supervisor_inspect.c: what the process of a slot does, found out by threads */
void supervisor_inspect(struct supervisor *s, uint32_t number,
                        const struct msg_inspect *m);
void supervisor_inspect_no_more(struct supervisor *s); /* those under way are dropped */
/* Its output is read, and whoever follows it was told: the agent hears of it soon. */
void supervisor_drained(struct slot *slot);
/* `end` but for what the slot and its output know. */
void supervisor_tell_end(struct slot *slot, struct agent_end *end);

/* supervisor_errors.c: its exception, then supervisor_tell_end, at once or later */
void supervisor_read_error(struct slot *slot);

/* supervisor_logs.c: `ctrun logs`, through the service */
void supervisor_inspect_log(struct supervisor *s, uint32_t number,
                            const struct msg_inspect *m);
/* True when somebody follows it: supervisor_drained is called later. */
bool supervisor_tell_last_words(struct slot *slot);
void supervisor_close_logs(struct supervisor *s);

/* supervisor_signals.c */
/* PID 1 has no default actions: what comes before the loop watches would be lost. */
void supervisor_hold_signals(const struct supervisor *s);
int supervisor_watch_signals(struct supervisor *s) MUST_CHECK;
/* Nothing stops us any more, until the process has ended. */
void supervisor_close_signals(struct supervisor *s);

/* supervisor_timers.c; what is off does nothing */
bool supervisor_timers_are_on(void); /* by the environment */
int supervisor_timers_make(struct supervisor *s, struct errmsg *msg) MUST_CHECK;
int supervisor_timers_start(struct supervisor *s) MUST_CHECK;
void supervisor_timers_close(struct supervisor *s);
void supervisor_timers_abandon(struct supervisor *s); /* nothing has started */
const char *supervisor_timers_path(const struct supervisor *s); /* NULL: off */
void supervisor_timers_clear(struct supervisor *s);
void supervisor_timers_forget(struct supervisor *s, pid_t pid);

#endif
