#ifndef COMMON_FAULT_H
#define COMMON_FAULT_H

/* Named failure points, for tests. In builds with -DFAULTS (debug, asan, tsan, cov) a
 * point that was armed fails once, at its n-th passage; in release builds nothing is
 * left of it.
 *
 *   CTRUN_FAULT="ckpt.write:3:ENOSPC,ckpt.rename:1:kill"    (error word: default EIO)
 *
 * `kill` ends the process by SIGKILL there, as a crash would; `spin` never returns.
 * Thread-safe. */

#ifdef FAULTS

/* 0, or the negative errno to fail with. */
int fault_at(const char *name);

/* The n-th passage from now on (1: the next) fails with `err` (negative errno, or
 * FAULT_KILL, FAULT_SPIN). */
void fault_arm(const char *name, unsigned n, int err);
void fault_disarm_all(void);

enum { FAULT_KILL = 1, FAULT_SPIN };

#else

static inline int fault_at(const char *name)
{
    (void)name;
    return 0;
}

#endif

#endif
