#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

/* PURE. Bytes of others, which need be no UTF-8, as text. */

#include "common/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* The length of the character at `s`, of which `size` bytes are there; 0: they are
 * none (broken, overlong, a surrogate, above U+10FFFF). *ret_code: which it is. */
size_t utf8_decode(const uint8_t *s, size_t size, uint32_t *ret_code);

/* What a terminal obeys, or what makes it show a text otherwise than it stands there:
 * control characters (of ASCII and of C1, ESC above all), marks of direction, separators
 * of lines. */
bool utf8_is_wild(uint32_t code);

/* May people know something by that name? All of it is characters, none of them wild, or
 * such that nobody sees whether they are there. */
bool utf8_is_name(const char *text);

/* Appends it with U+FFFD for each byte that belongs to no character, and for NUL.
 * ERR_TOO_LARGE: the buffer's ceiling; it takes at most three times the size. */
int utf8_clean(struct buf *out, const void *data, size_t size) MUST_CHECK;

/* The same for a terminal or a line of text: what is wild becomes `?`, tabs and newlines
 * a space. */
int utf8_tame(struct buf *out, const void *data, size_t size) MUST_CHECK;

/* How many columns it takes, about: a character has one, what combines none, those of
 * East Asia two. It is valid UTF-8. */
size_t utf8_columns(const char *text, size_t size);

#endif
