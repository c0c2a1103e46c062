#ifndef TESTS_LIB_BODY_H
#define TESTS_LIB_BODY_H

/* Bodies of TCPStore requests, from a format: s text (as u64 + bytes), b pointer and
 * size_t (as u64 + bytes), i int64_t, u uint32_t, n an int count (as u64). */

#include "common/buf.h"

#include <stdarg.h>

/* `out` is initialised here; buf_release it. */
void body_make(struct buf *out, const char *format, ...);
void body_vmake(struct buf *out, const char *format, va_list given);

#endif
