#ifndef TESTS_LIB_SIMDISK_H
#define TESTS_LIB_SIMDISK_H

/* A disk that loses what was not synced, as a layer of files for SQLite ("simdisk").
 * Every call that changes something (write, truncate, sync, the folder's sync, delete,
 * creation) goes into a log; simdisk_crash makes the disk that would be found had the
 * machine stopped after so many of them. Of what was not synced by then some is there
 * and some is not, sector by sector of 512 bytes and in no order, as the seed says; a
 * file that was made or deleted may be there or not until its folder is synced.
 *
 * Devices keep what was there beside what is written (SQLite: powersafe overwrite). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct simdisk;

/* Registers the layer; one disk is in use at a time, by one thread. */
void simdisk_register(void);

struct simdisk *simdisk_new(void);
void simdisk_free(struct simdisk *d);
void simdisk_use(struct simdisk *d);

/* How many calls were logged so far. */
size_t simdisk_calls(const struct simdisk *d);

/* The disk as it is found after a crash behind the first `n_calls`; they go up from
 * one crash to the next. */
struct simdisk *simdisk_crash(struct simdisk *d, size_t n_calls, uint64_t seed);

/* A file's bytes, NULL when there is none; valid until it changes. */
uint8_t *simdisk_bytes(struct simdisk *d, const char *name, size_t *ret_size);

/* Every write from now on that would make the files larger than this together fails as
 * on a full disk; 0: none. */
void simdisk_set_limit(struct simdisk *d, uint64_t bytes);

/* From now on syncs fail for want of space, as a file system does that finds out then. */
void simdisk_fail_syncs(struct simdisk *d, bool do_fail);

#endif
