#include "worker/checkpoint/verbs.h"

#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/verbs_internal.h"

#include "common/mem.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct ckpt_verb {
    const char *name;
    int (*run)(const struct ckpt_args *args);
    const char *usage;
};

static const struct ckpt_verb verbs[] = {
    {"list", ckpt_list, "ctrun ckpt list DIR [--json]"},
    {"verify", ckpt_verify, "ctrun ckpt verify PATH [--json]"},
    {"show", ckpt_show, "ctrun ckpt show PATH [--tensors|--json]"},
    {"prune", ckpt_prune,
     "ctrun ckpt prune DIR --keep N [--keep-every N] [--keep-best N] [--json]"},
};

static const char usage_text[] =
    "usage: ctrun ckpt VERB PATH [options]\n"
    "\n"
    "  list DIR              the checkpoints in a folder, newest first; none is fine\n"
    "  verify PATH           reads every byte; names every file that is wrong\n"
    "  show PATH             files, step, generation, mesh and, last, state_hash;\n"
    "                        with --tensors each tensor too (--json has them all)\n"
    "  prune DIR --keep N    deletes all but the newest N; keeps also the first of every\n"
    "                        --keep-every N steps and --keep-best N (lowest val_loss)\n"
    "\n"
    "  --json                print JSON instead of a table\n"
    "  --help                this text\n"
    "\n"
    "PATH is a checkpoint (runs/demo/ckpt/step-00000100-g1), a folder of them or the\n"
    "directory of a run; of a folder, verify reads all and show the newest.\n"
    "Exit codes: 0 all is well; 1 something is wrong; 2 wrong usage.\n";

/* --- shared --- */

int ckpt_fail(int code, const char *fmt, ...)
{
    struct errmsg text = {""};
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text.text, sizeof(text.text), fmt, args); /* cut is fine */
    va_end(args);
    (void)fprintf(stderr, "ctrun ckpt: %s\n", text.text);
    return code;
}

json_t *ckpt_json_text(const char *text)
{
    json_t *json = json_string(text);
    char *copy;

    if (json) {
        return json;
    }
    copy = mem_strdup(text);
    for (char *c = copy; *c; c++) {
        if ((unsigned char)*c >= 0x80) {
            *c = '?';
        }
    }
    json = json_string(copy);
    mem_free(copy);
    return json;
}

void ckpt_print_json(json_t *json)
{
    ASSERT(json);
    (void)json_dumpf(json, stdout, JSON_INDENT(2)); /* stdout is checked at the end */
    (void)printf("\n");
    json_decref(json);
}

void ckpt_format_size(char *text, size_t size, uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 999.95 && unit + 1 < ARRAY_LEN(units)) {
        value /= 1000;
        unit++;
    }
    ASSERT(
        str_format(text, size, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]));
}

void ckpt_name(const char *path, char *name, size_t size)
{
    char *real = realpath(path, NULL);
    const char *slash = real ? strrchr(real, '/') : NULL;

    if (!slash || !str_format(name, size, "%s", slash + 1)) {
        ASSERT(str_format(name, size, "%.200s", path));
    }
    free(real);
}

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A checkpoint is known by its name, its manifest or a shard: so one that lost some of
 * them is still judged as one. */
static bool is_checkpoint(const char *path)
{
    char name[256];
    uint64_t step;
    int run_generation;
    const struct dirent *e;
    bool found = false;
    DIR *d;

    ckpt_name(path, name, sizeof(name));
    if (retention_parse(name, false, &step, &run_generation) ||
        retention_parse(name, true, &step, &run_generation)) {
        return true;
    }
    d = opendir(path);
    while (d && !found &&
           (e = readdir(d))) { /* NOLINT(concurrency-mt-unsafe): own `d` */
        found = strcmp(e->d_name, MANIFEST_NAME) == 0 ||
                str_starts_with(e->d_name, "shard-");
    }
    if (d) {
        (void)closedir(d); /* read only */
    }
    return found;
}

static int list_folder(const char *dir, struct ckpt_targets *t)
{
    struct errmsg msg;

    ASSERT(str_format(t->dir, sizeof(t->dir), "%s", dir));
    if (checkpoint_list(dir, &t->entry, &t->n, &msg) < 0) {
        return ckpt_fail(CKPT_BAD, "%s", msg.text);
    }
    return 0;
}

int ckpt_find_targets(const char *path, struct ckpt_targets *ret)
{
    char inner[CHECKPOINT_PATH_MAX];
    int rv;

    *ret = (struct ckpt_targets){.dir = ""};
    if (!str_format(inner, sizeof(inner), "%s/ckpt", path)) {
        return ckpt_fail(CKPT_USAGE, "the path is too long");
    }
    if (!is_directory(path)) {
        return ckpt_fail(CKPT_USAGE, "%s: %s", path,
                         errno == ENOENT ? "there is no such directory"
                                         : "not a directory that can be read");
    }
    if (is_checkpoint(path)) {
        ret->entry = mem_array(1, sizeof(*ret->entry));
        ret->n = 1;
        ASSERT(str_format(ret->entry->path, sizeof(ret->entry->path), "%s", path));
        return 0;
    }
    rv = list_folder(path, ret);
    if (rv == 0 && ret->n == 0 && is_directory(inner)) {
        ckpt_targets_release(ret);
        rv = list_folder(inner, ret);
    }
    return rv;
}

void ckpt_targets_release(struct ckpt_targets *targets)
{
    mem_free(targets->entry);
    *targets = (struct ckpt_targets){.dir = ""};
}

/* --- the command line --- */

static const struct ckpt_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}

static int unknown_verb(const char *name)
{
    const char *names[ARRAY_LEN(verbs)];
    const char *nearest;

    if (strcmp(name, "export") == 0) {
        return ckpt_fail(CKPT_USAGE, "ckpt export is not there yet");
    }
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        names[i] = verbs[i].name;
    }
    nearest = str_nearest(name, names, ARRAY_LEN(names));
    if (nearest) {
        return ckpt_fail(CKPT_USAGE, "unknown verb '%s': did you mean '%s'?", name,
                         nearest);
    }
    return ckpt_fail(CKPT_USAGE, "unknown verb '%s': list, verify, show or prune",
                     name);
}

struct keep_option {
    const char *name;
    const char *wants;
    uint64_t *value;
};

/* 1: `argv[*i]` is that option, its value was taken; 0: another; negative: one line was
 * printed. */
static int take_keep(const struct keep_option *option, int argc, char **argv, int *i)
{
    size_t len = strlen(option->name);
    const char *text = argv[*i] + len;

    if (!str_starts_with(argv[*i], option->name) || (*text != '\0' && *text != '=')) {
        return 0;
    }
    if (*text == '\0') {
        *i += 1;
    }
    text = *text == '=' ? text + 1 : *i < argc ? argv[*i] : NULL;
    if (!text || str_parse_u64(text, option->value) < 0 || *option->value == 0) {
        (void)ckpt_fail(CKPT_USAGE, "%s wants a number of %s, at least 1", option->name,
                        option->wants);
        return ERR_INVALID;
    }
    return 1;
}

/* The same, of the options that say what is kept. */
static int take_retention(int argc, char **argv, int *i,
                          struct checkpoint_retention *ret)
{
    uint64_t keep = ret->keep;
    uint64_t best = ret->keep_best;
    const struct keep_option options[] = {{"--keep", "checkpoints", &keep},
                                          {"--keep-every", "steps", &ret->keep_every},
                                          {"--keep-best", "checkpoints", &best}};
    int rv = 0;

    for (size_t k = 0; k < ARRAY_LEN(options) && rv == 0; k++) {
        rv = take_keep(&options[k], argc, argv, i);
    }
    ret->keep = (size_t)keep;
    ret->keep_best = (size_t)best;
    return rv;
}

static int check_args(const struct ckpt_verb *verb, const struct ckpt_args *args)
{
    if (!args->path || args->path[0] == '\0') {
        return ckpt_fail(CKPT_USAGE, "no path given: %s", verb->usage);
    }
    if (verb->run == ckpt_prune && args->retention.keep == 0) {
        return ckpt_fail(CKPT_USAGE, "--keep is missing: %s", verb->usage);
    }
    return 0;
}

/* 0, or the exit code after a line was printed. */
static int parse_args(const struct ckpt_verb *verb, int argc, char **argv,
                      struct ckpt_args *ret)
{
    int rv = 0;

    for (int i = 0; i < argc && rv == 0; i++) {
        const char *arg = argv[i];
        int taken = verb->run == ckpt_prune
                        ? take_retention(argc, argv, &i, &ret->retention)
                        : 0;

        if (taken != 0) {
            rv = taken < 0 ? CKPT_USAGE : 0;
        } else if (strcmp(arg, "--json") == 0) {
            ret->json = true;
        } else if (verb->run == ckpt_show && strcmp(arg, "--tensors") == 0) {
            ret->tensors = true;
        } else if (arg[0] == '-') {
            rv = ckpt_fail(CKPT_USAGE, "unknown option '%s': %s", arg, verb->usage);
        } else if (ret->path) {
            rv = ckpt_fail(CKPT_USAGE, "'%s' is one path too many: %s", arg,
                           verb->usage);
        } else {
            ret->path = arg;
        }
    }
    return rv != 0 ? rv : check_args(verb, ret);
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

int ckpt_main(int argc, char **argv)
{
    struct ckpt_args args = {0};
    const struct ckpt_verb *verb;
    int rv;

    if (wants_help(argc, argv)) {
        (void)printf("%s", usage_text);
        return fflush(stdout) == 0 ? CKPT_OK : CKPT_BAD;
    }
    if (argc < 2) {
        return ckpt_fail(CKPT_USAGE, "no verb given: list, verify, show or prune "
                                     "(ctrun ckpt --help)");
    }
    verb = find_verb(argv[1]);
    if (!verb) {
        return unknown_verb(argv[1]);
    }
    rv = parse_args(verb, argc - 2, argv + 2, &args);
    if (rv == 0) {
        rv = verb->run(&args);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return ckpt_fail(CKPT_BAD, "cannot write to stdout");
    }
    return rv;
}
