#ifndef RENDEZVOUS_RECORD_RENEW_H
#define RENDEZVOUS_RECORD_RENEW_H

/* PURE. Values that earlier schemas of the state have written (state_schema.h), as those
 * of this one. Up to schema 2 three had version 1: in CAUSE and REPORT were messages as
 * the agents' protocol had them then, in a frame; FINISHED had no owner. */

#include "rendezvous/record.h"

#include "common/buf.h"

/* Appends to `out` what the value of the record `r` has become. 1; 0: it is what it was,
 * and nothing was appended; ERR_CORRUPT. */
int record_renew(const struct record *r, struct buf *out) MUST_CHECK;

#endif
