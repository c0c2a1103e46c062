#ifndef LAUNCHER_OWN_LINES_H
#define LAUNCHER_OWN_LINES_H

/* What ctrun itself has to say, on stderr, without waiting for whoever reads it: a full
 * pipe or a stopped terminal must not cost the node its lease. Lines of the log and
 * reports are queued for a thread of their own, so that the workers' output does not
 * hold them either; what is more than 2 MiB behind is lost. */

/* From here on log lines go that way. */
void own_lines_start(void);

/* Text of whole lines. */
void own_lines_put(const char *text);

/* Waits until all is written: 30 s while it gets on, 2 s while it does not. Blocks;
 * afterwards the log writes by itself again, or not at all when it would hang.
 */
void own_lines_stop(void);

#endif
