#ifndef RENDEZVOUS_KEYRING_H
#define RENDEZVOUS_KEYRING_H

/* The keys of ctrun-rendezvous: secrets, a file or a folder of one for each owner, or
 * what systemd has given us (LoadCredential=ctrun-secret:PATH); a certificate; or both.
 * Blocking, but short: at the start, and at SIGHUP. */

#include "common/err.h"

#include <stdbool.h>

struct rendezvous_options;
struct tls_context;

struct keyring {
    struct tls_context *tls; /* owned; NULL: there are none, and everybody may come */
};

/* Whether the options name keys, or systemd has given some. */
bool keyring_is_asked_for(const struct rendezvous_options *o);

int keyring_open(struct keyring *k, const struct rendezvous_options *o,
                 struct errmsg *msg) MUST_CHECK;

/* Reads the same files again: for those who come from now on. After a mistake, which is
 * said, the old ones hold. */
void keyring_reload(struct keyring *k, const struct rendezvous_options *o);

void keyring_close(struct keyring *k); /* after the server */

#endif
