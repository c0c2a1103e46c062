#ifndef COMMON_EXIT_CODE_H
#define COMMON_EXIT_CODE_H

/* What the programs end with, besides 0. `ctrun` ends with the first cause's own code,
 * or with EXIT_SIGNAL + the signal's number: of the rank that it killed, else of the
 * one that told `ctrun` to stop. */

enum {
    EXIT_MISTAKE = 2, /* the user's; of a worker: it refuses its configuration */
    EXIT_NO_SUCH = 3, /* of ctrun's verbs: no such job, node or rank */
    EXIT_HAS_FAILED =
        4, /* … and the job that was asked for has failed, or is stopped */

    /* ctrun-worker */
    EXIT_LOST_PEER = 80, /* or fenced; like 81 never a first cause */
    EXIT_COMM_TIMEOUT = 81,
    EXIT_STORAGE = 82,
    EXIT_LEFT = 83, /* on request, and saved */

    /* ctrun */
    EXIT_CRASH_LOOP = 93, /* without progress: not restarted */
    EXIT_RENDEZVOUS = 94, /* failed, or refused */
    EXIT_STATE = 95,      /* damaged or foreign, refused */

    EXIT_SIGNAL = 128,
};

#endif
