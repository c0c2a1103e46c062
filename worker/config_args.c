#include "worker/config_build.h"
#include "worker/config_table.h"

#include "common/mem.h"
#include "common/str.h"

#include <string.h>

/* The worker's command line: flags begin with a dash, everything else is an override.
 */

enum flag {
    FLAG_PATH,
    FLAG_NAME,
    FLAG_CFG,
    FLAG_PROFILE,
    FLAG_DRY_RUN,
    FLAG_HELP,
    FLAG_VERSION
};

static const struct {
    const char *name;
    enum flag flag;
    bool has_value;
} flags[] = {
    {"--config-path", FLAG_PATH, true}, {"-cp", FLAG_PATH, true},
    {"--config-name", FLAG_NAME, true}, {"-cn", FLAG_NAME, true},
    {"--cfg", FLAG_CFG, true},          {"-c", FLAG_CFG, true},
    {"--profile", FLAG_PROFILE, true},  {"--dry-run", FLAG_DRY_RUN, false},
    {"--help", FLAG_HELP, false},       {"-h", FLAG_HELP, false},
    {"--version", FLAG_VERSION, false},
};

/* Whether `arg` begins with the flag's name, underscores counting as dashes. */
static bool is_flag(const char *arg, const char *name)
{
    size_t i;

    for (i = 0; name[i]; i++) {
        bool is_dash = name[i] == '-' && i > 0 && arg[i] == '_';

        if (arg[i] != name[i] && !is_dash) {
            return false;
        }
    }
    return arg[i] == '\0' || arg[i] == '=';
}

/* "--train.steps=5": a key as other tools have it. */
static bool is_dashed_key(const char *arg, const char **ret_key)
{
    char path[CONFIG_PATH_MAX];
    const char *key = arg + strspn(arg, "-");
    size_t len = strcspn(key, "=");

    if (len >= sizeof(path)) {
        return false;
    }
    memcpy(path, key, len);
    path[len] = '\0';
    *ret_key = key;
    return config_key_find(path) != NULL;
}

/* ctrun's options, for those that stand behind us by mistake. */
static bool is_launchers(const char *arg)
{
    static const char *const names[] = {
        "--nnodes",
        "--nproc-per-node",
        "--standalone",
        "--rdzv-id",
        "--rdzv-backend",
        "--rdzv-endpoint",
        "--rdzv-conf",
        "--max-restarts",
        "--node-rank",
        "--master-addr",
        "--master-port",
        "--local-addr",
        "--log-dir",
        "--redirects",
        "--tee",
        "--log-line-prefix-template",
        "--local-ranks-filter",
        "--duplicate-stdout-filters",
        "--duplicate-stderr-filters",
        "--role",
        "--module",
        "--no-python",
        "--run-path",
        "--start-method",
        "--monitor-interval",
        "--event-log-handler",
        "--signals-to-handle",
        "--shutdown-timeout",
        "--on-hang",
        "--preempt-signal",
        "--rdzv-secret-file",
        "--tls-ca",
        "--tls-cert",
        "--tls-key",
        "--virtual-local-rank",
        "--numa-binding",
        "--print-completion",
        "--log-max-size",
        "--console",
        "--ranks-filter",
        "--store-access",
        "--json",
    };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (is_flag(arg, names[i])) {
            return true;
        }
    }
    return false;
}

/* NULL when none is near; a name of two letters is near to everything short. */
static const char *nearest_flag(const char *arg)
{
    const char *names[ARRAY_LEN(flags)];

    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        names[i] = flags[i].name;
    }
    return strlen(arg) > 3 ? str_nearest(arg, names, ARRAY_LEN(names)) : NULL;
}

static int blame_flag(const char *arg, struct errmsg *msg)
{
    const char *nearest = nearest_flag(arg);
    const char *key;

    if (is_dashed_key(arg, &key)) {
        return errmsg_set(msg, ERR_INVALID,
                          "command line: \"%s\": a key has no dashes: %.*s=VALUE", arg,
                          (int)strcspn(key, "="), key);
    }
    if (is_launchers(arg)) {
        return errmsg_set(msg, ERR_INVALID,
                          "command line: \"%s\" is an option of ctrun: put it before "
                          "ctrun-worker",
                          arg);
    }
    if (!nearest) {
        return errmsg_set(msg, ERR_INVALID,
                          "command line: unknown option \"%s\"; 'ctrun-worker --help' "
                          "lists them",
                          arg);
    }
    return errmsg_set(msg, ERR_INVALID,
                      "command line: unknown option \"%s\"; nearest: \"%s\"", arg,
                      nearest);
}

static int set_cfg(const char *value, struct worker_options *options,
                   struct errmsg *msg)
{
    ASSERT(value); /* take_flag() saw to it */
    if (strcmp(value, "job") != 0 && strcmp(value, "all") != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "command line: --cfg: \"%s\" is not one of job, all", value);
    }
    memcpy(options->cfg, value, strlen(value) + 1);
    return 0;
}

static int set_flag(enum flag flag, const char *value, struct config_args *args,
                    struct worker_options *options, struct errmsg *msg)
{
    switch (flag) {
    case FLAG_PATH:
        args->dir = value;
        args->has_dir = true;
        return 0;
    case FLAG_NAME:
        args->name = value;
        return 0;
    case FLAG_CFG:
        return set_cfg(value, options, msg);
    case FLAG_PROFILE:
        options->profile = value;
        return 0;
    case FLAG_DRY_RUN:
        options->dry_run = true;
        return 0;
    case FLAG_HELP:
        options->help = true;
        return 0;
    case FLAG_VERSION:
        options->version = true;
        return 0;
    }
    UNREACHABLE();
}

/* Takes argv[*i], and the next one too when it is the flag's value. */
static int take_flag(int argc, char *const *argv, int *i, struct config_args *args,
                     struct worker_options *options, struct errmsg *msg)
{
    const char *arg = argv[*i];
    const char *value = strchr(arg, '=');
    size_t f = 0;

    while (f < ARRAY_LEN(flags) && !is_flag(arg, flags[f].name)) {
        f++;
    }
    if (f == ARRAY_LEN(flags)) {
        return blame_flag(arg, msg);
    }
    if (!flags[f].has_value && value) {
        return errmsg_set(msg, ERR_INVALID, "command line: %s takes no value",
                          flags[f].name);
    }
    if (flags[f].has_value && !value && *i + 1 < argc) {
        value = argv[++*i];
    } else if (value) {
        value++;
    }
    if (flags[f].has_value && (!value || value[0] == '\0')) {
        return errmsg_set(msg, ERR_INVALID, "command line: %s needs a value",
                          flags[f].name);
    }
    return set_flag(flags[f].flag, value, args, options, msg);
}

/* "model=gpt2-124m" and "+model/attention=fast" choose a file; "model={layers: 2}" and
 * "model.layers=2" do not. */
static bool is_choice(const char *override, char *group, const char **ret_option)
{
    const char *key = override + (override[0] == '+');
    const char *equals = strchr(key, '=');
    size_t len = equals ? (size_t)(equals - key) : 0;

    if (len == 0 || len >= CONFIG_GROUP_MAX || equals[1] == '{' || equals[1] == '[' ||
        memchr(key, '.', len)) {
        return false;
    }
    memcpy(group, key, len);
    group[len] = '\0';
    *ret_option = equals + 1;
    return strchr(group, '/') || config_is_section(group);
}

static int add_override(struct config_args *args, const char *text, struct errmsg *msg)
{
    struct config_choice choice = {.is_added = text[0] == '+'};

    if (!is_choice(text, choice.group, &choice.option)) {
        args->override[args->n_overrides++] = text;
        return 0;
    }
    if (args->n_choices == CONFIG_MAX_CHOICES) {
        return errmsg_set(msg, ERR_TOO_LARGE, "command line: more than %d choices",
                          CONFIG_MAX_CHOICES);
    }
    args->choice[args->n_choices++] = choice;
    return 0;
}

int config_args_parse(int argc, char *const *argv, struct config_args *args,
                      struct worker_options *options, struct errmsg *msg)
{
    int rv = 0;

    *args = (struct config_args){.dir = "configs"};
    args->override = mem_array((size_t)argc + 1, sizeof(*args->override));
    for (int i = 1; i < argc && rv == 0; i++) {
        if (argv[i][0] == '-') {
            rv = take_flag(argc, argv, &i, args, options, msg);
        } else {
            rv = add_override(args, argv[i], msg);
        }
    }
    return rv;
}

void config_args_release(struct config_args *args)
{
    mem_free(args->override);
    args->override = NULL;
}
