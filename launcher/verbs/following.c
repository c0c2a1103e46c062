#include "launcher/verbs/following.h"

bool following_met(struct following *f, const struct msg_welcome *w)
{
    bool was_lost = f->is_lost;

    f->cluster = w->cluster;
    f->is_kept = w->ephemeral == 0;
    f->is_lost = false;
    return was_lost;
}

/* It may come again, and nothing was refused. */
static bool is_hoped_for(const struct following *f, enum talk_end end)
{
    switch (end) {
    case TALK_BROKEN:
    case TALK_NOBODY:
        return f->is_kept;
    case TALK_ANSWERED:
    case TALK_SAID_NO:
    case TALK_SEEN:
    case TALK_OTHER:
    case TALK_REFUSED:
    case TALK_UNREAD:
        break;
    }
    return false;
}

uint64_t following_ended(struct following *f, enum talk_end end, uint64_t now_ms)
{
    uint64_t until_ms;

    if (!is_hoped_for(f, end)) {
        return FOLLOWING_NEVER;
    }
    if (!f->is_lost) {
        f->is_lost = true;
        f->lost_ms = now_ms;
        f->delay_ms = FOLLOWING_FIRST_MS;
        return f->delay_ms;
    }
    until_ms = f->lost_ms + FOLLOWING_PATIENCE_MS;
    f->delay_ms = MIN(2 * f->delay_ms, (uint64_t)FOLLOWING_LAST_MS);
    return now_ms >= until_ms ? FOLLOWING_NEVER : MIN(f->delay_ms, until_ms - now_ms);
}
