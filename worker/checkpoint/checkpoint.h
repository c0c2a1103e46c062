#ifndef WORKER_CHECKPOINT_CHECKPOINT_H
#define WORKER_CHECKPOINT_CHECKPOINT_H

/* A checkpoint: a directory of safetensors shards and a manifest.
 *
 *   ckpt/step-00000100-g3/
 *     shard-00001-model-00001-of-00001.safetensors    boxes of rank 0 (DCP's HF layout)
 *     shard-00002-model-00001-of-00001.safetensors    boxes of rank 1 …
 *     manifest.json     step, run generation, mesh, data position, config, signature;
 *                       per file: bytes, xxh3_128; its own bytes are covered too
 *
 * A *box* is a run of rows of one logical tensor; no element is in two boxes. Any mesh
 * loads any other's checkpoint: its *cuts* intersected with the boxes. Writing: every
 * rank writes and fsyncs its shard into `step-N-gR.tmp/`; rank 0 writes and fsyncs the
 * manifest and the directory; when the commit is accepted, rank 0 renames and fsyncs
 * the parent. Exactly `step-%08d-g%d` is committed; `step-*.tmp` and `trash-*` are
 * rubbish of a crash.
 *
 * Threads: the functions block and touch no device; the trainer calls them on its
 * writer thread with a snapshot in host memory. */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CHECKPOINT_PATH_MAX = 1024, CHECKPOINT_HASH_HEX = 33 };

struct box {
    char name[96];      /* "wte.weight", "wte.weight.exp_avg", … */
    size_t shape[2];    /* of the whole tensor */
    int n_dims;         /* 1 or 2 */
    size_t row, n_rows; /* rows [row, row + n_rows) of dimension 0 */
    float *data;        /* n_rows × (shape[1] or 1) fp32 */
    const float *tail;  /* of a box that is written: where its last n_tail elements */
    size_t n_tail;      /* are, if not behind the others */
};

size_t checkpoint_box_bytes(const struct box *box);

/* What is loaded: a run of elements of one tensor, in C order. A rank's block may begin
 * and end inside a row. */
struct cut {
    char name[96];
    size_t shape[2]; /* of the whole tensor */
    int n_dims;
    size_t first, n; /* elements [first, first + n) */
    float *data;     /* n of them */
};

/* All elements of a box. */
struct cut cut_of_box(const struct box *box);

struct checkpoint_file {
    char name[96];
    uint64_t bytes;
    char hash[CHECKPOINT_HASH_HEX]; /* XXH3-128, lower-case hex */
};

/* How the ranks that wrote a checkpoint held the state. Any other mesh loads it. */
struct checkpoint_mesh {
    int dp_replicate, dp_shard;
    char strategy[16]; /* of a-z, 0-9 and _ */
};

/* Of dynamic loss scaling (optim/grad_scaler.h). */
struct checkpoint_scaler {
    bool is_there; /* never used, and in older manifests: no; the rest is 0 */
    float scale;   /* in [1, 2^126] */
    int32_t growth_tracker;
    uint64_t updates, skipped; /* together the steps */
};

/* What the manifest says beside its files. Texts are JSON, owned by the holder. */
struct checkpoint_meta {
    uint64_t step;
    int run_generation;
    uint64_t position; /* samples consumed */
    uint64_t seed;
    int world_size;
    struct checkpoint_mesh mesh; /* dp_replicate × dp_shard divides world_size */
    char signature[128];         /* numerics signature */
    bool has_val_loss;
    double val_loss;     /* of this very state */
    uint64_t trained_ms; /* time of training so far, all starts together */
    uint64_t failures;   /* starts that ended before they were to */
    struct checkpoint_scaler scaler;
    bool is_end;       /* this start ended with it: done, or asked to leave */
    char *model_json;  /* the model.* keys, as a JSON object */
    char *config_json; /* the resolved configuration, flat: {"model.dim": "64", …} */
    char *data_json;   /* file list with sizes and a hash of each head */
};

void checkpoint_meta_release(struct checkpoint_meta *meta);

/* --- writing --- */

/* "DIR/step-%08d-g%d" (+ ".tmp"). */
void checkpoint_path(char *path, size_t size, const char *dir, uint64_t step,
                     int run_generation, bool tmp);

/* Writes and fsyncs one rank's shard into `tmp_dir` (made if missing). Boxes that lie in
 * memory as in the file (back to back in the order of their names, from the begin of a
 * page) are written from there; others are copied on the way. */
int checkpoint_write_shard(const char *tmp_dir, int rank, const struct box *boxes,
                           size_t n_boxes, struct checkpoint_file *ret,
                           struct errmsg *msg) MUST_CHECK;

/* Writes and fsyncs manifest.json and the directory; `ret_hash` names the manifest. */
int checkpoint_write_manifest(const char *tmp_dir, const struct checkpoint_meta *meta,
                              const struct checkpoint_file *files, size_t n_files,
                              char ret_hash[CHECKPOINT_HASH_HEX],
                              struct errmsg *msg) MUST_CHECK;

/* Renames step-N-gR.tmp to step-N-gR and fsyncs the parent. A missing .tmp with the
 * final name present is success. */
int checkpoint_commit(const char *dir, uint64_t step, int run_generation,
                      struct errmsg *msg) MUST_CHECK;

/* --- choosing and loading --- */

struct checkpoint_entry {
    uint64_t step;
    int run_generation;
    char path[CHECKPOINT_PATH_MAX];
};

/* Committed directories, newest (run generation, then step) first. A missing `dir` is
 * empty. *ret is mem_alloc'ed; free with mem_free. */
int checkpoint_list(const char *dir, struct checkpoint_entry **ret, size_t *ret_n,
                    struct errmsg *msg) MUST_CHECK;

/* Checks everything: manifest hash, each file's size and hash, completeness of every
 * tensor. ERR_CORRUPT with "<base name>: <what>" — every wrong file is in the text;
 * -errno, likewise, when none is damaged or missing but one could not be read. */
int checkpoint_verify(const char *path, struct checkpoint_meta *ret_meta,
                      struct errmsg *msg) MUST_CHECK;

/* checkpoint_verify and checkpoint_load in one: every byte is read once. ERR_CORRUPT or
 * -errno, and the cuts' data are garbage; ERR_INVALID when all is well but a cut does
 * not fit, with the meta all the same. `ret_meta` may be NULL, `n_cuts` 0. */
int checkpoint_load_verified(const char *path, const struct cut *cuts, size_t n_cuts,
                             struct checkpoint_meta *ret_meta,
                             struct errmsg *msg) MUST_CHECK;

struct checkpoint_search {
    const char *dir;
    int lowest_run_generation;                        /* older ones do not count */
    const struct cut *cuts;                           /* to be loaded on the way */
    size_t n_cuts;                                    /* 0: only verified */
    void (*on_rejected)(void *arg, const char *line); /* may be NULL */
    void *arg;
};

/* The newest entry that verifies, loaded; `on_rejected` gets one line for each newer
 * one that is damaged. ERR_MISSING when there is none: the cuts' data may be garbage
 * then. ERR_INVALID as above, with *ret and *ret_meta. -errno when one could not be
 * read: it may be good, so no older one is taken in its place. */
int checkpoint_newest(const struct checkpoint_search *search,
                      struct checkpoint_entry *ret, struct checkpoint_meta *ret_meta,
                      struct errmsg *msg) MUST_CHECK;

/* Fills the cuts' data from the checkpoint, reading only the bytes needed (and the
 * shards' tables). ERR_MISSING names a tensor that is not there, ERR_INVALID a shape
 * that differs. */
int checkpoint_load(const char *path, const struct cut *cuts, size_t n_cuts,
                    struct errmsg *msg) MUST_CHECK;

/* XXH3-128 over every logical tensor's bytes in name order, parameters then
 * optimizer state (.exp_avg, .exp_avg_sq), independent of sharding. */
int checkpoint_state_hash(const char *path, char ret_hash[CHECKPOINT_HASH_HEX],
                          struct errmsg *msg) MUST_CHECK;

/* --- housekeeping (rank 0) --- */

/* Removes what is not committed: step-*.tmp and trash-*, renamed to trash-* first,
 * folders with all that is in them. Temporaries of run generation `keep_run_generation`
 * and younger ones stay: a late start must not touch its successor's (0: none stay). A
 * missing `dir` is fine; other names (`step-1000/`, `data.tmp`) are not ours and stay.
 * Returns how many could not be deleted, with the first one's reason: harmless. An
 * error: a temporary has kept its name, so that a zombie could still write to it. */
int checkpoint_sweep(const char *dir, int keep_run_generation,
                     struct errmsg *msg) MUST_CHECK;

/* Deletes step-N-gR.tmp and nothing else: for a writer whose checkpoint failed or was
 * refused; a newer generation may be writing beside it. Gone already is success. */
int checkpoint_discard(const char *dir, uint64_t step, int run_generation,
                       struct errmsg *msg) MUST_CHECK;

/* What is kept: the union of the three. Of several checkpoints of one step only the
 * newest counts for the last two. */
struct checkpoint_retention {
    size_t keep;         /* the newest; 0: all */
    uint64_t keep_every; /* the first at or after each multiple, for good; 0: none */
    size_t keep_best;    /* those with the lowest val_loss */
};

/* Deletes all others. One whose manifest cannot be read now stays, if it could be one
 * of the best. */
int checkpoint_prune(const char *dir, const struct checkpoint_retention *retention,
                     struct errmsg *msg) MUST_CHECK;

#endif
