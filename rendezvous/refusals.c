#include "rendezvous/refusals.h"

#include <stdio.h>
#include <string.h>

/* The peer's place; of those that are not here the one whose line is the oldest. */
static size_t find(const struct refusals *r, const char *peer, enum refusal why)
{
    size_t oldest = 0;

    for (size_t i = 0; i < REFUSALS_PEERS; i++) {
        if (r->seen[i].logged_ms != 0 && r->seen[i].why == why &&
            strcmp(r->seen[i].peer, peer) == 0) {
            return i;
        }
        if (r->seen[i].logged_ms < r->seen[oldest].logged_ms) {
            oldest = i;
        }
    }
    return oldest;
}

bool refusals_note(struct refusals *r, const char *peer, enum refusal why,
                   uint64_t now_ms, uint64_t *ret_hidden)
{
    size_t i = find(r, peer, why);
    bool is_known = r->seen[i].logged_ms != 0 && r->seen[i].why == why &&
                    strcmp(r->seen[i].peer, peer) == 0;
    bool is_due = !is_known || now_ms - r->seen[i].logged_ms >= REFUSALS_AGAIN_MS;

    r->count[why]++;
    if (!is_due ||
        !bucket_take(&r->lines, REFUSALS_LINES_PER_S, REFUSALS_LINES_AT_ONCE, now_ms)) {
        r->seen[i].n_hidden += is_known; /* else one of many: the count tells */
        return false;
    }
    *ret_hidden = is_known ? r->seen[i].n_hidden : 0;
    (void)snprintf(r->seen[i].peer, sizeof(r->seen[i].peer), "%s", peer);
    r->seen[i].why = why;
    r->seen[i].logged_ms = now_ms > 0 ? now_ms : 1;
    r->seen[i].n_hidden = 0;
    return true;
}

const char *refusal_name(enum refusal why)
{
    static const char *const names[] = {
        [REFUSAL_PLAIN] = "no_key",  [REFUSAL_NO_SECRET] = "unasked_key",
        [REFUSAL_KEY] = "wrong_key", [REFUSAL_ROLE] = "role",
        [REFUSAL_OWNER] = "owner",   [REFUSAL_REPLAY] = "replay",
    };

    return names[why];
}
