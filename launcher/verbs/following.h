#ifndef LAUNCHER_VERBS_FOLLOWING_H
#define LAUNCHER_VERBS_FOLLOWING_H

/* PURE. Whether who follows comes again when its server is gone, and when. A server that
 * keeps its state has it again when it is back; of another, the state ends with it, and
 * what answers next is a stranger. */

#include "launcher/verbs/talk.h"

enum {
    FOLLOWING_PATIENCE_MS = 60 * 1000, /* with a server that is away */
    FOLLOWING_FIRST_MS = 100,          /* until it is asked for; then twice that … */
    FOLLOWING_LAST_MS = 2000,          /* … and so on, up to this */
};

#define FOLLOWING_NEVER UINT64_MAX

struct following {
    uint64_t cluster; /* of the one that is followed; 0: none has answered yet */
    bool is_kept;     /* it keeps its state */
    bool is_lost;     /* it is away … */
    uint64_t lost_ms; /* … since then */
    uint64_t delay_ms;
};

/* A server has said which it is. True: it is back. */
bool following_met(struct following *f, const struct msg_welcome *w);

/* A talk has ended. For how long to wait before the next one, or FOLLOWING_NEVER. */
uint64_t following_ended(struct following *f, enum talk_end end, uint64_t now_ms);

#endif
