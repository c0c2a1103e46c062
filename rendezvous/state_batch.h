#ifndef RENDEZVOUS_STATE_BATCH_H
#define RENDEZVOUS_STATE_BATCH_H

/* PURE. The records of one transaction as bytes, on their way from the loop to the
 * thread that writes them. */

#include "rendezvous/record.h"

#include "common/buf.h"

/* Copies the record. Only what memory can hold bounds a batch: what a turn of the loop
 * may take in is bounded. */
void state_batch_add(struct buf *batch, const struct record *r);

/* Reads the first record of `batch` and moves behind it; the record points into it.
 * False: there is none left. */
bool state_batch_next(struct bytes *batch, struct record *ret) MUST_CHECK;

#endif
