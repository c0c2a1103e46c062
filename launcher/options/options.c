#include "launcher/options/completion.h"
#include "launcher/options/options_core.h"
#include "launcher/verbs/verb_options.h"

#include "common/mem.h"
#include "common/msg.h"
#include "common/str.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_SHUTDOWN_S = 30 };

/* A first argument that is exactly one of these is the verb; the operator's are main.c's
 * (launcher/verbs). */
static const char *const later_verbs[] = {"doctor", "plan", "data"};

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

static int finish(struct parse *p, struct errmsg *msg)
{
    if (p->o.module && p->o.no_python && !p->o.run_path) {
        return errmsg_set(msg, ERR_INVALID,
                          "--module and --no-python exclude each other; leave one out");
    }
    p->o.redirects.has_no_files = strcmp(p->o.log_dir, "/dev/null") == 0;
    if (p->o.json && !p->o.dry_run) {
        return errmsg_set(
            msg, ERR_INVALID,
            "--json is how --dry-run prints; give both, or put it behind the "
            "program");
    }
    launch_finish_stopping(p);
    if (!p->has_on_hang) {
        p->o.on_hang = p->o.max_restarts > 0 ? ON_HANG_RESTART : ON_HANG_REPORT;
    }
    return launch_finish_rdzv(p, msg);
}

/* argv[0] is not looked at. */
static int parse_launch(int argc, char *const *argv, char *const *env,
                        struct launch_options *ret, struct errmsg *msg)
{
    const struct options_source source = {argc, argv, "PET_", env};
    struct parse p = {.o = {.min_nodes = 1,
                            .max_nodes = 1,
                            .nproc = 1,
                            .rdzv_id = MSG_NO_ID,
                            .role = "default",
                            .node_rank = -1,
                            .shutdown_s = DEFAULT_SHUTDOWN_S}};
    int next;
    int rv;

    signals_parse(SIGNALS_DEFAULT, &p.o.signals);
    rv = options_parse_with_env(&launch_options_table, &source, &p, &next, msg);
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

int launch_options_parse(int argc, char *const *argv, char *const *env,
                         struct launch_options *ret, struct errmsg *msg)
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
        return parse_launch(argc - 1, argv + 1, env, ret, msg);
    }
    return parse_launch(argc, argv, env, ret, msg);
}

char *launch_options_help(void)
{
    char *list = options_help(&launch_options_table);
    char *what = options_wrap(
        "Starts the same program on every node, watches it, and starts it again when one "
        "part fails. A Python script is run by python -u (PYTHON_EXEC names another "
        "interpreter); a native program or a script with an interpreter of its own is "
        "executed. A bare name is looked up beside ctrun, then in PATH.");
    char *names = options_wrap(
        "Dashes and underscores are alike; unique beginnings of a name will do. An "
        "option of torchrun's that is not given is taken from its variable (PET_NNODES, "
        "PET_MAX_RESTARTS …), a flag if its number is not 0.");
    char *codes = options_wrap(
        "Exit codes: 0 all workers ended well; the first cause's own code, or 128 + its "
        "signal; 2 a mistake in the command; 93 not started again (no progress; only "
        "ctrun-worker and programs that report steps to CTRUN_PROGRESS_FD); 94 "
        "rendezvous failed; 128 + signal when ctrun itself was told to stop.");
    char *text = mem_printf(
        "usage: ctrun [options] program [arguments …]\n"
        "       ctrun run [options] program [arguments …]\n"
        "       ctrun ckpt list|verify|show|prune …\n"
        "       ctrun status|ps|events|logs|cancel|history [JOB]\n"
        "       ctrun drain NODE [JOB]\n"
        "       ctrun keygen [FILE]\n\n"
        "%s\n"
        "  ctrun --standalone --nproc-per-node=2 \\\n"
        "        ctrun-worker --config-path=configs --config-name=demo.yaml\n"
        "  ctrun --nnodes=2 --nproc-per-node=gpu --rdzv-endpoint=node0:29400 \\\n"
        "        train.py --lr 0.1\n\n"
        "%s\n%s\n%s",
        what, names, list, codes);

    mem_free(list);
    mem_free(what);
    mem_free(names);
    mem_free(codes);
    return text;
}

char *launch_options_print(enum table_print print)
{
    const struct verb_list verbs = {verb_table, VERB_COUNT};

    switch (print) {
    case TABLE_BASH:
        return completion_bash(&launch_options_table, verbs);
    case TABLE_ZSH:
        return completion_zsh(&launch_options_table, verbs);
    case TABLE_MAN:
        return completion_man(&launch_options_table, verbs);
    case TABLE_NOT:
        break;
    }
    UNREACHABLE();
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
