#ifndef TESTS_LIB_CLUSTER_H
#define TESTS_LIB_CLUSTER_H

/* A job in the simulation: the real service (rendezvous/service.h), real agents
 * (launcher/agent.h), relays (launcher/store/relay_flow.h) and operators
 * (rendezvous/operator.h), on a network and processes made of sim events. Workers train
 * (cluster_train.c): they resume, do their steps together, say where they are, use the
 * store (cluster_store.c), commit, and leave after a step that they have agreed upon.
 *
 *   worker ──────────── node: agent, relay ── connection ─┬─ server ─────────── its disk
 *   cluster_worker.c    cluster_node.c       …_net.c      │  …_serving.c        …_disk.c
 *                                                         │                     …_copy.c
 *                                            operators ───┘
 *                                            …_operator.c
 *
 * What goes wrong, or is steered: cluster_fault.c. Whether what the service says of hangs
 * and ends is true: cluster_watch.c. The run: cluster.c.
 *
 * An invariant that does not hold stops the run: cluster_result.violation names it. */

#include "launcher/agent.h"
#include "launcher/store/relay_flow.h"
#include "rendezvous/history.h"
#include "rendezvous/operator.h"
#include "rendezvous/service.h"
#include "tests/lib/linear.h"
#include "tests/lib/shelf.h"
#include "tests/lib/sim.h"

enum {
    CLUSTER_MAX_NPROC = 3,
    CLUSTER_FAULTS = 15, /* kinds */
    CLUSTER_LEASE_MS = 3000,
    CLUSTER_AWAY_MS = 60000, /* of a node that was told to go: longer than any grace */
};

enum cluster_fault {
    FAULT_WORKER = 1,        /* kill -9 of a worker */
    FAULT_AGENT = 2,         /* kill -9 of an agent; its node comes back */
    FAULT_AGENT_PAUSE = 4,   /* SIGSTOP for a while */
    FAULT_SERVER = 8,        /* kill -9; another takes its place, without memory, or a
                              * durable one comes back */
    FAULT_SERVER_PAUSE = 16, /* SIGSTOP for a while */
    FAULT_PARTITION = 32,    /* a node is cut off, silently */
    FAULT_RESET = 64,        /* a connection breaks */
    FAULT_SLOW = 128,        /* loss, seen as delay */
    FAULT_LEAVE = 256,       /* a node is told to stop, and started again */
    FAULT_DEAF = 512,        /* workers ignore abort and leave */
    FAULT_HANG = 1024,       /* SIGSTOP of a worker, or it spins, until it is killed, or
                              * goes on by itself */
    FAULT_ASK = 2048,        /* an operator asks, or follows */
    FAULT_DRAIN = 4096,      /* … sends a node home, which is started again */
    FAULT_FULL = 8192,       /* a durable server's disk is full for a while; its limits
                              * are set anew, as by SIGHUP */
    FAULT_ALL = 16383,
    FAULT_COPY =
        16384, /* a copy is made of a durable server's state, or takes its place
                         * for a while. Without new agents, who would follow it */
};

/* What delays news, or loses them. */
#define FAULT_BLIND                                                        \
    (FAULT_AGENT | FAULT_AGENT_PAUSE | FAULT_SERVER | FAULT_SERVER_PAUSE | \
     FAULT_PARTITION | FAULT_RESET | FAULT_SLOW | FAULT_COPY)

struct cluster_config {
    uint64_t seed;
    uint32_t n_nodes, nproc, min_nodes, max_nodes;
    uint64_t total_steps;
    uint32_t max_world; /* workers refuse a larger one; 0: none */
    uint32_t step_ms; /* of the quickest, which others take up to three times; 0: 40 */
    bool is_durable;  /* the server */
    bool reports_hangs; /* --on-hang=report */
    bool says_for_whom; /* … it waits, each rank */
    bool repeats;       /* each rank, once a second, what it has said */
    bool loses_peers;   /* ranks notice that another is gone, and fail, too */
    bool shares_keys;   /* all ranks write the same, as histories for linear.h */
    uint64_t cancel_ms; /* an operator cancels then; 0: never */
    unsigned faults;
    uint64_t faults_until_ms;
    uint64_t wall_seed; /* of how wrong wall clocks are at each look; 0: right */
};

struct cluster_result {
    char violation[512]; /* "": none */
    uint64_t hash, end_ms;
    unsigned n_rounds, n_commits, n_faults, n_done, n_boots;
    unsigned n_hangs_found, n_drained, n_asked, n_refused, n_histories, n_returned;
    unsigned n_copies, n_outgrown; /* … that did more than the right state had done */
    unsigned failures;   /* as the last ROUND had it: restarts that were spent */
    bool was_cancelled;  /* and an operator was answered so */
    uint64_t last_step;  /* committed */
    uint64_t steps_lost; /* done, and not committed when their generation ended */
};

void cluster_run(const struct cluster_config *config, struct cluster_result *ret);

/* --- the parts' own --- */

struct cluster;
struct node;

/* Where a worker is. */
enum sim_place { AT_START, AT_WORK, AT_EXCHANGE, AT_SAVE };

struct sim_worker {
    struct node *node;
    uint32_t slot, rank, world;
    uint64_t life; /* counts spawns: events of an earlier one are void */
    bool is_alive;
    bool is_deaf, is_leaving;
    bool asked_commit;
    uint64_t job_life, generation, start_step, step;

    enum sim_place at;
    bool is_due;    /* AT_WORK: it is done, but the worker hangs */
    bool is_unsaid; /* its agent is stopped */
    uint32_t waits_for;
    uint64_t said_ms;
    enum { HANGS_NOT, HANGS_STOPPED, HANGS_SPINNING } hang;
    uint64_t hung_ms, resumed_ms; /* when it began, and ended, last; 0: never */
    uint64_t told_ms;             /* the service has said so last; 0: not since then */
    struct msg_inspect asked;     /* the last question about its process */

    struct relay_flow *flow; /* owned; NULL: the store is gone */
    struct buf to_relay, from_relay;
    enum {
        STORE_IDLE,
        STORE_SET,
        STORE_ADD,
        STORE_APPEND,
        STORE_LENGTH,
        STORE_GET,
        STORE_SHARED
    } store;
    uint64_t set_value, floor; /* what GET must at least yield */
    uint64_t n_added; /* to a counter and a text of its own, which must say so */
    uint32_t target;
    struct shared_key *shared; /* borrowed: the one it is at … */
    size_t shared_op;          /* … and what it does there */
    uint64_t shared_written;   /* the number of the key that it has written last */
    struct bytes_seen {
        uint8_t data[512];
        size_t size;
    } seen; /* its value, as it was read or written last */
};

struct conn {
    struct cluster *cluster;
    uint64_t number, server_life;
    uint64_t job_life; /* of the last ROUND sent on it */
    struct node *node;
    bool agent_open, server_open;
    uint64_t to_server_ms, to_agent_ms; /* when the last frame arrives: kept in order */
    uint64_t heard_ms;                  /* the server, last */
    bool is_refused;
    bool is_of_copy;
    bool is_closing; /* the service has done with it, which waits for the disk */
};

struct node {
    struct cluster *cluster;
    unsigned index;
    char host[16];       /* two nodes share one */
    struct agent *agent; /* owned; NULL: not running */
    uint64_t life;       /* counts starts */
    uint64_t tick_ms;    /* the tick that is due */
    uint64_t paused_until_ms, cut_until_ms;
    uint64_t dials;    /* counts attempts to connect */
    struct conn *conn; /* NULL: none */
    int exit_code;
    unsigned returns; /* how often it is still to be started again */
    bool has_ended;   /* by itself */
    bool wants_end;   /* inside a call */
    bool is_drained;  /* it has heard so */
    bool was_closed;  /* it ended because its job had */
    uint64_t told_ms; /* when it was first told to go, in this life; 0: it was not */
    uint64_t heard;   /* transactions of the state, the most */
    uint64_t last_generation;
    uint32_t last_client;
    struct sim_worker workers[CLUSTER_MAX_NPROC];
};

struct sealed_rank {
    bool is_taken, is_role_taken[2];
    bool is_culprit; /* it was killed, or hung: a report may name it */
    uint64_t acked;  /* the SET that was acknowledged */
};

/* What must be the same for all members of a round, and what its ranks do together. */
struct sealed {
    uint64_t job_life, generation, table_hash;
    bool has_begun;
    uint64_t begun_ms, resumed_ms; /* the last time that a rank that hung went on */
    uint32_t n_hangs;
    uint64_t start_step;
    uint64_t step;       /* that all have done */
    uint32_t n_arrived;  /* at the end of the next one */
    uint64_t leave_step; /* after which they go; 0: not yet */
    bool has_lost;       /* a rank is gone */
    bool is_broken;      /* … and the others will notice */
    uint32_t world;
    uint32_t role_size[2];    /* 0: no member has said it */
    struct sealed_rank *rank; /* owned */
};

struct cluster {
    struct sim sim;
    struct cluster_config config;
    struct cluster_result *result;
    struct node *nodes;  /* owned */
    struct conn **conns; /* owned; all there ever were */
    size_t n_conns;
    bool is_slow;
    bool is_ending; /* taken down: nothing is started again */

    struct service *service;     /* owned; NULL: down */
    struct history history;      /* … the server's, like … */
    struct operators *operators; /* owned */
    uint64_t operators_tick_ms;
    struct sim_operator **asking; /* owned; all that ever asked */
    size_t n_asking;
    uint64_t *told; /* owned; hashes of events that were told, by number; 0: not yet */
    size_t n_told;
    uint64_t seen_generation, seen_step; /* by operators, of the job at hand */
    bool may_be_cancelled;               /* the service has said so */
    bool is_cancelled;                   /* … who were told so, by … */
    uint64_t highest, cancelled_at;      /* generation: of all, and when they were */
    uint64_t cancelled_by;               /* … that server's life */
    struct shared_key **keys;            /* owned; all that were shared */
    size_t n_keys;
    uint64_t n_stamps;        /* orders calls and returns at the same time */
    uint64_t full_until_ms;   /* the disk … */
    uint64_t scarce_until_ms; /* … so much that stores may refuse keys */
    uint64_t job_life;        /* counts jobs, as servers know them */
    uint64_t server_life, server_since_ms, server_tick_ms, server_paused_until_ms;
    uint64_t generation; /* of this server: the highest handed out */
    uint64_t resumed_step, commit_step, commit_generation;
    char commit_hash[CONTROL_HASH_MAX];
    const struct msg *at_hand; /* what the service is being told */
    struct conn *at_hand_conn;
    struct sealed **sealed; /* owned */
    size_t n_sealed;
    struct sim_event event; /* the one at hand */

    /* cluster_disk.c: a durable server's */
    struct shelf shelf;
    uint64_t cluster_id, boot, turn;
    struct said *said; /* owned: what waits for the commit */
    size_t n_said;
    bool is_in_turn, is_committing;
    bool is_doomed; /* is killed in the midst of its next turn that saves */
    uint64_t commit_until_ms;

    /* cluster_copy.c */
    struct shelf copied, right; /* … which waits while a copy is in its place */
    uint64_t copied_boot, right_boot;
    bool is_copy; /* the shelf in use */

    struct sim wall; /* dice of its own: what is read there changes nothing */
};

void cluster_violate(struct cluster *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
struct sealed *cluster_sealed(struct cluster *c, uint64_t job_life,
                              uint64_t generation);

/* The ith of all nodes' workers; NULL: there are not so many. */
struct sim_worker *cluster_worker(struct cluster *c, size_t i);

/* cluster_net.c */
void net_dial(struct node *n);
void net_hang_up(struct node *n);  /* the agent closes, or is killed */
void net_break(struct conn *conn); /* both ends see it */
void net_send(struct node *n, const struct msg *m);
void net_cut(struct node *n, uint64_t until_ms);
void net_deliver(struct conn *conn, const struct msg *m); /* to the agent */
void net_end(struct conn *conn);                          /* … when that has come */
uint64_t net_latency(struct cluster *c);

/* cluster_serving.c */
void serving_start(struct cluster *c);
void serving_stop(struct cluster *c);
void serving_kill(struct cluster *c); /* and starts it anew after a while */
void serving_after_call(struct cluster *c);
/* It is stopped, or waits for its disk, until then. */
uint64_t serving_busy_until(const struct cluster *c);
void serving_sends(void *arg, uint64_t number, const struct msg *m);
void serving_closes(void *arg, uint64_t number);
void serving_check_decision(struct cluster *c, const struct msg_decision *decision);

/* cluster_disk.c */
void disk_send(void *arg, uint64_t conn, const struct msg *m);
void disk_close(void *arg, uint64_t conn);
void disk_save(void *arg, const struct record *r);
uint64_t disk_kept(void *arg);
void disk_take_turn(struct cluster *c); /* after every call into the service */
void disk_kill(struct cluster *c);
void disk_release(struct cluster *c);

/* cluster_copy.c */
void copy_happens(struct cluster *c);
void copy_heard(const struct conn *conn, const struct msg *m);
void copy_release(struct cluster *c);

/* cluster_fault.c */
void faults_begin(struct cluster *c);
void faults_start_after(struct node *n, uint64_t delay_ms);

/* cluster_node.c */
void node_start(struct node *n);
void node_kill(struct node *n);
void node_after_call(struct node *n); /* after every call into the agent */

/* cluster_operator.c: their connections' numbers are OPERATOR_CONN and more */
#define OPERATOR_CONN (UINT64_C(1) << 32)
void operator_comes(struct cluster *c, const char *verb);
void operator_hears(struct cluster *c, uint64_t conn, const struct msg *m);
void operator_loses(struct cluster *c, uint64_t conn); /* the server has closed it */
/* With the server: before its service is there, and when it is. */
void operators_start(struct cluster *c, struct service_config *config);
void operators_open_to(struct cluster *c);
void operators_end(struct cluster *c);        /* … and its end */
void operators_after_call(struct cluster *c); /* into the service */
void operators_check_end(struct cluster *c);
void operators_release(struct cluster *c);

/* cluster_watch.c */
void watch_note(struct cluster *c, const struct job_event *e);
void watch_hang(struct sim_worker *w); /* it has begun */
void watch_report(struct node *n, const struct msg_report *report);
void watch_told(struct node *n);  /* to go */
void watch_drain(struct node *n); /* the server has said that it is to go */
void watch_start(struct cluster *c, const struct sealed *s); /* a generation */
bool watch_was_cancelled(
    const struct cluster *c); /* the last job, as the service knows */
/* All nodes have ended: the service has noticed, too, where a job was cancelled, of which
 * it then has to say so. */
bool watch_is_over(const struct cluster *c);
void watch_end(struct cluster *c);

/* cluster_worker.c */
void worker_spawn(struct sim_worker *w, const struct agent_round *round);
void worker_control(struct sim_worker *w, const struct control *c);
void worker_signal(struct sim_worker *w, int signal);
void worker_die(struct sim_worker *w, int status);
void worker_leave(struct sim_worker *w, int code);
uint64_t worker_now(const struct sim_worker *w);

/* cluster_train.c */
void train_begin(struct sim_worker *w);
void train_decided(struct sim_worker *w, const struct control *decision);
void train_hang(struct sim_worker *w, bool is_stopped);
void train_resume(struct sim_worker *w);
void train_break(struct sim_worker *w); /* it is gone; its peers lose a connection */
void train_inspect(struct sim_worker *w, const struct msg_inspect *m);
struct sealed *train_sealed(const struct sim_worker *w);

/* cluster_store.c */
void worker_store_open(struct sim_worker *w);
void worker_store_close(struct sim_worker *w);
void worker_store_begin(struct sim_worker *w); /* its traffic of a step */
void worker_store_reply(struct sim_worker *w, const struct msg_store_reply *m);
void histories_check_end(struct cluster *c);
void histories_release(struct cluster *c);

#endif
