#include "rendezvous/space.h"

#include "common/check.h"

enum { PARTS = 8, BACK = 2 };

/* Of the reserve: so many of its parts are left at each level, at least. */
static const unsigned parts[] = {
    [SPACE_FINE] = 16, [SPACE_LOW] = 4, [SPACE_SCARCE] = 1, [SPACE_SPENT] = 0};

enum durable_space space_level(uint64_t room, uint64_t reserve, bool is_whole,
                               enum durable_space before)
{
    enum durable_space space = is_whole ? SPACE_FINE : SPACE_LOW;
    uint64_t part = reserve / PARTS;

    while (space < SPACE_SPENT &&
           room < part * (parts[space] + (before > space ? BACK : 0))) {
        space++;
    }
    return space;
}

uint64_t space_wanted(uint64_t reserve, uint64_t left)
{
    uint64_t all = reserve / PARTS * (parts[SPACE_FINE] + BACK);

    return all - MIN(all, left);
}
