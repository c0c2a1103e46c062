#ifndef RENDEZVOUS_FENCE_H
#define RENDEZVOUS_FENCE_H

/* PURE. The fence before checkpoints: which RESUMED and COMMIT of the current
 * generation G count. (The job lets nothing through that names another generation.)
 *
 * G first says from which step it resumed, in which run R. Then a commit (R, N, hash)
 * is accepted iff N is larger than G's last commit or, if it has none, than that step.
 * A repeat of what was accepted is accepted. So a zombie rank 0 of an older generation
 * can only litter its own temporaries. */

#include "common/msg.h"

struct commit {
    uint32_t run;
    uint64_t step;
    char hash[MSG_HASH_MAX]; /* "": no commit */
};

struct fence {
    bool has_resumed;
    uint32_t resumed_run;
    uint64_t resumed_step;
    struct commit own;  /* G's last */
    struct commit last; /* of all that are known: the next generation is told */
};

void fence_begin(struct fence *f);

/* NULL: accepted; else the objection. */
const char *fence_resumed(struct fence *f, uint32_t run, uint64_t step);
const char *fence_commit(struct fence *f, uint32_t run, uint64_t step,
                         const char *hash);

/* A server without memory learns the last commit from its agents: the newest wins. */
void fence_learn(struct fence *f, uint32_t run, uint64_t step, const char *hash);

#endif
