#ifndef COMMON_CHECK_H
#define COMMON_CHECK_H

/* Assertions that stay on in every build, and the few macros that everybody needs. A
 * failed ASSERT is a bug of ours, never a peer's or a user's mistake: it prints the
 * place and the ring of recent state changes (log.h), then aborts. */

#include <stddef.h>

#define ASSERT(cond) \
    ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, __func__, #cond))
#define UNREACHABLE() check_failed(__FILE__, __LINE__, __func__, "unreachable")

/* The number of elements of an array (never of a pointer). */
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The object of `type` whose field `member` is at `ptr`. */
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* The next multiple of `unit`. */
#define ROUND_UP(n, unit) (((n) + (unit)-1) / (unit) * (unit))

#define MUST_CHECK             __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

_Noreturn void check_failed(const char *file, int line, const char *func,
                            const char *what);

/* There are no `size` bytes more: no bug, but nothing to go on with either. One line of
 * cause and remedy, then it aborts. */
_Noreturn void check_out_of_memory(size_t size);

#endif
