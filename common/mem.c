#include "common/mem.h"

#include "common/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *mem_alloc(size_t size)
{
    void *ptr = malloc(size ? size : 1);

    ASSERT(ptr);
    return ptr;
}

void *mem_zalloc(size_t size)
{
    return mem_array(1, size);
}

void *mem_array(size_t n, size_t size)
{
    void *ptr = calloc(n ? n : 1, size ? size : 1);

    ASSERT(ptr);
    return ptr;
}

void *mem_grow(void *ptr, size_t n, size_t size)
{
    void *grown = reallocarray(ptr, n ? n : 1, size ? size : 1);

    ASSERT(grown);
    return grown;
}

char *mem_strdup(const char *s)
{
    return mem_dup(s, strlen(s) + 1);
}

void *mem_dup(const void *data, size_t size)
{
    void *copy = mem_alloc(size);

    if (size > 0) {
        memcpy(copy, data, size);
    }
    return copy;
}

char *mem_printf(const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vasprintf(&text, fmt, args);
    va_end(args);
    ASSERT(n >= 0);
    return text;
}

void mem_free(void *ptr)
{
    free(ptr);
}
