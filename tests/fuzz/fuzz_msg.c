/* Frames of the agent protocol: what is accepted is written again as the same bytes, but
 * for the first word of another version, of which nothing else is read. */

#include "common/check.h"
#include "common/msg.h"

#include <string.h>

static bool is_of_another_version(const struct msg *m)
{
    return (m->type == MSG_HELLO && m->u.hello.version != MSG_VERSION) ||
           (m->type == MSG_OPERATOR && m->u.operator.version != MSG_VERSION);
}

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct msg m;
    struct buf again;
    size_t at = 0;
    int n = 1;

    buf_init(&again, MSG_MAX_FRAME + 4);
    while (n > 0) {
        n = msg_decode(data + at, size - at, &m);
        if (n > 0) {
            buf_clear(&again);
            ASSERT(msg_encode(&m, &again) == 0);
            ASSERT(is_of_another_version(&m) || buf_len(&again) == (size_t)n);
            ASSERT(is_of_another_version(&m) ||
                   memcmp(buf_bytes(&again), data + at, (size_t)n) == 0);
            at += (size_t)n;
        }
    }
    buf_release(&again);
    return 0;
}
