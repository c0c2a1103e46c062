/* What names a peer, in TLS and in certificates: what is read is written as the same. */

#include "common/check.h"
#include "common/identity.h"

#include <string.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_psk(const uint8_t *data, size_t size)
{
    char key_id[IDENTITY_KEY_ID_SIZE];
    char again[IDENTITY_PSK_SIZE];
    uint64_t agent_id;

    if (identity_parse_psk(data, size, key_id, &agent_id) == 0) {
        identity_format_psk(key_id, agent_id, again);
        ASSERT(strlen(again) == size && memcmp(again, data, size) == 0);
    }
}

static void try_uri(const uint8_t *data, size_t size)
{
    struct identity who = {.kind = IDENTITY_CERTIFICATE};
    struct identity again = who;
    char uri[4 * IDENTITY_URI_MAX];

    if (identity_parse_uri(data, size, &who) == 0) {
        ASSERT(identity_format_uri(&who, uri, sizeof(uri)));
        ASSERT(identity_parse_uri((const uint8_t *)uri, strlen(uri), &again) == 0);
        ASSERT(identity_is_same(&who, &again));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_psk(data, size);
    try_uri(data, size);
    return 0;
}
