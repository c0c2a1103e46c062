/* Why there is no connection, in words for whoever has to do something about it: the
 * ends of sentences about the peer. */

#include "common/tls_internal.h"

#include <stdio.h>

struct words {
    int number;
    const char *secret;      /* where we show a secret … */
    const char *certificate; /* … and where a certificate */
};

/* The peer has refused us. */
static const struct words alerts[] = {
    {TLS_ALERT_NO_SECRET,
     "it has no secret, and this side has one: give both the same, or none",
     "it takes no certificates, and this side has one: give both some, or none"},
    {SSL_AD_HANDSHAKE_FAILURE,
     "it does not know this side's secret: both need the same",
     "it does not take this side's certificate"},
    {SSL_AD_ILLEGAL_PARAMETER, "its secret is not the same as this side's", NULL},
    {SSL_AD_DECRYPT_ERROR, "its secret is not the same as this side's", NULL},
    {SSL_AD_CERTIFICATE_EXPIRED, NULL,
     "it says that this side's certificate has expired"},
    {SSL_AD_UNKNOWN_CA, "it expects a certificate, where this side has a secret",
     "it does not know the CA of this side's certificate (or has a secret, and no "
     "CA)"},
    {SSL_AD_BAD_CERTIFICATE, NULL, "it does not take this side's certificate"},
    {SSL_AD_UNSUPPORTED_CERTIFICATE, NULL, "it does not take this side's certificate"},
    {SSL_AD_CERTIFICATE_REVOKED, NULL,
     "it says that this side's certificate is revoked"},
    {SSL_AD_CERTIFICATE_UNKNOWN, NULL, "it does not take this side's certificate"},
    {SSL_AD_CERTIFICATE_REQUIRED, "it wants a certificate", "it wants a certificate"},
    {SSL_AD_PROTOCOL_VERSION, "it does not speak TLS 1.3", "it does not speak TLS 1.3"},
};

/* We have refused the peer. */
static const struct words reasons[] = {
    {SSL_R_NO_SHARED_CIPHER, "it has no secret of ours",
     "it has no certificate of ours"},
    {SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, "it has no secret of ours",
     "its certificate is of another kind"},
    {SSL_R_NO_SUITABLE_KEY_SHARE, "it has no secret of ours", NULL},
    {SSL_R_BINDER_DOES_NOT_VERIFY, "its secret is not the one that it names", NULL},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, NULL, "it has no certificate"},
    {SSL_R_WRONG_VERSION_NUMBER, "what it says is no TLS", "what it says is no TLS"},
    {SSL_R_UNSUPPORTED_PROTOCOL, "it does not speak TLS 1.3",
     "it does not speak TLS 1.3"},
};

static const char *find(const struct words *list, size_t n, int number, bool has_secret)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].number == number) {
            return has_secret ? list[i].secret : list[i].certificate;
        }
    }
    return NULL;
}

static void note(struct tls_pump *p, const char *text, const char *more)
{
    (void)snprintf(p->trouble, sizeof(p->trouble), "%s%s%s", text, *more ? ": " : "",
                   more);
}

/* The peer's certificate was looked at, and is not right. */
static void note_certificate(struct tls_pump *p, long result)
{
    if (p->context->has_certificate) {
        note(p, "its certificate is not right", X509_verify_cert_error_string(result));
    } else {
        note(p, "it shows a certificate, and does not know this side's secret", "");
    }
}

/* A server may have both: then the peer's words are about what it was shown. */
static bool is_about_secrets(const struct tls_pump *p)
{
    return p->context->n_secrets > 0 &&
           (!p->context->has_certificate || p->psk_identity[0] != '\0');
}

void tls_note_failure(struct tls_pump *p)
{
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code);
    bool has_secret = is_about_secrets(p);
    long result = SSL_get_verify_result(p->ssl);
    const char *known = NULL;

    if (p->trouble[0] != '\0') {
        ERR_clear_error();
        return; /* a callback knows better */
    }
    if (p->unknown_key[0] != '\0') {
        note(p, "it has a secret that is none of ours, key id", p->unknown_key);
    } else if (reason > SSL_AD_REASON_OFFSET) {
        known =
            find(alerts, ARRAY_LEN(alerts), reason - SSL_AD_REASON_OFFSET, has_secret);
    } else if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && result != X509_V_OK) {
        note_certificate(p, result);
    } else {
        known = find(reasons, ARRAY_LEN(reasons), reason, has_secret);
    }
    if (p->trouble[0] == '\0' && known) {
        note(p, known, "");
    } else if (p->trouble[0] == '\0') {
        known = ERR_reason_error_string(code);
        note(p, "TLS has failed", known ? known : "no reason given");
    }
    ERR_clear_error();
}
