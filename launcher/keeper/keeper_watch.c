#include "launcher/keeper/keeper_watch.h"

enum { CONTINUE_AFTER = 2, KILL_AFTER = 4, KILL_BUSY_AFTER = 30 };

void keeper_watch_answered(struct keeper_watch *w)
{
    *w = (struct keeper_watch){0};
}

enum keeper_deed keeper_watch_ask(struct keeper_watch *w, char state)
{
    bool is_stopped = state == 'T' || state == 't';
    unsigned n = w->n_unanswered++;

    if (!w->was_killed && n >= (is_stopped ? KILL_AFTER : KILL_BUSY_AFTER)) {
        w->was_killed = true;
        return KEEPER_KILL;
    }
    if (!w->was_continued && is_stopped && n >= CONTINUE_AFTER) {
        w->was_continued = true;
        return KEEPER_CONTINUE;
    }
    return KEEPER_LEAVE;
}
