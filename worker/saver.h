#ifndef WORKER_SAVER_H
#define WORKER_SAVER_H

/* Saving in the background: a snapshot (snapshot.h) on the copy queue, a thread that
 * writes it. A copy lies as the shard will, so it goes to the disk from there.
 *
 *   training thread      saver thread of every rank       saver thread of rank 0
 *   saver_begin ───────► wait for the snapshot's ticket
 *   (goes on)            write + fsync the shard
 *                        publish size and hash ─────────► collect all ranks' hashes
 *                          (through the store)            write + fsync the manifest,
 *                                                           folder, metrics.jsonl
 *                                                         ask the service: commit?
 *                                                         rename, fsync, prune
 *                        ◄─────────────────────────────── publish the outcome
 *
 * Where the state is sharded, the rows that begin in one shard and end in others are put
 * together for the snapshot (regroup.h), by a collective of the writers; the ranks of
 * other replicas only wait for the outcome.
 *
 * One checkpoint is in work at a time: a second saver_begin waits for the first (the
 * trainer asks saver_is_busy before). A checkpoint that cannot be written (disk full …)
 * costs one line and its own temporary, never the last good one, and training goes on;
 * a refused commit means that this process is fenced. */

#include "worker/checkpoint/checkpoint.h"
#include "worker/comm/comm.h"
#include "worker/control_client.h"
#include "worker/device/device.h"
#include "worker/launch.h"
#include "worker/model/unit.h"
#include "worker/report/metrics.h"
#include "worker/run_dir.h"
#include "worker/shares.h"

struct saver;

struct saver_config {
    const struct launch *launch; /* all borrowed: they outlive the saver */
    const struct layout *layout;
    struct device *device;
    struct control_client *control;
    struct run_dir *run_dir; /* rank 0's lock is the saver thread's from now on */
    const char *dir;         /* checkpoint.dir */
    struct checkpoint_retention retention;
    int timeout_ms;          /* for what the other ranks publish */
    struct metrics *metrics; /* rank 0; NULL elsewhere */

    struct holder holder;  /* what the rank holds; `groups` is needed until saver_open
                             returns */
    struct comm *comm;     /* where sharded, on the writers: among the holders of a
                             replica, shard s being its rank s; else NULL */
    enum queue comm_queue; /* that nothing else of `comm` uses meanwhile */
    bool in_place;         /* no copy is made: see saver_wait_state */
};

int saver_open(const struct saver_config *config, struct saver **ret,
               struct errmsg *msg) MUST_CHECK;

/* Finishes the work in hand. NULL allowed. */
void saver_close(struct saver *s);

/* Takes the snapshot of params, exp_avg, exp_avg_sq (the own block of each, device
 * memory) after what is on the compute queue now; collective. `meta` is copied. The
 * compute queue must not change the state before saver_snapshot_ticket's ticket, nor,
 * with in_place, before saver_wait_state returns. Returns the outcome of the save before,
 * as saver_wait does; after ERR_REFUSED nothing is begun. */
int saver_begin(struct saver *s, const float *const state[3],
                const struct checkpoint_meta *meta, struct errmsg *msg) MUST_CHECK;
struct ticket saver_snapshot_ticket(const struct saver *s);

/* With in_place: waits until this rank's shard is written (or will not be), which is when
 * the state may change. Without it returns at once. */
void saver_wait_state(struct saver *s);

/* Waits until nothing is in work. 0: committed (or nothing was begun); ERR_REFUSED:
 * fenced; any other error: not written, with the text. On every rank. */
int saver_wait(struct saver *s, struct errmsg *msg) MUST_CHECK;

/* True while a checkpoint is in work: written, or without the service's answer yet. The
 * trainer then puts the next one off, so that training goes on however long that
 * takes. */
bool saver_is_busy(struct saver *s);

/* True once the service has refused a commit: this generation is over. */
bool saver_is_fenced(const struct saver *s);

#endif
