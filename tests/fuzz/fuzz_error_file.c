/* What a worker leaves in $TORCHELASTIC_ERROR_FILE. */

#include "launcher/error_file.h"

#include "common/check.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct worker_error e;
    int fd = memfd_create("error.json", MFD_CLOEXEC);
    char path[64];

    ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    memset(&e, 0, sizeof(e));
    if (error_file_read(path, &e)) {
        ASSERT(strnlen(e.message, sizeof(e.message)) < sizeof(e.message));
        ASSERT(strnlen(e.error, sizeof(e.error)) < sizeof(e.error));
        ASSERT((e.bytes != NULL) == (e.size > 0));
        mem_free(e.bytes);
    }
    ASSERT(close(fd) == 0);
    return 0;
}
