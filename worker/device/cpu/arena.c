#include "worker/device/cpu/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, HUGE_PAGE = 2 * 1024 * 1024, CACHE_LINE = 64 };

#ifdef __SANITIZE_ADDRESS__

/* The allocator's red zones find a kernel that runs past its tensor; a mapping has
 * none. */
int arena_map(size_t bytes, void **ret)
{
    void *ptr = NULL;

    if (posix_memalign(&ptr, PAGE, ROUND_UP(MAX(bytes, 1), CACHE_LINE)) != 0) {
        return -ENOMEM;
    }
    *ret = memset(ptr, 0, bytes);
    return 0;
}

int arena_populate(void *ptr, size_t bytes)
{
    (void)ptr;
    (void)bytes;
    return 0;
}

void arena_unmap(void *ptr, size_t bytes)
{
    (void)bytes;
    free(ptr);
}

#else

static void unmap(void *ptr, size_t bytes)
{
    if (bytes > 0) {
        int err = munmap(ptr, bytes);

        ASSERT(err == 0);
    }
}

/* Maps with a margin and cuts it off, so that the first huge page begins with the
 * block. */
static void *map_aligned(size_t size, size_t align)
{
    size_t margin = align - PAGE;
    char *ptr = mmap(NULL, size + margin, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t skip;

    if (ptr == MAP_FAILED) {
        return NULL;
    }
    skip = ROUND_UP((uintptr_t)ptr, align) - (uintptr_t)ptr;
    unmap(ptr, skip);
    unmap(ptr + skip + size, margin - skip);
    return ptr + skip;
}

/* Kernels before 5.14 do not know MADV_POPULATE_WRITE: there each page is touched. */
int arena_populate(void *ptr, size_t bytes)
{
    size_t size = ROUND_UP(bytes, PAGE);
    int err;

    do {
        err = madvise(ptr, size, MADV_POPULATE_WRITE);
    } while (err < 0 && (errno == EINTR || errno == EAGAIN));
    if (err == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < size; i += PAGE) {
        *((volatile char *)ptr + i) = 0;
    }
    return 0;
}

int arena_map(size_t bytes, void **ret)
{
    size_t size = ROUND_UP(MAX(bytes, 1), PAGE);
    bool is_big = size >= HUGE_PAGE;
    char *ptr;

    if (bytes > SIZE_MAX / 2) {
        return -ENOMEM;
    }
    ptr = map_aligned(size, is_big ? HUGE_PAGE : PAGE);
    if (!ptr) {
        return -ENOMEM;
    }
    if (is_big) {
        (void)madvise(ptr, size, MADV_HUGEPAGE); /* EINVAL where there are none */
    }
    *ret = ptr;
    return 0;
}

void arena_unmap(void *ptr, size_t bytes)
{
    unmap(ptr, ROUND_UP(MAX(bytes, 1), PAGE));
}

#endif
