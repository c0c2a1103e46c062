#ifndef TESTS_LIB_AGENT_RIG_H
#define TESTS_LIB_AGENT_RIG_H

/* An agent without a world: its actions become lines of a trace, compared as text. */

#include "launcher/agent.h"

#include "common/buf.h"

struct agent_rig {
    struct agent *agent; /* owned */
    uint64_t now_ms;
    struct buf trace;
    uint16_t next_port;
    uint64_t boot;                /* of the service: each welcome is another start */
    uint64_t last_request;        /* of RESUMED and COMMIT */
    struct msg_hello hello;       /* the last one sent */
    struct msg_rank_ended ended;  /* likewise */
    struct msg_progress progress; /* likewise */
    char said[512];               /* the last line, whole; "" */
    int exit_code;                /* -1: not ended */
    const char *holder;           /* of the port that is taken */
    struct agent_route route;     /* as the agent sees it */
    unsigned n_asked;             /* … for whom it was asked */
};

struct agent_rig_config {
    uint32_t nproc;
    bool is_engine;
    uint64_t shutdown_ms;
};

/* --nnodes=1:2, join time-out 60 s. */
void agent_rig_init(struct agent_rig *rig, const struct agent_rig_config *c);
void agent_rig_release(struct agent_rig *rig);

/* In a test's declarations. */
#define WITH_SHUTDOWN(nproc, is_engine, shutdown_ms)                            \
    const struct agent_rig_config rig_config = {nproc, is_engine, shutdown_ms}; \
    struct agent_rig rig;                                                       \
    (void)state;                                                                \
    agent_rig_init(&rig, &rig_config)
#define WITH_RIG(nproc, is_engine) WITH_SHUTDOWN(nproc, is_engine, 40000)

/* Fails unless the trace since the last call is exactly `lines` ("a; b; c"). */
void agent_rig_expect(struct agent_rig *rig, const char *lines);
/* Fails unless that was said since the last call (the trace has its beginning). */
void agent_rig_expect_said(struct agent_rig *rig, const char *line);
void agent_rig_skip(struct agent_rig *rig); /* forgets the trace */

/* Lets time pass, timers included. */
void agent_rig_pass(struct agent_rig *rig, uint64_t ms);

/* Its connection ends, and there is another; WELCOME is awaited. */
void agent_rig_reconnect(struct agent_rig *rig);

/* What the service says. */
void agent_rig_welcome(struct agent_rig *rig, uint64_t session, bool is_ephemeral);
void agent_rig_round(struct agent_rig *rig, uint64_t generation, uint32_t group_rank,
                     uint32_t group_world);
void agent_rig_stop(struct agent_rig *rig, uint64_t generation, enum stop_mode mode);
void agent_rig_closed(struct agent_rig *rig, uint32_t exit_code);
void agent_rig_tell(struct agent_rig *rig, const struct msg *m); /* must be accepted */

/* A worker ends by exit(code), or by a signal; its output with it. */
void agent_rig_exit(struct agent_rig *rig, uint32_t slot, int code);
void agent_rig_die(struct agent_rig *rig, uint32_t slot, int signal);

/* Connected, welcomed (session 7), running generation 1; the trace is forgotten. */
void agent_rig_run(struct agent_rig *rig, bool is_ephemeral);

#endif
