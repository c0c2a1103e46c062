#ifndef LAUNCHER_ENV_H
#define LAUNCHER_ENV_H

/* PURE. The environment and arguments of one worker: torchrun's contract and CTRUN_*.
 */

#include "launcher/topology.h"

#include "common/err.h"

struct worker_env {
    const struct topology *topology;
    uint32_t local_rank;
    uint64_t generation;
    const char *master_addr;
    int master_port;
    const char
        *node_addr; /* this node's, as its peers reach it (engines between nodes) */
    const char *run_id;
    uint32_t restart_count, max_restarts;
    const char *error_file;      /* "": none */
    const char *role;            /* "default" */
    int control_fd, progress_fd; /* as numbered in the worker; -1: none */
};

/* `base` (NULL-terminated) with the contract's variables put over it; one mem_alloc'ed
 * block of pointers and texts: free with mem_free. */
char **worker_env_make(char *const *base, const struct worker_env *env);

/* How the program is run: `program` verbatim, or through an interpreter (python -u,
 * -m), as design.md §1 says; a bare name is looked up beside ctrun (`self_dir`), then
 * in PATH.
 * `${local_rank}` in arguments is substituted. One mem_alloc'ed block. */
struct worker_command {
    bool module, no_python;
    const char *self_dir;
    const char *python; /* PYTHON_EXEC, else "python3"/"python" from PATH */
    const char *path;   /* PATH */
};
int worker_command_make(const struct worker_command *command, char *const *program,
                        uint32_t local_rank, char ***ret,
                        struct errmsg *msg) MUST_CHECK;

/* True if the program's base name is ctrun-worker. */
bool worker_command_is_engine(char *const *program);

#endif
