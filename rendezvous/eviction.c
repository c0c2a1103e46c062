#include "rendezvous/eviction.h"

#include "common/check.h"

#include <string.h>

size_t eviction_choose(const char *const *owner, size_t n, const char *newcomer)
{
    size_t most = 0;
    size_t chosen = 0;

    ASSERT(n > 0);
    for (size_t i = 0; i < n && n - i + 1 > most; i++) {
        size_t count = strcmp(owner[i], newcomer) == 0;

        for (size_t k = i; k < n; k++) { /* whose first it is has none before */
            count += strcmp(owner[k], owner[i]) == 0;
        }
        if (count > most) {
            most = count;
            chosen = i;
        }
    }
    return chosen;
}
