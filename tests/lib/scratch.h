#ifndef TESTS_LIB_SCRATCH_H
#define TESTS_LIB_SCRATCH_H

/* A temporary folder for one test. What fails here fails the test. */

#include <stddef.h>

struct scratch {
    char dir[64];
    char path[512]; /* the last one asked for */
};

void scratch_open(struct scratch *s);
void scratch_close(struct scratch *s); /* removes everything in it */

/* "<dir>/<name>", valid until the next call. */
const char *scratch_path(struct scratch *s, const char *name);

/* Writes a file, its folders too; returns its path as above. */
const char *scratch_write(struct scratch *s, const char *name, const void *data,
                          size_t size);
const char *scratch_text(struct scratch *s, const char *name, const char *text);

/* The whole file with a terminator; free() it. NULL when there is none. */
char *scratch_read(struct scratch *s, const char *name);

/* A descriptor for reading and writing: until it is closed (for at most
 * fs.lease-break-time, 45 s) whoever opens the file waits, as on a file system that
 * hangs; without O_NONBLOCK. */
int scratch_hang(const char *path);

#endif
