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
#include "common/utf8.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DAYS = 365, CA_DAYS = 3650, MAX_DAYS = 36500 };

struct keygen_options {
    bool help;
    char ca[PATH_MAX];    /* "": a secret is wanted */
    uint32_t days;        /* 0: not given */
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
         "(any node of any job) and an operator, as far as they are not there.",
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
     .help = "With --ca: a certificate for agents of this job alone (--rdzv-id). "
             "Default: of any, also '*'.",
     .set = option_set_text,
     FIELD(job)},
    {.name = "node",
     .value = "NODE",
     .help = "With --ca: … for this node alone, its host name or --node-rank. "
             "Default: of any, also '*'.",
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
        "Makes a secret for the nodes of your jobs: FILE, by default\n"
        "~/.config/ctrun/secret, where every ctrun of yours finds it. Nodes that have\n"
        "the same secret let only each other in, and encrypt what they say. A FILE\n"
        "named operator, or operator-NAME, is for those who see and steer all jobs.\n"
        "What is there already is never replaced: a certificate is made anew once its\n"
        ".pem and its .key have been moved away.\n\n%s",
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

/* It is no node's; those of nodes lie beside it. */
static void say_operator(const char *path)
{
    const char *slash = strrchr(path, '/');
    int len = slash ? (int)(slash - path) : 1;
    const char *folder = slash ? path : ".";

    (void)printf(
        "ctrun: made the operator's secret %s\n"
        "Whoever shows it sees and steers all jobs of a service, and is no node of any.\n"
        "The service has it in a folder of secrets, beside those of the nodes:\n"
        "  ctrun keygen %.*s/NAME\n"
        "  ctrun-rendezvous --secrets=%.*s --listen ADDRESS:29400\n"
        "Who asks and steers needs a copy, for that user alone (chmod 600), and names "
        "it:\n"
        "  ctrun status --rdzv-secret-file=%s --endpoint=ADDRESS:29400\n",
        path, len, folder, len, folder, path);
}

static bool is_operators(const char *path)
{
    const char *slash = strrchr(path, '/');

    return secrets_is_operators(slash ? slash + 1 : path);
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
        (void)printf(
            "Each node needs a copy, for its user alone (chmod 600), and names "
            "it:\n"
            "  ctrun --rdzv-secret-file=%s … (or set CTRUN_SECRET_FILE)\n",
            path);
    }
    (void)printf(
        "A service of its own:\n"
        "  ctrun-rendezvous --secrets=%s --listen ADDRESS:29400\n"
        "To replace it some day, and SIGHUP to such a service after each line:\n"
        "  mv %s %s.previous && ctrun keygen%s%s\n"
        "  rm %s.previous     (once all nodes have the new one)\n",
        path, path, path, is_default ? "" : " ", is_default ? "" : path, path);
}

static int make_secret(const char *asked)
{
    struct errmsg msg = {""};
    char path[PATH_MAX];
    char text[65];
    char *full;
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
    full = realpath(path, NULL); /* what is printed holds in any folder */
    if (is_operators(path)) {
        say_operator(full ? full : path);
    } else {
        say_secret(full ? full : path, !asked);
    }
    free(full); /* of libc */
    return end_printing();
}

/* ---- certificates ---- */

static bool is_there(const char *folder, const char *name, const char *end)
{
    char path[PATH_MAX];

    return str_format(path, sizeof(path), "%s/%s.%s", folder, name, end) &&
           access(path, F_OK) == 0;
}

/* Half of a pair is as much in the way as both. */
static int check_free(const struct keygen_options *o, const char *name,
                      struct errmsg *msg)
{
    bool has_pem = is_there(o->ca, name, "pem");
    bool has_key = is_there(o->ca, name, "key");

    if (!has_pem && !has_key) {
        return 0;
    }
    return errmsg_set(msg, -EEXIST,
                      "%.200s/%s.%s is there already, and is not replaced: move it%s "
                      "away first",
                      o->ca, name, has_pem ? "pem" : "key",
                      has_pem && has_key ? " and its key" : "");
}

static int issue(const struct keygen_options *o, const char *name,
                 const struct identity *who, struct errmsg *msg)
{
    char uri[IDENTITY_URI_MAX] = "";
    unsigned days = o->days > 0 ? o->days : DAYS;
    int rv = check_free(o, name, msg);

    rv = rv < 0 ? rv : tls_ca_issue(o->ca, name, who, (int)days, msg);
    if (rv == 0 && identity_format_uri(who, uri, sizeof(uri))) {
        (void)printf("ctrun: made %s/%s.pem and .key, %s, for %u days\n", o->ca, name,
                     uri, days);
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

static int issue_one(const struct keygen_options *o, const char *name,
                     struct errmsg *msg)
{
    struct identity who = {.kind = IDENTITY_CERTIFICATE, .role = IDENTITY_AGENT};

    memcpy(who.job, o->job, sizeof(who.job));
    memcpy(who.name, o->node, sizeof(who.name));
    return issue(o, name, &who, msg);
}

static bool is_whole(const struct keygen_options *o, const char *name)
{
    return is_there(o->ca, name, "pem") && is_there(o->ca, name, "key");
}

/* Those that are not there. */
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
    size_t n_made = 0;
    int rv = 0;

    for (size_t i = 0; i < ARRAY_LEN(roles) && rv == 0; i++) {
        struct identity who = {.kind = IDENTITY_CERTIFICATE, .role = roles[i].role};

        if (!is_whole(o, roles[i].name)) {
            rv = issue(o, roles[i].name, &who, msg);
            n_made++;
        }
    }
    return n_made > 0 ? rv
                      : errmsg_set(msg, -EEXIST,
                                   "each certificate is there already in %.200s, and "
                                   "none is replaced: of one that is to be made anew "
                                   "move NAME.pem and NAME.key away first",
                                   o->ca);
}

static void say_command(const char *command, const char *folder, const char *name,
                        const char *rest)
{
    (void)printf("  %s --tls-ca=%s/ca.pem --tls-cert=%s/%s.pem --tls-key=%s/%s.key "
                 "%s\n",
                 command, folder, folder, name, folder, name, rest);
}

/* Nothing is replaced. */
static void say_renewal(const struct keygen_options *o, const char *folder,
                        const char *agent)
{
    (void)printf(
        "To make one anew, before it expires:\n"
        "  mv %s/%s.pem %s/%s.pem.previous && mv %s/%s.key %s/%s.key.previous && "
        "ctrun keygen --ca %s%s%s%s%s\n",
        folder, agent, folder, agent, folder, agent, folder, agent, folder,
        o->job[0] != '\0' ? " --job " : "", o->job,
        o->node[0] != '\0' ? " --node " : "", o->node);
}

/* Where what is for whom: only of what is there. */
static void say_certificates(const struct keygen_options *o, const char *folder,
                             const char *agent)
{
    char command[MSG_ID_MAX + 32] = "ctrun";

    if (o->job[0] != '\0') {
        (void)snprintf(command, sizeof(command), "ctrun --rdzv-id=%s", o->job);
    }
    (void)printf(
        "%s %s needs ca.pem, %s.pem and %s.key (a key is its user's alone), and "
        "names them:\n",
        o->node[0] != '\0' ? "Node" : "Each", o->node[0] != '\0' ? o->node : "node",
        agent, agent);
    say_command(command, folder, agent, "…");
    if (is_there(folder, "service", "pem")) {
        (void)printf("A service of its own has ca.pem, service.pem and service.key:\n");
        say_command("ctrun-rendezvous", folder, "service", "--listen ADDRESS:29400");
    } else {
        (void)printf("One of the nodes serves the others. A service of its own needs a "
                     "certificate of its own:\n"
                     "  ctrun keygen --ca %s\n",
                     folder);
    }
    if (is_there(folder, "operator", "pem")) {
        (void)printf(
            "Who is to see and steer all jobs of it has operator.pem and .key:\n");
        say_command("ctrun status", folder, "operator", "--endpoint=ADDRESS:29400");
    }
    say_renewal(o, folder, agent);
    (void)printf("Keep %s/ca.key to yourself: whoever has it makes certificates.\n",
                 folder);
}

static int make_certificates(const struct keygen_options *o)
{
    bool is_one = o->job[0] != '\0' || o->node[0] != '\0';
    struct errmsg msg = {""};
    char agent[160] = "agent";
    char *full;
    int rv = 0;

    if (is_one) {
        make_file_name(o, agent, sizeof(agent));
    }
    if (!is_there(o->ca, "ca", "pem")) {
        rv = tls_ca_make(o->ca, CA_DAYS, &msg);
        if (rv == 0) {
            (void)printf("ctrun: made the CA %s/ca.pem and ca.key\n", o->ca);
        }
    }
    if (rv == 0) {
        rv = is_one ? issue_one(o, agent, &msg) : issue_all(o, &msg);
    }
    if (rv < 0) {
        return say_mistake(&msg);
    }
    full = realpath(o->ca, NULL); /* what is printed holds in any folder */
    say_certificates(o, full ? full : o->ca, agent);
    free(full); /* of libc */
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
    if (!str_is_plain(o->job) || !utf8_is_name(o->job)) {
        return errmsg_set(msg, ERR_INVALID,
                          "--job may not have '/', control characters, or what cannot "
                          "be seen: no job has such an id (--rdzv-id)");
    }
    if (o->ca[0] == '\0' && (o->job[0] != '\0' || o->node[0] != '\0' || o->days > 0)) {
        return errmsg_set(msg, ERR_INVALID,
                          "--job, --node and --days are for certificates: give --ca, "
                          "too");
    }
    return 0;
}

/* As it stands in the identity of one that is not bound to a job, or a node. */
static void take_any(char *name)
{
    if (strcmp(name, "*") == 0) {
        name[0] = '\0';
    }
}

int keygen_run(int argc, char *const *argv)
{
    struct keygen_options o = {.days = 0};
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
    take_any(o.job);
    take_any(o.node);
    return o.ca[0] != '\0' ? make_certificates(&o)
                           : make_secret(next < argc ? argv[next] : NULL);
}
