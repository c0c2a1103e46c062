#include "launcher/verbs/verb_options.h"

#include "common/mem.h"
#include "common/str.h"

#include <stddef.h>
#include <string.h>

#define FIELD(member)                                \
    .offset = offsetof(struct verb_options, member), \
    .size = sizeof(((struct verb_options *)0)->member)

static int on_rank(void *target, const struct option_spec *spec, const char *value,
                   struct errmsg *msg)
{
    struct verb_options *o = target;
    uint64_t rank;

    (void)spec;
    if (str_parse_u64(value, &rank) < 0 || rank >= MSG_MAX_WORLD) {
        return errmsg_set(msg, ERR_INVALID, "expects a rank such as 0, not '%.80s'",
                          value);
    }
    o->rank = (int32_t)rank;
    return 0;
}

static int on_after(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg)
{
    struct verb_options *o = target;

    (void)spec;
    if (str_parse_u64(value, &o->after) < 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects the number of an event, not '%.80s'", value);
    }
    return 0;
}

/* clang-format off */
#define SERVER_OPTIONS                                                                  \
    {.name = "endpoint",                                                                \
     .value = "HOST[:PORT]|SOCKET",                                                     \
     .set = option_set_text,                                                            \
     FIELD(endpoint),                                                                   \
     .help = "The server to ask: its rendezvous endpoint, or the path of its socket, "  \
             "or of the folder that holds it (default: CTRUN_ENDPOINT, else all servers of this user on this host and "\
             "one at 127.0.0.1:29400)."},                                               \
    {.name = "rdzv-secret-file",                                                        \
     .value = "FILE",                                                                   \
     .set = option_set_text,                                                            \
     FIELD(keys.secret),                                                                \
     .help = "The job's secret, or an operator's, for a server that asks for one "      \
             "(default: $CTRUN_SECRET_FILE, else ~/.config/ctrun/secret)."},            \
    {.name = "tls-ca", .value = "FILE", .set = option_set_text, FIELD(keys.ca),         \
     .help = "An operator's certificate in the secret's place: its CA, …"},             \
    {.name = "tls-cert", .value = "FILE", .set = option_set_text, FIELD(keys.cert),     \
     .help = "… itself, …"},                                                            \
    {.name = "tls-key", .value = "FILE", .set = option_set_text, FIELD(keys.key),       \
     .help = "… and its key, which nobody else may read."}
#define JSON_OPTION                                                                     \
    {.name = "json",                                                                    \
     .set = option_set_true,                                                            \
     FIELD(json),                                                                       \
     .help = "Print JSON: one object; of events and logs, one a line."}
#define HELP_OPTION                                                                     \
    {.name = "help", .letter = 'h', .set = option_set_help, FIELD(help),                \
     .help = "Show this text."}
#define FOLLOW_OPTION(text)                                                             \
    {.name = "follow", .letter = 'f', .set = option_set_true, FIELD(follow),            \
     .help = (text)}
/* clang-format on */

static const struct option_spec plain_specs[] = {JSON_OPTION, SERVER_OPTIONS,
                                                 HELP_OPTION};

static const struct option_spec events_specs[] = {
    FOLLOW_OPTION("Go on with what happens, until the job that is named has ended."),
    {.name = "after",
     .value = "NUMBER",
     .set = on_after,
     .help = "Only events with a larger number (--json shows them)."},
    JSON_OPTION,
    SERVER_OPTIONS,
    HELP_OPTION};

static const struct option_spec logs_specs[] = {
    FOLLOW_OPTION("Go on with what the ranks say, over restarts, until the job's end."),
    {.name = "rank",
     .letter = 'r',
     .value = "RANK",
     .set = on_rank,
     .help = "One rank's lines, without a prefix (default: all ranks')."},
    {.name = "last",
     .set = option_set_true,
     FIELD(last),
     .help = "Begin with the last lines (8 KiB) of each, not with the first."},
    JSON_OPTION,
    SERVER_OPTIONS,
    HELP_OPTION};

static const struct option_spec drain_specs[] = {
    {.name = "all",
     .set = option_set_true,
     FIELD(all),
     .help = "All nodes of that host, where it has several (of all jobs, or of JOB)."},
    JSON_OPTION,
    SERVER_OPTIONS,
    HELP_OPTION};

#define PLAIN_OPTIONS(program)                         \
    {                                                  \
        (program), plain_specs, ARRAY_LEN(plain_specs) \
    }

const struct verb verb_table[VERB_COUNT] = {
    [VERB_STATUS] =
        {.name = "status",
         .operands = "[JOB]",
         .summary = "Shows the jobs, or one of them with its nodes.",
         .more =
             "RESTARTS are all restarts, and in brackets those of them that count "
             "against --max-restarts, of how many: \"1 (0 of 3)\" is one that did not "
             "count, as when a node came or went. Of one job the exit status says how "
             "it is: 0 it forms, runs or is done; 4 it has failed, was cancelled, or is stopped, since all its "
             "nodes were told to go before it was done.",
         .options = PLAIN_OPTIONS("ctrun status")},
    [VERB_PS] =
        {.name = "ps",
         .operands = "[JOB]",
         .summary = "Shows the ranks: node, process id, generation, step, tokens a "
                    "second, and how long ago each reported progress.",
         .more =
             "Step and speed are known of ctrun-worker, and of programs that report "
             "to CTRUN_PROGRESS_FD.",
         .options = PLAIN_OPTIONS("ctrun ps")},
    [VERB_EVENTS] =
        {.name = "events",
         .operands = "[JOB]",
         .summary = "Shows what has become of the jobs: starts, restarts and their "
                    "causes, nodes that came, went or were lost, commits, hangs.",
         .more = "The server keeps the last few thousand.",
         .options = {"ctrun events", events_specs, ARRAY_LEN(events_specs)}},
    [VERB_LOGS] =
        {.name = "logs",
         .operands = "[JOB]",
         .summary = "Shows what the ranks of the current generation have said, on "
                    "whichever node they are.",
         .more = "The lines come from the files of each rank (see --log-dir; "
                 "ctrun-worker's are in its run directory), standard output and "
                 "standard error on their own; with several ranks each line begins "
                 "with its rank. Once a job is over, its files are to be read where "
                 "they lie.",
         .options = {"ctrun logs", logs_specs, ARRAY_LEN(logs_specs)}},
    [VERB_CANCEL] =
        {.name = "cancel",
         .operands = "[JOB]",
         .summary =
             "Ends a job on all its nodes: ctrun-worker finishes its step, saves "
             "and leaves, other programs get SIGTERM; it is not started again.",
         .more =
             "Every ctrun of the job ends with 143, as if all had been told to stop "
             "by SIGTERM, once its workers have ended; this does not wait for them. "
             "JOB may be left out where there is one job only.",
         .options = PLAIN_OPTIONS("ctrun cancel")},
    [VERB_DRAIN] =
        {.name = "drain",
         .operands = "NODE [JOB]",
         .summary = "Sends a node home: its workers finish their step, save and leave, "
                    "its ctrun ends with 0, and the job goes on without it where its "
                    "--nnodes allows.",
         .more =
             "NODE is a host's name, or a number that ctrun status JOB shows, of JOB or "
             "of the only job. Of a host with several nodes, of one job or of several, "
             "none is sent home without --all: they are named. A job without any node left is stopped, not done: "
             "started again, it goes on.",
         .options = {"ctrun drain", drain_specs, ARRAY_LEN(drain_specs)}},
    [VERB_HISTORY] =
        {.name = "history",
         .operands = "[JOB]",
         .summary =
             "Shows the jobs that have ended: how, when, after how many restarts, "
             "and why.",
         .options = PLAIN_OPTIONS("ctrun history")},
};

const struct verb *verb_find(const char *name)
{
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (strcmp(name, verb_table[i].name) == 0) {
            return &verb_table[i];
        }
    }
    return NULL;
}

const char *verb_nearest(const char *word)
{
    const char *names[VERB_COUNT + 2] = {"keygen", "ckpt"};
    const char *nearest;

    for (size_t i = 0; i < VERB_COUNT; i++) {
        names[i + 2] = verb_table[i].name;
    }
    nearest = strlen(word) < 2 ? NULL : str_nearest(word, names, ARRAY_LEN(names));
    return nearest && word[0] == nearest[0] && /* "train2" is no "drain" */
                   str_distance(word, nearest) <= 1 + (strlen(nearest) > 4)
               ? nearest
               : NULL;
}

static int take_operand(char *field, size_t size, const char *what, const char *value,
                        struct errmsg *msg)
{
    if (value[0] == '\0' || !str_format(field, size, "%s", value)) {
        return errmsg_set(msg, ERR_INVALID,
                          "%s is empty, or longer than %zu characters", what, size - 1);
    }
    return 0;
}

static int take_operands(struct verb_options *o, const struct verb *verb, int n,
                         char *const *operands, struct errmsg *msg)
{
    bool has_node = o->kind == VERB_DRAIN;
    int rv = 0;

    if (has_node && n == 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "which node? usage: %s [options] %s (ctrun status JOB lists "
                          "them)",
                          verb->options.program, verb->operands);
    }
    if (n > 1 + has_node) {
        return errmsg_set(
            msg, ERR_INVALID, "'%.80s' is one word too many; usage: %s [options] %s",
            operands[1 + has_node], verb->options.program, verb->operands);
    }
    if (has_node) {
        rv = take_operand(o->node, sizeof(o->node), "NODE", operands[0], msg);
    }
    if (rv == 0 && n > has_node) {
        rv = take_operand(o->job, sizeof(o->job), "JOB", operands[has_node], msg);
    }
    return rv;
}

/* Options may follow the operands, too: `ctrun logs JOB -f`. */
int verb_options_parse(const struct verb *verb, int argc, char *const *argv,
                       struct verb_options *ret, struct errmsg *msg)
{
    struct verb_options o = {.kind = (enum verb_kind)(verb - verb_table), .rank = -1};
    char **operands = mem_array((size_t)argc + 1, sizeof(*operands));
    int n = 0;
    int at = 0;
    int rv = 0;

    while (rv == 0 && at < argc) {
        int next = argc;

        rv = options_parse(&verb->options, argc - at, argv + at, &o, &next, msg);
        at += rv == 0 ? next : 0;
        if (rv == 0 && at < argc) {
            operands[n++] = argv[at]; /* in the place of argv[0] of what follows */
        }
    }
    if (rv == 0) {
        rv = take_operands(&o, verb, n, operands, msg);
    }
    mem_free(operands);
    if (rv >= 0) {
        *ret = o;
    }
    return rv < 0 ? rv : 0;
}

char *verb_options_help(const struct verb *verb)
{
    bool is_status = verb == &verb_table[VERB_STATUS];
    char *summary = options_wrap(verb->summary);
    char *more = verb->more ? options_wrap(verb->more) : mem_strdup("");
    char *list = options_help(&verb->options);
    char *codes = mem_printf("Exit codes: 0 done; 1 the answer could not be read, or "
                             "not be printed; 2 a mistake in the command, or several "
                             "could be meant; 3 no such job, node or rank; %s94 no "
                             "server answers, or it refuses.",
                             is_status ? "4 JOB has failed, was cancelled, or is "
                                         "stopped; "
                                       : "");
    char *last = options_wrap(codes);
    char *text =
        mem_printf("usage: %s [options] %s\n\n%s%s\n%s\n%s", verb->options.program,
                   verb->operands, summary, more, list, last);

    mem_free(summary);
    mem_free(more);
    mem_free(list);
    mem_free(codes);
    mem_free(last);
    return text;
}
