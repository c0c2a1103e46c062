/* The values of the options for the workers' output. All are kept as the text that they
 * are: argv outlives us. */

#include "launcher/options/options_core.h"
#include "launcher/output/line_prefix.h"

#include "common/str.h"

#include <string.h>

enum { MIN_LOG_SIZE = 4096 };

static void keep(void *target, const struct option_spec *spec, const char *value)
{
    memcpy((char *)target + spec->offset, &value, sizeof(value));
}

int launch_on_mask(void *target, const struct option_spec *spec, const char *value,
                   struct errmsg *msg)
{
    keep(target, spec, value);
    return redirects_check_mask(value, msg);
}

int launch_on_ranks(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg)
{
    keep(target, spec, *value == '\0' ? NULL : value); /* torchrun's default */
    return *value == '\0' ? 0 : redirects_check_ranks(value, msg);
}

int launch_on_console(void *target, const struct option_spec *spec, const char *value,
                      struct errmsg *msg)
{
    keep(target, spec, value);
    return redirects_check_console(value, msg);
}

int launch_on_filters(void *target, const struct option_spec *spec, const char *value,
                      struct errmsg *msg)
{
    (void)msg;
    keep(target, spec, *value == '\0' ? NULL : value);
    return 0;
}

int launch_on_prefix(void *target, const struct option_spec *spec, const char *value,
                     struct errmsg *msg)
{
    keep(target, spec, *value == '\0' ? NULL : value);
    if (strlen(value) >= LINE_PREFIX_MAX) {
        return errmsg_set(msg, ERR_INVALID, "is longer than %d characters",
                          LINE_PREFIX_MAX - 1);
    }
    return 0;
}

/* A number and, maybe, K, M or G. */
int launch_on_log_max_size(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg)
{
    static const char units[] = "KMG";
    struct parse *p = target;
    size_t len = strlen(value);
    const char *unit = len > 0 ? strchr(units, value[len - 1]) : NULL;
    char number[16];
    uint64_t v = 0;

    (void)spec;
    len -= unit ? 1 : 0;
    if (len < sizeof(number)) {
        memcpy(number, value, len);
        number[len] = '\0';
    }
    if (len >= sizeof(number) || str_parse_u64(number, &v) < 0 ||
        v > UINT64_MAX >> 30U) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects bytes as 65536, 64K, 10M or 1G, not '%.80s'", value);
    }
    v <<= unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (v < MIN_LOG_SIZE) {
        return errmsg_set(msg, ERR_INVALID, "expects at least %d bytes, not '%.80s'",
                          MIN_LOG_SIZE, value);
    }
    p->o.log_max_size = v;
    return 0;
}
