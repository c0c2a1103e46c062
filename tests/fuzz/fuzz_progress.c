/* Lines that any program writes to its progress descriptor. */

#include "launcher/channel.h"

#include "common/check.h"
#include "common/mem.h"

#include <string.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *line = mem_alloc(size + 1); /* of its own size: a read past it is seen */
    struct control said = {0};

    memcpy(line, data, size);
    line[size] = '\0';
    if (channel_parse_progress(line, &said)) {
        ASSERT(strnlen(said.phase, sizeof(said.phase)) < sizeof(said.phase));
    }
    ASSERT(channel_parse_stack(line) >= 0);
    mem_free(line);
    return 0;
}
