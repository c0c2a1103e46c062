#ifndef TESTS_LIB_FIXTURE_H
#define TESTS_LIB_FIXTURE_H

/* Reads safetensors fixtures that the tests' own generators wrote. No defence against
 * hostile files: a wrong one fails the test, with its name and what is missing. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fixture {
    const char *path; /* borrowed */
    void *map;
    size_t size;
    json_t *header;
    const uint8_t *data; /* inside map */
};

void fixture_open(struct fixture *f, const char *path);
void fixture_close(struct fixture *f);

/* Settings of the generator ("__metadata__"). */
bool fixture_has(const struct fixture *f, const char *key);
const char *fixture_text(const struct fixture *f, const char *key);
double fixture_number(const struct fixture *f, const char *key);
int fixture_int(const struct fixture *f, const char *key);

/* The values of a tensor of that type, *ret_n of them; NULL when it is not there. */
const float *fixture_f32(const struct fixture *f, const char *name, size_t *ret_n);
const double *fixture_f64(const struct fixture *f, const char *name, size_t *ret_n);
const int32_t *fixture_i32(const struct fixture *f, const char *name, size_t *ret_n);

/* ‖a − b‖ / ‖b‖, in double; ‖a‖ when b is all zero. NaN in either one gives NaN. */
double fixture_distance(const float *a, const float *b, size_t n);

#endif
