#ifndef LAUNCHER_CHANNEL_H
#define LAUNCHER_CHANNEL_H

/* What one worker and its agent say to each other besides output: the control channel
 * (control.h), and the progress pipe, on which any program may write lines,
 *
 *   step N [PHASE]          it begins step N, or a phase of it
 *   loss X [TOKENS/S]       … whose loss is X
 *   stack SIGNAL            by this signal (a number) it can be asked where it is, and
 *                           answers by other lines
 *
 * Both are read until the worker's end. Loop thread only. */

#include "common/control.h"
#include "common/err.h"

struct uv_loop_s;
struct channel;

enum { CHANNEL_STACK_MAX = 1024 };

struct channel_config {
    struct uv_loop_s *loop;
    uint32_t slot;
    void *arg;
    /* Progress lines come as CONTROL_PROGRESS. */
    void (*on_control)(void *arg, uint32_t slot, const struct control *c);
};

/* Makes both; the returned descriptors are the worker's ends (CLOEXEC), the caller's to
 * close after the spawn. */
int channel_open(const struct channel_config *config, struct channel **ret,
                 int *ret_control, int *ret_progress, struct errmsg *msg) MUST_CHECK;

/* ERR_BUSY: the worker does not read. */
int channel_send(struct channel *c, const struct control *m) MUST_CHECK;

/* By which signal the worker can be asked for its stack; 0: it has not said so. Other
 * lines than those above are kept from here on … */
int channel_ask_stack(struct channel *c);
/* … and are these; "": nothing came. */
const char *channel_stack(const struct channel *c);

/* The worker has ended: what it still said is read (and called back) first. NULL
 * allowed; frees itself, the loop runs on. */
void channel_close(struct channel *c);

/* PURE. One progress line, without its newline, into what was said last; false, and
 * nothing is changed, for anything else. */
bool channel_parse_progress(const char *line, struct control *said);

/* PURE. "stack SIGNAL": one that nothing else means; 0 for anything else. */
int channel_parse_stack(const char *line);

#endif
