#ifndef TESTS_LIB_STAGE_CORE_H
#define TESTS_LIB_STAGE_CORE_H

/* What the two files of the stage share: stage.c (the script, time, the trace) and
 * stage_verbs.c (what an agent can do). */

#include "rendezvous/history.h"
#include "rendezvous/service.h"
#include "tests/lib/stage.h"

enum { MAX_ACTORS = 64, MAX_HEARD = 256, HEARD_MAX = 2048 };

enum { STAGE_CLUSTER = 11 }; /* of the service */

struct actor {
    char name[16];
    uint64_t conn; /* 0: none */
    bool is_mute, is_welcome;
    uint64_t generation; /* the last ROUND's */
    int32_t group_rank;
    uint32_t failures;
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
};

void stage_hear(struct stage *st, const struct actor *a, const char *body);

/* "nodes=2:4 restarts=3" into a hello. */
void stage_set_shape(struct msg_hello *h, const char *words);

/* False when there is no such verb. */
bool stage_act(struct stage *st, struct actor *a, const char *verb, const char *words);
void stage_beat(struct stage *st, struct actor *a);

#endif
