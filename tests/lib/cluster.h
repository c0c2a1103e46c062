#ifndef TESTS_LIB_CLUSTER_H
#define TESTS_LIB_CLUSTER_H

/* A job in the simulation: the real service (rendezvous/service.h), real agents
 * (launcher/agent.h) and relays (launcher/store/relay_flow.h), on a network and processes
 * made of sim events. Workers follow a script: hello, resume, steps with store traffic
 * and commits, and an end.
 *
 *   worker ───────────── node: agent, relay ─ connection, server ─ its disk
 *   (cluster_worker.c)   (cluster_node.c)     (cluster_net.c)      (cluster_disk.c)
 *
 * Faults, invariants and the end: cluster.c.
 *
 * An invariant that does not hold stops the run: cluster_result.violation names it. */

#include "launcher/agent.h"
#include "launcher/store/relay_flow.h"
#include "rendezvous/service.h"
#include "tests/lib/shelf.h"
#include "tests/lib/sim.h"

enum {
    CLUSTER_MAX_NODES = 1000,
    CLUSTER_MAX_NPROC = 3,
    CLUSTER_FAULTS = 10, /* kinds */
    CLUSTER_MAX_WORLD = CLUSTER_MAX_NODES * CLUSTER_MAX_NPROC,
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
    FAULT_HANG = 512,        /* workers ignore abort and leave */
    FAULT_ALL = 1023,
};

struct cluster_config {
    uint64_t seed;
    uint32_t n_nodes, nproc, min_nodes, max_nodes;
    uint64_t total_steps;
    uint32_t max_world; /* workers refuse a larger one; 0: none */
    bool is_durable;    /* the server */
    unsigned faults;
    uint64_t faults_until_ms;
    uint64_t
        wall_seed; /* of how wrong each node's wall clock is at each look; 0: right */
};

struct cluster_result {
    char violation[512]; /* "": none */
    uint64_t hash, end_ms;
    unsigned n_rounds, n_commits, n_faults, n_done, n_boots;
    uint64_t last_step; /* committed */
};

void cluster_run(const struct cluster_config *config, struct cluster_result *ret);

/* --- the parts' own --- */

struct cluster;
struct node;

struct sim_worker {
    struct node *node;
    uint32_t slot, rank, world;
    uint64_t life; /* counts spawns: events of an earlier one are void */
    bool is_alive;
    bool is_leaving, is_hung;
    bool asked_resume, asked_commit;
    uint64_t job_life, generation, start_step, step;
    struct relay_flow *flow; /* owned; NULL: the store is gone */
    struct buf to_relay, from_relay;
    enum {
        STORE_IDLE,
        STORE_SET,
        STORE_ADD,
        STORE_APPEND,
        STORE_LENGTH,
        STORE_GET
    } store;
    uint64_t set_value, floor; /* what GET must at least yield */
    uint64_t n_added; /* to a counter and a text of its own, which must say so */
    uint32_t target;
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
};

struct node {
    struct cluster *cluster;
    unsigned index;
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
    uint64_t last_generation;
    uint32_t last_client;
    struct sim_worker workers[CLUSTER_MAX_NPROC];
};

struct sealed_role {
    uint32_t size; /* 0: no member has said it */
    bool is_taken[CLUSTER_MAX_WORLD];
};

/* What must be the same for all members of a round. */
struct sealed {
    uint64_t job_life, generation, table_hash;
    bool is_taken[CLUSTER_MAX_WORLD];
    struct sealed_role roles[2];
    uint64_t acked[CLUSTER_MAX_WORLD]; /* by rank: the SET that was acknowledged */
};

struct cluster {
    struct sim sim;
    struct cluster_config config;
    struct cluster_result *result;
    struct node nodes[CLUSTER_MAX_NODES];
    struct conn **conns; /* owned; all there ever were */
    size_t n_conns;
    bool is_slow;
    bool is_ending; /* taken down: nothing is started again */

    struct service *service; /* owned; NULL: down */
    uint64_t job_life;       /* counts jobs, as servers know them */
    uint64_t server_life, server_tick_ms, server_paused_until_ms;
    uint64_t generation; /* of this server: the highest handed out */
    uint64_t resumed_step, commit_step, commit_generation;
    char commit_hash[CONTROL_HASH_MAX];
    const struct msg *at_hand; /* what the service is being told */
    struct conn *at_hand_conn;
    struct sealed *sealed; /* owned */
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
    struct sim wall; /* dice of its own: what is read there changes nothing */
};

void cluster_violate(struct cluster *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
struct sealed *cluster_sealed(struct cluster *c, uint64_t job_life,
                              uint64_t generation);

/* cluster_net.c */
void net_dial(struct node *n);
void net_hang_up(struct node *n);  /* the agent closes, or is killed */
void net_break(struct conn *conn); /* both ends see it */
void net_send(struct node *n, const struct msg *m);
void net_start_server(struct cluster *c);
void net_stop_server(struct cluster *c);
void net_cut(struct node *n, uint64_t until_ms);
void net_kill_server(struct cluster *c); /* and starts it anew after a while */
void net_service_send(void *arg, uint64_t number, const struct msg *m);
void net_service_close(void *arg, uint64_t number);
void net_check_decision(struct cluster *c, const struct msg_decision *decision);

/* cluster_disk.c */
void disk_send(void *arg, uint64_t conn, const struct msg *m);
void disk_close(void *arg, uint64_t conn);
void disk_save(void *arg, const struct record *r);
void disk_take_turn(struct cluster *c); /* after every call into the service */
void disk_kill(struct cluster *c);
void disk_release(struct cluster *c);

/* cluster_node.c */
void node_start(struct node *n);
void node_kill(struct node *n);
void node_after_call(struct node *n); /* after every call into the agent */

/* cluster_worker.c */
void worker_spawn(struct sim_worker *w, const struct agent_round *round);
void worker_control(struct sim_worker *w, const struct control *c);
void worker_signal(struct sim_worker *w, int signal);
void worker_die(struct sim_worker *w, int status);
void worker_store_reply(struct sim_worker *w, const struct msg_store_reply *m);
void worker_close_store(struct sim_worker *w);

#endif
