#ifndef LAUNCHER_PLACE_CPUSET_H
#define LAUNCHER_PLACE_CPUSET_H

/* PURE. A set of CPUs, with the layout that sched_setaffinity takes. */

#include "common/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CPUSET_MAX = 8192 }; /* CPUs: as many as a kernel is built for */

struct cpuset {
    uint64_t word[CPUSET_MAX / 64];
};

void cpuset_add(struct cpuset *set, unsigned cpu); /* below CPUSET_MAX */
bool cpuset_has(const struct cpuset *set, unsigned cpu);
void cpuset_keep(struct cpuset *set, const struct cpuset *others); /* those in both */
void cpuset_join(struct cpuset *set, const struct cpuset *others); /* those in either */
unsigned cpuset_count(const struct cpuset *set);
bool cpuset_equal(const struct cpuset *a, const struct cpuset *b);

/* The lowest from `cpu` on, which is not negative; -1: none. */
int cpuset_next(const struct cpuset *set, int cpu);

/* The kernel's lists: "0-3,8"; "" is the empty set. ERR_INVALID. */
int cpuset_parse(const char *text, struct cpuset *ret) MUST_CHECK;

/* As cpuset_parse reads it; mem_alloc'ed. */
char *cpuset_format(const struct cpuset *set);

#endif
