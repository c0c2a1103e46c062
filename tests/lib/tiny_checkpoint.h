#ifndef TESTS_LIB_TINY_CHECKPOINT_H
#define TESTS_LIB_TINY_CHECKPOINT_H

/* A state of a few odd-sized tensors, with optimizer state, and checkpoints of it on
 * any number of ranks. Element i of tensor k (in the order of the table) is
 * ((i·7 + k·131 + salt·17) mod 1000) / 8. */

#include "worker/checkpoint/checkpoint.h"

enum { TINY_TENSORS = 15 };

struct tiny {
    struct box whole[TINY_TENSORS]; /* data owned */
};

void tiny_init(struct tiny *t, unsigned salt);
void tiny_release(struct tiny *t);

/* The boxes of one rank, as a flat block cut in equal parts gives them: a row belongs
 * to the rank that holds its first element. `ret` has room for TINY_TENSORS. */
size_t tiny_shard(const struct tiny *t, int rank, int world, struct box *ret);

/* Writes shards and manifest into DIR/step-N-gR.tmp; 0 or the first error. */
int tiny_write(const struct tiny *t, const char *dir, uint64_t step, int run_generation,
               int world, struct errmsg *msg) MUST_CHECK;

/* The same and commits; every failure is the test's. */
void tiny_commit(const struct tiny *t, const char *dir, uint64_t step,
                 int run_generation, int world);

/* What its manifest says: the best is that of step 25. */
double tiny_val_loss(uint64_t step);

/* A manifest for these files, in DIR/step-N-gR.tmp. */
int tiny_manifest(const char *dir, uint64_t step, int run_generation,
                  const struct checkpoint_file *files, int world,
                  struct errmsg *msg) MUST_CHECK;

/* A fresh directory under TMPDIR or /tmp, and its end. */
void tiny_make_dir(char *path, size_t size);
void tiny_remove_dir(const char *path);

#endif
