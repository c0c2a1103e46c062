#ifndef RENDEZVOUS_FINISHED_H
#define RENDEZVOUS_FINISHED_H

/* PURE. The jobs that have ended and been forgotten otherwise: a node that was away when
 * its job ended is told so, and does not begin the job again. Bounded: the oldest of
 * the owner who has most makes room, and each is forgotten after a while. */

#include "rendezvous/job.h"
#include "rendezvous/record.h"

enum {
    FINISHED_MAX = 256,
    FINISHED_KEPT_MS = 10 * 60 * 1000,
    FINISHED_LATE_MS = 60 * 1000, /* later a node begins the job anew */
};

struct finished_job {
    char id[MSG_ID_MAX];
    char owner[IDENTITY_OWNER_MAX]; /* "": nobody has shown a key */
    uint64_t generation;            /* its last */
    uint64_t noted_ms;
    struct members members;
    size_t n_members; /* of its last generation */
    uint32_t min_nodes, max_nodes, max_restarts;
    uint32_t exit_code;
    char text[MSG_TEXT_MAX]; /* for the node */
};

/* Zeroed: empty. */
struct finished {
    struct finished_job *job[FINISHED_MAX]; /* owned, the oldest first */
    size_t n;
    void (*save)(void *arg, const struct record *r); /* NULL: nothing is kept */
    void *save_arg;
};

void finished_release(struct finished *f);

/* In place of what is known of an earlier job of the same id. `job` is over. */
void finished_note(struct finished *f, const struct job *job, uint64_t now_ms);

/* Puts a record of FINISHED back; ERR_CORRUPT, ERR_UNSUPPORTED. */
int finished_restore(struct finished *f, const struct record *r) MUST_CHECK;

/* True for a node that has seen nothing of the job, comes soon after its end, and was
 * never in it though there was room: it is late, not the first of the job begun anew.
 * Not for jobs that nobody has named: any two of them have the same id.
 * `key` as of members. */
bool finished_is_late(const struct finished_job *past, const struct msg_hello *hello,
                      uint64_t key, uint64_t now_ms);

/* NULL: there was none, or it is too long ago. Valid until the next call. */
const struct finished_job *finished_find(struct finished *f, const char *id,
                                         uint64_t now_ms);

#endif
