#ifndef WORKER_CONFIG_DIFF_H
#define WORKER_CONFIG_DIFF_H

/* PURE. Which keys differ between two configurations, as config_to_json writes them.
 * Keys that change nothing in what is computed (run, checkpoint, log, device, comm,
 * sample) are left out. Both texts may come from elsewhere: one that is no JSON object
 * differs in nothing. */

#include <stddef.h>

/* "train.seed, optim.lr" into `text`, as many as fit; returns their number. */
size_t config_diff(const char *before, const char *now, char *text, size_t size);

#endif
