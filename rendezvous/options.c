#include "rendezvous/options.h"

#include "rendezvous/peer.h"

#include "common/mem.h"
#include "common/options.h"
#include "common/str.h"
#include "common/table.h"
#include "common/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { DEFAULT_PORT = 29400, DEFAULT_HTTP_PORT = 29401 };

/* The port may be left out. */
static int parse_address(const char *value, int port, struct rendezvous_address *ret,
                         struct errmsg *msg)
{
    struct sockaddr_storage parsed;

    ret->port = port;
    if (str_parse_host_port(value, ret->host, sizeof(ret->host), &ret->port) < 0) {
        return errmsg_set(
            msg, ERR_INVALID,
            "expects ADDR:PORT such as 127.0.0.1:%d or [::]:%d, not '%.80s'", port,
            port, value);
    }
    if (peer_parse(ret->host, &parsed) < 0) {
        return errmsg_set(
            msg, ERR_INVALID,
            "expects a numeric address such as 127.0.0.1 or ::, not '%.80s'",
            ret->host);
    }
    return 0;
}

static int on_listen(void *target, const struct option_spec *spec, const char *value,
                     struct errmsg *msg)
{
    struct rendezvous_address address;
    struct rendezvous_options *o = target;
    int rv = parse_address(value, DEFAULT_PORT, &address, msg);

    (void)spec;
    if (rv < 0) {
        return rv;
    }
    if (o->is_command_line && !o->listen_replaced) {
        o->n_listen = 0;
        o->listen_replaced = true;
    }
    if (o->n_listen == RENDEZVOUS_MAX_LISTEN) {
        return errmsg_set(msg, ERR_INVALID, "is given more than %d times",
                          RENDEZVOUS_MAX_LISTEN);
    }
    o->listen[o->n_listen++] = address;
    return 0;
}

/* systemd names the folder of StateDirectory= there. */
static void default_state_dir(struct rendezvous_options *o)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment */
    const char *path = getenv("STATE_DIRECTORY");

    if (path && path[0] == '/' && !strchr(path, ':') &&
        strlen(path) < sizeof(o->state_dir)) {
        memcpy(o->state_dir, path, strlen(path) + 1);
    }
}

static int on_http(void *target, const struct option_spec *spec, const char *value,
                   struct errmsg *msg)
{
    struct rendezvous_options *o = target;

    (void)spec;
    if (strcmp(value, "none") == 0) {
        o->http.host[0] = '\0';
        return 0;
    }
    return parse_address(value, DEFAULT_HTTP_PORT, &o->http, msg);
}

/* What the Host of a request can say, but for a port. */
static bool is_host_name(const char *name)
{
    static const char of[] = "abcdefghijklmnopqrstuvwxyz"
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789-._";
    size_t n = strlen(name);

    return n > 0 && n < RENDEZVOUS_NAME_MAX && strspn(name, of) == n;
}

static int on_http_name(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg)
{
    struct rendezvous_options *o = target;

    (void)spec;
    if (!is_host_name(value)) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects the name of a host, such as status.example, without "
                          "a port, not '%.80s'",
                          value);
    }
    if (o->is_command_line && !o->names_replaced) {
        o->n_http_names = 0;
        o->names_replaced = true;
    }
    if (o->n_http_names == RENDEZVOUS_MAX_NAMES) {
        return errmsg_set(msg, ERR_INVALID, "is given more than %d times",
                          RENDEZVOUS_MAX_NAMES);
    }
    memcpy(o->http_name[o->n_http_names++], value, strlen(value) + 1);
    return 0;
}

static int on_state_dir(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg)
{
    struct rendezvous_options *o = target;

    if (strcmp(value, "none") == 0) {
        o->state_dir[0] = '\0';
        return 0;
    }
    return option_set_text(target, spec, value, msg);
}

static int on_legacy_store(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg)
{
    struct rendezvous_options *o = target;

    (void)spec;
    if (strcmp(value, "a") != 0 && strcmp(value, "b") != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects a (PyTorch 1.8 to 2.0) or b (2.1), not '%.80s'",
                          value);
    }
    o->legacy_b = value[0] == 'b';
    return 0;
}

static int on_log_level(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg)
{
    struct rendezvous_options *o = target;
    enum log_level level = log_level_parse(value, LOG_LEVEL_ERROR);

    (void)spec;
    if (level != log_level_parse(value, LOG_LEVEL_DEBUG)) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects error, warn, info or debug, not '%.80s'", value);
    }
    o->log_level = level;
    return 0;
}

#define FIELD(field) .offset = offsetof(struct rendezvous_options, field)

static const struct option_spec specs[] = {
    {.name = "config",
     .value = "FILE",
     .help =
         "Read options from a YAML file; every key is a flag of this list. The command "
         "line goes before the file.",
     .set = option_set_text,
     FIELD(config),
     .size = RENDEZVOUS_PATH_MAX},
    {.name = "listen",
     .value = "ADDR:PORT",
     .help =
         "Listen there; may be given several times. Agents and store clients share the "
         "port, which is 29400 where it is left out. Default: 127.0.0.1:29400.",
     .set = on_listen},
    {.name = "state-dir",
     .value = "DIR",
     .help =
         "Keep state in this folder, made if need be, and go on from it at the next "
         "start; none: in memory, until the service ends. Default: "
         "$STATE_DIRECTORY, which systemd sets, else none.",
     .set = on_state_dir,
     FIELD(state_dir),
     .size = RENDEZVOUS_PATH_MAX},
    {.name = "state-reserve-mib",
     .value = "N",
     .help =
         "Space that is held ready in the state's folder for a full disk. Where less "
         "than this is free beside it new jobs are refused; those that run go on, on a "
         "full disk out of it. Default: 64.",
     .set = option_set_u32,
     FIELD(state_reserve_mib),
     .min = 1,
     .max = 1048576},
    {.name = "history-days",
     .value = "N",
     .help = "How long events, commits, loss curves and the ends of jobs are kept in "
             "the state, in days for which its machine runs. Default: 90.",
     .set = option_set_u32,
     FIELD(history_days),
     .min = 1,
     .max = 36500},
    {.name = "history-max-mib",
     .value = "N",
     .help = "How much of them is kept at most, in MiB; the oldest go first. Default: "
             "64.",
     .set = option_set_u32,
     FIELD(history_max_mib),
     .min = 1,
     .max = 1048576},
    {.name = "secrets",
     .value = "PATH",
     .help =
         "Let only those in that have one of these secrets, and encrypt what they "
         "say: a file, or a folder with one for each owner, whose jobs are its own. "
         "'ctrun keygen' makes them. Default: the credential ctrun-secret of "
         "systemd, where there is one.",
     .set = option_set_text,
     FIELD(secrets),
     .size = RENDEZVOUS_PATH_MAX},
    {.name = "tls-ca",
     .value = "FILE",
     .help = "Let those in that have a certificate of this CA.",
     .set = option_set_text,
     FIELD(tls_ca),
     .size = RENDEZVOUS_PATH_MAX},
    {.name = "tls-cert",
     .value = "FILE",
     .help = "With --tls-ca: this service's certificate; ctrun://service is among its "
             "names.",
     .set = option_set_text,
     FIELD(tls_cert),
     .size = RENDEZVOUS_PATH_MAX},
    {.name = "tls-key",
     .value = "FILE",
     .help = "With --tls-ca: the certificate's key, which nobody else may read.",
     .set = option_set_text,
     FIELD(tls_key),
     .size = RENDEZVOUS_PATH_MAX},
    {.name = "insecure",
     .help =
         "Listen where other machines can connect, and serve store clients from there, "
         "although nothing is encrypted or authenticated.",
     .set = option_set_true,
     FIELD(insecure)},
    {.name = "lease-ms",
     .value = "MS",
     .help = "How long an agent may be silent before its node counts as lost. Default: "
             "3000.",
     .set = option_set_u32,
     FIELD(lease_ms),
     .min = 100,
     .max = 600000},
    {.name = "max-connections",
     .value = "N",
     .help = "How many connections there may be at a time. Default: 20000.",
     .set = option_set_u32,
     FIELD(max_connections),
     .min = 1,
     .max = 1000000},
    {.name = "store-max-mib",
     .value = "N",
     .help = "The memory of the key-value stores of all jobs together, in MiB; clients "
             "without a job have as much again. Default: 1024.",
     .set = option_set_u32,
     FIELD(store_max_mib),
     .min = 1,
     .max = 1048576},
    {.name = "job-max-mib",
     .value = "N",
     .help = "The part of it that one job may take, in MiB. Default: half of it.",
     .set = option_set_u32,
     FIELD(job_max_mib),
     .min = 1,
     .max = 1048576},
    {.name = "accept-rate",
     .value = "N",
     .help = "How many connections a second may come from one network (/24, of IPv6 "
             "/64), and eight times as many at once; from this machine any number. "
             "Default: 500.",
     .set = option_set_u32,
     FIELD(accept_rate),
     .min = 1,
     .max = 1000000},
    {.name = "legacy-store",
     .value = "a|b",
     .help =
         "How store clients older than PyTorch 2.2 are understood: as 1.8 to 2.0 (a) "
         "or as 2.1 (b). Their bytes do not tell. Default: a.",
     .set = on_legacy_store},
    {.name = "log-level",
     .value = "LEVEL",
     .help = "error, warn, info or debug. Default: info.",
     .set = on_log_level},
    {.name = "http",
     .value = "ADDR:PORT",
     .help = "Serve a status page, metrics and an API there, for browsers, Prometheus "
             "and programs: http://127.0.0.1:29401/, say. Default: none.",
     .set = on_http},
    {.name = "http-name",
     .value = "NAME",
     .help = "A name of this host by which the status may be asked for, beside its "
             "addresses, localhost and its own name; may be given several times.",
     .set = on_http_name},
    {.name = "http-open",
     .help = "Serve the status on an address that other machines can connect to: "
             "whoever can, may look, and nothing is encrypted. Nothing can be changed "
             "there. --insecure allows it, too.",
     .set = option_set_true,
     FIELD(http_open)},
    {.name = "check-config",
     .help = "Check all that a start would, addresses and folders too, print what was "
             "understood, and end.",
     .set = option_set_true,
     FIELD(check_config)},
    {.name = "help",
     .letter = 'h',
     .help = "Print this, and end.",
     .set = option_set_help,
     FIELD(help)},
    {.name = "version",
     .help = "Print the version, and end.",
     .set = option_set_help,
     FIELD(version)},
};

static const struct options table = {"ctrun-rendezvous", specs, ARRAY_LEN(specs)};

_Static_assert(ARRAY_LEN(specs) <= RENDEZVOUS_MAX_OPTIONS, "one hash for each");

const struct options *rendezvous_options_table(void)
{
    return &table;
}

struct server_limits rendezvous_options_limits(const struct rendezvous_options *o)
{
    return (struct server_limits){
        .store_max_bytes = (size_t)o->store_max_mib << 20,
        .job_max_bytes = (size_t)o->job_max_mib << 20,
        .max_connections = o->max_connections,
        .accept_per_s = o->accept_rate,
    };
}

char *rendezvous_options_help(void)
{
    return options_help(&table);
}

/* ---- the file ---- */

/* Dashes and underscores are alike, as on the command line. */
static bool same_name(const char *key, const char *name)
{
    size_t i = 0;

    while (key[i] != '\0' && (key[i] == '_' ? '-' : key[i]) == name[i]) {
        i++;
    }
    return key[i] == '\0' && name[i] == '\0';
}

static bool is_for_file(const struct option_spec *spec)
{
    return strcmp(spec->name, "config") != 0 &&
           strcmp(spec->name, "check-config") != 0 && strcmp(spec->name, "help") != 0 &&
           strcmp(spec->name, "version") != 0;
}

static int find_key(const struct yaml_node *n, const struct option_spec **ret,
                    struct errmsg *msg)
{
    const char *names[ARRAY_LEN(specs)];
    const char *nearest;
    size_t n_names = 0;

    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        if (!is_for_file(&specs[i])) {
            continue;
        }
        if (same_name(n->key, specs[i].name)) {
            *ret = &specs[i];
            return 0;
        }
        names[n_names++] = specs[i].name;
    }
    nearest = str_nearest(n->key, names, n_names);
    if (nearest) {
        return yaml_blame_key(n, ERR_INVALID, msg,
                              "unknown key '%.80s'; did you mean %s?", n->key, nearest);
    }
    return yaml_blame_key(n, ERR_INVALID, msg,
                          "unknown key '%.80s'; 'ctrun-rendezvous --help' lists them",
                          n->key);
}

static int apply_flag(struct rendezvous_options *o, const struct option_spec *spec,
                      const struct yaml_node *n, struct errmsg *msg)
{
    if (strcmp(n->text, "true") == 0) {
        return spec->set(o, spec, NULL, msg);
    }
    if (strcmp(n->text, "false") == 0) {
        return 0;
    }
    return yaml_blame(n, ERR_INVALID, msg, "%s: expects true or false, not '%.80s'",
                      spec->name, n->text);
}

static int apply_scalar(struct rendezvous_options *o, const struct option_spec *spec,
                        const struct yaml_node *n, struct errmsg *msg)
{
    struct errmsg inner = {""};
    int rv;

    if (n->kind != YAML_SCALAR) {
        return yaml_blame(n, ERR_INVALID, msg, "%s: expects one value here",
                          spec->name);
    }
    if (!spec->value) {
        return apply_flag(o, spec, n, msg);
    }
    rv = spec->set(o, spec, n->text, &inner);
    return rv < 0 ? yaml_blame(n, rv, msg, "%s: %s", spec->name, inner.text) : 0;
}

/* Of the value under the key, or those of its list; never 0. */
static uint64_t hash_of(const struct yaml_node *n)
{
    uint64_t hash =
        table_hash(n->text ? n->text : "", n->text ? strlen(n->text) : 0, 1);

    for (const struct yaml_node *child = n->first; child; child = child->next) {
        const char *text = child->text ? child->text : "";
        uint64_t both[] = {hash, table_hash(text, strlen(text), 1)};

        hash = table_hash(both, sizeof(both), 1);
    }
    return hash | 1;
}

static int apply_key(struct rendezvous_options *o, const struct yaml_node *n,
                     struct errmsg *msg)
{
    const struct option_spec *spec = NULL;
    int rv;

    rv = find_key(n, &spec, msg);
    if (rv < 0) {
        return rv;
    }
    ASSERT(spec);
    if (o->given[spec - specs] != 0) { /* a_b and a-b; YAML sees to the rest */
        return yaml_blame_key(n, ERR_INVALID, msg,
                              "%s was given before: leave out one of the two",
                              spec->name);
    }
    o->given[spec - specs] = hash_of(n);
    if (n->kind != YAML_SEQ || (spec->set != on_listen && spec->set != on_http_name)) {
        return apply_scalar(o, spec, n, msg);
    }
    for (const struct yaml_node *child = n->first; child && rv == 0;
         child = child->next) {
        rv = apply_scalar(o, spec, child, msg);
    }
    return rv;
}

static int read_file(struct rendezvous_options *o, const char *path, struct errmsg *msg)
{
    struct yaml_tree *tree = yaml_tree_new();
    struct yaml_node *root = NULL;
    int rv;

    rv = yaml_read_file(tree, path, &root, msg);
    for (struct yaml_node *n = rv == 0 ? root->first : NULL; n && rv == 0;
         n = n->next) {
        rv = apply_key(o, n, msg);
    }
    yaml_tree_free(tree);
    return rv;
}

/* ---- both ---- */

static int read_command_line(struct rendezvous_options *o, int argc, char *const *argv,
                             struct errmsg *msg)
{
    int next = argc;
    int rv;

    o->is_command_line = true;
    rv = options_parse(&table, argc, argv, o, &next, msg);
    o->is_command_line = false;
    if (rv == 0 && next < argc) {
        return errmsg_set(msg, ERR_INVALID,
                          "'%.80s' is no option; 'ctrun-rendezvous --help' lists them",
                          argv[next]);
    }
    return rv;
}

int rendezvous_options_parse(int argc, char *const *argv,
                             struct rendezvous_options *ret, struct errmsg *msg)
{
    struct rendezvous_options defaults = {
        .log_level = LOG_LEVEL_INFO,
        .lease_ms = LIMIT_LEASE_MS,
        .max_connections = LIMIT_CONNECTIONS,
        .store_max_mib = LIMIT_STORE_BYTES >> 20,
        .accept_rate = LIMIT_ACCEPT_PER_S,
        .state_reserve_mib = 64,
        .history_days = 90,
        .history_max_mib = 64,
    };
    struct rendezvous_options o;
    char path[RENDEZVOUS_PATH_MAX];
    int rv;

    default_state_dir(&defaults);
    o = defaults;
    rv =
        read_command_line(&o, argc, argv, msg); /* for --config, and its own mistakes */
    if (rv == 0 && o.config[0]) {
        memcpy(path, o.config, sizeof(path));
        o = defaults;
        rv = read_file(&o, path, msg);
        if (rv == 0) {
            rv = read_command_line(&o, argc, argv, msg);
        }
    }
    if (o.n_listen == 0) {
        o.listen[o.n_listen++] =
            (struct rendezvous_address){.host = "127.0.0.1", .port = DEFAULT_PORT};
    }
    if (rv == 0) {
        rv = rendezvous_options_complete(&o, msg);
    }
    if (rv < 0) {
        return rv;
    }
    *ret = o;
    return 0;
}
