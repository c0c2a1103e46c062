#ifndef RENDEZVOUS_STATE_H
#define RENDEZVOUS_STATE_H

/* The service's durable state: a database in a folder (state_db.h, state_dir.h), and
 * the thread that writes it. Each turn of the loop is one transaction; while one is on
 * its way the next gathers.
 *
 *          save … commit            the thread: on the disk
 *   IDLE ────────────────► WRITING ─────────────────────────► on_committed, IDLE
 *                             │ the disk is full: the reserve is given up, once more
 *                             │ any other error, or full again
 *                             ▼
 *                          the process aborts: what the disk has is true, what we
 *                          have in memory may not be (never is a write repeated)
 *
 * Between transactions the thread drops old history, copies the log into the database
 * and watches the free space. The functions: on the loop's thread. */

#include "rendezvous/durable.h"

#include "common/err.h"

struct uv_loop_s;
struct state;

enum { STATE_PATIENCE_MS = 5000 }; /* a service's */

struct state_config {
    struct uv_loop_s *loop; /* borrowed: outlives the state */
    const char *dir;
    uint64_t reserve_bytes;
    uint64_t history_ms;
    uint64_t history_bytes;
    uint32_t tidy_ms;     /* between looks at what is to be tidied; 0: 1000 */
    uint32_t patience_ms; /* how long another program's use of it is waited for */
};

/* What is wrong stands in `msg`, with what to do about it; state_exit_code says with
 * which status a program should end for it. */
int state_open(const struct state_config *config, struct state **ret,
               struct errmsg *msg) MUST_CHECK;
int state_exit_code(int err);

/* As the server wants it; lives as long as the state. */
const struct durable *state_durable(const struct state *s);

/* Writes what was saved and not committed yet, closes all, and frees it; what is still
 * on the loop then ends by itself. Blocks while the disk does. */
void state_close(struct state *s);

#endif
