#ifndef LAUNCHER_OUTPUT_OWN_LINES_H
#define LAUNCHER_OUTPUT_OWN_LINES_H

/* What ctrun itself has to say, on stderr, without waiting for whoever reads it: a full
 * pipe or a stopped terminal must not cost the node its lease. Lines of the log and
 * reports are queued for a thread of their own, so that the workers' output does not
 * hold them either; what is more than 2 MiB behind is lost. */

#include <stdbool.h>

/* From here on log lines go that way. */
void own_lines_start(void);

/* Text of whole lines. */
void own_lines_put(const char *text);

/* A worker's text was passed on to stdout or stderr: does it stop within a line? Then
 * the next of our own lines begins on a fresh one. Called when the text is handed to
 * its writer: as that is another thread than ours, our line may still come before the
 * text, or within it. Any thread. */
void own_lines_console(int fd, bool is_mid_line);

/* Waits until all is written: 30 s while it gets on, 2 s while it does not. Blocks;
 * afterwards the log writes by itself again, or not at all when it would hang.
 */
void own_lines_stop(void);

#endif
