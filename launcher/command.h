#ifndef LAUNCHER_COMMAND_H
#define LAUNCHER_COMMAND_H

/* The arguments of one worker: who executes the program, and where it lies. Looks at
 * files. */

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

/* How the program is run: `program` verbatim, or through an interpreter (python -u,
 * -m, runpy), as design.md §1 says; a bare name is looked up beside ctrun (`self_dir`),
 * then in PATH.
 * `${local_rank}` in arguments is substituted. One mem_alloc'ed block. */
struct worker_command {
    bool module, no_python;
    bool run_path; /* goes before both */
    const char *self_dir;
    const char *python; /* PYTHON_EXEC; NULL or "": python3, then python in PATH */
    const char *path;   /* PATH */
    const char
        *binfmt_dir; /* what else the kernel executes; NULL: as it says in /proc */
};
int worker_command_make(const struct worker_command *command, char *const *program,
                        uint32_t local_rank, char ***ret,
                        struct errmsg *msg) MUST_CHECK;

/* True if the program's base name is ctrun-worker. */
bool worker_command_is_engine(char *const *program);

#endif
