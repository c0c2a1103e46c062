#ifndef TESTS_LIB_RUN_DIR_RIG_H
#define TESTS_LIB_RUN_DIR_RIG_H

/* Run directories in a folder of the case's own: `state` is a struct run_dir_rig. */

#include "tests/lib/scratch.h"
#include "worker/run_dir.h"

#include <stdbool.h>
#include <sys/types.h>

struct run_dir_rig {
    struct scratch scratch;
    char dir[128]; /* of the run: not made yet */
    struct errmsg msg;
};

int run_dir_rig_set_up(void **state);
int run_dir_rig_tear_down(void **state);

struct run_dir_owner run_dir_rig_owner(const char *name); /* a job of this name */
int run_dir_rig_open(struct run_dir_rig *f, const char *name, struct run_dir *ret);

/* Whether the lock's text is that of process `pid`, and nothing more. */
bool run_dir_rig_is_lock_of(struct run_dir_rig *f, const char *begin, pid_t pid);

#define RUN_DIR_CASE(name) \
    cmocka_unit_test_setup_teardown(name, run_dir_rig_set_up, run_dir_rig_tear_down)

#endif
