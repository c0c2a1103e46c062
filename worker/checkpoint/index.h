#ifndef WORKER_CHECKPOINT_INDEX_H
#define WORKER_CHECKPOINT_INDEX_H

/* Which rows of which tensor lie where in a checkpoint's shards: the table behind
 * loading, verifying and hashing. Only the headers of the shards are read to build it;
 * afterwards at most one shard is open at a time.
 *
 * A shard's `__metadata__` beside format: "pt" and DCP_VERSION: "1.0":
 *   DCP_SHARDING_INFO  {"wte.weight":{"saved_offsets":[row,0]},…}   torch's
 *   CTRUN_SHAPES       {"wte.weight":[vocab,dim],…}   of the whole tensors, so that a
 *                      missing last row is seen */

#include "worker/checkpoint/manifest.h"

#define INDEX_OFFSETS_KEY "DCP_SHARDING_INFO"
#define INDEX_SHAPES_KEY  "CTRUN_SHAPES"

enum { INDEX_PIECES_MAX = 1 << 20 };

struct piece {
    char name[96];
    size_t shape[2]; /* of the whole tensor */
    int n_dims;
    size_t row, n_rows;
    size_t file;     /* of the manifest */
    uint64_t offset; /* of the first byte in that file */
};

struct index {
    char dir[CHECKPOINT_PATH_MAX];
    const struct manifest *manifest; /* borrowed */
    struct piece *piece;             /* owned; sorted by name, then row */
    size_t n_pieces;
    int fd;      /* of the shard read last; -1: none */
    size_t file; /* its number */
};

/* One wrong thing: the file's base name and what is wrong with it. */
typedef void index_problem_cb(void *arg, const char *file, const char *what);

void index_init(struct index *x, const char *dir, const struct manifest *manifest);
void index_release(struct index *x);

/* Adds the boxes of one shard; `msg` says what is wrong, without the file's name. */
int index_add_file(struct index *x, size_t file, struct errmsg *msg) MUST_CHECK;

/* Sorts, and reports every tensor whose rows are not all there exactly once. The number
 * of problems. */
size_t index_check(struct index *x, index_problem_cb *on_problem, void *arg);

/* All of it for a reader: the first problem is the error. */
int index_open(struct index *x, const char *dir, const struct manifest *manifest,
               struct errmsg *msg) MUST_CHECK;

/* The first of the consecutive pieces of a tensor, or NULL. */
const struct piece *index_find(const struct index *x, const char *name);

/* Reads bytes [offset, offset + size) of a file of the manifest. */
int index_read(struct index *x, size_t file, uint64_t offset, void *data, size_t size,
               struct errmsg *msg) MUST_CHECK;

/* Bytes of one row. */
size_t piece_row_bytes(const struct piece *piece);

#endif
