#ifndef LAUNCHER_OUTPUT_LOG_FOLDER_H
#define LAUNCHER_OUTPUT_LOG_FOLDER_H

/* The folder that holds the output of a run's workers (not of ctrun-worker, which has
 * its run directory): <log dir>/<run id>_<8 random characters>, as torchrun has it. Who
 * names no --log-dir gets one in $TMPDIR, so that the report of a failure can say where
 * the words of every rank are; where nobody asked for files, it is bounded in size and
 * goes when all ended well. Any thread, one at a time. */

#include "launcher/options/options.h"

#include <limits.h>

struct log_folder {
    char path[PATH_MAX]; /* "": none */
    uint64_t max_size;   /* of a file in it; 0: no bound */
    bool is_unasked;
};

/* ERR_… with one line where there has to be one and cannot be. */
int log_folder_choose(const struct launch_options *options, bool is_engine,
                      uint32_t random, struct log_folder *ret,
                      struct errmsg *msg) MUST_CHECK;

/* At the end of the run, when its files are closed. */
void log_folder_end(const struct log_folder *f, bool all_ended_well);

#endif
