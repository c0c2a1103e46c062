#ifndef WORKER_REPORT_PROGRESS_H
#define WORKER_REPORT_PROGRESS_H

/* What a person sees, as text: the progress line (step, loss, tokens/s, ETA), and the
 * loss curve. The caller prints them. */

#include "worker/report/metrics.h"

#include <stdbool.h>
#include <stddef.h>

/* "step 120/400  loss 2.3457   gnorm 0.91   lr 5.9e-04  31.2k tok/s  ETA 0:42" into
 * `text`; the lines of a run stand in columns. A val_loss follows at the end. */
void progress_format(const struct metrics_line *line, uint64_t n_steps, char *text,
                     size_t size);

/* Draws loss against step from metrics.jsonl with Unicode block or braille dots,
 * `columns` × `rows` plus axes; the text is mem_alloc'ed. ERR_MISSING when there is no
 * line. */
int progress_curve(const char *metrics_path, int columns, int rows, char **ret,
                   struct errmsg *msg) MUST_CHECK;

#endif
