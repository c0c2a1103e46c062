#include "launcher/store/relay_crowd.h"

enum relay_crowd relay_crowd_of(size_t held)
{
    if (held > RELAY_CROWD_ALL_AT) {
        return RELAY_CROWD_ALL;
    }
    return held > RELAY_CROWD_LARGE_AT ? RELAY_CROWD_LARGE : RELAY_CROWD_NONE;
}

bool relay_crowd_must_wait(enum relay_crowd crowd, bool is_paused, size_t held)
{
    bool is_crowded = is_paused || crowd != RELAY_CROWD_NONE;

    return is_crowded && (held > RELAY_CROWD_SMALL || crowd == RELAY_CROWD_ALL);
}
