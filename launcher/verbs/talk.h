#ifndef LAUNCHER_VERBS_TALK_H
#define LAUNCHER_VERBS_TALK_H

/* One question to one server, on a loop of its own, until it is answered. */

#include "launcher/rdzv/keys.h"
#include "launcher/verbs/places.h"

#include "common/msg.h"

struct question {
    struct msg_ask ask;
    struct keys *keys;    /* borrowed: what is shown by TCP */
    const uint64_t *seen; /* clusters that need not be asked … */
    size_t n_seen;
    uint64_t cluster; /* no other is asked; 0: any is */
    /* It has said which it is, and is asked now. NULL: nobody wants to know. */
    void (*on_met)(void *arg, const struct msg_welcome *w);
    /* A piece of the answer. False: no more is wanted. */
    bool (*on_body)(void *arg, struct bytes body);
    void *arg;
};

enum talk_end {
    TALK_ANSWERED, /* exit_code 0 */
    TALK_SAID_NO,  /* the verb could not be done: exit_code, text */
    TALK_SEEN,     /* … by another of its addresses */
    TALK_OTHER,    /* … it is another than the one that was to be asked: text */
    TALK_NOBODY,   /* nothing answers there: text */
    TALK_REFUSED,  /* … or does not want to: exit_code, text */
    TALK_BROKEN,   /* it answered, but not to the end: text */
    TALK_UNREAD,   /* nobody reads any more what is followed */
};

struct talk_result {
    enum talk_end end;
    int exit_code;
    uint64_t cluster; /* 0: none was told */
    char text[MSG_TEXT_MAX + 600];
};

/* Takes place->fd over. */
void talk_run(struct place *place, const struct question *q, struct talk_result *ret);

#endif
