#ifndef LAUNCHER_RDZV_KEYS_H
#define LAUNCHER_RDZV_KEYS_H

/* What this side shows to the other of a connection to the rendezvous, and whom it lets
 * in where it serves: a secret, or a certificate of a CA, or nothing. Certificates are
 * named by --tls-ca, --tls-cert and --tls-key, or $CTRUN_TLS_CA …; a secret is looked for
 * at --rdzv-secret-file, $CTRUN_SECRET_FILE, $CREDENTIALS_DIRECTORY/ctrun-secret,
 * ~/.config/ctrun/secret. Files are read again at each connection, so that a secret may
 * be replaced; by a thread (errand.h), since they may lie on a file system that hangs: it
 * costs the loop KEYS_WAIT_MS at most, and once, and what was read before holds. Nothing
 * of TLS is loaded where there are no keys. Loop thread only. */

#include "common/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct errand;
struct tls_context;

enum {
    KEYS_WAIT_MS = 500,    /* far less than a lease */
    KEYS_FIRST_MS = 10000, /* nothing was read yet, and so nothing runs */
};

/* As options name them; "" where they do not. */
struct keys_files {
    char secret[PATH_MAX];
    char ca[PATH_MAX], cert[PATH_MAX], key[PATH_MAX];
};

struct keys {
    struct keys_files files;
    bool is_credential; /* files.secret is systemd's */

    /* private */
    uint64_t agent_id;
    char job[256];
    struct tls_context *client, *server; /* owned; NULL: not read yet */
    struct errand *errand;               /* owned; NULL: nobody reads */
    bool is_slow;     /* the last reading took too long, or does … */
    bool was_said;    /* … and what was read before stays */
    uint64_t read_ms; /* when the server's were */
};

/* Finds the files and looks at them. ERR_INVALID or -errno with one line: options that
 * do not go together, a file that is not there or that others may read. */
int keys_find(const struct keys_files *asked, struct keys *ret,
              struct errmsg *msg) MUST_CHECK;
bool keys_any(const struct keys *k);

/* Who shows them, and for which job; "": for any. */
void keys_set_agent(struct keys *k, uint64_t agent_id, const char *job);

/* *ret lives until keys_release; NULL where there are no keys. What cannot be read any
 * more, or not soon (ERR_TIMEOUT), is said, and what was read before holds. */
int keys_client(struct keys *k, struct tls_context **ret,
                struct errmsg *msg) MUST_CHECK;
int keys_server(struct keys *k, struct tls_context **ret,
                struct errmsg *msg) MUST_CHECK;
void keys_release(struct keys *k);

/* For people: "key id …, of FILE", "certificate FILE". */
void keys_describe(const struct keys *k, char *ret, size_t size);

#endif
