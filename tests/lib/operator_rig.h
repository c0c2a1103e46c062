#ifndef TESTS_LIB_OPERATOR_RIG_H
#define TESTS_LIB_OPERATOR_RIG_H

/* Those who ask and steer, in front of a service with a job "train" of two nodes, alpha
 * and beta (the agents 1 and 2), of two ranks each. What agents and operators are told is
 * recorded. The functions are cmocka fixtures, requests and assertions. */

#include "rendezvous/history.h"
#include "rendezvous/operator.h"
#include "rendezvous/service.h"

#include "common/buf.h"

#include <jansson.h>

enum {
    OPERATOR_RIG_INSPECTS = 64,
    OPERATOR_RIG_FIRST = 1000, /* of the operators' connections */
    OPERATOR_RIG_NOW_MS = 5000,
    OPERATOR_RIG_WALL_MS = 1000000,
};

/* What one operator was told. */
struct operator_answer {
    struct buf text;
    uint32_t exit_code;
    bool is_welcome, is_refused, is_whole, is_closed;
};

struct operator_rig {
    struct service *service;
    struct history history;
    struct operators *operators;
    struct operator_answer answers[OPERATORS_MAX + 2]; /* of OPERATOR_RIG_FIRST … */
    uint64_t n_opened;
    struct msg_inspect inspects[OPERATOR_RIG_INSPECTS];
    uint64_t inspected_conn[OPERATOR_RIG_INSPECTS];
    size_t n_inspects;
    size_t n_drained, n_closed, n_stops;
    uint32_t closed_code;
    bool is_behind; /* every operator */
};

extern struct operator_rig operator_rig;

int operator_rig_set_up(void **state);
int operator_rig_tear_down(void **state);

/* Operators may come, as after that start of the service; set_up does. */
void operator_rig_receive(uint64_t boot);

/* An agent comes, and joins a job of two nodes; it says something. */
void agent_says_hello(uint64_t conn, const char *host, const char *job, uint32_t nproc);
void agent_says(uint64_t conn, const struct msg *m);
void all_agents_leave(void); /* both of "train", by SIGTERM */

/* An operator comes, with that key (NULL: none); what it is told. */
uint64_t open_as(const struct identity *who);
struct operator_answer *answer_of(uint64_t conn);

struct msg make_ask(const char *verb, const char *job);
const struct operator_answer *ask_with(uint64_t conn, struct msg m);
const struct operator_answer *ask_about(const char *verb,
                                        const char *job); /* a new one */

/* The whole answer. */
json_t *json_of(const struct operator_answer *a);
void expect_failure(const struct operator_answer *a, uint32_t exit_code,
                    const char *text);
void expect_said(const struct operator_answer *a, const char *text);
/* So far. */
void expect_told(uint64_t conn, const char *text);

#endif
