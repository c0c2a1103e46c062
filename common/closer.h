#ifndef COMMON_CLOSER_H
#define COMMON_CLOSER_H

/* Counts an object's open handles (libuv's, or objects that own some), and tells once
 * when the last one is closed. Memory is released only there: inside any other callback
 * of the object one calls its stop function, never its release. Owned by value; the
 * loop's thread. */

#include <stdbool.h>
#include <stddef.h>

typedef void (*closer_cb)(void *arg);

struct closer {
    size_t n_open;
    bool is_closing;
    closer_cb on_closed;
    void *arg;
};

void closer_init(struct closer *c);

/* A handle was opened; its close callback was called. The object that owns the closer
 * may be gone when closer_closed returns. */
void closer_opened(struct closer *c);
void closer_closed(struct closer *c);

/* Every handle is being closed by now: calls back when the last one is, at once if
 * there is none. */
void closer_finish(struct closer *c, closer_cb on_closed, void *arg);

#endif
