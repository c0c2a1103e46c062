#include "tests/lib/state_model.h"

#include "rendezvous/state_schema.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <stdio.h>
#include <string.h>

struct state_print state_model_print(const struct state_model *m)
{
    struct state_print print = {0, m->n};

    for (size_t i = 0; i < m->n; i++) {
        print.sum ^= m->rows[i].sum;
    }
    return print;
}

static bool is_named(const struct state_row *row, const struct record *r)
{
    return row->kind == r->kind && row->generation == r->generation &&
           strcmp(row->job, r->job) == 0 && row->key_size == r->key.size &&
           memcmp(row->key, r->key.data, r->key.size) == 0;
}

static bool is_hit(const struct state_row *row, const struct record *r)
{
    bool is_of_generation = row->kind == RECORD_END || row->kind == RECORD_KEY ||
                            row->kind == RECORD_QUEUE || row->kind == RECORD_CLIENT;
    bool is_history = row->kind == RECORD_FINISHED || row->kind == RECORD_COMMIT ||
                      row->kind == RECORD_EVENT || row->kind == RECORD_CURVE;

    switch (r->act) {
    case RECORD_PUT:
    case RECORD_DROP:
        return is_named(row, r);
    case RECORD_DROP_GENERATION:
        return is_of_generation && row->generation == r->generation &&
               strcmp(row->job, r->job) == 0;
    case RECORD_DROP_JOB:
        return !is_history && strcmp(row->job, r->job) == 0;
    }
    UNREACHABLE();
}

void state_model_apply(struct state_model *m, const struct record *r)
{
    size_t left = 0;

    for (size_t i = 0; i < m->n; i++) {
        if (!is_hit(&m->rows[i], r)) {
            m->rows[left++] = m->rows[i];
        }
    }
    m->n = left;
    if (r->act == RECORD_PUT) {
        struct state_row *row = &m->rows[m->n++];

        assert_true(m->n <= STATE_MODEL_ROWS && r->key.size <= sizeof(row->key));
        *row = (struct state_row){.kind = r->kind,
                                  .generation = r->generation,
                                  .key_size = r->key.size,
                                  .sum = state_row_sum(r)};
        (void)snprintf(row->job, sizeof(row->job), "%s", r->job);
        memcpy(row->key, r->key.data, r->key.size);
    }
}

int state_print_take(void *arg, const struct record *r, struct errmsg *msg)
{
    struct state_print *print = arg;

    (void)msg;
    if (r->kind != RECORD_START) { /* the database's own */
        print->sum ^= state_row_sum(r);
        print->n++;
    }
    return 0;
}

bool state_print_is(struct state_print a, struct state_print b)
{
    return a.sum == b.sum && a.n == b.n;
}
