#ifndef WORKER_PLAN_H
#define WORKER_PLAN_H

/* --dry-run: what a run would take, before it takes it. Every arena is sized by the
 * function that allocates it, so the plan is exact; the program and its libraries are
 * measured as they are then, before the first kernel: code that a library generates or
 * pages in later (some MiB) comes on top. */

#include "worker/trainer.h"

/* Prints mesh, parameters, data, memory per arena of rank 0 and of the rank that takes
 * most if that is more, and the bytes that rank 0 sends per step (losses and checks
 * aside). Nothing is written. Errors are those of trainer_open, but data.train may be
 * empty. */
int plan_run(struct trainer *t, struct errmsg *msg) MUST_CHECK;

/* Before the first step there was no memory for what `msg` says: adds what the rank takes
 * in all, and the remedy. ERR_TOO_LARGE where a limit of this process leaves less room
 * than its largest part, so that another try would end the same; else -ENOMEM. */
int plan_blame(const struct trainer *t, struct errmsg *msg);

#endif
