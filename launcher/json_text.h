#ifndef LAUNCHER_JSON_TEXT_H
#define LAUNCHER_JSON_TEXT_H

/* PURE. Texts as JSON: what people and programs give us need not be UTF-8. */

#include "common/buf.h"

/* Appends "text" in quotes, in ASCII, as Python's json.dumps has it; a byte that belongs
 * to no character becomes U+FFFD. NULL: null. */
void json_put_text(struct buf *out, const char *text);

/* Appends as printf does; `out` must have room. */
void json_put(struct buf *out, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
