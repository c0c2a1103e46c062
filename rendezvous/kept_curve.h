#ifndef RENDEZVOUS_KEPT_CURVE_H
#define RENDEZVOUS_KEPT_CURVE_H

/* PURE. A job's loss curve as a durable record (record.h), of at most 12 KiB. */

#include "rendezvous/loss_curve.h"
#include "rendezvous/record.h"

#include "common/identity.h"

struct kept_curve {
    char job[MSG_ID_MAX];
    char owner[IDENTITY_OWNER_MAX];
    uint64_t number;   /* of the event with which the job began … */
    uint64_t ended;    /* … and of that of its end; 0: it lives */
    uint64_t began_ms; /* wall clock */
    struct loss_curve curve;
};

typedef void kept_curve_save_fn(void *arg, const struct record *r);

/* PUT, or DROP of what was put. */
void kept_curve_put(const struct kept_curve *c, kept_curve_save_fn *save, void *arg);
void kept_curve_drop(const char *job, uint64_t number, kept_curve_save_fn *save,
                     void *arg);

/* False: it is none. The curve is then the caller's to release. */
bool kept_curve_read(const struct record *r, struct kept_curve *ret) MUST_CHECK;

#endif
