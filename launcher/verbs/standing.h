#ifndef LAUNCHER_VERBS_STANDING_H
#define LAUNCHER_VERBS_STANDING_H

/* PURE. Where who follows stands, so that it can go on from there with a server that is
 * back: which event was the last, or what comes next of each stream of each rank. */

#include "common/buf.h"
#include "common/msg.h"

#include <jansson.h>

struct standing {
    uint64_t after;      /* the last event's number */
    uint64_t generation; /* of the lines; 0: there was none yet */
    uint64_t *next;      /* owned; by rank, two streams each; 0: no line of that */
    size_t n;
};

void standing_release(struct standing *s);

/* A line of the answer was taken. True: the first one of another generation than those
 * before. */
bool standing_take(struct standing *s, const json_t *line);

/* What the next question says of it; `places` is the caller's, and has to outlive it. */
void standing_tell(const struct standing *s, struct msg_ask *ask, struct buf *places);

#endif
