#ifndef TESTS_LIB_VIEW_STAGE_H
#define TESTS_LIB_VIEW_STAGE_H

/* What people see of the jobs on a stage, as JSON. */

#include "rendezvous/view.h"
#include "tests/lib/stage.h"

#define NO_RESTARTS                                                                \
    "{'failure': 0, 'node_lost': 0, 'node_joined': 0, 'node_left': 0, 'hang': 0, " \
    "'preemption': 0, 'smaller_world': 0}"

/* A script: two nodes of two ranks, in their first generation. */
extern const char view_two_nodes[];

struct view view_of(struct stage *st);

/* Fails unless `json`, which it takes, is `expected`, in which ' may stand for ". */
void view_expect(json_t *json, const char *expected);

/* Its member, a reference of its own; takes `json`. */
json_t *view_member(json_t *json, const char *key);

#endif
