#ifndef COMMON_ASIDE_H
#define COMMON_ASIDE_H

/* Something that may hang (a file system or a name server that does not answer), done by
 * a thread of its own (errand.h) for so long, and no longer: then the thread is left
 * alone with its memory, and holds up neither the loop nor the end of the program, as
 * one of libuv's would. The loop's thread. */

#include <stdint.h>

struct uv_loop_s;
struct aside;

#define ASIDE_NO_LIMIT UINT64_MAX

struct aside_config {
    struct uv_loop_s *loop;
    uint64_t limit_ms;
    void (*work)(void *data); /* on the thread */
    void (*release)(void *data);
    /* On the loop, once: `data`, for the time of the call; NULL: it was not in time. */
    void (*on_done)(void *arg, void *data);
    void *arg;
};

/* `data` is ours from now on, until `release`. Where the system has no thread left, the
 * work is done here and now; on_done comes later all the same. */
struct aside *aside_run(const struct aside_config *config, void *data);

/* Before on_done, which does not come any more. The loop runs on. */
void aside_drop(struct aside *a);

#endif
