#ifndef LAUNCHER_KEEPER_KEEPER_WIRE_H
#define LAUNCHER_KEEPER_KEEPER_WIRE_H

/* Between agent and keeper: one packet per message, both ends from the same program. A
 * spawn carries descriptors: a memfd, then the worker's, as many as `fd_mask` has bits;
 * a folder its memfd.
 *
 * The memfd: struct keeper_image, then argv's texts and env's texts, each with its
 * terminator. */

#include "launcher/place/cpuset.h"

#include "common/check.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* In lists of processes; nothing that a user might look for to kill. */
#define KEEPER_NAME "job-keeper"

enum {
    KEEPER_FDS = 5,
    KEEPER_MAX_FDS = KEEPER_FDS + 1,
    KEEPER_MAX_WORKERS = 16384,
    KEEPER_FOLDERS = 2,
};

enum keeper_request_type {
    KEEPER_REQUEST_SPAWN = 1,
    KEEPER_REQUEST_KILL,
    KEEPER_REQUEST_FOLDER, /* its path is the one text of the memfd's argv */
    KEEPER_REQUEST_ALIVE,
};

struct keeper_request {
    uint32_t type;
    uint32_t id;
    int32_t signal;   /* KILL */
    uint32_t fd_mask; /* SPAWN: bit i: what becomes descriptor i is sent */
};

struct keeper_reply {
    uint32_t type; /* enum keeper_event_type */
    uint32_t id;
    int32_t pid;
    int32_t value;     /* FAILED: -errno; EXITED: status */
    uint64_t ended_ms; /* EXITED: clock_ms then */
};

struct keeper_image {
    uint32_t argc;
    uint32_t envc;
    struct cpuset cpus; /* empty: not bound */
};

/* How ctrun was started: workers start so too. */
struct keeper_origin {
    bool is_ignored[_NSIG]; /* by signal number */
    bool differs[_NSIG];    /* in the keeper: to be put back */
    sigset_t mask;
    struct rlimit files;
    char oom_score[16]; /* the workers' oom_score_adj, as text … */
    size_t oom_size;    /* … of so many bytes */
    pid_t keeper;       /* the workers' parent */
};

/* The keeper's life; never returns. `fd` is its end of the socket. */
_Noreturn void keeper_run(int fd, struct keeper_origin *origin);

/* In the keeper, once: what its children will need of `origin`. */
void keeper_child_prepare(struct keeper_origin *origin);

/* In the forked child: becomes the worker. `fds[i]` becomes i where it is not -1; what
 * fails is told by its errno through `error_fd`. */
struct keeper_child {
    const struct keeper_origin *origin;
    char **argv, **env; /* borrowed: the keeper's copy of the spawn at hand */
    struct cpuset cpus; /* empty: not bound */
    int fds[KEEPER_FDS];
    int error_fd;
};
_Noreturn void keeper_child_run(struct keeper_child *child);

pid_t keeper_parent_of(pid_t pid); /* 0: gone */
char keeper_state_of(pid_t pid);   /* '?': gone */

/* Calls `visit` for every child process of this one, zombies too: those of its main
 * thread, or of all threads. */
void keeper_each_child(bool all_threads, void (*visit)(pid_t pid, void *arg),
                       void *arg);

/* One packet with up to KEEPER_MAX_FDS descriptors. The results are sendmsg's and
 * recvmsg's: 0, or -errno; received descriptors are CLOEXEC, unused places -1; a packet
 * of another size than `size`, or the end, is ERR_CLOSED. Never blocks. */
int keeper_send(int fd, const void *data, size_t size, const int *fds,
                size_t n_fds) MUST_CHECK;
int keeper_recv(int fd, void *data, size_t size, int fds[KEEPER_MAX_FDS]) MUST_CHECK;

#endif
