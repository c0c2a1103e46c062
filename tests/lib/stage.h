#ifndef TESTS_LIB_STAGE_H
#define TESTS_LIB_STAGE_H

/* A rendezvous service on a stage: a virtual clock, agents that do as the script says,
 * and a trace of what they hear. A script has one line for each thing that happens,
 * followed by what is heard because of it, word for word:
 *
 *   shape nodes=2:4 restarts=3     of the hellos from here on (nproc=, call=ms)
 *   a enters                       connects, says HELLO and JOIN (options below)
 *   b enters
 *   wait 3000                      time passes; who is not mute sends heartbeats
 *   > a,b ROUND g=1 a b failures=0
 *   a ended rank=0 code=1          RANK_ENDED
 *   > a,b STOP g=1 abort: rank 0 on a failed
 *
 * Verbs of an agent: opens (connects), hello, enters, join, ended, stopped, done,
 * leave, refuse, resumed, commit, progress (or reports), ping (a STORE), stores (a
 * key), inspected, beat, mute, gone (its connection ends), sends type=N (any message,
 * empty). `sleep MS`: the service sleeps. What several agents hear alike is one line,
 * names sorted; WELCOME and PONG are not traced unless `trace all` was said. A ROUND
 * tells the place in the role, FIRST/SIZE, where there is more than one role.
 *
 * A scene is played once as it is written, and then again and again with a service that
 * is killed and started anew from what it has saved, after each of its lines in turn:
 * once when all was heard of it, once when what it had to say is lost. The agents come
 * back and say again what agents do (stage_restart.c), and the rest of the script must
 * be heard as if nothing had been, though not in the same order, and nothing but that.
 * Once somebody is mute or the service has slept it is not killed: then time matters,
 * and leases begin anew. Nor after a line `unkilled now`.
 *
 * `operator cancels`, `operator drains a`: of job "job". `service dies MS`: it is killed,
 * and starts anew after so long; nobody comes back but who `returns`. `service finishes`:
 * it will end soon. `service fills`: its disk is full, and the reserve is used;
 * `service empties`: there is space again.
 *
 * Options: hello: job= host= peer= rank= (--node-rank) nodes= restarts= nproc= gen=
 * cluster= (11: the service's) group= failures= commit=RUN:STEP:HASH version= id=
 * (agent id) again (on the same connection); join: after= world= addr= role=; ended:
 * rank= code= signal= step= at= tail= engine stopped; leave: signal= (15) at=; refuse:
 * world=; progress: rank= step= tok= age= pid= phase= loss= of= waits=; inspected: rank=
 * state= stack=; others: gen=, run=, step=, hash=, request=, code=, text= (with _ for
 * spaces). */

#include "tests/lib/cmocka.h"

#include <stdbool.h>
#include <stdint.h>

struct history;
struct service;
struct stage;

struct scene {
    const char *name;
    const char *before; /* played first; NULL: nothing */
    const char *script;
};

struct stage *stage_new(void);
void stage_free(struct stage *st);

/* Plays on; the first difference fails the test, with the line and all that was heard.
 */
void stage_play(struct stage *st, const char *script);

struct service *stage_service(struct stage *st);
const struct history *stage_history(const struct stage *st);
uint64_t stage_now(const struct stage *st);

/* A scene as a test of cmocka. */
struct CMUnitTest stage_scene(const struct scene *scene);

#endif
