/* The bytes of a journal that anything may have happened to: what is taken is in order,
 * each name once, and written again it is the same. */

#include "rendezvous/record_fields.h"
#include "rendezvous/state_batch.h"
#include "rendezvous/state_pending.h"

#include "common/mem.h"

#include <stdint.h>
#include <string.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct state_pending pending;
    struct bytes batch = {data, size};
    size_t n;

    state_pending_init(&pending, 1);
    if (state_pending_may_wait(batch, &n)) {
        const struct record **sorted;
        struct record r;
        struct buf copy;

        state_pending_add(&pending, batch, n);
        ASSERT(state_pending_are_few(&pending, n));
        sorted = state_pending_sorted(&pending);
        for (size_t i = 1; sorted[0] && sorted[i]; i++) {
            ASSERT(record_compare(sorted[i - 1], sorted[i]) < 0);
        }
        buf_init(&copy, SIZE_MAX);
        while (state_batch_next(&batch, &r) == 1) {
            state_batch_add(&copy, &r);
        }
        ASSERT(batch.size == 0 && buf_len(&copy) == size &&
               (size == 0 || memcmp(buf_bytes(&copy), data, size) == 0));
        buf_release(&copy);
        mem_free(sorted);
    }
    state_pending_release(&pending);
    return 0;
}
