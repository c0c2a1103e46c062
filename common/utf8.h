#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

/* PURE. Bytes of others, which need be no UTF-8, as text. */

#include "common/buf.h"

#include <stdbool.h>

/* The length of the character at `s`, of which `size` bytes are there; 0: they are
 * none (broken, overlong, a surrogate, above U+10FFFF). *ret_code: which it is. */
size_t utf8_decode(const uint8_t *s, size_t size, uint32_t *ret_code);

/* Whether all of it is characters. */
bool utf8_is_valid(const char *text);

/* Appends it with U+FFFD for each byte that belongs to no character, and for NUL.
 * ERR_TOO_LARGE: the buffer's ceiling; it takes at most three times the size. */
int utf8_clean(struct buf *out, const void *data, size_t size) MUST_CHECK;

/* The same for a terminal or a line of text: control characters (of ASCII and of
 * C1, ESC above all) and what would turn the text's direction become `?`, tabs and
 * newlines a space. */
int utf8_tame(struct buf *out, const void *data, size_t size) MUST_CHECK;

/* How many columns it takes, about: a character has one, what combines none, those of
 * East Asia two. It is valid UTF-8. */
size_t utf8_columns(const char *text, size_t size);

#endif
