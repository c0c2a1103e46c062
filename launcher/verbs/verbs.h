#ifndef LAUNCHER_VERBS_VERBS_H
#define LAUNCHER_VERBS_VERBS_H

/* The operator's verbs: `ctrun status`, ps, events, logs, cancel, drain, history. */

#include "launcher/verbs/verb_options.h"

/* argv[0] is the verb's name. The exit code. */
int verbs_run(const struct verb *verb, int argc, char *const *argv);

#endif
