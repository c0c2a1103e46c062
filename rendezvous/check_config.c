#include "rendezvous/check_config.h"

#include "rendezvous/keyring.h"
#include "rendezvous/state.h"
#include "rendezvous/state_check.h"

#include "common/exit_code.h"
#include "common/listener.h"
#include "common/options.h"
#include "common/str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The addresses in the order of the options: those of --listen, then of --http. */
struct tried {
    bool is_taken[RENDEZVOUS_MAX_LISTEN + 1];
    bool is_state_used;
};

static void print_address(const char *name, const struct rendezvous_address *a,
                          bool is_taken)
{
    char host[sizeof(a->host) + 2];

    str_format_host(host, sizeof(host), a->host);
    (void)printf("%s: %s:%d%s\n", name, host, a->port,
                 is_taken ? " (taken now: the service itself?)" : "");
}

/* A name for each; none for none. */
static void print_names(const struct rendezvous_options *o, const char *name)
{
    for (size_t i = 0; i < o->n_http_names; i++) {
        (void)printf("%s: %s\n", name, o->http_name[i]);
    }
    if (o->n_http_names == 0) {
        (void)printf("%s: none\n", name);
    }
}

/* Options whose setters are their own. */
static void print_own(const struct rendezvous_options *o, const struct tried *tried,
                      const char *name)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};

    if (strcmp(name, "log-level") == 0) {
        (void)printf("%s: %s\n", name, levels[o->log_level]);
    } else if (strcmp(name, "legacy-store") == 0) {
        (void)printf("%s: %s\n", name, o->legacy_b ? "b" : "a");
    } else if (strcmp(name, "state-dir") == 0) {
        (void)printf("%s: %s%s\n", name, o->state_dir[0] ? o->state_dir : "none",
                     tried->is_state_used ? " (used now: by the service itself?)" : "");
    } else if (strcmp(name, "http") == 0 && o->http.host[0]) {
        print_address(name, &o->http, tried->is_taken[o->n_listen]);
    } else if (strcmp(name, "http") == 0) {
        (void)printf("%s: none\n", name);
    } else if (strcmp(name, "http-name") == 0) {
        print_names(o, name);
    }
}

static void print_option(const struct rendezvous_options *o, const struct tried *tried,
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
        print_own(o, tried, spec->name);
    }
}

static bool is_asked(const struct option_spec *spec)
{
    return spec->set != option_set_help && strcmp(spec->name, "check-config") != 0 &&
           strcmp(spec->name, "listen") != 0;
}

static void print_all(const struct rendezvous_options *o, const struct tried *tried)
{
    const struct options *table = rendezvous_options_table();
    struct server_limits limits = rendezvous_options_limits(o);

    (void)printf("ctrun-rendezvous: the options are fine\n");
    for (size_t i = 0; i < o->n_listen; i++) {
        print_address("listen", &o->listen[i], tried->is_taken[i]);
    }
    for (size_t i = 0; i < table->n; i++) {
        if (is_asked(&table->specs[i])) {
            print_option(o, tried, &table->specs[i]);
        }
    }
    (void)printf("memory: at most %" PRIu64 " MiB by all these bounds\n",
                 limits_max_memory(&limits) >> 20);
}

static int try_address(const struct rendezvous_address *a, bool *ret_taken,
                       struct errmsg *msg)
{
    int rv = listener_try(a->host, a->port, msg);

    *ret_taken = rv == -EADDRINUSE;
    return *ret_taken ? 0 : rv;
}

static int try_addresses(const struct rendezvous_options *o, struct tried *ret,
                         struct errmsg *msg)
{
    int rv = 0;

    for (size_t i = 0; i < o->n_listen && rv == 0; i++) {
        rv = try_address(&o->listen[i], &ret->is_taken[i], msg);
    }
    if (rv == 0 && o->http.host[0]) {
        rv = try_address(&o->http, &ret->is_taken[o->n_listen], msg);
    }
    return rv;
}

/* In the order of a start, so that of several mistakes the same one is named. */
static int try_all(const struct rendezvous_options *o, struct tried *ret,
                   int *ret_exit_code, struct errmsg *msg)
{
    struct keyring keyring = {NULL, 0};
    struct errmsg state_msg = {""};
    bool is_late = false;
    int state_rv = 0;
    int rv = keyring_open(&keyring, o, msg);

    keyring_close(&keyring);
    if (rv < 0) {
        return rv;
    }
    if (o->state_dir[0] != '\0') {
        state_rv = state_check(o->state_dir, &ret->is_state_used, &is_late, &state_msg);
    }
    if (state_rv == 0 || is_late) {
        rv = try_addresses(o, ret, msg);
    }
    if (rv == 0 && state_rv < 0) {
        *msg = state_msg;
        *ret_exit_code = state_exit_code(state_rv);
        return state_rv;
    }
    return rv;
}

int check_config(const struct rendezvous_options *o, int *ret_exit_code,
                 struct errmsg *msg)
{
    struct tried tried = {.is_state_used = false};
    int rv;

    *ret_exit_code = EXIT_MISTAKE;
    rv = try_all(o, &tried, ret_exit_code, msg);
    if (rv < 0) {
        return rv;
    }
    print_all(o, &tried);
    return fflush(stdout) == 0
               ? 0
               : errmsg_set(msg, -errno, "standard output: %s", err_text(-errno));
}
