/* ctrun-rendezvous. Happy path: 1. options; 2. a server on a loop, listening; 3. READY
 * to whoever supervises; 4. SIGHUP: the configuration is read again, aside (reloader.h);
 * 5. SIGTERM or SIGINT: the server is stopped, the loop runs empty, exit 0. The user's
 * mistakes: one line, exit 2; a port or a state that is taken may be free soon: exit 1.
 * Signals wait until 3. */

#include "rendezvous/check_config.h"
#include "rendezvous/early.h"
#include "rendezvous/holder.h"
#include "rendezvous/http_server.h"
#include "rendezvous/keyring.h"
#include "rendezvous/log_queue.h"
#include "rendezvous/manager.h"
#include "rendezvous/options.h"
#include "rendezvous/reloader.h"
#include "rendezvous/server.h"
#include "rendezvous/state.h"

#include "common/buf.h"
#include "common/exit_code.h"
#include "common/listener.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/stdfd.h"
#include "common/str.h"
#include "common/version.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

enum { FILES_OWN = 32 }; /* with a state, and some to spare; those of HTTP come to it */

struct daemon {
    struct rendezvous_options options;
    uv_loop_t loop;
    struct state *state; /* NULL: nothing is kept */
    struct server *server;
    int exit_code; /* when it cannot start */
    struct keyring keyring;
    char host_name[256];  /* of this machine, and … */
    char short_name[256]; /* … without its domain */
    const char *names[RENDEZVOUS_MAX_NAMES + 2];
    struct manager *manager;
    struct reloader *reloader;
    uv_signal_t term, interrupt, hangup;
    int argc;
    char **argv;
};

static int print_help(void)
{
    char *options = rendezvous_options_help();

    (void)printf(
        "usage: ctrun-rendezvous [options]\n\nThe rendezvous service of ctrun: "
        "membership, ranks, restarts and the key-value store\nof training jobs. "
        "Speaks PyTorch's TCPStore protocol on the same port.\n\n%s",
        options);
    mem_free(options);
    return 0;
}

static uint32_t own_files(const struct rendezvous_options *o)
{
    bool has_http = o->http.host[0] != '\0';

    return FILES_OWN + (has_http ? (uint32_t)HTTP_MAX_CONNECTIONS : 0);
}

/* Each agent and each store client is a descriptor. */
static int raise_descriptor_limit(const struct rendezvous_options *o,
                                  struct errmsg *msg)
{
    uint32_t own = own_files(o);
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return 0; /* the listeners say when descriptors run out */
    }
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0) {
        log_warn("cannot raise the limit of open files", "cause=\"%s\"",
                 err_text(-errno));
    }
    if (limit.rlim_cur < own) {
        return errmsg_set(msg, ERR_INVALID,
                          "a service needs %u open files and one for each connection, "
                          "and may have %llu: raise the limit (ulimit -Hn %llu; "
                          "LimitNOFILE= of systemd)",
                          own, (unsigned long long)limit.rlim_cur,
                          (unsigned long long)own + o->max_connections);
    }
    return 0;
}

/* When it serves (a start that fails has one line), and when they may be more now. */
static void warn_of_few_descriptors(const struct rendezvous_options *o)
{
    uint64_t needed = (uint64_t)own_files(o) + o->max_connections;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed) {
        log_warn(
            "fewer files may be open than so many connections need, so there may be "
            "fewer connections: raise the limit (ulimit -n, LimitNOFILE=), or lower "
            "max-connections",
            "files=%llu needed=%llu max_connections=%u",
            (unsigned long long)limit.rlim_cur, (unsigned long long)needed,
            o->max_connections);
    }
}

/* As many connections as there are files for: where one is accepted that has said
 * nothing, another such makes room; where none can be, who is silent keeps all out. */
static struct server_limits limits_of(const struct daemon *d)
{
    struct server_limits limits = rendezvous_options_limits(&d->options);
    size_t own = own_files(&d->options);
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        limits.max_connections =
            MIN(limits.max_connections, (size_t)MAX(files.rlim_cur, own + 1) - own);
    }
    return limits;
}

static void on_stopped(void *arg)
{
    struct daemon *d = arg;

    if (d->state) {
        state_close(d->state);
    }
    /* nothing is left on the loop: it ends */
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;

    log_info("stopping", "signal=%d", number);
    manager_stop(d->manager);
    reloader_stop(d->reloader);
    uv_close((uv_handle_t *)&d->term, NULL);
    uv_close((uv_handle_t *)&d->interrupt, NULL);
    uv_close((uv_handle_t *)&d->hangup, NULL);
    server_stop(d->server, on_stopped, d);
}

static void on_hangup(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;

    (void)number;
    manager_reloading(d->manager);
    reloader_ask(d->reloader);
}

static void on_options(void *arg)
{
    struct daemon *d = arg;
    struct server_limits limits = limits_of(d);

    log_set_level(d->options.log_level);
    server_set_limits(d->server, &limits);
    warn_of_few_descriptors(&d->options);
}

static void on_reloaded(void *arg)
{
    struct daemon *d = arg;

    manager_ready(d->manager);
}

static void make_reloader(struct daemon *d)
{
    const struct reloader_config config = {.loop = &d->loop,
                                           .argc = d->argc,
                                           .argv = d->argv,
                                           .options = &d->options,
                                           .keyring = &d->keyring,
                                           .late_ms = RELOADER_LATE_MS,
                                           .on_options = on_options,
                                           .on_done = on_reloaded,
                                           .arg = d};

    d->reloader = reloader_new(&config);
}

static int watch(struct daemon *d, uv_signal_t *handle, uv_signal_cb on, int number)
{
    int rv = uv_signal_init(&d->loop, handle);

    handle->data = d;
    return rv == 0 ? uv_signal_start(handle, on, number) : rv;
}

static int start_signals(struct daemon *d)
{
    int rv;

    make_reloader(d);
    rv = watch(d, &d->term, on_signal, SIGTERM);

    rv = rv == 0 ? watch(d, &d->interrupt, on_signal, SIGINT) : rv;
    rv = rv == 0 ? watch(d, &d->hangup, on_hangup, SIGHUP) : rv;
    return rv == 0 ? manager_new(&d->loop, d->server, &d->manager) : rv;
}

static uint64_t history_ms(const struct rendezvous_options *o)
{
    return (uint64_t)o->history_days * 24 * 3600 * 1000;
}

static int open_state(struct daemon *d, struct errmsg *msg)
{
    const struct rendezvous_options *o = &d->options;
    struct state_config config = {
        .loop = &d->loop,
        .dir = o->state_dir,
        .reserve_bytes = (uint64_t)o->state_reserve_mib << 20,
        .history_ms = history_ms(o),
        .history_bytes = (uint64_t)o->history_max_mib << 20,
        .patience_ms = STATE_PATIENCE_MS,
    };
    int rv;

    rv = o->state_dir[0] ? state_open(&config, &d->state, msg) : 0;
    d->exit_code = rv < 0 ? state_exit_code(rv) : EXIT_MISTAKE;
    return rv;
}

/* What the server starts from, and how it is kept: for the log. */
static void say_state(const struct daemon *d)
{
    if (d->state) {
        const struct durable *durable = state_durable(d->state);

        log_info("state is kept", "state_dir=%s cluster=%016llx boot=%llu",
                 d->options.state_dir, (unsigned long long)durable->cluster,
                 (unsigned long long)durable->boot);
    } else {
        log_info("state is kept in memory: it ends with this process",
                 "state_dir=none");
    }
}

static int blame_listen(const struct rendezvous_address *address, int rv,
                        struct errmsg *msg)
{
    if (rv == -EADDRINUSE) {
        holder_describe(address->host, address->port, msg->text, sizeof(msg->text));
    }
    return rv;
}

static int blame_http(const struct rendezvous_address *address, int rv,
                      struct errmsg *msg)
{
    if (rv == -EADDRINUSE) {
        listener_name_holder(address->host, address->port, msg->text,
                             sizeof(msg->text));
        return errmsg_wrap(msg, rv, "--http");
    }
    return rv;
}

/* Before the state counts this start: who waits for a port starts again and again. */
static int try_addresses(const struct daemon *d, struct errmsg *msg)
{
    const struct rendezvous_options *o = &d->options;
    int rv = 0;

    for (size_t i = 0; i < o->n_listen && rv == 0; i++) {
        rv = listener_try(o->listen[i].host, o->listen[i].port, msg);
        rv = blame_listen(&o->listen[i], rv, msg);
    }
    if (rv == 0 && o->http.host[0]) {
        rv = listener_try(o->http.host, o->http.port, msg);
        rv = blame_http(&o->http, rv, msg);
    }
    return rv;
}

static int start_server(struct daemon *d, struct errmsg *msg)
{
    struct server_limits limits = limits_of(d);
    struct server_config config = {
        .loop = &d->loop,
        .lease_ms = d->options.lease_ms,
        .insecure = d->options.insecure,
        .tls = d->keyring.tls,
        .logs_jobs = true,
        .legacy_b = d->options.legacy_b,
        .store_max_bytes = limits.store_max_bytes,
        .job_max_bytes = limits.job_max_bytes,
        .max_connections = limits.max_connections,
        .accept_per_s = limits.accept_per_s,
        .history_ms = history_ms(&d->options),
        .durable = d->state ? state_durable(d->state) : NULL,
    };
    int rv;

    rv = server_new(&config, &d->server, msg);
    if (rv < 0 && d->state) {
        d->exit_code = state_exit_code(rv);
    }
    for (size_t i = 0; i < d->options.n_listen && rv == 0; i++) {
        struct rendezvous_address *address = &d->options.listen[i];

        rv =
            server_listen(d->server, address->host, address->port, &address->port, msg);
        rv = blame_listen(address, rv, msg);
    }
    if (rv == 0) {
        server_receive_operators(d->server, 0);
    }
    return rv;
}

/* The names by which the status may be asked for. */
static size_t collect_names(struct daemon *d)
{
    size_t n = 0;

    for (; n < d->options.n_http_names; n++) {
        d->names[n] = d->options.http_name[n];
    }
    if (gethostname(d->host_name, sizeof(d->host_name) - 1) == 0) {
        memcpy(d->short_name, d->host_name, sizeof(d->short_name));
        d->short_name[strcspn(d->short_name, ".")] = '\0';
        d->names[n++] = d->host_name;
        d->names[n++] = d->short_name;
    }
    return n;
}

static int start_http(struct daemon *d, struct errmsg *msg)
{
    struct rendezvous_address *address = &d->options.http;
    struct server_http http = {address->host, address->port, d->names, 0};
    int rv;

    if (!address->host[0]) {
        return 0;
    }
    http.n_names = collect_names(d);
    rv = server_listen_http(d->server, &http, &address->port, msg);
    return blame_http(address, rv, msg);
}

/* Without keys, where other machines can connect. */
static void warn_of_strangers(const struct daemon *d)
{
    struct buf open;
    char host[sizeof(d->options.listen[0].host) + 2];
    int rv = 0;

    buf_init(&open, SIZE_MAX);
    for (size_t i = 0; i < d->options.n_listen && d->options.insecure && rv == 0; i++) {
        const struct rendezvous_address *address = &d->options.listen[i];

        if (!rendezvous_is_loopback(address->host)) {
            str_format_host(host, sizeof(host), address->host);
            rv = buf_printf(&open, "%s%s:%d", buf_len(&open) > 0 ? "," : "", host,
                            address->port);
        }
    }
    if (buf_len(&open) > 0) {
        log_warn("whoever can connect may take part in jobs, and nothing is encrypted: "
                 "give --secrets in place of --insecure ('ctrun keygen' makes them)",
                 "listen=%.*s", (int)buf_len(&open), (const char *)buf_bytes(&open));
    }
    buf_release(&open);
}

/* On stdout, where scripts that asked for port 0 find it. */
static int say_addresses(const struct daemon *d)
{
    for (size_t i = 0; i < d->options.n_listen; i++) {
        const struct rendezvous_address *address = &d->options.listen[i];
        char host[sizeof(address->host) + 2];

        str_format_host(host, sizeof(host), address->host);
        (void)printf("ctrun-rendezvous: listening on %s:%d\n", host, address->port);
    }
    if (d->options.http.host[0]) {
        char host[sizeof(d->options.http.host) + 2];

        str_format_host(host, sizeof(host), d->options.http.host);
        (void)printf("ctrun-rendezvous: status at http://%s:%d/\n", host,
                     d->options.http.port);
        if (!rendezvous_is_loopback(d->options.http.host)) {
            log_warn("whoever can connect may read the status, and it is not encrypted",
                     "http=%s:%d", host, d->options.http.port);
        }
    }
    return fflush(stdout) == 0 ? 0 : -EIO;
}

static int serve(struct daemon *d, struct errmsg *msg)
{
    int rv;

    rv = uv_loop_init(&d->loop);
    if (rv < 0) {
        return errmsg_set(msg, rv, "cannot start: %s", err_text(rv));
    }
    rv = keyring_open(&d->keyring, &d->options, msg);
    rv = rv < 0 ? rv : open_state(d, msg);
    rv = rv < 0 ? rv : try_addresses(d, msg);
    rv = rv < 0 ? rv : start_server(d, msg);
    rv = rv < 0 ? rv : start_http(d, msg);
    if (rv < 0) {
        d->exit_code = rv == -EADDRINUSE ? EXIT_FAILURE : d->exit_code; /* may pass */
        return rv;
    }
    rv = start_signals(d);
    if (rv < 0) {
        return errmsg_set(msg, rv, "cannot handle signals: %s", err_text(rv));
    }
    early_let_go();
    if (say_addresses(d) < 0) {
        log_warn("cannot write to standard output", "cause=\"%s\"", err_text(-errno));
    }
    warn_of_few_descriptors(&d->options);
    warn_of_strangers(d);
    say_state(d);
    manager_ready(d->manager);
    rv = uv_run(&d->loop, UV_RUN_DEFAULT);
    ASSERT(rv == 0);
    rv = uv_loop_close(&d->loop);
    ASSERT(rv == 0); /* every handle was closed */
    keyring_close(&d->keyring);
    return 0;
}

/* Writes that cannot be return errors: to peers that are gone, to a file that has as
 * much as it may (ulimit -f). */
static void ignore_failed_writes(void)
{
    (void)signal(SIGPIPE, SIG_IGN); /* neither can fail */
    (void)signal(SIGXFSZ, SIG_IGN);
}

/* Who is told to stop while it cannot start yet has stopped. */
static int end_failed(const struct daemon *d, const struct errmsg *msg)
{
    if (early_is_told_to_stop()) {
        log_info("stopping before the start is over", "cause=\"%s\"", msg->text);
        (void)log_queue_stop();
        return EXIT_SUCCESS;
    }
    if (log_queue_stop()) { /* else this line would wait as well */
        (void)fprintf(stderr, "%sctrun-rendezvous: %s\n", log_prefix(LOG_LEVEL_ERROR),
                      msg->text);
    }
    return d->exit_code;
}

int main(int argc, char **argv)
{
    static struct daemon daemon;
    struct rendezvous_options *options = &daemon.options;
    struct errmsg msg = {""};
    int rv;

    if (!stdfd_open_closed()) {
        return EXIT_MISTAKE;
    }
    early_hold();
    ignore_failed_writes();
    daemon.exit_code = EXIT_MISTAKE;
    daemon.argc = argc;
    daemon.argv = argv;
    log_setup("ctrun-rendezvous", "", LOG_LEVEL_INFO);
    rv = rendezvous_options_parse(argc, argv, options, &msg);
    if (rv == 0 && options->help) {
        return print_help();
    }
    if (rv == 0 && options->version) {
        (void)printf("ctrun-rendezvous %s\n", CTRUN_VERSION);
        return 0;
    }
    if (rv == 0 && !options->check_config) {
        log_queue_start();
    }
    if (rv == 0) {
        rv = raise_descriptor_limit(options, &msg);
        (void)umask(077); /* what is written is for this user alone */
    }
    if (rv == 0 && options->check_config) {
        early_let_go(); /* it is no service that could stop in order */
        rv = check_config(options, &daemon.exit_code, &msg);
        if (rv == 0) {
            warn_of_few_descriptors(options);
        }
    } else if (rv == 0) {
        log_setup("ctrun-rendezvous", "", options->log_level);
        rv = serve(&daemon, &msg);
    }
    if (rv < 0) {
        return end_failed(&daemon, &msg);
    }
    (void)log_queue_stop(); /* false: nobody is left to tell */
    return EXIT_SUCCESS;
}
