#ifndef COMMON_OPENSSL_H
#define COMMON_OPENSSL_H

/* OpenSSL's headers, and its functions where they are when openssl_load has found them.
 * Linked, the two libraries would make every start of ctrun 0.7 ms longer (measured:
 * 0.85 ms without), those without a secret, too. Included last, by tls*.c alone; what
 * they call stands in both lists. Any thread, once it is loaded. */

#include "common/err.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/* clang-format off */
#define OPENSSL_MAP(X) \
    X(ASN1_INTEGER_set_uint64) X(ASN1_STRING_get0_data) X(ASN1_STRING_length) \
    X(ASN1_TIME_to_tm) X(BIO_clear_flags) X(BIO_ctrl) X(BIO_free) X(BIO_get_data) \
    X(BIO_meth_free) X(BIO_meth_new) X(BIO_meth_set_ctrl) X(BIO_meth_set_read_ex) \
    X(BIO_meth_set_write_ex) X(BIO_new) X(BIO_new_file) X(BIO_s_secmem) \
    X(BIO_set_data) X(BIO_set_flags) X(BIO_set_init) X(ERR_clear_error) \
    X(ERR_peek_error) X(ERR_reason_error_string) X(EVP_KDF_CTX_free) \
    X(EVP_KDF_CTX_new) X(EVP_KDF_derive) X(EVP_KDF_fetch) X(EVP_KDF_free) \
    X(EVP_PKEY_Q_keygen) X(EVP_PKEY_free) X(EVP_sha256) X(GENERAL_NAMES_free) \
    X(OPENSSL_init_crypto) X(OPENSSL_sk_num) X(OPENSSL_sk_value) \
    X(OSSL_PARAM_construct_end) X(OSSL_PARAM_construct_octet_string) \
    X(OSSL_PARAM_construct_utf8_string) X(PEM_read_bio_PrivateKey) \
    X(PEM_read_bio_X509) X(PEM_write_bio_PrivateKey) X(PEM_write_bio_X509) \
    X(SSL_CIPHER_find) X(SSL_CTX_ctrl) X(SSL_CTX_free) X(SSL_CTX_get0_certificate) \
    X(SSL_CTX_get_cert_store) X(SSL_CTX_load_verify_locations) X(SSL_CTX_new) \
    X(SSL_CTX_set_ciphersuites) X(SSL_CTX_set_num_tickets) X(SSL_CTX_set_options) \
    X(SSL_CTX_set_psk_find_session_callback) X(SSL_CTX_set_psk_use_session_callback) \
    X(SSL_CTX_set_session_id_context) X(SSL_CTX_set_verify) \
    X(SSL_CTX_use_PrivateKey_file) X(SSL_CTX_use_certificate_chain_file) \
    X(SSL_SESSION_free) X(SSL_SESSION_new) X(SSL_SESSION_set1_master_key) \
    X(SSL_SESSION_set_cipher) X(SSL_SESSION_set_protocol_version) X(SSL_do_handshake) \
    X(SSL_free) X(SSL_get0_peer_certificate) X(SSL_get_error) X(SSL_get_ex_data) \
    X(SSL_get_ex_data_X509_STORE_CTX_idx) X(SSL_get_verify_result) X(SSL_new) \
    X(SSL_read_ex) X(SSL_session_reused) X(SSL_set_accept_state) X(SSL_set_bio) \
    X(SSL_set_connect_state) X(SSL_set_ex_data) X(SSL_write_ex) X(TLS_client_method) \
    X(TLS_server_method) X(X509V3_EXT_conf_nid) X(X509V3_set_ctx) \
    X(X509_EXTENSION_free) X(X509_NAME_add_entry_by_txt) X(X509_STORE_CTX_free) \
    X(X509_STORE_CTX_get_current_cert) X(X509_STORE_CTX_get_error) \
    X(X509_STORE_CTX_get_error_depth) X(X509_STORE_CTX_get_ex_data) \
    X(X509_STORE_CTX_init) X(X509_STORE_CTX_new) X(X509_STORE_CTX_set_default) \
    X(X509_STORE_CTX_set_error) X(X509_add_ext) X(X509_free) X(X509_get0_notAfter) \
    X(X509_get0_notBefore) X(X509_get_ext_d2i) X(X509_get_serialNumber) \
    X(X509_get_subject_name) X(X509_getm_notAfter) X(X509_getm_notBefore) \
    X(X509_gmtime_adj) X(X509_new) X(X509_set_issuer_name) X(X509_set_pubkey) \
    X(X509_set_version) X(X509_sign) X(X509_verify_cert) \
    X(X509_verify_cert_error_string)

struct openssl {
#define OPENSSL_MEMBER(f) __typeof__(&(f)) f; /* NOLINT(bugprone-macro-parentheses) */
    OPENSSL_MAP(OPENSSL_MEMBER)
#undef OPENSSL_MEMBER
};
/* clang-format on */

extern struct openssl openssl;

/* Loads them, once. ERR_MISSING with one line: which package lacks. */
int openssl_load(struct errmsg *msg) MUST_CHECK;

/* NOLINTBEGIN(readability-identifier-naming): OpenSSL's names */
#define ASN1_INTEGER_set_uint64           openssl.ASN1_INTEGER_set_uint64
#define ASN1_STRING_get0_data             openssl.ASN1_STRING_get0_data
#define ASN1_STRING_length                openssl.ASN1_STRING_length
#define ASN1_TIME_to_tm                   openssl.ASN1_TIME_to_tm
#define BIO_clear_flags                   openssl.BIO_clear_flags
#define BIO_ctrl                          openssl.BIO_ctrl
#define BIO_free                          openssl.BIO_free
#define BIO_get_data                      openssl.BIO_get_data
#define BIO_meth_free                     openssl.BIO_meth_free
#define BIO_meth_new                      openssl.BIO_meth_new
#define BIO_meth_set_ctrl                 openssl.BIO_meth_set_ctrl
#define BIO_meth_set_read_ex              openssl.BIO_meth_set_read_ex
#define BIO_meth_set_write_ex             openssl.BIO_meth_set_write_ex
#define BIO_new                           openssl.BIO_new
#define BIO_new_file                      openssl.BIO_new_file
#define BIO_s_secmem                      openssl.BIO_s_secmem
#define BIO_set_data                      openssl.BIO_set_data
#define BIO_set_flags                     openssl.BIO_set_flags
#define BIO_set_init                      openssl.BIO_set_init
#define ERR_clear_error                   openssl.ERR_clear_error
#define ERR_peek_error                    openssl.ERR_peek_error
#define ERR_reason_error_string           openssl.ERR_reason_error_string
#define EVP_KDF_CTX_free                  openssl.EVP_KDF_CTX_free
#define EVP_KDF_CTX_new                   openssl.EVP_KDF_CTX_new
#define EVP_KDF_derive                    openssl.EVP_KDF_derive
#define EVP_KDF_fetch                     openssl.EVP_KDF_fetch
#define EVP_KDF_free                      openssl.EVP_KDF_free
#define EVP_PKEY_Q_keygen                 openssl.EVP_PKEY_Q_keygen
#define EVP_PKEY_free                     openssl.EVP_PKEY_free
#define EVP_sha256                        openssl.EVP_sha256
#define GENERAL_NAMES_free                openssl.GENERAL_NAMES_free
#define OPENSSL_init_crypto               openssl.OPENSSL_init_crypto
#define OPENSSL_sk_num                    openssl.OPENSSL_sk_num
#define OPENSSL_sk_value                  openssl.OPENSSL_sk_value
#define OSSL_PARAM_construct_end          openssl.OSSL_PARAM_construct_end
#define OSSL_PARAM_construct_octet_string openssl.OSSL_PARAM_construct_octet_string
#define OSSL_PARAM_construct_utf8_string  openssl.OSSL_PARAM_construct_utf8_string
#define PEM_read_bio_PrivateKey           openssl.PEM_read_bio_PrivateKey
#define PEM_read_bio_X509                 openssl.PEM_read_bio_X509
#define PEM_write_bio_PrivateKey          openssl.PEM_write_bio_PrivateKey
#define PEM_write_bio_X509                openssl.PEM_write_bio_X509
#define SSL_CIPHER_find                   openssl.SSL_CIPHER_find
#define SSL_CTX_ctrl                      openssl.SSL_CTX_ctrl
#define SSL_CTX_free                      openssl.SSL_CTX_free
#define SSL_CTX_get0_certificate          openssl.SSL_CTX_get0_certificate
#define SSL_CTX_get_cert_store            openssl.SSL_CTX_get_cert_store
#define SSL_CTX_load_verify_locations     openssl.SSL_CTX_load_verify_locations
#define SSL_CTX_new                       openssl.SSL_CTX_new
#define SSL_CTX_set_ciphersuites          openssl.SSL_CTX_set_ciphersuites
#define SSL_CTX_set_num_tickets           openssl.SSL_CTX_set_num_tickets
#define SSL_CTX_set_options               openssl.SSL_CTX_set_options
#define SSL_CTX_set_psk_find_session_callback \
    openssl.SSL_CTX_set_psk_find_session_callback
#define SSL_CTX_set_psk_use_session_callback \
    openssl.SSL_CTX_set_psk_use_session_callback
#define SSL_CTX_set_session_id_context     openssl.SSL_CTX_set_session_id_context
#define SSL_CTX_set_verify                 openssl.SSL_CTX_set_verify
#define SSL_CTX_use_PrivateKey_file        openssl.SSL_CTX_use_PrivateKey_file
#define SSL_CTX_use_certificate_chain_file openssl.SSL_CTX_use_certificate_chain_file
#define SSL_SESSION_free                   openssl.SSL_SESSION_free
#define SSL_SESSION_new                    openssl.SSL_SESSION_new
#define SSL_SESSION_set1_master_key        openssl.SSL_SESSION_set1_master_key
#define SSL_SESSION_set_cipher             openssl.SSL_SESSION_set_cipher
#define SSL_SESSION_set_protocol_version   openssl.SSL_SESSION_set_protocol_version
#define SSL_do_handshake                   openssl.SSL_do_handshake
#define SSL_free                           openssl.SSL_free
#define SSL_get0_peer_certificate          openssl.SSL_get0_peer_certificate
#define SSL_get_error                      openssl.SSL_get_error
#define SSL_get_ex_data                    openssl.SSL_get_ex_data
#define SSL_get_ex_data_X509_STORE_CTX_idx openssl.SSL_get_ex_data_X509_STORE_CTX_idx
#define SSL_get_verify_result              openssl.SSL_get_verify_result
#define SSL_new                            openssl.SSL_new
#define SSL_read_ex                        openssl.SSL_read_ex
#define SSL_session_reused                 openssl.SSL_session_reused
#define SSL_set_accept_state               openssl.SSL_set_accept_state
#define SSL_set_bio                        openssl.SSL_set_bio
#define SSL_set_connect_state              openssl.SSL_set_connect_state
#define SSL_set_ex_data                    openssl.SSL_set_ex_data
#define SSL_write_ex                       openssl.SSL_write_ex
#define TLS_client_method                  openssl.TLS_client_method
#define TLS_server_method                  openssl.TLS_server_method
#define X509V3_EXT_conf_nid                openssl.X509V3_EXT_conf_nid
#define X509V3_set_ctx                     openssl.X509V3_set_ctx
#define X509_EXTENSION_free                openssl.X509_EXTENSION_free
#define X509_NAME_add_entry_by_txt         openssl.X509_NAME_add_entry_by_txt
#define X509_STORE_CTX_free                openssl.X509_STORE_CTX_free
#define X509_STORE_CTX_get_current_cert    openssl.X509_STORE_CTX_get_current_cert
#define X509_STORE_CTX_get_error           openssl.X509_STORE_CTX_get_error
#define X509_STORE_CTX_get_error_depth     openssl.X509_STORE_CTX_get_error_depth
#define X509_STORE_CTX_get_ex_data         openssl.X509_STORE_CTX_get_ex_data
#define X509_STORE_CTX_init                openssl.X509_STORE_CTX_init
#define X509_STORE_CTX_new                 openssl.X509_STORE_CTX_new
#define X509_STORE_CTX_set_default         openssl.X509_STORE_CTX_set_default
#define X509_STORE_CTX_set_error           openssl.X509_STORE_CTX_set_error
#define X509_add_ext                       openssl.X509_add_ext
#define X509_free                          openssl.X509_free
#define X509_get0_notAfter                 openssl.X509_get0_notAfter
#define X509_get0_notBefore                openssl.X509_get0_notBefore
#define X509_get_ext_d2i                   openssl.X509_get_ext_d2i
#define X509_get_serialNumber              openssl.X509_get_serialNumber
#define X509_get_subject_name              openssl.X509_get_subject_name
#define X509_getm_notAfter                 openssl.X509_getm_notAfter
#define X509_getm_notBefore                openssl.X509_getm_notBefore
#define X509_gmtime_adj                    openssl.X509_gmtime_adj
#define X509_new                           openssl.X509_new
#define X509_set_issuer_name               openssl.X509_set_issuer_name
#define X509_set_pubkey                    openssl.X509_set_pubkey
#define X509_set_version                   openssl.X509_set_version
#define X509_sign                          openssl.X509_sign
#define X509_verify_cert                   openssl.X509_verify_cert
#define X509_verify_cert_error_string      openssl.X509_verify_cert_error_string
/* NOLINTEND(readability-identifier-naming) */

#endif
