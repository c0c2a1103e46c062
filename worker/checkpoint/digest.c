#include "worker/checkpoint/digest.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* struct digest is XXH3_state_t by another name, so that only this file includes
 * xxhash. */

static XXH3_state_t *state_of(struct digest *d)
{
    return (XXH3_state_t *)(void *)d;
}

struct digest *digest_create(void)
{
    XXH3_state_t *state = XXH3_createState();

    ASSERT(state);
    ASSERT(XXH3_128bits_reset(state) == XXH_OK);
    return (struct digest *)(void *)state;
}

void digest_free(struct digest *d)
{
    if (d) {
        (void)XXH3_freeState(state_of(d));
    }
}

void digest_add(struct digest *d, const void *data, size_t size)
{
    if (size > 0) {
        ASSERT(XXH3_128bits_update(state_of(d), data, size) == XXH_OK);
    }
}

void digest_finish(const struct digest *d, char hex[DIGEST_HEX])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(
        &canonical, XXH3_128bits_digest((const XXH3_state_t *)(const void *)d));
    for (size_t i = 0; i < sizeof(canonical.digest); i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", (unsigned)canonical.digest[i]);
    }
}

bool digest_is_hex(const char *text)
{
    return strlen(text) == DIGEST_HEX - 1 &&
           strspn(text, "0123456789abcdef") == DIGEST_HEX - 1;
}
