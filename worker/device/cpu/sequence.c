#include "worker/device/cpu/sequence.h"

#include "common/check.h"
#include "common/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void futex_sleep(_Atomic uint32_t *word, uint32_t expected, int timeout_ms)
{
    struct timespec limit = {.tv_sec = timeout_ms / 1000,
                             .tv_nsec = timeout_ms % 1000 * 1000000L};
    long err = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected,
                       timeout_ms < 0 ? NULL : &limit, NULL, 0);

    ASSERT(err == 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT);
}

void futex_wake_all(_Atomic uint32_t *word)
{
    long err = syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);

    ASSERT(err >= 0);
}

/* A waiter counts itself before it reads `event` and then `value`; the setter writes
 * `value`, then `event`, then looks for sleepers. So one of the two sees the other. */
void sequence_set(struct sequence *s, uint64_t value)
{
    atomic_store(&s->value, value);
    atomic_fetch_add(&s->event, 1);
    if (atomic_load(&s->sleepers) > 0) {
        futex_wake_all(&s->event);
    }
}

static int time_left(uint64_t deadline_ms)
{
    uint64_t now_ms = clock_ms();

    return now_ms >= deadline_ms ? 0 : (int)(deadline_ms - now_ms);
}

bool sequence_wait(struct sequence *s, uint64_t value, int timeout_ms)
{
    uint64_t deadline_ms;
    bool reached;

    if (atomic_load(&s->value) >= value) {
        return true;
    }
    deadline_ms = timeout_ms < 0 ? 0 : clock_ms() + (uint64_t)timeout_ms;
    atomic_fetch_add(&s->sleepers, 1);
    for (;;) {
        uint32_t event = atomic_load(&s->event);
        int left_ms = timeout_ms < 0 ? -1 : time_left(deadline_ms);

        reached = atomic_load(&s->value) >= value;
        if (reached || left_ms == 0) {
            break;
        }
        futex_sleep(&s->event, event, left_ms);
    }
    atomic_fetch_sub(&s->sleepers, 1);
    return reached;
}
