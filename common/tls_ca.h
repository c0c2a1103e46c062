#ifndef COMMON_TLS_CA_H
#define COMMON_TLS_CA_H

/* A small CA in a folder: ca.pem and ca.key (EC P-256), and what it issues, NAME.pem and
 * NAME.key. Never replaces a file. Blocking; any thread. */

#include "common/err.h"
#include "common/identity.h"

/* Valid for so many days from now (and an hour before: clocks differ); 0 or less: it has
 * expired, for tests. */
int tls_ca_make(const char *folder, int days, struct errmsg *msg) MUST_CHECK;

/* A certificate of `who` (its role, job and name), signed by the folder's CA. */
int tls_ca_issue(const char *folder, const char *name, const struct identity *who,
                 int days, struct errmsg *msg) MUST_CHECK;

#endif
