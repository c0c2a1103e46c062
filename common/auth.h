#ifndef COMMON_AUTH_H
#define COMMON_AUTH_H

/* Secrets: where they lie, and who may read them there. A secret is the text of a file
 * (without what is blank at its end): at least 32 characters, `ctrun keygen` makes one.
 * Its owner is the file's name; NAME.previous is the one that NAME replaces, and as good
 * until it is removed. The secret of a file operator or operator-… is an operator's.
 * In a folder a name is made of letters, digits, - _ . @, begins with no dot, and is not
 * a backup's (NAME~, NAME.bak …): what was moved aside is not good for another owner.
 * Blocking; any thread. */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    SECRET_MIN = 32,
    SECRET_MAX = 4096,
    SECRET_NAME_MAX = 64,
    SECRETS_MAX = 4096, /* of a folder */
    CERTIFICATE_FILE_MAX = 1024 * 1024,
};

/* What systemd's LoadCredential= has to call them, file or folder. */
#define SECRET_CREDENTIAL "ctrun-secret"

/* By the name of its file. */
bool secrets_is_operators(const char *name);

struct secret {
    char name[SECRET_NAME_MAX]; /* without .previous */
    bool is_operator;
    size_t size;
    unsigned char *bytes; /* owned */
};

/* A file in a folder of secrets that is left out. */
struct secrets_other {
    char *file;      /* its name, whatever is in it; owned */
    const char *why; /* static */
};

struct secrets {
    struct secret *list; /* owned */
    size_t n;
    struct secrets_other *others; /* owned */
    size_t n_others;
};

/* Reads a file (and its .previous, where there is one) or a folder of them. -errno,
 * ERR_INVALID (too short, too long, others may read it …) with one line: cause and
 * remedy. */
int secrets_read(const char *path, struct secrets *ret, struct errmsg *msg) MUST_CHECK;
/* … where it has to be a file. */
int secrets_read_file(const char *path, struct secrets *ret,
                      struct errmsg *msg) MUST_CHECK;

/* What systemd has put into `folder`, $CREDENTIALS_DIRECTORY: ERR_MISSING without a
 * message where there is nothing of ours. */
int secrets_read_credentials(const char *folder, struct secrets *ret,
                             struct errmsg *msg) MUST_CHECK;

void secrets_release(struct secrets *s); /* wipes them */

/* A private key, say: such a file of ours or root's that nobody else may read. */
int auth_check_private(const char *path, struct errmsg *msg) MUST_CHECK;

/* A certificate: a regular file of at most CERTIFICATE_FILE_MAX. */
int auth_check_public(const char *path, struct errmsg *msg) MUST_CHECK;

/* A new secret's text, from the kernel's random numbers: 64 hex digits. */
void auth_make_secret(char ret[65]);

/* Writes a file that was not there, readable by us alone, and the folders above it.
 * -EEXIST with a message: it never replaces one. */
int auth_write_private(const char *path, const void *data, size_t size,
                       struct errmsg *msg) MUST_CHECK;

#endif
