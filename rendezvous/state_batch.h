#ifndef RENDEZVOUS_STATE_BATCH_H
#define RENDEZVOUS_STATE_BATCH_H

/* PURE. The records of one transaction as bytes: on their way from the loop to the
 * thread that writes them, and in the database's journal (state_pending.h). Each is
 *
 *   u8 act · u8 kind · u16, u16, u32 sizes of · u64 generation · job, 0 · key · value
 *
 * little-endian, so that any number of batches behind one another is a batch. */

#include "rendezvous/record.h"

#include "common/buf.h"

/* Copies the record. Only what memory can hold bounds a batch: what a turn of the loop
 * may take in is bounded. */
void state_batch_add(struct buf *batch, const struct record *r);

/* Reads the first record of `batch` and moves behind it; the record points into it. 1;
 * 0: there is none left; ERR_CORRUPT: it is none that state_batch_add has made, and is
 * left there. */
int state_batch_next(struct bytes *batch, struct record *ret) MUST_CHECK;

#endif
