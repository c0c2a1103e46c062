#ifndef LAUNCHER_KEEPER_KEEPER_H
#define LAUNCHER_KEEPER_KEEPER_H

/* The keeper: a small single-threaded process, forked by ctrun before anything else,
 * that is the parent of the workers and the subreaper of all their descendants, so that
 * nothing survives the end of ctrun, kill -9 included.
 *
 *   agent ── socketpair (SOCK_SEQPACKET) ── keeper ── workers (own session each)
 *     spawn(id, argv, env, fds) ─►
 *     kill(id, signal) ─►        to the worker's process group
 *     folder(path) ─►            to be removed at the end
 *     alive? ─►
 *                    ◄─ spawned(id, pid) | failed(id, errno)
 *                    ◄─ exited(id, status)   once its session is killed and reaped; of
 *                                            the last one: once nobody is left at all
 *                    ◄─ alive
 *
 * The socket's end: KILL all groups, then every adopted descendant until none is left;
 * then the folders are removed. argv and env travel in a memfd, so they have no size
 * limit but the kernel's. The keeper sits in its own process group and ignores every
 * signal that is no fault of its own; workers get back the signal dispositions and the
 * mask that ctrun started with. If the keeper alone dies, workers die by PDEATHSIG; the
 * agent sees the socket's end (keeper_receive → ERR_CLOSED), and keeper_clean_up kills
 * what it has adopted. */

#include "launcher/place/cpuset.h"

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct keeper {
    int fd;    /* agent's end, non-blocking */
    pid_t pid; /* of the keeper */
    bool
        is_mute; /* it did not take a request in time, and has not been heard of since */
};

struct keeper_spawn {
    uint32_t id;       /* the agent's number for this worker */
    char *const *argv; /* argv[0] is a path */
    char *const *env;
    const struct cpuset *cpus; /* it is bound to them; NULL: it may use ctrun's */
    int fds[5]; /* what becomes 0, 1, 2, 3 (control), 4 (progress); -1: leave 0 as it
                   is, 3 and 4 closed. The caller keeps and closes its copies. */
};

enum keeper_event_type { KEEPER_SPAWNED, KEEPER_FAILED, KEEPER_EXITED, KEEPER_ALIVE };

struct keeper_event {
    enum keeper_event_type type;
    uint32_t id;
    pid_t pid;
    int error;         /* FAILED: -errno of fork or exec */
    int status;        /* EXITED: as of waitpid … */
    uint64_t ended_ms; /* … when: by clock_ms, before its group was reaped */
};

enum { KEEPER_CONTROL_FD = 3, KEEPER_PROGRESS_FD = 4 };

/* Forks the keeper; call before any thread, socket or library. Also makes the caller a
 * subreaper. `argv` is main's own: the keeper puts its name there, so that a `pkill -9`
 * by the words of the command, which ends agent and workers, leaves it to do its work;
 * NULL: as the caller's. */
int keeper_start(struct keeper *ret, char **argv, struct errmsg *msg) MUST_CHECK;
int keeper_spawn(struct keeper *k, const struct keeper_spawn *spawn,
                 struct errmsg *msg) MUST_CHECK;

/* Nothing is lost between a spawn and its program's first instruction: a signal that
 * comes before finds the dispositions that ctrun was started with. */
int keeper_kill(struct keeper *k, uint32_t id, int signal) MUST_CHECK;

/* To one process, if it is a worker or descends from one, and has been there for so long:
 * else it may be another that has its number by now. ERR_MISSING: it does not, or has
 * not; -errno: not sent. */
int keeper_signal(const struct keeper *k, pid_t pid, uint64_t age_ms,
                  int signal) MUST_CHECK;

/* Whether the process is there, and has been for so long. */
bool keeper_has_age(pid_t pid, uint64_t age_ms);

/* At its end the keeper removes this folder of ours, as private_dir_remove does; of at
 * most KEEPER_FOLDERS. */
int keeper_give_folder(struct keeper *k, const char *path) MUST_CHECK;

/* Asks for KEEPER_ALIVE; a keeper that takes nothing now is not waited for. */
void keeper_ask(const struct keeper *k);

/* Its letter in /proc/PID/stat: T and t are stopped ones. '?': not known. */
char keeper_state(const struct keeper *k);

/* Lets it run again, and says so where somebody had stopped it; ends it (its socket then
 * tells). */
void keeper_continue(const struct keeper *k);
void keeper_end(const struct keeper *k);

/* Never blocks: -EAGAIN when there is nothing; ERR_CLOSED: the keeper is gone. */
int keeper_receive(struct keeper *k, struct keeper_event *ret) MUST_CHECK;

/* Nothing is asked of the keeper any more: it kills everything and ends, by and by. */
void keeper_dismiss(const struct keeper *k);

/* Closes the socket and waits until the keeper has killed everything and ended. */
void keeper_stop(struct keeper *k);

/* Reaps every dead child of the caller but the keeper. This and the next are the main
 * thread's: the children that another one has started are left to it. */
void keeper_reap_others(const struct keeper *k);

/* After the keeper's own death: kills all children, reaps those the agent has adopted. */
void keeper_clean_up(void);

#endif
