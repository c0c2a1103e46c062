#include "rendezvous/check_config.h"

#include "rendezvous/keyring.h"

#include "common/listener.h"
#include "common/options.h"
#include "common/str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print_listen(const struct rendezvous_options *o, const bool *is_taken)
{
    for (size_t i = 0; i < o->n_listen; i++) {
        char host[sizeof(o->listen[i].host) + 2];

        str_format_host(host, sizeof(host), o->listen[i].host);
        (void)printf("listen: %s:%d%s\n", host, o->listen[i].port,
                     is_taken[i] ? " (taken now: the service itself?)" : "");
    }
}

/* Options whose setters are their own. */
static void print_own(const struct rendezvous_options *o, const char *name)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};

    if (strcmp(name, "log-level") == 0) {
        (void)printf("%s: %s\n", name, levels[o->log_level]);
    } else if (strcmp(name, "legacy-store") == 0) {
        (void)printf("%s: %s\n", name, o->legacy_b ? "b" : "a");
    } else if (strcmp(name, "state-dir") == 0) {
        (void)printf("%s: none\n", name);
    }
}

static void print_option(const struct rendezvous_options *o,
                         const struct option_spec *spec)
{
    const void *field = (const char *)o + spec->offset;

    if (spec->set == option_set_true) {
        (void)printf("%s: %s\n", spec->name, *(const bool *)field ? "true" : "false");
    } else if (spec->set == option_set_u32) {
        (void)printf("%s: %" PRIu32 "\n", spec->name, *(const uint32_t *)field);
    } else if (spec->set == option_set_text) {
        const char *text = field;

        (void)printf("%s: %s\n", spec->name, text[0] != '\0' ? text : "none");
    } else {
        print_own(o, spec->name);
    }
}

static bool is_asked(const struct option_spec *spec)
{
    return spec->set && spec->set != option_set_help &&
           strcmp(spec->name, "check-config") != 0 && strcmp(spec->name, "listen") != 0;
}

int check_config(const struct rendezvous_options *o, struct errmsg *msg)
{
    const struct options *table = rendezvous_options_table();
    struct server_limits limits = rendezvous_options_limits(o);
    struct keyring keyring = {NULL};
    bool is_taken[RENDEZVOUS_MAX_LISTEN];
    int rv;

    for (size_t i = 0; i < o->n_listen; i++) {
        rv = listener_try(o->listen[i].host, o->listen[i].port, msg);

        is_taken[i] = rv == -EADDRINUSE;
        if (rv < 0 && !is_taken[i]) {
            return rv;
        }
    }
    rv = keyring_open(&keyring, o, msg);
    keyring_close(&keyring);
    if (rv < 0) {
        return rv;
    }
    (void)printf("ctrun-rendezvous: the options are fine\n");
    print_listen(o, is_taken);
    for (size_t i = 0; i < table->n; i++) {
        if (is_asked(&table->specs[i])) {
            print_option(o, &table->specs[i]);
        }
    }
    (void)printf("memory: at most %" PRIu64 " MiB by all these bounds\n",
                 limits_max_memory(&limits) >> 20);
    return fflush(stdout) == 0
               ? 0
               : errmsg_set(msg, -errno, "standard output: %s", err_text(-errno));
}
