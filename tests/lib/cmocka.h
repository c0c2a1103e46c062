#ifndef TESTS_LIB_CMOCKA_H
#define TESTS_LIB_CMOCKA_H

/* <cmocka.h> with what it needs before it, in an order that the formatter leaves alone.
 */

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#endif
