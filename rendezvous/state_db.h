#ifndef RENDEZVOUS_STATE_DB_H
#define RENDEZVOUS_STATE_DB_H

/* The service's database: SQLite with a write-ahead log, synced at each commit. One
 * thread at a time (state.c: the loop's until all is loaded, then the writer's).
 *
 * SQLite does not notice when a disk changes what was written. Each row has a sum of
 * its own, the single row of `identity` the sum of these (by exclusive or), and
 * state_wal.h looks at the log: so a row that is damaged, lost or of yesterday is found
 * when the state is opened, and nothing is made of it.
 *
 * Errors: -ENOSPC the disk is full; ERR_CORRUPT it is damaged; ERR_UNSUPPORTED another
 * program's or another version's; ERR_BUSY another process has it open; others are the
 * system's. Behind any but -ENOSPC nothing may be done but to close it. */

#include "rendezvous/record.h"

#include "common/err.h"

struct state_db;

struct state_db_config {
    const char *path;
    const char *vfs;     /* of SQLite; NULL: its own */
    uint64_t clock_ms;   /* the machine's monotonic clock, now … */
    uint64_t clock_name; /* … and which one it is: another after the machine's start */
    uint64_t seed;       /* random: the cluster's number, where it is made */
    uint64_t start;      /* random, not 0: this start's (starts.h) */
    uint64_t history_ms;    /* what is older goes … */
    uint64_t history_bytes; /* … and the oldest where there is more */
    uint64_t reserve_bytes; /* given up on a full disk; 0: there is always space */
    bool only_looks;        /* no database is made or begun */
};

struct state_identity {
    uint64_t cluster;
    uint64_t boot;            /* larger each time */
    uint64_t start;           /* random: whose number that is */
    uint64_t clock_offset_ms; /* to be added to the machine's clock, modulo 2^64 */
    uint64_t found;           /* transactions that it had when it was opened */
};

/* Makes it where there is none; checks it. Then state_db_load, then state_db_begin:
 * until then nothing of a database that is there is changed. */
int state_db_open(const struct state_db_config *config, struct state_db **ret,
                  struct errmsg *msg) MUST_CHECK;
void state_db_close(struct state_db *d);

/* With `only_looks`: the file is there, and a start was broken off before it made a
 * database of it. There is nothing to load. */
bool state_db_is_blank(const struct state_db *d);

const struct state_identity *state_db_identity(const struct state_db *d);

/* All rows, in the order of record.h. ERR_CORRUPT: one is not what was written; or what
 * `take` returned. */
int state_db_load(struct state_db *d,
                  int (*take)(void *arg, const struct record *r, struct errmsg *msg),
                  void *arg, struct errmsg *msg) MUST_CHECK;

/* Takes the boot number, as starts.h has it: it is on the disk when this returns. */
int state_db_begin(struct state_db *d, struct errmsg *msg) MUST_CHECK;

/* One transaction with the records of state_batch.h; it is on the disk when this
 * returns 0. `now_ms` is the service's clock. -ENOSPC: nothing of it is. */
int state_db_commit(struct state_db *d, struct bytes batch, uint64_t now_ms,
                    struct errmsg *msg) MUST_CHECK;

/* How many transactions are on the disk, of all boots: never fewer, whatever crash. */
uint64_t state_db_kept(const struct state_db *d);

/* A bounded part of the work that can be done at any time: history that is too old or
 * too much goes, the log is copied into the database if the file system has so much
 * left. 1: there is more of it; 0. -ENOSPC: it has not, and nothing is lost by that. */
int state_db_tidy(struct state_db *d, uint64_t now_ms, uint64_t on_disk,
                  struct errmsg *msg) MUST_CHECK;

/* True when the log has grown so much that tidying should not wait. */
bool state_db_is_untidy(struct state_db *d);

/* Pages that were written since the log was last copied; and copies it, whatever the file
 * system has left: its place is used again then. */
int state_db_log_pages(const struct state_db *d);
int state_db_copy_log(struct state_db *d, struct errmsg *msg) MUST_CHECK;

/* Bytes by which the database's own file grows when the log is copied. */
uint64_t state_db_growth(const struct state_db *d);

/* How many bytes may be written where the file system has `on_disk` left: pages of the
 * database can be used again; what is new in the log wants to be copied into it, and what
 * is in the journal to be settled. */
uint64_t state_db_free_bytes(const struct state_db *d, uint64_t on_disk);

#endif
