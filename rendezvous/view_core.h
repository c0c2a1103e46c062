#ifndef RENDEZVOUS_VIEW_CORE_H
#define RENDEZVOUS_VIEW_CORE_H

/* PURE. What view.c and view_nodes.c share: values that are put into an object, and
 * questions to a job. */

#include "rendezvous/view.h"

/* "some": left out where it is 0 or "". */
void view_put_integer(json_t *json, const char *key, uint64_t value);
void view_put_some(json_t *json, const char *key, uint64_t value);
void view_put_text(json_t *json, const char *key, const char *text);
void view_put_some_text(json_t *json, const char *key, const char *text);

/* A diverged loss is no number: null. */
json_t *view_make_real(double value);

bool view_has_generation(const struct job *j);
bool view_is_member(const struct job *j, const struct job_node *node); /* of it */

/* What the ranks of the generation say; NULL: nothing that is known. */
const struct progress *view_progress(const struct job *j);

#endif
