#ifndef TESTS_LIB_STATE_MODEL_H
#define TESTS_LIB_STATE_MODEL_H

/* What the service's state must hold after some records, in the simplest way: a list of
 * rows, each with its sum alone. It is compared as one number. */

#include "rendezvous/record.h"

#include "common/err.h"

enum { STATE_MODEL_ROWS = 512 };

/* What is kept, as one number: the order means nothing. */
struct state_print {
    uint64_t sum;
    size_t n;
};

struct state_row {
    char job[8];
    enum record_kind kind;
    uint64_t generation;
    uint8_t key[16];
    size_t key_size;
    uint64_t sum;
};

struct state_model {
    struct state_row rows[STATE_MODEL_ROWS];
    size_t n;
};

void state_model_apply(struct state_model *m, const struct record *r);
struct state_print state_model_print(const struct state_model *m);

/* For state_db_load, whose argument is a struct state_print: what was found. */
int state_print_take(void *arg, const struct record *r, struct errmsg *msg);
bool state_print_is(struct state_print a, struct state_print b);

#endif
