#ifndef TESTS_LIB_CHECKPOINT_RIG_H
#define TESTS_LIB_CHECKPOINT_RIG_H

/* A folder for checkpoints and a tiny state: cmocka's fixture of a case. What fails
 * here fails the test. */

#include "tests/lib/tiny_checkpoint.h"

struct checkpoint_rig {
    char dir[256];
    struct tiny tiny;
    struct errmsg msg;
};

int checkpoint_rig_setup(void **state);
int checkpoint_rig_teardown(void **state);

/* Of a committed one; static text. */
const char *checkpoint_rig_path(const struct checkpoint_rig *f, uint64_t step,
                                int run_generation);

/* Names in the folder. */
bool checkpoint_rig_has(const struct checkpoint_rig *f, const char *name);
void checkpoint_rig_touch(const struct checkpoint_rig *f, const char *name);
void checkpoint_rig_make_dir(const struct checkpoint_rig *f, const char *name);

/* Two other bytes in a file of a checkpoint. */
void checkpoint_rig_damage(const char *path, const char *name);

/* Either way of loading, box by box. */
int checkpoint_rig_load(const char *path, const struct box *boxes, size_t n,
                        bool verified, struct errmsg *msg) MUST_CHECK;

#endif
