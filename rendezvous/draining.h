#ifndef RENDEZVOUS_DRAINING_H
#define RENDEZVOUS_DRAINING_H

/* PURE. The end of a generation: its members are told to stop, facts about why are
 * gathered, and when the last worker is gone they are judged: the next generation, or
 * the job's end.
 *
 *   a worker refused                       the job fails with its code; nothing counted
 *   … a world too large, MIN would do      not counted: the next generation is smaller
 *   every node was done in spite of it     the job is done
 *   an operator cancelled the job          the job fails with 143; nothing counted
 *   a rank failed or hung, a flapping
 *   node's loss                            counted: restart, or the job fails
 *   a node was lost, joined, left          not counted: the next generation
 *
 * Ranks that only reacted (cause.h) to a lost node, and ranks of any program that fail
 * within a second of the loss, have not failed by themselves; nor have those of other
 * programs than ctrun-worker that fail when a node was told to leave, whose ranks end
 * without a word to theirs, and before their own agent has heard of it. */

#include "rendezvous/job.h"

/* The members finish their step and go: the membership changes. */
void draining_leave(struct job *j, enum restart_cause cause, const char *why);

/* … because a member has been told to go, by that signal or (0) by the service. It may
 * have been told long ago, while there was no service to hear it. */
void draining_preempt(struct job *j, const struct job_node *node,
                      const struct msg_leave *m);

/* A rank has ended other than with 0: it may be the first cause. */
void draining_add_end(struct job *j, const struct msg_rank_ended *end,
                      const char *host);

/* … by itself. */
void draining_fail(struct job *j, const struct msg_rank_ended *end, const char *host);

/* A rank hangs, and is not waited for any longer: `end` is what its end will be. */
void draining_hang(struct job *j, const struct msg_rank_ended *end, const char *host);

/* A member is gone with its workers, since then at the earliest. `counts`: as a failure
 * of the job. */
void draining_lose(struct job *j, bool counts, uint64_t since_ms, const char *why);

/* A worker refuses its configuration: every rank says the same, the first is heard.
 * One that a smaller world would have pleased limits the next generation; if this one
 * was formed in the knowledge of that limit there is no cure, so that refusals cannot
 * follow one another without end. */
void draining_refuse(struct job *j, const struct msg_refuse *refuse);

/* An operator wants it to end: the members finish their step and go, then it has failed
 * with EXIT_SIGNAL + SIGTERM, as if every ctrun had been told to stop. */
void draining_cancel(struct job *j, const char *why);

/* The service ends, and knows it a little before: the members finish their step and go,
 * and no generation follows here. */
void draining_finish(struct job *j, const char *why, uint64_t now_ms);

/* In JOB_DRAINING: moves on once no member is left. */
void draining_settle(struct job *j);

/* How an operator ended it, in words. */
void draining_describe_cancel(const struct job *j, char *ret, size_t size);

/* It is over since an operator ended it: not because of what happened in it. */
bool draining_was_cancelled(const struct job *j);

/* The end: CLOSED to all. */
void draining_close(struct job *j, enum job_state state, uint32_t exit_code,
                    const char *text);

#endif
