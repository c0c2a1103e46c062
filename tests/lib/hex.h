#ifndef TESTS_LIB_HEX_H
#define TESTS_LIB_HEX_H

/* Bytes written as in the wire's description: hex digits, blanks anywhere. */

#include <stddef.h>
#include <stdint.h>

/* Returns how many bytes the text stood for; aborts if it is no hex or too long. */
size_t hex_decode(const char *text, uint8_t *bytes, size_t max);

#endif
