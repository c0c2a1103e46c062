#include "launcher/keeper/keeper_watch.h"

enum { CONTINUE_AFTER = 2, KILL_AFTER = 4, TELL_AFTER = 10 };

void keeper_watch_answered(struct keeper_watch *w)
{
    *w = (struct keeper_watch){0};
}

static enum keeper_deed on_stopped(struct keeper_watch *w)
{
    w->n_stopped++;
    return w->n_stopped == CONTINUE_AFTER ? KEEPER_CONTINUE
           : w->n_stopped == KILL_AFTER   ? KEEPER_KILL
                                          : KEEPER_LEAVE;
}

enum keeper_deed keeper_watch_ask(struct keeper_watch *w, char state)
{
    w->n_asked++;
    if (w->n_asked == 1) {
        return KEEPER_LEAVE; /* it has answered all so far */
    }
    if (state == 'T' || state == 't') {
        return on_stopped(w);
    }
    w->n_stopped = 0;
    return w->n_asked == TELL_AFTER ? KEEPER_TELL : KEEPER_LEAVE;
}
