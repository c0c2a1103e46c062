#ifndef LAUNCHER_VERBS_VALUE_H
#define LAUNCHER_VERBS_VALUE_H

/* What is in an answer (rendezvous/view.h), a value at a time, as text for people. What
 * is not there, or is of another kind, is "". */

#include "launcher/verbs/table.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct value {
    const json_t *json; /* the job, node, rank … */
    const char *key;    /* of the value in it, for those that can be any's */
    uint64_t wall_ms;   /* now */
    char text[96];      /* room for what is made */
};

/* What it returns is in v->text, or in the JSON. */
typedef const char *value_format(struct value *v);

value_format value_as_text;
value_format value_as_number;
value_format value_as_time; /* wall clock, of …_ms */
value_format value_as_age;  /* how long ago that was */
value_format value_as_loss;

/* Of a job: "2 of 1:4"; "2 (1 of 3)"; how long it ran; … */
value_format value_as_nodes;
value_format value_as_restarts;
value_format value_as_ran;
value_format value_as_state; /* "hangs", where it runs and does */
value_format value_as_cause; /* what hangs now, or ends it, else the last cause */
value_format value_as_hang;
value_format value_as_last_cause;

/* Of a rank: "reduce, waits for 3"; how long ago it reported. */
value_format value_as_phase;
value_format value_as_report_age;

const char *value_text(const json_t *json, const char *key);
int64_t value_number(const json_t *json, const char *key);

/* Past the buffer's ceiling the rest is missing. */
void value_put(struct buf *out, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Of a state or a kind of event. */
enum table_colour value_colour(const char *state);

#endif
