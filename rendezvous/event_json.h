#ifndef RENDEZVOUS_EVENT_JSON_H
#define RENDEZVOUS_EVENT_JSON_H

/* PURE. An event of the history as JSON: what the API shows, and what is kept. */

#include "rendezvous/history.h"

#include <jansson.h>

/* A new object: for those who ask … */
json_t *event_json_make(const struct history_event *e);
/* … and with whose job it was, to be kept. */
json_t *event_json_keep(const struct history_event *e);

/* {"failure": 2, …}: all causes, those that are 0 too. */
json_t *event_json_restarts(const uint32_t restarts[RESTART_CAUSE_COUNT]);

/* Text that a peer has sent: what is no UTF-8 is replaced. */
json_t *event_json_text(const char *text);

/* Fills `ret` but its number; its texts are mem_alloc'ed. False: it is none of ours;
 * nothing is to be freed. */
bool event_json_parse(const uint8_t *text, size_t size, struct history_event *ret);

#endif
