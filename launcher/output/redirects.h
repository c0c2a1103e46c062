#ifndef LAUNCHER_OUTPUT_REDIRECTS_H
#define LAUNCHER_OUTPUT_REDIRECTS_H

/* PURE. Where a worker's two streams go, by torchrun's options and two of our own.
 *
 *   --redirects, --tee    MASK, or LOCAL_RANK:MASK,… (the ranks that are not named: 0);
 *                         MASK: 0 neither, 1 stdout, 2 stderr, 3 both
 *   --local-ranks-filter  RANKS: RANK or FIRST-LAST, with commas between
 *   --ranks-filter        RANKS, global ones (ours)
 *   --console             all, none, or RANKS, global ones (ours)
 *
 * A stream is always kept in a file (torchrun: only one that is redirected or teed),
 * unless there are no files; then redirecting and teeing have no meaning. Redirected:
 * nowhere else. Teed: on the console too, each line with a prefix. Neither: on the
 * console as it comes. What is on the console has to be let through by each of the
 * filters and by --console; where nobody says anything about the console, an engine
 * speaks from rank 0 alone. */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The options' values, as the checks below have accepted them: borrowed, NULL where an
 * option is not given. */
struct redirects {
    const char *redirects, *tee;
    const char *local_ranks, *ranks;
    const char *console;
    bool has_no_files; /* --log-dir=/dev/null */
};

struct redirects_stream {
    bool is_engine;
    uint32_t rank, local_rank;
    unsigned number; /* 0: stdout, 1: stderr */
};

struct redirects_route {
    bool to_file;
    bool to_console;
    bool is_teed; /* its lines get the prefix; not of a rank that is filtered out */
};

/* ERR_INVALID with what was expected, for the name of an option to stand in front. */
int redirects_check_mask(const char *text, struct errmsg *msg) MUST_CHECK;
int redirects_check_ranks(const char *text, struct errmsg *msg) MUST_CHECK;
int redirects_check_console(const char *text, struct errmsg *msg) MUST_CHECK;

/* Where a list names no rank that there is, so that the console stays empty: a line that
 * says so, for whoever wonders. */
struct redirects_ranks {
    uint32_t n_world, n_local;
};
bool redirects_explain(const struct redirects *r, const struct redirects_ranks *ranks,
                       char *ret, size_t size);

struct redirects_route redirects_route(const struct redirects *r,
                                       const struct redirects_stream *stream);

#endif
