#ifndef WORKER_GAUGE_H
#define WORKER_GAUGE_H

/* What a step takes of the machine, for its line in metrics.jsonl: MFU, memory, time of
 * each queue. Rank 0's numbers; of memory also the largest of all ranks, which travels
 * with the losses. */

#include "worker/report/memory.h"
#include "worker/trainer.h"

struct gauge {
    uint64_t busy_us[QUEUE_COUNT]; /* at the last step's line */
    struct memory memory;          /* the peak: of all that was read */
    uint64_t read_ms;              /* when it was */
};

void gauge_start(struct gauge *g, const struct trainer *t);

/* Every rank, before the losses are exchanged. */
void gauge_note(struct gauge *g, const struct trainer *t);

/* Rank 0, after it, when line->step_s is known. */
void gauge_read(struct gauge *g, const struct trainer *t, struct metrics_line *line);

/* What the queues have done since is no step's. */
void gauge_skip(struct gauge *g, const struct trainer *t);

#endif
