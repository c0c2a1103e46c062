#ifndef LAUNCHER_OPTIONS_RDZV_CONF_H
#define LAUNCHER_OPTIONS_RDZV_CONF_H

/* PURE. The value of --rdzv-conf: KEY=VALUE,… torchrun's keys are all taken; those that
 * have no meaning here are checked, and that is all. A key that torchrun does not know
 * either is refused: it would ignore a misspelt time-out. */

#include "launcher/options/options.h"

struct rdzv_conf {
    uint64_t join_timeout_ms, last_call_timeout_ms; /* 0: not given */
    uint64_t timeout_ms;                            /* of the static backend; 0 */
    enum rdzv_serving serving;
};

/* ERR_INVALID with a text without the option's name. */
int rdzv_conf_parse(const char *value, struct rdzv_conf *ret,
                    struct errmsg *msg) MUST_CHECK;

#endif
