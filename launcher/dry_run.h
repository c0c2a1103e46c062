#ifndef LAUNCHER_DRY_RUN_H
#define LAUNCHER_DRY_RUN_H

/* PURE. What --dry-run prints of each worker, for people and, with --json, for programs:
 *
 *   rank 1 (local rank 1)
 *     command: /usr/bin/python3 -u train.py --lr 0.1
 *     device:  gpu 1
 *     CPUs:    0-7
 *     RANK=1
 *     MASTER_PORT  (known at the start)
 *     …
 *
 *   {"rank": 1, "local_rank": 1, "command": [ … ], "device": "gpu 1", "cpus": "0-7",
 *    "env": {"RANK": "1", "MASTER_PORT": null, … }} */

#include "common/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum { DRY_RUN_MAX_UNKNOWN = 16 };

struct dry_run_worker {
    int64_t rank; /* -1: known at the start */
    uint32_t local_rank;
    char *const *argv;
    char *const *env;   /* what is put over the inherited one */
    const char *device; /* "cpu", "gpu 0" */
    const char *cpus;   /* it is bound to; "": it is not bound */
    /* Variables whose values in `env` are only known at the start; NULL at the end. */
    const char *unknown[DRY_RUN_MAX_UNKNOWN];
};

/* Appends to `out`, which has room for any worker. */
void dry_run_put_text(struct buf *out, const struct dry_run_worker *w);
void dry_run_put_json(struct buf *out, const struct dry_run_worker *w);

#endif
