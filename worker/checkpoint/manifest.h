#ifndef WORKER_CHECKPOINT_MANIFEST_H
#define WORKER_CHECKPOINT_MANIFEST_H

/* manifest.json: what makes a directory of shards a checkpoint. One member a line,
 * always in this order and with these spaces, so that its hash covers every byte of the
 * file:
 *
 *   {
 *     "hash": "32 hex digits",   XXH3-128 of the file with these digits as zeros
 *     "format": 1,
 *     "step": 100,
 *     "run_generation": 3,
 *     "position": 3200,
 *     "seed": 1337,              as the signed number that the configuration has
 *     "world_size": 2,
 *     "mesh": {"dp_replicate": 1, "dp_shard": 2, "strategy": "fsdp"},
 *                                missing in old ones: all held everything, as ddp
 *     "signature": "…",
 *     "val_loss": 2.5,           only where it was measured on this very state
 *     "trained_ms": 61500,       this and the next two: missing in older manifests
 *     "failures": 0,
 *     "is_end": false,
 *     "scaler": {"scale": 65536.0, "growth_tracker": 98, "updates": 98, "skipped": 2},
 *                                only of a training that has scaled its loss
 *     "model": {…},              verbatim, in one line; so are the next two
 *     "config": {…},
 *     "data": {…},
 *     "files": [
 *       {"name": "shard-…", "bytes": 1234, "xxh3_128": "32 hex digits"}, …
 *     ]
 *   }
 *
 * Each file has a line of its own. A manifest written in any other way is damaged. */

#include "worker/checkpoint/checkpoint.h"

#include "common/buf.h"

enum { MANIFEST_BYTES_MAX = 32 << 20, MANIFEST_FILES_MAX = 65536, MANIFEST_FORMAT = 1 };

#define MANIFEST_NAME "manifest.json"

struct manifest {
    struct checkpoint_meta meta;
    struct checkpoint_file *files; /* owned */
    size_t n_files;
    char hash[CHECKPOINT_HASH_HEX];
};

void manifest_release(struct manifest *m);

/* Appends the file's text. ERR_INVALID when `meta` or `files` cannot be said in it. */
int manifest_encode(const struct checkpoint_meta *meta,
                    const struct checkpoint_file *files, size_t n_files,
                    struct buf *ret, char ret_hash[CHECKPOINT_HASH_HEX],
                    struct errmsg *msg) MUST_CHECK;

/* ERR_CORRUPT for anything that manifest_encode did not write. `data` is changed. */
int manifest_decode(char *data, size_t size, struct manifest *ret,
                    struct errmsg *msg) MUST_CHECK;

/* Reads DIR/manifest.json; the text begins with "manifest.json: ". ERR_MISSING,
 * ERR_CORRUPT, ERR_TOO_LARGE or what the system said. */
int manifest_read(const char *dir, struct manifest *ret, struct errmsg *msg) MUST_CHECK;

/* A base name that a manifest may list. */
bool manifest_name_ok(const char *name);

#endif
