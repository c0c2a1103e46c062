#ifndef LAUNCHER_OUTPUT_OUTPUT_H
#define LAUNCHER_OUTPUT_OUTPUT_H

/* The output of a node's workers: pipes in; whole lines out, to a file per rank and
 * generation and, for chosen ranks, to the console; the last lines kept for the report.
 *
 * Where a stream goes is redirects.h's to say. An engine is who said hello; until it is
 * known (hello, 64 KiB, or the end), lines are buffered when the program's name says
 * engine. Files are written by a thread, so that a hung file system never holds the
 * loop; when that thread is behind, pipes are not read (back-pressure, not memory),
 * first those that have most to say. A line longer than 1 MiB is passed on in parts (one
 * over 64 KiB, too, while all such take 32 MiB); a progress bar, which has no end, as it
 * is drawn. Where our own stdout or stderr is a
 * terminal, what a foreign program has there, and is passed on without a prefix, is a
 * pseudo-terminal. Loop thread only. */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uv_loop_s;
struct output;
struct redirects;

enum { OUTPUT_KEPT_MAX = 64 * 1024 };

struct output_config {
    struct uv_loop_s *loop;
    bool maybe_engine;    /* the program's base name is ctrun-worker */
    const char *log_base; /* folder for foreign programs' files: <log_base>/attempt_<g>/
                             <local_rank>/{stdout,stderr}.log; NULL: none */
    bool makes_files_late; /* a foreign program's file comes with its first line */
    uint64_t max_size;     /* of a file, before it becomes the older one; 0: no bound */
    const struct redirects *redirects; /* its texts outlive us; NULL: nothing asked */
    const char *prefix; /* template of teed lines' (line_prefix.h); NULL: torchrun's */
    const char *role;   /* for it; NULL: "" */
    const char *host;   /* for it; NULL: "" */
    const char *filters[2]; /* of stdout and stderr (line_filter.h); NULL: none. Such
                               lines of teed streams also go to <log_base>/attempt_<g>/
                               filtered_{stdout,stderr}.log, of all ranks */
    void (*on_resized)(void *arg); /* the workers' terminals have another size; NULL */
    void (*on_cut)(void *arg); /* once: nobody takes what the workers said last; NULL */
    void *arg;
};

int output_new(const struct output_config *config, struct output **ret,
               struct errmsg *msg) MUST_CHECK;

/* A worker of generation g starts: makes its pipes, or pseudo-terminals. The returned
 * descriptors are the child's ends, stdout's and stderr's (CLOEXEC; the caller closes
 * its copies after the spawn). `slot` = local rank. */
int output_open_rank(struct output *o, uint32_t slot, uint32_t rank,
                     uint64_t generation, int ret_ends[2],
                     struct errmsg *msg) MUST_CHECK;

/* The worker said hello: its lines go to <folder>/rank<rank>.log (made if missing). */
void output_is_engine(struct output *o, uint32_t slot, const char *folder);

/* The worker refused on its control channel, which is told on every node: what is held
 * of its own words is left to the tail, so that people do not read it twice. */
void output_has_refused(struct output *o, uint32_t slot);

/* The worker has ended: reads what its pipes still hold (bounded when a grandchild
 * keeps them open), flushes (as long as the files and the console take anything),
 * closes, then calls back. */
void output_close_rank(struct output *o, uint32_t slot, void (*on_closed)(void *arg),
                       void *arg);

/* The last ≤ 20 lines, ≤ 8 KiB, of stderr and stdout together; valid until the slot is
 * opened again. */
const char *output_tail(const struct output *o, uint32_t slot);

/* Where the rank's log lies: an engine's file, another program's folder; "" for
 * nowhere. */
const char *output_log_path(const struct output *o, uint32_t slot);

/* What the rank has left beside its output is put into its folder, under this name, by
 * the thread that writes files. Its path; "", and not put anywhere, where the rank has
 * no folder, or it is larger than OUTPUT_KEPT_MAX: what waits for a slow disk must stay
 * small, with all ranks failing at once. Valid until the next call. */
const char *output_keep(struct output *o, uint32_t slot, const char *name,
                        const void *data, size_t size);

/* Asynchronous; flushes, joins the thread, frees itself after the callback. */
void output_stop(struct output *o, void (*on_stopped)(void *arg), void *arg);

#endif
