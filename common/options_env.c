#include "common/check.h"
#include "common/options.h"
#include "common/str.h"

#include <string.h>

enum { VARIABLE_MAX_LEN = 96 };

static void name_variable(const char *prefix, const struct option_spec *spec,
                          char name[VARIABLE_MAX_LEN])
{
    bool fits = str_format(name, VARIABLE_MAX_LEN, "%s%s", prefix, spec->name);

    ASSERT(fits);
    for (char *c = name + strlen(prefix); *c != '\0'; c++) {
        if (*c == '-') {
            *c = '_';
        } else if (*c >= 'a' && *c <= 'z') {
            *c = (char)(*c - 'a' + 'A');
        }
    }
}

static int apply_flag(const struct option_spec *spec, const char *value, void *target,
                      struct errmsg *msg)
{
    int64_t number;

    if (str_parse_i64(value + strspn(value, " \t"), &number) < 0) {
        return errmsg_set(msg, ERR_INVALID, "expects 1 (on) or 0 (off), not '%.80s'",
                          value);
    }
    return number != 0 ? spec->set(target, spec, NULL, msg) : 0;
}

static int apply_variable(const struct option_spec *spec, const char *name,
                          const char *value, void *target, struct errmsg *msg)
{
    int rv;

    if (!spec->set) {
        return errmsg_set(msg, ERR_INVALID, "%s: --%s is not there yet; %s", name,
                          spec->name, spec->remedy);
    }
    rv = spec->value ? spec->set(target, spec, value, msg)
                     : apply_flag(spec, value, target, msg);
    return rv < 0 ? errmsg_wrap(msg, rv, "%s", name) : 0;
}

int options_parse_env(const struct options *options,
                      const struct options_source *source, const bool *given,
                      void *target, struct errmsg *msg)
{
    char name[VARIABLE_MAX_LEN];
    int rv = 0;

    for (size_t i = 0; i < options->n && rv == 0; i++) {
        const struct option_spec *spec = &options->specs[i];
        const char *value;

        if (given[i] || spec->no_variable || (!spec->set && spec->elsewhere)) {
            continue;
        }
        name_variable(source->prefix, spec, name);
        value = str_find_variable(source->env, name);
        rv = value ? apply_variable(spec, name, value, target, msg) : 0;
    }
    return rv;
}
