#include "launcher/rdzv/keys.h"

#include "common/auth.h"
#include "common/clock.h"
#include "common/errand.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/str.h"
#include "common/tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_AGAIN_MS = 500 };

static bool has_certificate(const struct keys *k)
{
    return k->files.cert[0] != '\0';
}

bool keys_any(const struct keys *k)
{
    return has_certificate(k) || k->files.secret[0] != '\0';
}

/* ---- finding ---- */

static int check_asked(const struct keys_files *asked, struct errmsg *msg)
{
    int n = (asked->ca[0] != '\0') + (asked->cert[0] != '\0') + (asked->key[0] != '\0');

    if (n != 0 && n != 3) {
        return errmsg_set(msg, ERR_INVALID,
                          "--tls-ca, --tls-cert and --tls-key go together: give all "
                          "three, or a secret instead");
    }
    if (n != 0 && asked->secret[0] != '\0') {
        return errmsg_set(
            msg, ERR_INVALID,
            "--rdzv-secret-file and --tls-cert exclude each other: a node "
            "shows a secret or a certificate");
    }
    return 0;
}

static const char *variable(const char *name)
{
    const char *value =
        getenv(name); /* NOLINT(concurrency-mt-unsafe): nobody sets it */

    return value && value[0] != '\0' ? value : NULL;
}

/* FOLDER/NAME, where that is there. */
static bool find_in(const char *folder, const char *name, char ret[PATH_MAX])
{
    if (!folder || !str_format(ret, PATH_MAX, "%s/%s", folder, name) ||
        (access(ret, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR))) {
        ret[0] = '\0';
        return false;
    }
    return true;
}

static void take_variable(const char *name, char ret[PATH_MAX])
{
    const char *value = variable(name);

    (void)snprintf(ret, PATH_MAX, "%s", value ? value : "");
}

static void look_for_certificate(struct keys *k)
{
    take_variable("CTRUN_TLS_CA", k->files.ca);
    take_variable("CTRUN_TLS_CERT", k->files.cert);
    take_variable("CTRUN_TLS_KEY", k->files.key);
}

/* Where nobody has named one. */
static void look_for_secret(struct keys *k)
{
    const char *named = variable("CTRUN_SECRET_FILE");

    if (named) {
        (void)snprintf(k->files.secret, sizeof(k->files.secret), "%s", named);
    } else if (find_in(variable("CREDENTIALS_DIRECTORY"), SECRET_CREDENTIAL,
                       k->files.secret)) {
        k->is_credential = true;
    } else {
        (void)find_in(variable("HOME"), ".config/ctrun/secret", k->files.secret);
    }
}

static int read_secret(const struct keys_files *files, bool is_credential,
                       struct secrets *ret, struct errmsg *msg)
{
    char folder[PATH_MAX];

    if (!is_credential) {
        return secrets_read_file(files->secret, ret, msg);
    }
    (void)snprintf(folder, sizeof(folder), "%.*s",
                   (int)(strrchr(files->secret, '/') - files->secret), files->secret);
    return secrets_read_credentials(folder, ret, msg);
}

/* Whether it is there and nobody else may read it; what else may be wrong is found when
 * it is used. */
static int check_certificate(const struct keys_files *files, struct errmsg *msg)
{
    int rv = auth_check_private(files->key, msg);

    rv = rv < 0 ? rv : auth_check_public(files->ca, msg);
    return rv < 0 ? rv : auth_check_public(files->cert, msg);
}

int keys_find(const struct keys_files *asked, struct keys *ret, struct errmsg *msg)
{
    struct keys k = {.files = *asked};
    struct secrets secrets;
    int rv = check_asked(asked, msg);

    if (rv == 0 && !has_certificate(&k) && k.files.secret[0] == '\0') {
        look_for_certificate(&k);
        rv = check_asked(&k.files, msg);
    }
    if (rv == 0 && !has_certificate(&k) && k.files.secret[0] == '\0') {
        look_for_secret(&k);
    }
    if (rv == 0 && has_certificate(&k)) {
        rv = check_certificate(&k.files, msg);
    } else if (rv == 0 && k.files.secret[0] != '\0') {
        rv = read_secret(&k.files, k.is_credential, &secrets, msg);
        if (rv == 0) {
            secrets_release(&secrets);
        }
    }
    if (rv < 0) {
        return rv;
    }
    *ret = k;
    return 0;
}

void keys_set_agent(struct keys *k, uint64_t agent_id, const char *job)
{
    k->agent_id = agent_id;
    (void)snprintf(k->job, sizeof(k->job), "%s", job);
}

/* ---- reading: what a thread does ---- */

enum end { CLIENT, SERVER, N_ENDS };

struct reading {
    struct keys_files files;
    bool is_credential;
    struct tls_config config[N_ENDS];
    char job[sizeof(((struct keys *)0)->job)];

    struct tls_context *context[N_ENDS]; /* owned; what came of it … */
    int rv[N_ENDS];
    struct errmsg msg[N_ENDS]; /* … and what did not */
    uint64_t took_ms;
};

static void release_reading(void *data)
{
    struct reading *r = data;

    tls_context_free(r->context[CLIENT]);
    tls_context_free(r->context[SERVER]);
    mem_free(r);
}

static void make_contexts(struct reading *r, const struct secrets *secrets)
{
    for (enum end i = CLIENT; i < N_ENDS; i++) {
        if (r->rv[i] == 0) {
            r->config[i].secrets = secrets->n > 0 ? secrets : NULL;
            r->rv[i] = tls_context_new(&r->config[i], &r->context[i], &r->msg[i]);
        }
    }
}

static void read_files(void *data)
{
    struct reading *r = data;
    struct secrets secrets = {0};
    uint64_t begun_ms = clock_ms();

    if (!r->config[CLIENT].cert) {
        r->rv[CLIENT] =
            read_secret(&r->files, r->is_credential, &secrets, &r->msg[CLIENT]);
        r->rv[SERVER] = r->rv[CLIENT];
        r->msg[SERVER] = r->msg[CLIENT];
    }
    make_contexts(r, &secrets);
    secrets_release(&secrets);
    r->took_ms = clock_ms() - begun_ms;
}

/* ---- … and what the loop makes of it ---- */

static void on_unknown_secret(void *arg);

/* An agent's own; a verb, which is of no job, is an operator's, too. */
static unsigned roles_of(const struct keys *k)
{
    unsigned agent = 1U << IDENTITY_AGENT;

    return k->job[0] == '\0' ? agent | 1U << IDENTITY_OPERATOR : agent;
}

/* Of both ends, whichever is asked for: who comes for the other one while it is under way
 * takes what it brings. */
static struct reading *make_reading(struct keys *k)
{
    struct reading *r = mem_zalloc(sizeof(*r));

    r->files = k->files;
    r->is_credential = k->is_credential;
    memcpy(r->job, k->job, sizeof(r->job));
    for (enum end i = CLIENT; i < N_ENDS; i++) {
        r->config[i] = (struct tls_config){.is_server = i == SERVER,
                                           .roles = roles_of(k),
                                           .agent_id = k->agent_id,
                                           .job = r->job,
                                           .on_unknown_secret = on_unknown_secret,
                                           .arg = k};
        if (has_certificate(k)) {
            r->config[i].ca = r->files.ca;
            r->config[i].cert = r->files.cert;
            r->config[i].key = r->files.key;
        }
    }
    return r;
}

/* What was read, in the place of what was read before. */
static void adopt(struct reading *r, enum end end, struct tls_context **context)
{
    if (*context && r->context[end]) {
        tls_context_replace(*context, r->context[end]);
        r->context[end] = NULL;
    } else if (!*context) {
        *context = r->context[end];
        r->context[end] = NULL;
    }
}

/* One line for both ends. */
static void say_unfit(const struct keys *k, const struct reading *r)
{
    bool is_client = k->client && r->rv[CLIENT] < 0;

    if (is_client || (k->server && r->rv[SERVER] < 0)) {
        log_warn("the keys stay as they were", "cause=\"%s\"",
                 r->msg[is_client ? CLIENT : SERVER].text);
    }
}

static const char *one_file(const struct keys *k)
{
    return has_certificate(k) ? k->files.cert : k->files.secret;
}

/* Once, until they come quickly again. */
static void note_slow(struct keys *k)
{
    if (!k->was_said && (k->client || k->server)) {
        log_warn("the keys are not read again, and stay as they were: does their file "
                 "system hang?",
                 "file=%s", one_file(k));
        k->was_said = true;
    }
    k->is_slow = true;
}

/* What the errand has brought; ERR_TIMEOUT: nothing within `ms`. */
static int collect(struct keys *k, unsigned ms, enum end end, struct errmsg *msg)
{
    struct reading *r = errand_take(k->errand, ms);
    int rv;

    if (!r) {
        note_slow(k);
        return errmsg_set(msg, ERR_TIMEOUT,
                          "%s was not read within %u ms: does its file system hang?",
                          one_file(k), ms);
    }
    k->errand = NULL;
    k->is_slow = r->took_ms > KEYS_WAIT_MS;
    k->was_said = k->was_said && k->is_slow;
    say_unfit(k, r);
    adopt(r, CLIENT, &k->client);
    adopt(r, SERVER, &k->server);
    *msg = r->msg[end];
    rv = r->rv[end];
    release_reading(r);
    return rv;
}

/* Who was slow is not waited for again: what it brings is there the next time. */
static int read_again(struct keys *k, enum end end, struct errmsg *msg)
{
    struct errand_work work = {.run = read_files, .release = release_reading};
    bool is_first = !k->client && !k->server;
    int rv;

    if (k->errand) {
        (void)collect(k, 0, end, msg); /* maybe it has come meanwhile */
    }
    if (!k->errand) {
        work.data = make_reading(k);
        rv = errand_begin(&work, &k->errand);
        if (rv < 0) {
            release_reading(work.data);
            return errmsg_thread(msg, rv, "reading the keys");
        }
    }
    return collect(k,
                   is_first     ? KEYS_FIRST_MS
                   : k->is_slow ? 0
                                : KEYS_WAIT_MS,
                   end, msg);
}

/* An error counts where there is nothing to go on with. */
static int refresh(struct keys *k, enum end end, struct tls_context **ret,
                   struct errmsg *msg)
{
    int rv = keys_any(k) ? read_again(k, end, msg) : 0;

    *ret = end == SERVER ? k->server : k->client;
    ASSERT(*ret || rv < 0 || !keys_any(k)); /* else it went on without TLS */
    return *ret ? 0 : rv;
}

/* Somebody has the secret that replaces the one read before, or a stranger comes: he
 * makes us read a file, but not all the time. */
static void on_unknown_secret(void *arg)
{
    struct keys *k = arg;
    struct tls_context *server;
    struct errmsg msg = {""};
    uint64_t now_ms = clock_ms();

    if (k->server && now_ms - k->read_ms >= READ_AGAIN_MS) {
        k->read_ms = now_ms;
        (void)refresh(k, SERVER, &server, &msg); /* what cannot be read is said */
    }
}

int keys_client(struct keys *k, struct tls_context **ret, struct errmsg *msg)
{
    return refresh(k, CLIENT, ret, msg);
}

int keys_server(struct keys *k, struct tls_context **ret, struct errmsg *msg)
{
    return refresh(k, SERVER, ret, msg);
}

void keys_release(struct keys *k)
{
    errand_leave(k->errand);
    tls_context_free(k->client);
    tls_context_free(k->server);
    k->errand = NULL;
    k->client = NULL;
    k->server = NULL;
}

void keys_describe(const struct keys *k, char *ret, size_t size)
{
    if (has_certificate(k)) {
        (void)snprintf(ret, size, "certificate %s", k->files.cert);
    } else {
        (void)snprintf(ret, size, "%s%s%s",
                       k->client ? tls_context_name(k->client) : "",
                       k->client ? ", of " : "", k->files.secret);
    }
}
