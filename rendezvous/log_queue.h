#ifndef RENDEZVOUS_LOG_QUEUE_H
#define RENDEZVOUS_LOG_QUEUE_H

/* The lines of the log, on stderr, without waiting for whoever reads them: a full pipe
 * or a stopped terminal must not cost all jobs their leases. They are queued, 1 MiB of
 * them, for a thread of their own; what is more is left out and counted, and a line says
 * so once there is room again. A regular file has no reader: there lines are written at
 * once, as ever. One per process, as stderr is. */

#include <stdbool.h>

/* From here on log lines go that way; where the system has no thread left they are
 * written at once, and a line says so. An abort waits a second for what is queued. */
void log_queue_start(void);

/* Waits until all is written: 5 s while it gets on, 1 s while it does not. True: the log
 * writes by itself again; false: nobody reads, and what comes now is left out. */
bool log_queue_stop(void);

#endif
