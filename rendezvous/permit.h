#ifndef RENDEZVOUS_PERMIT_H
#define RENDEZVOUS_PERMIT_H

/* PURE. What a peer may do that has shown a key; `who` NULL: it has shown none, and came
 * in where none is asked for. All return 0 or ERR_REFUSED, with a text for the peer. */

#include "common/err.h"
#include "common/identity.h"

/* To be an agent at all, or an operator: the first bytes have said no more. */
int permit_entry(const struct identity *who, struct errmsg *msg) MUST_CHECK;

/* To be a client of the store that belongs to no job. */
int permit_store(const struct identity *who, struct errmsg *msg) MUST_CHECK;

/* To be this node of this job. */
int permit_hello(const struct identity *who, const struct msg_hello *hello,
                 struct errmsg *msg) MUST_CHECK;

/* To ask and steer. */
int permit_operator(const struct identity *who, struct errmsg *msg) MUST_CHECK;

/* … every job, whoever has begun it. */
bool permit_every_job(const struct identity *who);

/* … this job; `owner` as permit_take has set it. Also: to see it in a list. */
bool permit_job(const struct identity *who, const char *job, const char *owner);

/* To be in a job whose owner that is; "": it becomes its own. */
int permit_take(const struct identity *who, const char *job,
                char owner[IDENTITY_OWNER_MAX], struct errmsg *msg) MUST_CHECK;

#endif
