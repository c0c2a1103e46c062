/* Frames of the agent protocol: what is accepted is written again as the same bytes, but
 * for the first word of another version, of which nothing else is read. Such a one is
 * read a second time as if it were of ours: what is kept here outlives versions. */

#include "common/check.h"
#include "common/msg.h"

#include <string.h>

enum { VERSION_AT = 5 }; /* behind the length and the type */

static bool is_of_another_version(const struct msg *m)
{
    return (m->type == MSG_HELLO && m->u.hello.version != MSG_VERSION) ||
           (m->type == MSG_OPERATOR && m->u.operator.version != MSG_VERSION);
}

static void check(const uint8_t *frame, size_t size, const struct msg *m)
{
    struct buf again;

    buf_init(&again, MSG_MAX_FRAME + 4);
    ASSERT(msg_encode(m, &again) == 0);
    ASSERT(is_of_another_version(m) ||
           (buf_len(&again) == size && memcmp(buf_bytes(&again), frame, size) == 0));
    buf_release(&again);
}

static void check_as_ours(const uint8_t *frame, size_t size)
{
    static struct msg m;
    struct buf ours;

    buf_init(&ours, size);
    ASSERT(buf_append(&ours, frame, size) == 0);
    ours.data[ours.start + VERSION_AT] = MSG_VERSION;
    ours.data[ours.start + VERSION_AT + 1] = 0;
    if (msg_decode(buf_bytes(&ours), size, &m) > 0) {
        check(buf_bytes(&ours), size, &m);
    }
    buf_release(&ours);
}

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct msg m;
    size_t at = 0;
    int n;

    while ((n = msg_decode(data + at, size - at, &m)) > 0) {
        check(data + at, (size_t)n, &m);
        if (is_of_another_version(&m)) {
            check_as_ours(data + at, (size_t)n);
        }
        at += (size_t)n;
    }
    return 0;
}
