#ifndef LAUNCHER_REPORT_H
#define LAUNCHER_REPORT_H

/* PURE. A REPORT message → the text every node prints last: torchrun's layout, plus
 * host, generation, signal name and the culprit's last lines. */

#include "common/msg.h"

/* mem_alloc'ed. Control characters of a worker's lines are escaped, but tabs and
 * newlines. */
char *report_format(const struct msg_report *report);

/* error.json in both accepted forms → message text (≤ size); false when it is neither.
 * Reads at most 1 MiB. */
bool report_read_error_file(const char *path, char *text, size_t size);

#endif
