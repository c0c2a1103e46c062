#include "rendezvous/keyring.h"

#include "rendezvous/options.h"

#include "common/auth.h"
#include "common/log.h"
#include "common/tls.h"

#include <stdlib.h>

static const char *credentials(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it */
    const char *folder = getenv("CREDENTIALS_DIRECTORY");

    return folder && folder[0] != '\0' ? folder : NULL;
}

/* ERR_MISSING, without a message: none are asked for. */
static int read_secrets(const struct rendezvous_options *o, struct secrets *ret,
                        struct errmsg *msg)
{
    if (o->secrets[0] != '\0') {
        return secrets_read(o->secrets, ret, msg);
    }
    return credentials() ? secrets_read_credentials(credentials(), ret, msg)
                         : ERR_MISSING;
}

bool keyring_is_asked_for(const struct rendezvous_options *o)
{
    struct secrets secrets;
    int rv = o->tls_cert[0] != '\0' || o->secrets[0] != '\0'
                 ? 0
                 : read_secrets(o, &secrets, NULL);

    if (rv == 0 && o->tls_cert[0] == '\0' && o->secrets[0] == '\0') {
        secrets_release(&secrets);
    }
    return rv != ERR_MISSING;
}

static int make(struct keyring *k, const struct rendezvous_options *o, size_t *ret_n,
                struct errmsg *msg)
{
    struct secrets secrets = {0};
    struct tls_config config = {
        .is_server = true, .roles = 1U << IDENTITY_SERVICE, .secrets = &secrets};
    int rv = read_secrets(o, &secrets, msg);

    if (rv < 0 && !(rv == ERR_MISSING && o->secrets[0] == '\0')) {
        return rv;
    }
    *ret_n = secrets.n;
    if (o->tls_cert[0] != '\0') {
        config.ca = o->tls_ca;
        config.cert = o->tls_cert;
        config.key = o->tls_key;
    }
    rv = 0;
    if (config.cert || secrets.n > 0) {
        rv = k->tls ? tls_context_reload(k->tls, &config, msg)
                    : tls_context_new(&config, &k->tls, msg);
    }
    secrets_release(&secrets);
    return rv;
}

int keyring_open(struct keyring *k, const struct rendezvous_options *o,
                 struct errmsg *msg)
{
    size_t n = 0;
    int rv = make(k, o, &n, msg);

    if (rv == 0 && k->tls) {
        log_info("only who has a key may come", "secrets=%zu ca=%s", n,
                 o->tls_ca[0] != '\0' ? o->tls_ca : "none");
    }
    return rv;
}

void keyring_reload(struct keyring *k, const struct rendezvous_options *o)
{
    struct errmsg msg = {""};
    size_t n = 0;

    if (!k->tls) {
        return;
    }
    if (make(k, o, &n, &msg) < 0) {
        log_error("the keys stay as they were, for the new ones have a mistake",
                  "cause=\"%s\"", msg.text);
    } else {
        log_info("the keys were read again", "secrets=%zu", n);
    }
}

void keyring_close(struct keyring *k)
{
    tls_context_free(k->tls);
    k->tls = NULL;
}
