#ifndef WORKER_CONTROL_CLIENT_H
#define WORKER_CONTROL_CLIENT_H

/* The worker's end of the control channel (common/control.h), read by a thread of its
 * own.
 *
 * ABORT and the channel's end (the agent is gone) leave the process at once with code
 * 80: a generation that is over must not save anything. LEAVE is remembered and asked
 * for by the training loop; SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 mean the same. Without
 * a launcher (fd −1) start is immediate and every decision is "accepted". */

#include "common/control.h"
#include "common/err.h"
#include "common/exit_code.h"

#include <stdatomic.h>
#include <stdbool.h>

struct control_client;

int control_client_open(int fd, struct control_client **ret,
                        struct errmsg *msg) MUST_CHECK;
void control_client_close(struct control_client *c); /* NULL allowed */

/* HELLO, PROGRESS: sent, not answered. A full channel drops a PROGRESS. `phase`: static
 * text; `loss`: NAN where it is not known. */
void control_client_hello(struct control_client *c, const char *log_folder,
                          uint32_t max_world);
void control_client_progress(struct control_client *c, uint64_t step, const char *phase,
                             uint32_t tok_s, double loss);

/* What the training thread does from now on (static text): a store to memory. The
 * client's thread tells of it, and for whom the rank waits, a few times a second; from
 * the first call on also when it stays the same, so that silence means something. */
void control_client_phase(struct control_client *c, const char *phase);

/* The i-th place for a group of ranks to say there for whom this one waits: 1 + its
 * rank; 0: for nobody. */
enum { CONTROL_GROUPS = 8 };
_Atomic uint32_t *control_client_waiting(struct control_client *c, int i);

/* Tells the agent why this configuration cannot run, or not any further: the job ends
 * with `code` and is not started again. Without a launcher prints the line.
 * `max_world`: a world of at most so many ranks could run it; 0: none. */
void control_client_refuse(struct control_client *c, int code, uint32_t max_world,
                           const char *text);

/* The START message; waits for it. */
void control_client_start(struct control_client *c, struct control *ret);

/* Sends RESUMED or COMMIT (hash not NULL) and waits for the decision. ERR_REFUSED with
 * the service's text. Any thread; one at a time for each kind. */
int control_client_resumed(struct control_client *c, uint32_t run, uint64_t step,
                           struct errmsg *msg) MUST_CHECK;
int control_client_commit(struct control_client *c, uint32_t run, uint64_t step,
                          const char *hash, struct errmsg *msg) MUST_CHECK;

/* True once the agent, or a signal, has asked to finish the step, save and go. */
bool control_client_should_leave(const struct control_client *c);

#endif
