#ifndef LAUNCHER_VERBS_SHOW_H
#define LAUNCHER_VERBS_SHOW_H

/* What servers answered (rendezvous/view.h), for people: text, no I/O. What is in it
 * need not be as expected: another version's server may have made it. */

#include "common/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct show_style {
    size_t width; /* of the terminal; 0: there is none */
    bool has_colours;
    bool is_terminal; /* control characters of others must not reach it */
    bool has_prefix;  /* logs: of several ranks */
    uint64_t wall_ms; /* now */
};

/* {"jobs": […]} */
void show_jobs(const json_t *root, const struct show_style *style, struct buf *out);
/* … one of them, with its nodes */
void show_job(const json_t *job, const struct show_style *style, struct buf *out);
/* {"ranks": […]} */
void show_ranks(const json_t *root, const struct show_style *style, struct buf *out);
/* {"jobs": […]} that have ended; `job`: of it alone, which is there, ""; of all */
void show_history(const json_t *root, const char *job, const struct show_style *style,
                  struct buf *out);

/* One event; one line of a log, or (to *ret_is_note) what is to be said about it. */
void show_event(const json_t *event, const struct show_style *style, struct buf *out);
void show_log_line(const json_t *line, const struct show_style *style, struct buf *out,
                   bool *ret_is_note);

/* "node 1 (vm) of job train" */
void show_node(const json_t *node, struct buf *out);

/* One job that was cancelled, or will be once its workers have ended; or one node that
 * was told to go. */
void show_done(const json_t *item, bool is_node, struct buf *out);

#endif
