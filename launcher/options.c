#include "launcher/options.h"

#include "launcher/rdzv_conf.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/msg.h"
#include "common/options.h"
#include "common/str.h"

#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_PORT = 29400,
    MAX_NPROC = 16384,
    MAX_RESTARTS = 1000000,
    WARNING_MAX = 4096,
};

#define FIELD(member)                         \
    .offset = offsetof(struct parse, member), \
    .size = sizeof(((struct parse *)0)->member)

/* What the command line said, before it is put together. */
struct parse {
    struct launch_options o;
    char endpoint[320];
    bool has_id;
    uint32_t node_rank;
    bool has_node_rank;
};

static int parse_count(const char *text, size_t len, uint32_t *ret)
{
    char copy[16];
    uint64_t v;

    if (len >= sizeof(copy)) {
        return ERR_INVALID;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (str_parse_u64(copy, &v) < 0 || v < 1 || v > MSG_MAX_NODES) {
        return ERR_INVALID;
    }
    *ret = (uint32_t)v;
    return 0;
}

static int on_nnodes(void *target, const struct option_spec *spec, const char *value,
                     struct errmsg *msg)
{
    struct parse *p = target;
    const char *colon = strchr(value, ':');
    size_t len = colon ? (size_t)(colon - value) : strlen(value);
    const char *last = colon ? colon + 1 : value;
    uint32_t min;
    uint32_t max;

    (void)spec;
    if (parse_count(value, len, &min) < 0 ||
        parse_count(last, strlen(last), &max) < 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects N or MIN:MAX, numbers from 1 to %d, not '%.80s'",
                          MSG_MAX_NODES, value);
    }
    if (min > max) {
        return errmsg_set(msg, ERR_INVALID, "MIN %u is above MAX %u", min, max);
    }
    p->o.min_nodes = min;
    p->o.max_nodes = max;
    return 0;
}

static int on_nproc(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg)
{
    static const char *const words[] = {
        [NPROC_AUTO] = "auto", [NPROC_CPU] = "cpu", [NPROC_GPU] = "gpu"};
    struct parse *p = target;
    uint64_t v;

    (void)spec;
    for (size_t i = NPROC_AUTO; i < ARRAY_LEN(words); i++) {
        if (strcmp(value, words[i]) == 0) {
            p->o.nproc_kind = (enum nproc_kind)i;
            return 0;
        }
    }
    if (str_parse_u64(value, &v) < 0 || v < 1 || v > MAX_NPROC) {
        return errmsg_set(
            msg, ERR_INVALID,
            "expects a number from 1 to %d, auto, cpu or gpu, not '%.80s'", MAX_NPROC,
            value);
    }
    p->o.nproc_kind = NPROC_NUMBER;
    p->o.nproc = (uint32_t)v;
    return 0;
}

static int on_rdzv_id(void *target, const struct option_spec *spec, const char *value,
                      struct errmsg *msg)
{
    struct parse *p = target;
    int rv;

    rv = option_set_text(target, spec, value, msg);
    if (rv < 0) {
        return rv;
    }
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '/' || (unsigned char)*c < ' ' || *c == 0x7f) {
            return errmsg_set(
                msg, ERR_INVALID,
                "may not have '/' or control characters: it names a folder");
        }
    }
    p->has_id = true;
    return 0;
}

static int on_rdzv_backend(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg)
{
    (void)target;
    (void)spec;
    if (strcmp(value, "c10d") == 0) {
        return 0;
    }
    if (strcmp(value, "static") == 0) {
        return errmsg_set(
            msg, ERR_INVALID,
            "'static' is not there; leave the option out: with --nnodes=N and "
            "--rdzv-endpoint=HOST:PORT the world is fixed all the same");
    }
    return errmsg_set(msg, ERR_INVALID, "'%.80s' is not there; use c10d, the default",
                      value);
}

static int on_node_rank(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg)
{
    struct parse *p = target;

    p->has_node_rank = true;
    return option_set_u32(target, spec, value, msg);
}

static int on_rdzv_conf(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg)
{
    struct parse *p = target;

    (void)spec;
    return rdzv_conf_parse(value, &p->o, msg);
}

/* torchrun's, for which there is nothing to do: checked, and that is all. */
static int on_monitor_interval(void *target, const struct option_spec *spec,
                               const char *value, struct errmsg *msg)
{
    double seconds;

    (void)target;
    (void)spec;
    if (str_parse_double(value, &seconds) < 0 || seconds <= 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects seconds, a number above 0, not '%.80s'", value);
    }
    return 0;
}

static int on_start_method(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg)
{
    (void)target;
    (void)spec;
    if (strcmp(value, "spawn") == 0 || strcmp(value, "fork") == 0 ||
        strcmp(value, "forkserver") == 0) {
        return 0;
    }
    return errmsg_set(msg, ERR_INVALID,
                      "expects spawn, fork or forkserver, not '%.80s'", value);
}

#define OF_THE_WORKER "an option of ctrun-worker: put it behind the program"
#define LOGS_REMEDY   "each rank has its own files under --log-dir"

static const struct option_spec specs[] = {
    {.name = "nnodes",
     .value = "N|MIN:MAX",
     .set = on_nnodes,
     .help = "Number of nodes, or the least and the most of them (default 1)."},
    {.name = "nproc-per-node",
     .value = "N|auto|cpu|gpu",
     .set = on_nproc,
     .help =
         "Workers on this node: a number, one for each CPU or GPU, or auto: GPUs if "
         "there are any, else CPUs (default 1)."},
    {.name = "standalone",
     .set = option_set_true,
     FIELD(o.standalone),
     .help = "One node that needs no endpoint: a free port and a random id."},
    {.name = "rdzv-id",
     .value = "ID",
     .set = on_rdzv_id,
     FIELD(o.rdzv_id),
     .help = "The job's name, the same on all nodes (default: the word none; a random "
             "one with one node and no endpoint)."},
    {.name = "rdzv-backend",
     .value = "c10d",
     .set = on_rdzv_backend,
     .help = "Accepted for torchrun's sake; c10d is the only one."},
    {.name = "rdzv-endpoint",
     .value = "HOST[:PORT]",
     .set = option_set_text,
     FIELD(endpoint),
     .help =
         "Where the rendezvous is, the same on all nodes. The node that owns the "
         "address serves it, unless ctrun-rendezvous does (default localhost:29400; a "
         "free port with one node)."},
    {.name = "rdzv-conf",
     .value = "KEY=VALUE,…",
     .set = on_rdzv_conf,
     .help =
         "join_timeout (600): seconds to wait for nodes; last_call_timeout (30): the "
         "longest wait for more of them once there are MIN."},
    {.name = "max-restarts",
     .value = "N",
     .set = option_set_u32,
     .max = MAX_RESTARTS,
     FIELD(o.max_restarts),
     .help = "Failures of the whole job after which it is started again (default 0)."},
    {.name = "node-rank",
     .value = "N",
     .set = on_node_rank,
     .max = MSG_MAX_NODES - 1,
     FIELD(node_rank),
     .help = "This node's place among the nodes (default: in the order of joining)."},
    {.name = "local-addr",
     .value = "ADDR",
     .set = option_set_text,
     FIELD(o.local_addr),
     .help = "The address of this host, in numbers or as a name, at which the other "
             "nodes reach it (default: that of the route to the endpoint)."},
    {.name = "log-dir",
     .value = "DIR",
     .set = option_set_text,
     FIELD(o.log_dir),
     .help =
         "Where the workers' output is kept, a file per rank and start; /dev/null for "
         "none. (ctrun-worker keeps its logs in its run directory.)"},
    {.name = "module",
     .letter = 'm',
     .set = option_set_true,
     FIELD(o.module),
     .help = "The program is a Python module: python -u -m PROGRAM."},
    {.name = "no-python",
     .set = option_set_true,
     FIELD(o.no_python),
     .help = "Execute the program itself, whatever it is."},
    {.name = "monitor-interval",
     .value = "SECONDS",
     .set = on_monitor_interval,
     .help =
         "Accepted for torchrun's sake, no effect: a worker's end is seen at once."},
    {.name = "start-method",
     .value = "METHOD",
     .set = on_start_method,
     .help = "spawn, fork or forkserver: accepted for torchrun's sake, no effect."},
    {.name = "help",
     .letter = 'h',
     .set = option_set_help,
     FIELD(o.help),
     .help = "Show this text."},
    {.name = "version",
     .set = option_set_help,
     FIELD(o.version),
     .help = "Show the version."},
    {.name = "event-log-handler",
     .value = "NAME",
     .remedy = "events are lines on stderr; leave the option out"},
    {.name = "role", .value = "ROLE", .remedy = "every worker has the role 'default'"},
    {.name = "run-path", .remedy = "leave it out: the script is run by python -u"},
    {.name = "redirects", .letter = 'r', .value = "MASK", .remedy = LOGS_REMEDY},
    {.name = "tee", .letter = 't', .value = "MASK", .remedy = LOGS_REMEDY},
    {.name = "log-line-prefix-template", .value = "TEXT", .remedy = LOGS_REMEDY},
    {.name = "local-ranks-filter", .value = "RANKS", .remedy = LOGS_REMEDY},
    {.name = "duplicate-stdout-filters", .value = "TEXTS", .remedy = LOGS_REMEDY},
    {.name = "duplicate-stderr-filters", .value = "TEXTS", .remedy = LOGS_REMEDY},
    {.name = "logs-specs", .value = "NAME", .remedy = LOGS_REMEDY},
    {.name = "master-addr",
     .value = "HOST",
     .remedy = "use --rdzv-endpoint=HOST:PORT on every node"},
    {.name = "master-port",
     .value = "PORT",
     .remedy = "use --rdzv-endpoint=HOST:PORT on every node"},
    {.name = "numa-binding",
     .value = "KIND",
     .remedy = "use numactl in front of ctrun"},
    {.name = "signals-to-handle",
     .value = "NAMES",
     .remedy = "TERM, INT, HUP and QUIT are handled; leave the option out"},
    {.name = "shutdown-timeout",
     .value = "S",
     .remedy = "workers have 30 s between the signal and KILL; leave the option out"},
    {.name = "virtual-local-rank",
     .remedy = "choose the device by LOCAL_RANK in the program"},
    {.name = "print-completion", .value = "SHELL", .remedy = "leave the option out"},
    {.name = "config-name", .value = "NAME", .elsewhere = OF_THE_WORKER},
    {.name = "config-path", .value = "DIR", .elsewhere = OF_THE_WORKER},
    {.name = "cfg", .value = "KIND", .elsewhere = OF_THE_WORKER},
    {.name = "profile", .value = "STEPS", .elsewhere = OF_THE_WORKER},
    {.name = "dry-run", .elsewhere = OF_THE_WORKER},
};

static const struct options table = {"ctrun", specs, ARRAY_LEN(specs)};

/* design.md §1: a first argument that is exactly one of these is the verb. */
static const char *const later_verbs[] = {"status", "ps",      "events", "logs",
                                          "doctor", "plan",    "data",   "cancel",
                                          "drain",  "history", "keygen"};

/* True when argv[1] is a verb that takes the whole line (or is refused: *ret_rv). */
static bool take_verb(int argc, char *const *argv, struct launch_options *o,
                      int *ret_rv, struct errmsg *msg)
{
    if (argc < 2) {
        return false;
    }
    if (strcmp(argv[1], "ckpt") == 0) {
        o->verb = argv[1];
        o->program = argv + 1;
        *ret_rv = 0;
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(later_verbs); i++) {
        if (strcmp(argv[1], later_verbs[i]) == 0) {
            *ret_rv =
                errmsg_set(msg, ERR_INVALID,
                           "the verb '%s' is not there yet; a program of that name is "
                           "started by: ctrun run %s",
                           argv[1], argv[1]);
            return true;
        }
    }
    return false;
}

static int finish_endpoint(struct parse *p, struct errmsg *msg)
{
    struct launch_options *o = &p->o;
    int rv;

    o->rdzv_port = DEFAULT_PORT;
    if (p->endpoint[0] == '\0') {
        (void)snprintf(o->rdzv_host, sizeof(o->rdzv_host), "localhost");
        return 0;
    }
    rv = str_parse_host_port(p->endpoint, o->rdzv_host, sizeof(o->rdzv_host),
                             &o->rdzv_port);
    if (rv < 0) {
        return errmsg_set(
            msg, rv,
            "--rdzv-endpoint expects HOST[:PORT], a port from 0 to 65535, "
            "not '%.80s'",
            p->endpoint);
    }
    if (o->rdzv_port == 0 && o->max_nodes > 1) {
        return errmsg_set(
            msg, ERR_INVALID,
            "--rdzv-endpoint: port 0 means any free port, which other nodes "
            "cannot know; name one, as %s:%d",
            o->rdzv_host, DEFAULT_PORT);
    }
    if (o->rdzv_port == 0) {
        o->standalone = true; /* torchrun's way to write it in full */
    }
    return 0;
}

/* One node, no endpoint: its own free port and, unless it was named, its own id. */
static int finish_standalone(struct parse *p, bool asked, struct errmsg *msg)
{
    struct launch_options *o = &p->o;

    if (o->min_nodes > 1) {
        return errmsg_set(msg, ERR_INVALID,
                          "--standalone is for one node, but --nnodes asks for %u; use "
                          "--rdzv-endpoint=HOST:PORT instead",
                          o->min_nodes);
    }
    o->max_nodes = 1;
    o->rdzv_host[0] = '\0';
    o->rdzv_port = 0;
    if (asked || !p->has_id) {
        o->rdzv_id[0] = '\0';
    }
    return 0;
}

static int finish(struct parse *p, struct errmsg *msg)
{
    struct launch_options *o = &p->o;
    bool asked = o->standalone;
    int rv = 0;

    if (o->module && o->no_python) {
        return errmsg_set(msg, ERR_INVALID,
                          "--module and --no-python exclude each other; leave one out");
    }
    if (!asked && p->endpoint[0] == '\0' && o->max_nodes == 1) {
        o->standalone = true;
    } else if (!asked) {
        rv = finish_endpoint(p, msg);
    }
    if (rv == 0 && o->standalone) {
        rv = finish_standalone(p, asked, msg);
    }
    if (rv < 0) {
        return rv;
    }
    if (p->has_node_rank && p->node_rank >= o->max_nodes) {
        return errmsg_set(msg, ERR_INVALID,
                          "--node-rank %u is not below the number of nodes, %u",
                          p->node_rank, o->max_nodes);
    }
    o->node_rank = p->has_node_rank ? (int32_t)p->node_rank : -1;
    return 0;
}

/* argv[0] is not looked at. */
static int parse_launch(int argc, char *const *argv, struct launch_options *ret,
                        struct errmsg *msg)
{
    struct parse p = {.o = {.min_nodes = 1,
                            .max_nodes = 1,
                            .nproc = 1,
                            .rdzv_id = "none",
                            .join_timeout_ms = 600000,
                            .last_call_timeout_ms = 30000,
                            .node_rank = -1}};
    int next;
    int rv;

    rv = options_parse(&table, argc, argv, &p, &next, msg);
    if (rv < 0) {
        return rv;
    }
    if (rv == 0) {
        if (next >= argc) {
            return errmsg_set(msg, ERR_INVALID,
                              "no program given; usage: ctrun [options] program "
                              "[arguments …]; 'ctrun --help' says more");
        }
        p.o.program = argv + next;
        rv = finish(&p, msg);
    }
    if (rv < 0) {
        return rv;
    }
    *ret = p.o;
    return 0;
}

int launch_options_parse(int argc, char *const *argv, struct launch_options *ret,
                         struct errmsg *msg)
{
    struct launch_options with_verb = {.node_rank = -1};
    int rv;

    if (take_verb(argc, argv, &with_verb, &rv, msg)) {
        if (rv == 0) {
            *ret = with_verb;
        }
        return rv;
    }
    if (argc > 1 && strcmp(argv[1], "run") == 0) {
        return parse_launch(argc - 1, argv + 1, ret, msg);
    }
    return parse_launch(argc, argv, ret, msg);
}

char *launch_options_help(void)
{
    char *list = options_help(&table);
    char *text = mem_printf(
        "usage: ctrun [options] program [arguments …]\n"
        "       ctrun run [options] program [arguments …]\n"
        "       ctrun ckpt list|verify|show|prune …\n\n"
        "Starts the same program on every node, watches it, and starts it again when one "
        "part fails.\n"
        "A Python script is run by python -u (PYTHON_EXEC names another interpreter); a "
        "native program\n"
        "or a script with an interpreter of its own is executed. A bare name is looked up "
        "beside ctrun,\n"
        "then in PATH.\n\n"
        "  ctrun --standalone --nproc-per-node=2 ctrun-worker --config-path=configs "
        "--config-name=demo.yaml\n"
        "  ctrun --nnodes=2 --nproc-per-node=gpu --rdzv-endpoint=node0:29400 train.py "
        "--lr 0.1\n\n"
        "Dashes and underscores are alike; unique beginnings of a name will do.\n\n%s\n"
        "Exit codes: 0 all workers ended well; the first cause's own code, or 128 + its "
        "signal; 2 a mistake\n"
        "in the command; 93 not started again (no progress; only ctrun-worker and "
        "programs that report steps\n"
        "to CTRUN_PROGRESS_FD); 94 rendezvous failed; 128 + signal when ctrun "
        "itself was told to stop.\n",
        list);

    mem_free(list);
    return text;
}

void launch_options_make_id(struct launch_options *o, const uint8_t random[16])
{
    char *out = o->rdzv_id;
    size_t room = sizeof(o->rdzv_id);

    for (size_t i = 0; i < 16; i++) {
        unsigned byte = random[i];
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        int n;

        byte = i == 6 ? (byte & 0x0fU) | 0x40U : byte; /* version 4 */
        byte = i == 8 ? (byte & 0x3fU) | 0x80U : byte; /* variant 1 */
        n = snprintf(out, room, "%s%02x", dash, byte);
        ASSERT(n > 0 && (size_t)n < room);
        out += n;
        room -= (size_t)n;
    }
}

char *launch_options_warnings(char *const *env)
{
    struct buf names;
    char *text = NULL;

    buf_init(&names, WARNING_MAX);
    for (size_t i = 0; env[i]; i++) {
        if (str_starts_with(env[i], "PET_") &&
            buf_printf(&names, "%s%.*s", buf_len(&names) > 0 ? ", " : "",
                       (int)strcspn(env[i], "="), env[i]) < 0) {
            break; /* a line has an end */
        }
    }
    if (buf_len(&names) > 0) {
        text =
            mem_printf("environment variables that stand for options are not read yet: "
                       "%.*s; give the options themselves",
                       (int)buf_len(&names), (const char *)buf_bytes(&names));
    }
    buf_release(&names);
    return text;
}
