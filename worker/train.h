#ifndef WORKER_TRAIN_H
#define WORKER_TRAIN_H

/* One training run, from its options to its exit code (control_client.h). */

#include "worker/config.h"
#include "worker/control_client.h"
#include "worker/launch.h"

int train_run(const struct worker_options *options, const struct launch *launch,
              struct control_client *control);

#endif
