/* Happy path: 1. options; 2. a secret is written where ctrun looks for it, or where it
 * is asked for; with --ca: the CA, if it is not there yet, and certificates; 3. what to
 * do with them is printed. Failures: a file that is there already is never replaced. */

#include "launcher/verbs/keygen.h"

#include "common/auth.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/options.h"
#include "common/str.h"
#include "common/tls_ca.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DAYS = 365, CA_DAYS = 3650, MAX_DAYS = 36500 };

struct keygen_options {
    bool help;
    char ca[PATH_MAX]; /* "": a secret is wanted */
    uint32_t days;
    char job[MSG_ID_MAX]; /* "": any … */
    char node[MSG_ID_MAX];
};

#define FIELD(member)                                  \
    .offset = offsetof(struct keygen_options, member), \
    .size = sizeof(((struct keygen_options *)0)->member)

static const struct option_spec specs[] = {
    {.name = "ca",
     .value = "DIR",
     .help =
         "Certificates in place of a secret: the folder of a small CA, made if need "
         "be. Without --job and --node: a certificate each for a service, an agent "
         "(any node of any job) and an operator.",
     .set = option_set_text,
     FIELD(ca)},
    {.name = "days",
     .value = "N",
     .help = "How long certificates are valid. Default: 365; the CA ten years.",
     .set = option_set_u32,
     .min = 1,
     .max = MAX_DAYS,
     FIELD(days)},
    {.name = "job",
     .value = "ID",
     .help = "With --ca: a certificate for agents of this job alone (--rdzv-id).",
     .set = option_set_text,
     FIELD(job)},
    {.name = "node",
     .value = "NODE",
     .help = "With --ca: … for this node alone, its host name or --node-rank.",
     .set = option_set_text,
     FIELD(node)},
    {.name = "help",
     .letter = 'h',
     .help = "Print this, and end.",
     .set = option_set_help,
     FIELD(help)},
};

static const struct options table = {"ctrun keygen", specs, ARRAY_LEN(specs)};

static int say_mistake(const struct errmsg *msg)
{
    log_error(msg->text, "%s", "");
    return EXIT_MISTAKE;
}

static int end_printing(void)
{
    return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_SUCCESS : EXIT_MISTAKE;
}

static int print_help(void)
{
    char *list = options_help(&table);

    (void)printf(
        "usage: ctrun keygen [FILE]\n"
        "       ctrun keygen --ca DIR [--days N] [--job ID] [--node NODE]\n\n"
        "Makes a secret for the nodes of your jobs: FILE, by default "
        "~/.config/ctrun/secret, where every ctrun\n"
        "of yours finds it. Nodes that have the same secret let only each other in, and "
        "encrypt what they say.\n"
        "What is there already is never replaced.\n\n%s",
        list);
    mem_free(list);
    return end_printing();
}

/* ---- a secret ---- */

static int choose_path(const char *asked, char ret[PATH_MAX], struct errmsg *msg)
{
    const char *home = getenv("HOME"); /* NOLINT(concurrency-mt-unsafe): one thread */

    if (asked) {
        return str_format(ret, PATH_MAX, "%s", asked)
                   ? 0
                   : errmsg_set(msg, ERR_INVALID, "the file's name is too long");
    }
    if (!home || home[0] == '\0' ||
        !str_format(ret, PATH_MAX, "%s/.config/ctrun/secret", home)) {
        return errmsg_set(msg, ERR_INVALID,
                          "HOME is not set: name the file, ctrun keygen FILE");
    }
    return 0;
}

static void say_secret(const char *path, bool is_default)
{
    (void)printf("ctrun: made the secret %s\n", path);
    if (is_default) {
        (void)printf(
            "Every ctrun of yours uses it. Nodes that do not share this home directory "
            "need a copy, as in\n"
            "  ssh NODE 'mkdir -p -m 700 ~/.config/ctrun && umask 077 && cat "
            ">~/.config/ctrun/secret' <%s\n",
            path);
    } else {
        (void)printf("Name it on every node: ctrun --rdzv-secret-file=%s … (or set "
                     "CTRUN_SECRET_FILE)\n",
                     path);
    }
    (void)printf(
        "A service of its own: ctrun-rendezvous --secrets=%s --listen ADDRESS:29400\n"
        "To replace it some day: mv %s %s.previous; make a new one; SIGHUP to the "
        "service;\n"
        "when all nodes have the new one, remove the old one; SIGHUP.\n",
        path, path, path);
}

static int make_secret(const char *asked)
{
    struct errmsg msg = {""};
    char path[PATH_MAX];
    char text[65];
    int rv = choose_path(asked, path, &msg);

    if (rv == 0) {
        auth_make_secret(text);
        text[64] = '\n';
        rv = auth_write_private(path, text, sizeof(text), &msg);
        explicit_bzero(text, sizeof(text));
    }
    if (rv < 0) {
        return say_mistake(&msg);
    }
    say_secret(path, !asked);
    return end_printing();
}

/* ---- certificates ---- */

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_MAX];

    return str_format(path, sizeof(path), "%s/%s.pem", folder, name) &&
           access(path, F_OK) == 0;
}

static int issue(const struct keygen_options *o, const char *name,
                 const struct identity *who, struct errmsg *msg)
{
    char uri[IDENTITY_URI_MAX] = "";
    int rv = tls_ca_issue(o->ca, name, who, (int)o->days, msg);

    if (rv == 0 && identity_format_uri(who, uri, sizeof(uri))) {
        (void)printf("ctrun: made %s/%s.pem and .key, %s, for %u days\n", o->ca, name,
                     uri, o->days);
    }
    return rv;
}

/* File names are no place for what a job's name may hold. */
static void make_file_name(const struct keygen_options *o, char *ret, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

    (void)snprintf(ret, size, "agent-%.60s-%.60s", o->job[0] != '\0' ? o->job : "any",
                   o->node[0] != '\0' ? o->node : "any");
    for (char *c = ret; *c != '\0'; c++) {
        if (!strchr(letters, *c)) {
            *c = '_';
        }
    }
}

static int issue_one(const struct keygen_options *o, struct errmsg *msg)
{
    struct identity who = {.kind = IDENTITY_CERTIFICATE, .role = IDENTITY_AGENT};
    char name[160];

    memcpy(who.job, o->job, sizeof(who.job));
    memcpy(who.name, o->node, sizeof(who.name));
    make_file_name(o, name, sizeof(name));
    return issue(o, name, &who, msg);
}

static int issue_all(const struct keygen_options *o, struct errmsg *msg)
{
    static const struct {
        const char *name;
        enum identity_role role;
    } roles[] = {
        {"service", IDENTITY_SERVICE},
        {"agent", IDENTITY_AGENT},
        {"operator", IDENTITY_OPERATOR},
    };
    int rv = 0;

    for (size_t i = 0; i < ARRAY_LEN(roles) && rv == 0; i++) {
        struct identity who = {.kind = IDENTITY_CERTIFICATE, .role = roles[i].role};

        rv = issue(o, roles[i].name, &who, msg);
    }
    return rv;
}

static void say_certificates(const char *folder)
{
    (void)printf(
        "Each node needs ca.pem, and an agent's certificate and its key (its user's "
        "alone):\n"
        "  ctrun --tls-ca=ca.pem --tls-cert=agent.pem --tls-key=agent.key …\n"
        "The service needs ca.pem, service.pem and service.key:\n"
        "  ctrun-rendezvous --tls-ca=ca.pem --tls-cert=service.pem "
        "--tls-key=service.key --listen ADDRESS:29400\n"
        "Keep %s/ca.key to yourself: whoever has it makes certificates.\n",
        folder);
}

static int make_certificates(const struct keygen_options *o)
{
    bool is_one = o->job[0] != '\0' || o->node[0] != '\0';
    struct errmsg msg = {""};
    int rv = 0;

    if (!is_there(o->ca, "ca")) {
        rv = tls_ca_make(o->ca, CA_DAYS, &msg);
        if (rv == 0) {
            (void)printf("ctrun: made the CA %s/ca.pem and ca.key\n", o->ca);
        }
    }
    if (rv == 0) {
        rv = is_one ? issue_one(o, &msg) : issue_all(o, &msg);
    }
    if (rv < 0) {
        return say_mistake(&msg);
    }
    say_certificates(o->ca);
    return end_printing();
}

static int check(const struct keygen_options *o, int n_operands, char *const *argv,
                 struct errmsg *msg)
{
    if (n_operands > (o->ca[0] != '\0' ? 0 : 1)) {
        return errmsg_set(msg, ERR_INVALID,
                          "'%.80s' is one thing too many: 'ctrun keygen --help' says "
                          "what there is",
                          argv[0]);
    }
    if (o->ca[0] == '\0' && (o->job[0] != '\0' || o->node[0] != '\0')) {
        return errmsg_set(msg, ERR_INVALID,
                          "--job and --node are for certificates: give --ca, too");
    }
    return 0;
}

int keygen_run(int argc, char *const *argv)
{
    struct keygen_options o = {.days = DAYS};
    struct errmsg msg = {""};
    int next = argc;
    int rv = options_parse(&table, argc, argv, &o, &next, &msg);

    if (o.help) {
        return print_help();
    }
    rv = rv < 0 ? rv : check(&o, argc - next, argv + argc - 1, &msg);
    if (rv < 0) {
        return say_mistake(&msg);
    }
    return o.ca[0] != '\0' ? make_certificates(&o)
                           : make_secret(next < argc ? argv[next] : NULL);
}
