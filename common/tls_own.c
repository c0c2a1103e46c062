/* Our own certificate, seen as a peer will see it. A program that starts with one that
 * nobody takes would refuse every connection, and say so to nobody who can mend it. */

#include "common/tls_internal.h"

#include <stdio.h>
#include <time.h>

/* "2026-03-01 12:00:00 UTC" */
static void format_time(const ASN1_TIME *time, char *ret, size_t size)
{
    struct tm tm;

    if (ASN1_TIME_to_tm(time, &tm) != 1 ||
        strftime(ret, size, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0) {
        (void)snprintf(ret, size, "a date that cannot be read");
    }
}

/* What is said to do is enough: keygen replaces nothing. */
static int refuse_expired(const struct tls_config *config, bool is_ca, const char *when,
                          struct errmsg *msg)
{
    if (is_ca) {
        return errmsg_set(
            msg, ERR_INVALID,
            "the CA of the certificate %.200s has expired on %s: make another, and new "
            "certificates, in a folder that is not there yet (ctrun keygen --ca DIR)",
            config->cert, when);
    }
    return errmsg_set(msg, ERR_INVALID,
                      "the certificate %.150s has expired on %s: move it and %.150s "
                      "away, and make new ones the same way (ctrun keygen --ca DIR)",
                      config->cert, when, config->key);
}

static int refuse_chain(X509_STORE_CTX *x, const struct tls_config *config,
                        struct errmsg *msg)
{
    const X509 *at = X509_STORE_CTX_get_current_cert(x);
    int error = X509_STORE_CTX_get_error(x);
    bool is_ca = X509_STORE_CTX_get_error_depth(x) > 0;
    const char *what = is_ca ? "the CA of the certificate" : "the certificate";
    char when[40];

    if (error == X509_V_ERR_CERT_HAS_EXPIRED && at) {
        format_time(X509_get0_notAfter(at), when, sizeof(when));
        return refuse_expired(config, is_ca, when, msg);
    }
    if (error == X509_V_ERR_CERT_NOT_YET_VALID && at) {
        format_time(X509_get0_notBefore(at), when, sizeof(when));
        return errmsg_set(msg, ERR_INVALID,
                          "%s %.200s is not valid before %s: is this machine's clock "
                          "right?",
                          what, config->cert, when);
    }
    return errmsg_set(msg, ERR_INVALID,
                      "nobody who knows the CA %.200s takes the certificate %.200s "
                      "(%s): both must be of one 'ctrun keygen --ca'",
                      config->ca, config->cert, X509_verify_cert_error_string(error));
}

static int check_chain(SSL_CTX *ctx, X509 *own, const struct tls_config *config,
                       struct errmsg *msg)
{
    X509_STORE_CTX *x = X509_STORE_CTX_new();
    STACK_OF(X509) *others = NULL;
    int rv = 0;

    (void)SSL_CTX_get0_chain_certs(ctx, &others);
    if (!x || X509_STORE_CTX_init(x, SSL_CTX_get_cert_store(ctx), own, others) != 1 ||
        X509_STORE_CTX_set_default(x, config->is_server ? "ssl_server"
                                                        : "ssl_client") != 1) {
        rv = errmsg_set(msg, ERR_INVALID, "cannot check the certificate %.200s",
                        config->cert);
    } else if (X509_verify_cert(x) != 1) {
        rv = refuse_chain(x, config, msg);
    }
    X509_STORE_CTX_free(x);
    ERR_clear_error();
    return rv;
}

static const char *wanted_uri(unsigned roles)
{
    if (roles == 1U << IDENTITY_SERVICE) {
        return "ctrun://service, for it is a service that shows it";
    }
    if (roles == 1U << IDENTITY_AGENT) {
        return "ctrun://job/ID/agent/HOST, for it is a node that shows it";
    }
    return "ctrun://job/ID/agent/HOST or ctrun://operator/NAME";
}

static int check_uri(const X509 *own, const struct tls_config *config,
                     struct errmsg *msg)
{
    struct identity who = {.kind = IDENTITY_CERTIFICATE};
    char text[160];

    if (!tls_read_uri(own, &who)) {
        return errmsg_set(msg, ERR_INVALID,
                          "the certificate %.200s has no name of ours: it needs one "
                          "URI, %s",
                          config->cert, wanted_uri(config->roles));
    }
    if (config->roles != 0 && (config->roles & 1U << who.role) == 0) {
        identity_describe(&who, text, sizeof(text));
        return errmsg_set(msg, ERR_INVALID, "%.200s is the %.150s: its URI must be %s",
                          config->cert, text, wanted_uri(config->roles));
    }
    return 0;
}

int tls_check_own(SSL_CTX *ctx, const struct tls_config *config, struct errmsg *msg)
{
    X509 *own = SSL_CTX_get0_certificate(ctx);
    int rv = check_chain(ctx, own, config, msg);

    return rv < 0 ? rv : check_uri(own, config, msg);
}
