#ifndef LAUNCHER_RDZV_CONF_H
#define LAUNCHER_RDZV_CONF_H

/* PURE. The value of --rdzv-conf: KEY=VALUE,… What has no meaning here is refused by
 * name. */

#include "launcher/options.h"

/* Sets the timeouts. ERR_INVALID with a text without the option's name. */
int rdzv_conf_parse(const char *value, struct launch_options *o,
                    struct errmsg *msg) MUST_CHECK;

#endif
