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

/* Whoever moved a secret aside may think that it is still good, or that it is not. */
static void say_left_out(const struct secrets *secrets)
{
    char file[300];

    for (size_t i = 0; i < secrets->n_others; i++) {
        const struct secrets_other *other = &secrets->others[i];

        log_warn("a file beside the secrets is left out, for it is no owner's",
                 "file=%s cause=\"%s\"", log_value(other->file, file, sizeof(file)),
                 other->why);
    }
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

int keyring_read(const struct rendezvous_options *o, struct keyring *ret,
                 struct errmsg *msg)
{
    struct keyring k = {NULL, 0};
    struct secrets secrets = {0};
    struct tls_config config = {
        .is_server = true, .roles = 1U << IDENTITY_SERVICE, .secrets = &secrets};
    int rv = read_secrets(o, &secrets, msg);

    if (rv < 0 && !(rv == ERR_MISSING && o->secrets[0] == '\0')) {
        return rv;
    }
    say_left_out(&secrets);
    if (o->tls_cert[0] != '\0') {
        config.ca = o->tls_ca;
        config.cert = o->tls_cert;
        config.key = o->tls_key;
    }
    k.n_secrets = secrets.n;
    rv = config.cert || secrets.n > 0 ? tls_context_new(&config, &k.tls, msg) : 0;
    secrets_release(&secrets);
    if (rv < 0) {
        return rv;
    }
    *ret = k;
    return 0;
}

int keyring_open(struct keyring *k, const struct rendezvous_options *o,
                 struct errmsg *msg)
{
    int rv = keyring_read(o, k, msg);

    if (rv == 0 && k->tls) {
        log_info("only who has a key may come", "secrets=%zu ca=%s", k->n_secrets,
                 o->tls_ca[0] != '\0' ? o->tls_ca : "none");
    }
    return rv;
}

void keyring_replace(struct keyring *k, struct keyring *fresh)
{
    ASSERT(k->tls && fresh->tls); /* who has keys is not left without */
    tls_context_replace(k->tls, fresh->tls);
    k->n_secrets = fresh->n_secrets;
    *fresh = (struct keyring){NULL, 0};
}

void keyring_close(struct keyring *k)
{
    tls_context_free(k->tls);
    *k = (struct keyring){NULL, 0};
}
