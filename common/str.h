#ifndef COMMON_STR_H
#define COMMON_STR_H

/* Strict parsing: the whole text is the value, or it is an error. */

#include "common/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ERR_INVALID for empty text, trailing junk or overflow. */
int str_parse_i64(const char *text, int64_t *ret) MUST_CHECK;
int str_parse_u64(const char *text, uint64_t *ret) MUST_CHECK;
int str_parse_double(const char *text, double *ret) MUST_CHECK; /* finite only */

/* "HOST", "HOST:PORT", "[V6]:PORT", "V6" (two or more colons). `*ret_port` is left as
 * it is without a port. ERR_INVALID for an empty host, a bad port (0…65535) or too long
 * a host. */
int str_parse_host_port(const char *text, char *host, size_t host_size,
                        int *ret_port) MUST_CHECK;

/* As it stands in front of ":PORT": an IPv6 address gets its brackets. Cut to `size`.
 */
void str_format_host(char *text, size_t size, const char *host);

bool str_starts_with(const char *text, const char *prefix);

/* Neither '/' nor control characters: it may name a folder. */
bool str_is_plain(const char *text);

/* Levenshtein distance, for "did you mean": lengths above 63 count as far. */
unsigned str_distance(const char *a, const char *b);

/* The nearest of `n` names to `text`, or NULL when none is near (distance ≤ 1 + len/3).
 */
const char *str_nearest(const char *text, const char *const *names, size_t n);

/* The value of NAME in texts "NAME=value" with NULL at their end; NULL: it has none. */
const char *str_find_variable(char *const *env, const char *name);

/* snprintf that says whether everything fit. */
bool str_format(char *text, size_t size, const char *fmt, ...)
    PRINTF_LIKE(3, 4) MUST_CHECK;

#endif
