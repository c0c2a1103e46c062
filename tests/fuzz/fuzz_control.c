/* Packets of the control channel, as a worker, which may be any program, sends them to
 * its agent: what is accepted is in its bounds, and means the same when it is written and
 * read again. */

#include "common/check.h"
#include "common/control.h"

#include <string.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct control c;
    struct buf first, again;

    if (control_decode(data, size, &c) < 0) {
        return 0;
    }
    ASSERT(strnlen(c.text, sizeof(c.text)) < sizeof(c.text));
    ASSERT(strnlen(c.path, sizeof(c.path)) < sizeof(c.path));
    ASSERT(strnlen(c.phase, sizeof(c.phase)) < sizeof(c.phase));
    buf_init(&first, CONTROL_MAX);
    buf_init(&again, CONTROL_MAX);
    ASSERT(control_encode(&c, &first) == 0);
    ASSERT(control_decode(buf_bytes(&first), buf_len(&first), &c) == 0);
    ASSERT(control_encode(&c, &again) == 0 && buf_len(&again) == buf_len(&first));
    ASSERT(memcmp(buf_bytes(&first), buf_bytes(&again), buf_len(&first)) == 0);
    buf_release(&first);
    buf_release(&again);
    return 0;
}
