#ifndef LAUNCHER_KEEPER_KEEPER_PROCESS_H
#define LAUNCHER_KEEPER_KEEPER_PROCESS_H

/* The state of the keeper's own process, whose loop is keeper_process.c, and how its
 * workers start (keeper_spawning.c). A worker that cannot be started is over at once,
 * and its end is due. */

#include "launcher/keeper/keeper_wire.h"

#include <poll.h>

enum { KEEPER_FIXED_POLLS = 2 }; /* poll entries that are always there */

enum keeper_worker_state { STARTING, RUNNING, ENDING, OVER };

struct keeper_worker {
    uint32_t id;
    pid_t pid;    /* of leader, group and session; not reaped, so nobody else's */
    int error_fd; /* STARTING: exec's errno, or its end; else -1 */
    enum keeper_worker_state state;
    bool has_members;    /* ENDING: the session was seen not to be empty */
    uint64_t ended_ms;   /* ENDING: since when */
    int status;          /* ENDING, OVER: as of waitpid */
    int error;           /* -errno of fork or exec; then nothing else is told */
    bool spawned_is_due; /* replies that are still to be sent */
    bool end_is_due;
};

struct keeper_process {
    int fd;        /* to the agent */
    int signal_fd; /* SIGCHLD */
    const struct keeper_origin *origin;
    struct keeper_worker *workers; /* owned */
    size_t n_workers;
    struct pollfd *polls; /* owned; for KEEPER_FIXED_POLLS and all workers */
    char *image;          /* owned: argv's and env's texts of the spawn at hand … */
    char **texts;         /* … and both arrays; owned */
    char *folders[KEEPER_FOLDERS]; /* owned: to be removed at the end */
    size_t n_folders;
    bool is_emptying; /* no worker starts or runs any more */
    bool is_asked;    /* whether it is alive: the reply is still to be sent */
};

/* A spawn's request with its memfd and the worker's descriptors, which stay the
 * caller's. */
void keeper_spawn_worker(struct keeper_process *p, const struct keeper_request *request,
                         const int *fds);

/* The pipe of a starting worker has its errno, or its end: exec closed it. */
void keeper_on_exec(struct keeper_worker *w);

/* Notes the folder that the memfd names; what is no such memfd is passed over. */
void keeper_take_folder(struct keeper_process *p, int fd);

#endif
