/* A write-ahead log that anything may have happened to: it is read to its end, whatever
 * it says of itself. */

#include "rendezvous/state_wal.h"

#include <stdint.h>
#include <string.h>

struct input {
    const uint8_t *data;
    size_t size;
};

static int read_input(void *arg, uint64_t offset, void *data, size_t size)
{
    const struct input *input = arg;
    size_t there = offset < input->size ? input->size - (size_t)offset : 0;
    size_t n = MIN(there, size);

    memset(data, 0, size);
    memcpy(data, input->data + MIN(offset, input->size), n);
    return 0;
}

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct state_wal wal = {size, &input, read_input};

    (void)state_wal_check(&wal); /* either answer is right */
    return 0;
}
