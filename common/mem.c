#include "common/mem.h"

#include "common/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *ptr, size_t size)
{
    if (!ptr) {
        check_out_of_memory(size);
    }
    return ptr;
}

/* Sizes have a ceiling (mem.h): an overflow is a bug, and no lack of memory. */
static size_t bytes_of(size_t n, size_t size)
{
    size_t bytes;

    ASSERT(!__builtin_mul_overflow(n, size, &bytes));
    return MAX(bytes, (size_t)1);
}

void *mem_alloc(size_t size)
{
    return checked(malloc(MAX(size, (size_t)1)), size);
}

void *mem_zalloc(size_t size)
{
    return mem_array(1, size);
}

void *mem_array(size_t n, size_t size)
{
    size_t bytes = bytes_of(n, size);

    return checked(calloc(1, bytes), bytes);
}

void *mem_grow(void *ptr, size_t n, size_t size)
{
    size_t bytes = bytes_of(n, size);

    return checked(realloc(ptr, bytes), bytes);
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
    va_list args;
    char *text;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    ASSERT(n >= 0); /* a format that nobody can follow */
    text = mem_alloc((size_t)n + 1);
    va_start(args, fmt);
    (void)vsnprintf(text, (size_t)n + 1, fmt, args); /* fits */
    va_end(args);
    return text;
}

void mem_free(void *ptr)
{
    free(ptr);
}
