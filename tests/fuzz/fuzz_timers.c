/* What workers write into the FIFO of torch's file timers. */

#include "launcher/timers.h"

#include "common/check.h"

#include <string.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t half = size / 2;
    struct timers t;
    struct timer timer;

    timers_init(&t);
    timers_feed(&t, (const char *)data, half, 1700000000000, 5000);
    timers_feed(&t, (const char *)data + half, size - half, 1700000000000, 5000);
    (void)timers_trouble(&t);
    while (timers_take(&t, UINT64_MAX, &timer)) {
        ASSERT(timer.pid > 0 && timer.signal > 0 && timer.signal <= 64);
        ASSERT(strnlen(timer.scope, sizeof(timer.scope)) < sizeof(timer.scope));
    }
    ASSERT(t.n == 0);
    timers_release(&t);
    return 0;
}
