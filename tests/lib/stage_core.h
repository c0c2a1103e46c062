#ifndef TESTS_LIB_STAGE_CORE_H
#define TESTS_LIB_STAGE_CORE_H

/* What the files of the stage share: stage.c (the script, time, the trace),
 * stage_verbs.c (what an agent can do), stage_restart.c (the service is killed) and
 * stage_views.c (what people see of it). */

#include "rendezvous/history.h"
#include "rendezvous/service.h"
#include "tests/lib/shelf.h"
#include "tests/lib/stage.h"

enum { MAX_ACTORS = 64, MAX_HEARD = 256, HEARD_MAX = 2048, MAX_SAID = 6 };

enum { STAGE_CLUSTER = 11 }; /* of the service */
#define STAGE_START(boot) (100 + (boot))

struct actor {
    char name[16];
    uint64_t conn; /* 0: none */
    bool is_mute, is_welcome, is_away;
    bool is_standby;     /* heard so since its last ROUND */
    uint64_t generation; /* the last ROUND's */
    int32_t group_rank;
    uint32_t failures;
    uint64_t session;
    uint64_t kept;          /* transactions of this start, the most heard of */
    struct msg_hello hello; /* the last */
    char peer[MSG_ADDR_MAX];
    struct msg said[MAX_SAID]; /* what it says again: since its last ROUND */
    size_t n_said;
};

/* Where a service is killed: after which line that is played; 0: nowhere. */
struct stage_kill {
    unsigned after;
    bool is_deaf; /* … and what that line makes it say is lost */
};

struct heard {
    size_t actor;
    char body[HEARD_MAX];
};

struct stage {
    struct service *service;
    struct history history; /* its wall clock is the service's */
    uint64_t now_ms, beat_ms;
    bool traces_all;
    struct msg_hello shape;
    struct actor actor[MAX_ACTORS];
    size_t n_actors;
    uint64_t last_conn;
    struct heard heard[MAX_HEARD];
    size_t n_heard;
    struct msg_node
        round[MAX_ACTORS]; /* the last one's table, as group rank 0 got it */

    struct shelf shelf;
    uint64_t boot;
    bool is_deaf;      /* what the service says is lost */
    bool is_unordered; /* … or comes in another order than the script has it */
    struct stage_kill kill;
    bool is_timed;      /* somebody is mute, or the service has slept */
    struct heard *past; /* owned: all that was ever heard … */
    size_t n_past;      /* … so much, and room for the next power of two */
};

void stage_hear(struct stage *st, const struct actor *a, const char *body);
void stage_start(struct stage *st); /* the service, with what is on the shelf … */
void stage_end(struct stage *st);   /* … and its end, with all that it saved there */
void stage_play_line(struct stage *st, const char *line);

void stage_return(struct stage *st, struct actor *a); /* as an agent does */
/* What people see of it, but for what is not kept. The caller's: free(). */
char *stage_views(struct stage *st);
void stage_expect_views(struct stage *st, const char *before);

void stage_operate(struct stage *st, const char *verb, const char *words);
void stage_kill_for(struct stage *st, const char *verb, const char *words);

/* The service is killed, and started anew; all agents come back. `line`: what was said
 * to it last, in vain (NULL: nothing). */
void stage_restart(struct stage *st, const char *line);

/* False when there are not so many lines, or it may not be killed there. */
bool stage_play_with(struct stage *st, const char *script, struct stage_kill kill,
                     unsigned *n_played);
void stage_say(struct stage *st, struct actor *a, const struct msg *m);

/* "nodes=2:4 restarts=3" into a hello. */
void stage_set_shape(struct msg_hello *h, const char *words);

/* False when there is no such verb. */
bool stage_act(struct stage *st, struct actor *a, const char *verb, const char *words);
void stage_beat(struct stage *st, struct actor *a);

#endif
