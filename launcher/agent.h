#ifndef LAUNCHER_AGENT_H
#define LAUNCHER_AGENT_H

/* PURE. One node's agent: it takes part in the rendezvous, has workers started and
 * stopped, and tells what became of them. No socket, no process, no clock: the shell
 * (supervisor.c) and the simulation (tests/sim) feed it events with their time; it
 * answers through agent_actions, during the call. An action never calls back into the
 * agent.
 *
 *              WELCOME,               ROUND(g)              all ended
 *              JOIN sent                                    with 0
 *   CONNECTING ─────────► JOINING ────────────► RUNNING(g) ──────────► WAITING
 *     ▲  ▲                 ▲   ▲                    │ a worker failed ·   │  │
 *     │  │                 │   │                    │ STOP · signal ·     │  │
 *     │  │                 │   │                    ▼ server gone         │  │
 *     │  └─ server gone ───┴───│─────────────── STOPPING(g)               │  │
 *     │           all are gone │                                     STOP │  │
 *     │                        └──────────────────────────────────────────┘  │
 *     └────────────────────────────────────────────────────── server gone ───┘
 *
 *   LEAVING: told to go and without workers, while the service that is to know is away.
 *   CLOSED(exit code): from everywhere, by CLOSED, REFUSED, a signal, join time-out.
 *
 * The connection has a life of its own (agent_link.c): down, opening, hello, up. While
 * it is down the workers of a durable service go on; those of an ephemeral one are
 * stopped when the connection has ended, not when it is silent. */

#include "launcher/topology.h"

#include "common/control.h"
#include "common/err.h"
#include "common/log.h"
#include "common/msg.h"

struct agent;

enum agent_state {
    AGENT_CONNECTING,
    AGENT_JOINING,
    AGENT_RUNNING,
    AGENT_STOPPING,
    AGENT_WAITING,
    AGENT_LEAVING,
    AGENT_CLOSED,
    AGENT_STATE_COUNT,
};

/* What the workers of a generation are started with; valid during the call. */
struct agent_round {
    uint64_t generation;
    uint32_t failures;
    struct topology topology;
    const struct msg_node *nodes; /* n_nodes of them, from group rank 0 on */
    uint32_t n_nodes;             /* all where group_rank is 0, else 1 */
};

struct agent_relay {
    char addr[MSG_ADDR_MAX];
    uint16_t port; /* 0: for this node's workers only */
};

enum agent_loss {
    LOSS_CLOSED,  /* by the other side */
    LOSS_SILENT,  /* by a time-out */
    LOSS_FOREIGN, /* by us: the other side does not speak the protocol */
};

/* Where the connection stands, for people. */
struct agent_route {
    bool is_served_here; /* the rendezvous is this process's own */
    char attempt[256];   /* for what an attempt to connect waits; "": there is none */
};

struct agent_actions {
    void *arg;
    void (*connect)(
        void *arg); /* answered by agent_connected or one of the failures below it */
    void (*disconnect)(void *arg); /* drop the connection; nothing more comes from it */
    /* Who holds the port that agent_connected or agent_port_taken said is taken: looks
     * at every process of the machine. */
    void (*name_holder)(void *arg, char *ret, size_t size);
    void (*look)(void *arg, struct agent_route *ret); /* comes with its fields 0 */
    void (*send)(void *arg, const struct msg *m);
    /* A fresh listener for the next generation; the old one and its connections go. */
    int (*relay_open)(void *arg, struct agent_relay *ret, struct errmsg *msg);
    void (*relay_close)(void *arg);
    void (*relay_resend)(
        void *arg); /* re-attached: what is unacknowledged goes again */
    void (*spawn)(void *arg, const struct agent_round *round); /* all slots */
    void (*control)(void *arg, uint32_t slot, const struct control *c);
    void (*engine)(void *arg, uint32_t slot,
                   const char *folder); /* it has said hello */
    void (*kill)(void *arg, uint32_t slot, int signal);
    /* Answered by agent_inspected, as often as it takes. */
    void (*inspect)(void *arg, uint32_t slot, const struct msg_inspect *m);
    void (*report)(void *arg, const struct msg_report *report);
    void (*say)(void *arg, enum log_level level, const char *text);
    void (*end)(void *arg, int exit_code); /* once; the agent does nothing any more */
};

struct agent_config {
    const char *job, *host, *program; /* borrowed: outlive the agent, all texts */
    const char *role;                 /* shorter than MSG_ROLE_MAX */
    const char *endpoint;             /* for people */
    uint64_t agent_id;                /* random */
    uint32_t min_nodes, max_nodes, nproc, max_restarts;
    int32_t node_rank;
    uint64_t join_timeout_ms;
    uint32_t last_call_ms;
    uint64_t shutdown_ms; /* between the word to go and KILL */
    enum hang_policy on_hang;
    bool maybe_engine; /* the program's base name is ctrun-worker */
    struct agent_actions actions;
};

/* How a worker's process has ended. */
struct agent_exit {
    int status;        /* as of waitpid */
    uint64_t ended_ms; /* not after now: the news may have taken a while */
    uint64_t wall_ms;  /* Unix time then, for people */
};

/* A worker's end as the shell has found it. */
struct agent_end {
    const char *message, *tail, *log_path; /* "" for none */
    uint64_t wall_ms;                      /* Unix time of its end, for people */
    uint64_t failed_ms;                    /* when it wrote its message; 0: not known */
    const char *error, *error_file;        /* as in RANK_ENDED; NULL for none */
};

struct agent *agent_new(const struct agent_config *config);
void agent_free(struct agent *a); /* NULL allowed */

void agent_start(struct agent *a, uint64_t now_ms);

/* The connection is open (nothing was said yet). `taken`: "" or, when the endpoint is
 * this host's and its port could not be bound, a text that says so. */
void agent_connected(struct agent *a, const char *taken, uint64_t now_ms);
void agent_connect_failed(struct agent *a, const char *text, uint64_t now_ms);
/* … and on our own port, that somebody else holds (`taken` says so). */
void agent_port_taken(struct agent *a, const char *text, const char *taken,
                      uint64_t now_ms);
/* … because one side does not let the other in: exit 94. */
void agent_refused(struct agent *a, const char *text, uint64_t now_ms);
/* … and waiting does not help: this host itself is at fault. */
void agent_cannot_connect(struct agent *a, const char *text, uint64_t now_ms);

/* The connection has ended. */
void agent_disconnected(struct agent *a, enum agent_loss loss, uint64_t now_ms);

/* ERR_PROTOCOL: the shell drops the connection and calls agent_disconnected.
 * STORE_REPLY is the relay's and does not come here, but for what it says is kept. */
int agent_message(struct agent *a, const struct msg *m, uint64_t now_ms) MUST_CHECK;
void agent_keeps(struct agent *a, uint64_t kept);

/* The relay's STORE or STORE_CLOSE. Dropped while the service does not know who we are:
 * then relay_resend sends all of it, in order. */
void agent_relay(struct agent *a, const struct msg *m);

void agent_spawned(struct agent *a, uint32_t slot, uint32_t pid, uint64_t now_ms);
/* It could not be started; `end->message` says why. */
void agent_spawn_failed(struct agent *a, uint32_t slot, const struct agent_end *end,
                        uint64_t now_ms);

/* The worker has ended: the service is told at once, and once more with its last words,
 * when they are read. */
void agent_exited(struct agent *a, uint32_t slot, const struct agent_exit *exited,
                  uint64_t now_ms);
void agent_drained(struct agent *a, uint32_t slot, const struct agent_end *end,
                   uint64_t now_ms);

/* From the worker's control channel or, as CONTROL_PROGRESS, its progress pipe. */
void agent_control(struct agent *a, uint32_t slot, const struct control *c,
                   uint64_t now_ms);
void agent_signal(struct agent *a, int signal, uint64_t now_ms);

/* The keeper died alone and the shell has killed what was left. */
void agent_keeper_lost(struct agent *a, uint64_t now_ms);

/* What the shell has found out; lost while there is no connection. */
void agent_inspected(struct agent *a, const struct msg_inspected *m);

void agent_tick(struct agent *a, uint64_t now_ms);
uint64_t agent_deadline(const struct agent *a); /* UINT64_MAX: nothing to wait for */

bool agent_was_closed(const struct agent *a); /* CLOSED has come: the job is over */
bool agent_is_leaving(const struct agent *a); /* was told to, and the job may go on */
bool agent_is_drained(const struct agent *a); /* the service has asked it to leave */

#endif
