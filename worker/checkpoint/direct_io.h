#ifndef WORKER_CHECKPOINT_DIRECT_IO_H
#define WORKER_CHECKPOINT_DIRECT_IO_H

/* Blocks of one file on their way to or from the disk, several at a time.
 *
 *   caller     wait(0) fill submit(0) │ wait(1) fill submit(1) │ …  │ wait(0) …
 *   threads            └── pwrite ────┴─ past the page cache ───────┘
 *
 * Slots are submitted in turn, 0 to n_slots − 1 and round again; a slot belongs to the
 * caller from wait until submit. The transfers go past the page cache (O_DIRECT) where
 * the file system can do it; where it refuses, at the open or only at a transfer, and
 * for what is left of a short transfer, through it. So the caller hashes and copies one
 * block while the disk has the others, and the memory is bounded whatever the size of
 * the file. A file of one block takes one slot, no thread, and the page cache. Where no
 * thread can be started, submit does the transfer itself; where there is no memory for
 * all slots, one does.
 *
 * Failures: an error is final; wait tells it for the slot at fault, and later transfers
 * are tried all the same. One thread drives it. */

#include "common/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DIRECT_IO_BLOCK = 2 << 20, /* bytes of a slot */
    DIRECT_IO_SLOTS = 4,
    DIRECT_IO_THREADS = 3,
    DIRECT_IO_ALIGN = 4096,       /* suits every disk */
    DIRECT_IO_LENT_MAX = 8 << 20, /* of the caller's own memory at once */
    DIRECT_IO_BYTES = DIRECT_IO_SLOTS * DIRECT_IO_BLOCK /* for the memory plan */
};

struct direct_slot {
    uint8_t *data;       /* aligned; DIRECT_IO_BLOCK bytes, or a whole small file */
    const uint8_t *lent; /* what is written in its place; NULL: nothing */
    uint64_t offset;
    size_t size;
    bool in_flight;
    int outcome; /* of the last transfer */
};

struct direct_io {
    int fd; /* owned; -1: none */
    bool writes;
    atomic_bool direct; /* still past the page cache */
    size_t align;       /* of offsets and lengths while `direct` */
    uint8_t *memory;    /* owned */
    struct direct_slot slot[DIRECT_IO_SLOTS];
    size_t n_slots;
    /* private */
    pthread_t thread[DIRECT_IO_THREADS];
    size_t n_threads;
    pthread_mutex_t lock;    /* guards the slots' last two fields and what follows */
    pthread_cond_t has_work; /* threads wait */
    pthread_cond_t is_done;  /* the caller waits */
    uint64_t n_submitted;
    uint64_t n_taken;
    bool is_closing;
};

/* Opens `path` for reading (a regular file, its last component no symbolic link), or
 * creates or empties it for writing. `size`: bytes that will be transferred, as far as
 * known. 0, ERR_INVALID for what is not a regular file, or -errno; release it in any
 * case. */
int direct_io_open_read(struct direct_io *d, const char *path,
                        uint64_t *ret_size) MUST_CHECK;
int direct_io_open_write(struct direct_io *d, const char *path,
                         uint64_t size) MUST_CHECK;

/* Waits for the slot's last transfer; its outcome (0 before the first): 0, -errno, or
 * ERR_CORRUPT when the file ended too early. */
int direct_io_wait(struct direct_io *d, size_t slot) MUST_CHECK;

/* Begins to transfer `size` ≤ DIRECT_IO_BLOCK bytes; `offset` is a multiple of
 * DIRECT_IO_ALIGN. Behind the last byte of a write fewer than DIRECT_IO_ALIGN bytes of
 * zeros may be written: the caller cuts the file. */
void direct_io_submit(struct direct_io *d, size_t slot, uint64_t offset, size_t size);

/* Begins to write the caller's own memory, which stays as it is until the slot is
 * waited for: no copy, and few calls for much. `data`, `offset` and `size` ≤
 * DIRECT_IO_LENT_MAX are multiples of DIRECT_IO_ALIGN. */
void direct_io_lend(struct direct_io *d, size_t slot, const uint8_t *data,
                    uint64_t offset, size_t size);

/* Waits for all slots; the first error. */
int direct_io_drain(struct direct_io *d) MUST_CHECK;

/* Ends the threads after what they do now, closes the file, frees the memory. */
void direct_io_release(struct direct_io *d);

#endif
