/* PURE. The options that say how a job is stopped. */

#include "launcher/options/options_core.h"

#include "common/str.h"

#include <stdio.h>
#include <string.h>

enum { MAX_SHUTDOWN_S = 31536000 }; /* a year */

int launch_on_signals(void *target, const struct option_spec *spec, const char *value,
                      struct errmsg *msg)
{
    struct parse *p = target;

    (void)spec;
    (void)msg;
    signals_parse(value, &p->o.signals);
    return 0;
}

/* Kept, since --signals-to-handle may follow, which takes the place of all. */
int launch_on_preempt_signal(void *target, const struct option_spec *spec,
                             const char *value, struct errmsg *msg)
{
    struct signal_set alone = {0};
    struct parse *p = target;

    (void)spec;
    if (!signals_add(&alone, value)) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects a signal that can be handled, such as USR1, not "
                          "'%.40s'",
                          value);
    }
    (void)snprintf(p->preempt, sizeof(p->preempt), "%.24s", alone.text);
    return 0;
}

void launch_finish_stopping(struct parse *p)
{
    if (p->preempt[0] != '\0' && !signals_add(&p->o.signals, p->preempt)) {
        UNREACHABLE(); /* it was checked above */
    }
}

int launch_on_hang(void *target, const struct option_spec *spec, const char *value,
                   struct errmsg *msg)
{
    struct parse *p = target;

    (void)spec;
    if (strcmp(value, "restart") != 0 && strcmp(value, "report") != 0) {
        return errmsg_set(msg, ERR_INVALID, "expects restart or report, not '%.80s'",
                          value);
    }
    p->o.on_hang = strcmp(value, "restart") == 0 ? ON_HANG_RESTART : ON_HANG_REPORT;
    p->has_on_hang = true;
    return 0;
}

static int set_shutdown(struct launch_options *o, const char *value, struct errmsg *msg)
{
    uint64_t v;

    if (str_parse_u64(value, &v) < 0 || v > MAX_SHUTDOWN_S) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects whole seconds from 0 to %d, not '%.80s'",
                          MAX_SHUTDOWN_S, value);
    }
    o->shutdown_s = (uint32_t)v;
    o->has_shutdown_s = true;
    return 0;
}

int launch_on_shutdown_timeout(void *target, const struct option_spec *spec,
                               const char *value, struct errmsg *msg)
{
    struct parse *p = target;

    (void)spec;
    return set_shutdown(&p->o, value, msg);
}

int launch_options_shutdown_env(struct launch_options *o, const char *value,
                                struct errmsg *msg)
{
    int rv = o->has_shutdown_s || !value ? 0 : set_shutdown(o, value, msg);

    return rv < 0 ? errmsg_wrap(msg, rv, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT") : 0;
}
