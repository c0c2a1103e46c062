#ifndef WORKER_REPORT_PROGRESS_H
#define WORKER_REPORT_PROGRESS_H

/* What a person sees, as text: the progress line (step, loss, tokens/s, ETA, what the
 * step took of the machine), and the loss curve. The caller prints them. */

#include "worker/report/metrics.h"

#include <stdbool.h>
#include <stddef.h>

/* "step 120/400  loss 2.3457   gnorm 0.91   lr 5.9e-04  31.2k tok/s  ETA 0:42" into
 * `text`; the lines of a run stand in columns. A val_loss follows, "  scale 2^16" and,
 * of the steps since the last line, "  skipped 1" where the loss is scaled, and what is
 * known of "  mfu 43%  mem 1.1G peak 1.2G r3  compute 84%  reduce 12%": the peak is that
 * of rank 3 where that is not rank 0; queues at work for less than 1 % of the step are
 * left out. */
void progress_format(const struct metrics_line *line, uint64_t n_steps, char *text,
                     size_t size);

/* Draws loss against step from metrics.jsonl with Unicode block or braille dots,
 * `columns` × `rows` plus axes; the text is mem_alloc'ed. ERR_MISSING when there is no
 * line. */
int progress_curve(const char *metrics_path, int columns, int rows, char **ret,
                   struct errmsg *msg) MUST_CHECK;

#endif
