#ifndef RENDEZVOUS_HISTORY_INTERNAL_H
#define RENDEZVOUS_HISTORY_INTERNAL_H

/* history.c and history_restore.c only. */

#include "rendezvous/history.h"

/* NULL: none that lives. */
struct history_job *history_find_living(const struct history *h, const char *id);

/* … it begins now. */
struct history_job *history_take_job(struct history *h, const char *id,
                                     uint64_t wall_ms);

void history_set_owner(struct history_job *job, const char *owner);

/* An event of that kind is about a job that is known, or begins with it. */
bool history_is_of_job(const struct history *h, enum job_event_kind kind,
                       const char *id);

/* What an event changes of its job's record. */
void history_apply(struct history *h, struct history_job *job,
                   const struct history_event *e);

/* Takes it over. */
void history_push(struct history *h, struct history_event *e);

/* Cut to what is kept; NULL is "". The caller's. */
char *history_copy_text(const char *text);

#endif
