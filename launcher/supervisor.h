#ifndef LAUNCHER_SUPERVISOR_H
#define LAUNCHER_SUPERVISOR_H

/* The shell around the agent (agent.h): a libuv loop that turns sockets, signals, time
 * and the keeper's messages into the agent's events, and carries out its actions. No
 * policy. */

#include "launcher/keeper/keeper.h"
#include "launcher/options/options.h"

/* Runs the node's part of the job to its end; returns ctrun's exit code. `env` is the
 * environment the workers inherit. Errors have been said. */
int supervisor_run(struct launch_options *options, struct keeper *keeper,
                   char *const *env);

/* --dry-run: prints what supervisor_run would start (dry_run.h), and starts nothing. */
int supervisor_dry_run(struct launch_options *options, char *const *env);

#endif
