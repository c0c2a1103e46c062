#ifndef RENDEZVOUS_KEYRING_H
#define RENDEZVOUS_KEYRING_H

/* The keys of ctrun-rendezvous: secrets, a file or a folder of one for each owner, or
 * what systemd has given us (LoadCredential=ctrun-secret:PATH); a certificate; or both.
 * What reads files blocks, for as long as their file system wants. */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

struct rendezvous_options;
struct tls_context;

struct keyring {
    struct tls_context *tls; /* owned; NULL: there are none, and everybody may come */
    size_t n_secrets;
};

/* Whether the options name keys, or systemd has given some. */
bool keyring_is_asked_for(const struct rendezvous_options *o);

/* ERR_INVALID or -errno with one line: a file that is not right. Warns of each file that
 * is left out. On any thread. */
int keyring_read(const struct rendezvous_options *o, struct keyring *ret,
                 struct errmsg *msg) MUST_CHECK;

/* … at the start, and says so. */
int keyring_open(struct keyring *k, const struct rendezvous_options *o,
                 struct errmsg *msg) MUST_CHECK;

/* What was read later, for those who come from now on: `fresh` has none any more. */
void keyring_replace(struct keyring *k, struct keyring *fresh);

void keyring_close(struct keyring *k); /* after the server */

#endif
