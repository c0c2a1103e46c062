#ifndef LAUNCHER_REPORT_H
#define LAUNCHER_REPORT_H

/* PURE. A final REPORT message → the text every node prints last: torchrun's layout,
 * plus host, generation, signal name and the culprit's last lines. */

#include "common/msg.h"

/* mem_alloc'ed. `time`: report->wall_ms as people read it here. Control characters of a
 * worker's lines are escaped, but tabs and newlines. */
char *report_format(const struct msg_report *report, const char *time);

/* Words of others as one line for the log: newlines are escaped, too. mem_alloc'ed. */
char *report_escape(const char *text);

#endif
