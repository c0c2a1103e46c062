#include "launcher/rdzv/keys.h"

#include "common/auth.h"
#include "common/clock.h"
#include "common/log.h"
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

static int read_secret(const struct keys *k, struct secrets *ret, struct errmsg *msg)
{
    char folder[PATH_MAX];

    if (!k->is_credential) {
        return secrets_read(k->files.secret, ret, msg);
    }
    (void)snprintf(folder, sizeof(folder), "%.*s",
                   (int)(strrchr(k->files.secret, '/') - k->files.secret),
                   k->files.secret);
    return secrets_read_credentials(folder, ret, msg);
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
        rv = auth_check_private(k.files.key, msg);
    } else if (rv == 0 && k.files.secret[0] != '\0') {
        rv = read_secret(&k, &secrets, msg);
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

/* ---- contexts ---- */

static void on_unknown_secret(void *arg);

static int make(struct keys *k, bool is_server, struct tls_context **context,
                struct errmsg *msg)
{
    struct secrets secrets = {0};
    struct tls_config config = {.is_server = is_server,
                                .agent_id = k->agent_id,
                                .job = k->job,
                                .on_unknown_secret = on_unknown_secret,
                                .arg = k};
    int rv = 0;

    if (has_certificate(k)) {
        config.ca = k->files.ca;
        config.cert = k->files.cert;
        config.key = k->files.key;
    } else {
        rv = read_secret(k, &secrets, msg);
        config.secrets = &secrets;
    }
    if (rv == 0) {
        rv = *context ? tls_context_reload(*context, &config, msg)
                      : tls_context_new(&config, context, msg);
    }
    secrets_release(&secrets);
    return rv;
}

static int refresh(struct keys *k, bool is_server, struct tls_context **context,
                   struct errmsg *msg)
{
    bool is_new = !*context;
    int rv = keys_any(k) ? make(k, is_server, context, msg) : 0;

    if (rv < 0 && !is_new) {
        log_warn("the keys stay as they were", "cause=\"%s\"", msg->text);
        return 0;
    }
    return rv;
}

/* Somebody has the secret that replaces the one read before, or a stranger comes: he
 * makes us read a file, but not all the time. */
static void on_unknown_secret(void *arg)
{
    struct keys *k = arg;
    struct errmsg msg = {""};
    uint64_t now_ms = clock_ms();

    if (k->server && now_ms - k->read_ms >= READ_AGAIN_MS) {
        k->read_ms = now_ms;
        (void)refresh(k, true, &k->server, &msg); /* what cannot be read is said */
    }
}

/* This node's own agent is one of those that the server lets in: both are read anew. */
int keys_client(struct keys *k, struct tls_context **ret, struct errmsg *msg)
{
    int rv = refresh(k, false, &k->client, msg);

    if (rv == 0 && k->server) {
        rv = refresh(k, true, &k->server, msg);
    }
    *ret = k->client;
    return rv;
}

int keys_server(struct keys *k, struct tls_context **ret, struct errmsg *msg)
{
    int rv = refresh(k, true, &k->server, msg);

    *ret = k->server;
    return rv;
}

void keys_release(struct keys *k)
{
    tls_context_free(k->client);
    tls_context_free(k->server);
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
