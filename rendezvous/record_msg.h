#ifndef RENDEZVOUS_RECORD_MSG_H
#define RENDEZVOUS_RECORD_MSG_H

/* PURE. What agents are told and have told, as records keep it (record_fields.h), and
 * back: a field that the protocol loses, or gets another width of, fails to compile. */

#include "rendezvous/record_fields.h"

void record_of_rank_ended(const struct msg_rank_ended *from, struct record_rank *to);
void record_to_rank_ended(const struct record_rank *from, struct msg_rank_ended *to);

/* All but n_arrivals. */
void record_of_report(const struct msg_report *from, struct record_report *to);
void record_to_report(const struct record_report *from, struct msg_report *to);

#endif
