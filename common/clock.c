#include "common/clock.h"

#include "common/check.h"

#include <time.h>

static uint64_t read_us(clockid_t id)
{
    struct timespec now;
    int rv = clock_gettime(id, &now);

    ASSERT(rv == 0);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t clock_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

uint64_t clock_ms(void)
{
    return clock_us() / 1000;
}

uint64_t clock_boot_ms(void)
{
    return read_us(CLOCK_BOOTTIME) / 1000;
}

uint64_t clock_wall_ms(void)
{
    return read_us(CLOCK_REALTIME) / 1000;
}
