#ifndef WORKER_REPORT_MEMORY_H
#define WORKER_REPORT_MEMORY_H

/* The resident set of this process: now, and at most since it was started. */

#include <stdint.h>

struct memory {
    uint64_t bytes, peak_bytes; /* 0: the kernel does not tell */
};

/* PURE: from the text of /proc/self/status. */
struct memory memory_parse(const char *status);

struct memory memory_read(void);

#endif
