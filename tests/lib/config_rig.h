#ifndef TESTS_LIB_CONFIG_RIG_H
#define TESTS_LIB_CONFIG_RIG_H

/* Small files in a scratch folder, and command lines parsed against them. A line is
 * split at
 * "|"; an item "@" becomes --config-path=<the folder>. In expected texts the "@" of
 * "@/" and "@ " stands for that folder. */

#include "tests/lib/scratch.h"
#include "worker/config.h"

extern struct scratch config_rig_scratch;
extern struct worker_options config_rig_options; /* of the last line parsed */

int config_rig_open(void **state); /* set-up and tear-down of each case */
int config_rig_close(void **state);

int config_rig_parse(const char *line, struct errmsg *msg);
const struct train_config *must_parse(const char *line);
void assert_refused(const char *line, const char *expected);

/* x.yaml with that text is refused with those words. */
void assert_file_refused(const char *text, const char *expected);

#endif
