#ifndef TESTS_LIB_LINEAR_H
#define TESTS_LIB_LINEAR_H

/* Whether what clients saw of one key can have been: is there an order of their
 * operations, each between its call and its return, in which one copy of the key would
 * have answered so? (Wing and Gong's search; where it has been before, it does not go
 * again.) An operation that never returned may have been done at any time, or not. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINEAR_MAX = 64 };
#define LINEAR_NEVER UINT64_MAX

enum linear_kind { LINEAR_SET, LINEAR_APPEND, LINEAR_CAS, LINEAR_GET, LINEAR_ADD };

/* Values are numbers, or (of texts) their linear_hash. */
struct linear_op {
    enum linear_kind kind;
    uint64_t expected;         /* CAS */
    uint64_t value;            /* SET, CAS: of the whole text; ADD: so much more */
    uint8_t more[8];           /* APPEND */
    uint64_t result;           /* CAS, GET, ADD; of those that returned */
    uint64_t called, returned; /* no two are alike */
};

#define LINEAR_EMPTY 14695981039346656037U

/* Of a text with this hash, and more behind it. */
uint64_t linear_hash(uint64_t before, const uint8_t *more, size_t size);

/* Of a key that is empty, or 0 (`first`), before; at most LINEAR_MAX. */
bool linear_check(const struct linear_op *op, size_t n, uint64_t first);

#endif
