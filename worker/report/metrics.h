#ifndef WORKER_REPORT_METRICS_H
#define WORKER_REPORT_METRICS_H

/* metrics.jsonl: one object a step, each step exactly once, also after restarts. Rank 0
 * only.
 *
 * A resume at step N drops the lines after N: metrics_prepare trashes other
 * generations' temporaries and writes metrics.jsonl.g<R>.tmp with the kept lines,
 * fsynced; when the service has accepted `resumed(R, N)`, metrics_take_over renames it
 * and opens for append. So a zombie rank 0 meets ENOENT or a refusal in every
 * interleaving.
 *
 * A training that begins anew (N = 0) keeps the lines of the one before: metrics_prepare
 * gives their file a second name, metrics.before-g<R>.jsonl, or copies it where the
 * storage has no hard links; if that fails too, warns. Not so those of one that was
 * killed before its first checkpoint. */

#include "common/err.h"

#include <stdint.h>

struct metrics;

enum { METRICS_QUEUES = 4, METRICS_LINE_MAX = 2048 };

struct metrics_line {
    uint64_t step; /* the n-th optimizer step, from 1 */
    double loss;   /* mean over the global batch, before this step's update */
    double grad_norm, lr;
    uint64_t tokens;           /* consumed so far */
    double tok_s, step_s, mfu; /* mfu < 0: unknown, written as null */
    int generation, world_size;
    double val_loss; /* NaN: none */
    double
        gemm_flop_s; /* what mfu counts from: this rank's measured peak; 0: unknown */
    uint64_t mem_bytes, mem_peak_bytes; /* resident set of rank 0; 0: unknown */
    uint64_t mem_peak_max_bytes;        /* the largest of all ranks, */
    int mem_peak_max_rank;              /* and whose */
    double queue_s[METRICS_QUEUES]; /* rank 0: compute, gather, reduce, copy at work */
    double loss_scale;              /* that of this step; 0: the loss is not scaled */
    uint64_t skipped;               /* steps without an update so far */
    uint64_t skipped_now; /* … since the last progress line; not in metrics.jsonl */
    double ckpt_every_s;  /* what checkpoint.every=auto has chosen; 0: not asked */
    double ckpt_cost_s;   /* … and from what; 0: not known yet */
};

enum { METRICS_MISSING_MAX = 128, METRICS_NAME_MAX = 64 };

/* What metrics_prepare has found. */
struct metrics_found {
    char
        missing[METRICS_MISSING_MAX]; /* steps up to N without a line: "2-4, 7 …"; "" */
    char kept[METRICS_NAME_MAX];      /* the second name in the folder; "": none */
};

/* `worth`: from this step on what is dropped by beginning anew is kept aside. `ret` may
 * be NULL. */
int metrics_prepare(const char *run_dir, int run_generation, uint64_t keep_step,
                    uint64_t worth, struct metrics_found *ret,
                    struct errmsg *msg) MUST_CHECK;
int metrics_take_over(const char *run_dir, int run_generation, struct metrics **ret,
                      struct errmsg *msg) MUST_CHECK;
void metrics_close(struct metrics *m); /* NULL allowed */

/* One write(2) of a whole line; numbers with as many digits as their bits need. */
int metrics_append(struct metrics *m, const struct metrics_line *line,
                   struct errmsg *msg) MUST_CHECK;
int metrics_sync(struct metrics *m,
                 struct errmsg *msg) MUST_CHECK; /* fsync; any thread */

#endif
