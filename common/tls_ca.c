#include "common/tls_ca.h"

#include "common/auth.h"
#include "common/mem.h"
#include "common/openssl.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { DAY_S = 86400, EARLIER_S = 3600, KEY_FILE_MAX = 64 * 1024 };

/* Who signs: a certificate and its key, NULL: itself. */
struct issuer {
    X509 *certificate;
    EVP_PKEY *key;
};

static int refuse(struct errmsg *msg, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_error());

    (void)errmsg_set(msg, ERR_INVALID, "%s: %s", what, reason ? reason : "OpenSSL");
    ERR_clear_error();
    return ERR_INVALID;
}

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *text)
{
    X509V3_CTX ctx;
    X509_EXTENSION *extension;
    bool is_added;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, text);
    is_added = extension && X509_add_ext(x, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return is_added;
}

/* For people who look at it; X.520 has no room for more. */
static bool set_name(X509 *x, const char *name)
{
    X509_NAME *subject = X509_get_subject_name(x);
    char common[65];

    (void)snprintf(common, sizeof(common), "%s", name); /* cut */
    return X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_UTF8,
                                      (const unsigned char *)"ctrun", -1, -1, 0) == 1 &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                      (const unsigned char *)common, -1, -1, 0) == 1;
}

static bool set_times(X509 *x, int days)
{
    long first = days > 0 ? -EARLIER_S : ((long)days - 1) * DAY_S;
    long last = (long)days * DAY_S - (days > 0 ? 0 : EARLIER_S);

    return X509_gmtime_adj(X509_getm_notBefore(x), first) &&
           X509_gmtime_adj(X509_getm_notAfter(x), last);
}

static bool set_serial(X509 *x)
{
    uint64_t serial;
    ssize_t n = getrandom(&serial, sizeof(serial), 0);

    ASSERT(n == (ssize_t)sizeof(serial)); /* so few always come */
    return ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial >> 1 | 1) == 1;
}

/* `uri`: of who it is; NULL: a CA. */
static bool set_uses(X509 *x, X509 *issuer, const char *uri)
{
    char names[IDENTITY_URI_MAX + sizeof("URI:")];

    if (!uri) {
        return add_extension(x, issuer, NID_basic_constraints,
                             "critical,CA:TRUE,pathlen:0") &&
               add_extension(x, issuer, NID_key_usage,
                             "critical,keyCertSign,cRLSign") &&
               add_extension(x, issuer, NID_subject_key_identifier, "hash");
    }
    (void)snprintf(names, sizeof(names), "URI:%s", uri); /* fits */
    return add_extension(x, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(x, issuer, NID_key_usage, "critical,digitalSignature") &&
           add_extension(x, issuer, NID_ext_key_usage, "serverAuth,clientAuth") &&
           add_extension(x, issuer, NID_authority_key_identifier, "keyid") &&
           add_extension(x, issuer, NID_subject_alt_name, names);
}

/* A certificate of `key`; NULL: OpenSSL cannot. */
static X509 *sign(EVP_PKEY *key, const struct issuer *issuer, const char *uri, int days)
{
    X509 *x = X509_new();
    X509 *by = issuer->certificate ? issuer->certificate : x;
    bool is_done = x && X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) &&
                   set_times(x, days) && X509_set_pubkey(x, key) == 1 &&
                   set_name(x, uri ? uri + strlen("ctrun://") : "CA") &&
                   X509_set_issuer_name(x, X509_get_subject_name(by)) == 1 &&
                   set_uses(x, by, uri) &&
                   X509_sign(x, issuer->key ? issuer->key : key, EVP_sha256()) > 0;

    if (!is_done) {
        X509_free(x);
        return NULL;
    }
    return x;
}

/* --- files --- */

static char *file_of(const char *folder, const char *name, const char *end)
{
    return mem_printf("%s/%s.%s", folder, name, end);
}

static int write_bio(BIO *bio, char *path, struct errmsg *msg)
{
    char *data = NULL;
    long size = BIO_get_mem_data(bio, &data);
    int rv = auth_write_private(path, data, (size_t)MAX(size, 0), msg);

    mem_free(path);
    return rv;
}

/* The key first: a certificate without one is of no use. */
static int write_pair(const char *folder, const char *name, X509 *x, EVP_PKEY *key,
                      struct errmsg *msg)
{
    BIO *bio = BIO_new(BIO_s_secmem());
    int rv = 0;

    if (!bio || PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1) {
        rv = refuse(msg, "cannot write a key");
    }
    rv = rv < 0 ? rv : write_bio(bio, file_of(folder, name, "key"), msg);
    if (rv == 0 && (BIO_reset(bio) != 1 || PEM_write_bio_X509(bio, x) != 1)) {
        rv = refuse(msg, "cannot write a certificate");
    }
    rv = rv < 0 ? rv : write_bio(bio, file_of(folder, name, "pem"), msg);
    BIO_free(bio);
    return rv;
}

static int issue(const char *folder, const char *name, const struct issuer *issuer,
                 const char *uri, int days, struct errmsg *msg)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = key ? sign(key, issuer, uri, days) : NULL;
    int rv;

    if (x) {
        rv = write_pair(folder, name, x, key, msg);
    } else {
        rv = refuse(msg, "cannot make a certificate");
    }
    X509_free(x);
    EVP_PKEY_free(key);
    return rv;
}

int tls_ca_make(const char *folder, int days, struct errmsg *msg)
{
    const struct issuer itself = {NULL, NULL};
    int rv = openssl_load(msg);

    return rv < 0 ? rv : issue(folder, "ca", &itself, NULL, days, msg);
}

static int read_issuer(const char *folder, struct issuer *ret, struct errmsg *msg)
{
    char *certificate = file_of(folder, "ca", "pem");
    char *key = file_of(folder, "ca", "key");
    BIO *certificate_bio = BIO_new_file(certificate, "r");
    BIO *key_bio = BIO_new_file(key, "r");
    int rv = 0;

    ret->certificate =
        certificate_bio ? PEM_read_bio_X509(certificate_bio, NULL, NULL, NULL) : NULL;
    ret->key = key_bio ? PEM_read_bio_PrivateKey(key_bio, NULL, NULL, NULL) : NULL;
    if (!ret->certificate || !ret->key) {
        (void)errmsg_set(msg, ERR_INVALID, "cannot read the CA (%.200s, %.200s)",
                         certificate, key);
        ERR_clear_error();
        rv = ERR_INVALID;
    }
    BIO_free(certificate_bio);
    BIO_free(key_bio);
    mem_free(certificate);
    mem_free(key);
    return rv;
}

int tls_ca_issue(const char *folder, const char *name, const struct identity *who,
                 int days, struct errmsg *msg)
{
    struct issuer issuer = {NULL, NULL};
    char uri[IDENTITY_URI_MAX];
    int rv = 0;

    if (!identity_format_uri(who, uri, sizeof(uri))) {
        return errmsg_set(msg, ERR_INVALID, "the name is too long for a certificate");
    }
    rv = openssl_load(msg);
    if (rv < 0) {
        return rv;
    }
    rv = read_issuer(folder, &issuer, msg);
    rv = rv < 0 ? rv : issue(folder, name, &issuer, uri, days, msg);
    X509_free(issuer.certificate);
    EVP_PKEY_free(issuer.key);
    return rv;
}
