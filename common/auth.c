#include "common/auth.h"

#include "common/mem.h"
#include "common/storage.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char previous[] = ".previous";

void secrets_release(struct secrets *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->list[i].bytes) {
            explicit_bzero(s->list[i].bytes, s->list[i].size);
        }
        mem_free(s->list[i].bytes);
    }
    mem_free(s->list);
    for (size_t i = 0; i < s->n_others; i++) {
        mem_free(s->others[i].file);
    }
    mem_free(s->others);
    *s = (struct secrets){0};
}

/* --- who may read a file --- */

static int check_private(const char *path, const struct stat *st, struct errmsg *msg)
{
    if (st->st_uid != geteuid() && st->st_uid != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "%s belongs to another user (%u), who could change it: make "
                          "it your own",
                          path, (unsigned)st->st_uid);
    }
    if ((st->st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "others may read or change %s: chmod 600 %s, and if somebody "
                          "may have read it, make a new one",
                          path, path);
    }
    return 0;
}

static int check_regular(const char *path, const struct stat *st, struct errmsg *msg)
{
    if (!S_ISREG(st->st_mode)) {
        return errmsg_set(msg, ERR_INVALID, "%s is %s", path,
                          S_ISDIR(st->st_mode) ? "a folder, and no file"
                                               : "no regular file");
    }
    return 0;
}

/* Opens it for reading; `is_trusted`: whoever made the folder has seen to the rights. */
static int open_private(const char *path, bool is_trusted, struct errmsg *msg)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int rv = 0;

    if (fd < 0) {
        rv = -errno;
        return errmsg_set(msg, rv, "cannot read %s: %s", path, err_text(rv));
    }
    if (fstat(fd, &st) < 0) {
        rv = errmsg_set(msg, -errno, "cannot look at %s: %s", path, err_text(-errno));
    } else {
        rv = check_regular(path, &st, msg);
    }
    if (rv == 0 && !is_trusted) {
        rv = check_private(path, &st, msg);
    }
    if (rv < 0) {
        (void)close(fd); /* only read */
        return rv;
    }
    return fd;
}

int auth_check_private(const char *path, struct errmsg *msg)
{
    int fd = open_private(path, false, msg);

    if (fd >= 0) {
        (void)close(fd); /* only read */
    }
    return fd < 0 ? fd : 0;
}

int auth_check_public(const char *path, struct errmsg *msg)
{
    struct stat st;
    int rv;

    if (stat(path, &st) < 0) {
        rv = -errno;
        return errmsg_set(msg, rv, "cannot read %s: %s", path, err_text(rv));
    }
    rv = check_regular(path, &st, msg);
    if (rv == 0 && st.st_size > CERTIFICATE_FILE_MAX) {
        return errmsg_set(msg, ERR_INVALID,
                          "%s is no certificate: it has over %d bytes", path,
                          CERTIFICATE_FILE_MAX);
    }
    return rv;
}

/* --- reading --- */

static bool is_blank(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Reads up to `size` bytes: how many there were, or -errno. */
static ssize_t read_whole(int fd, unsigned char *data, size_t size)
{
    size_t n = 0;

    while (n < size) {
        ssize_t more = read(fd, data + n, size - n);

        if (more < 0 && errno == EINTR) {
            continue;
        }
        if (more < 0) {
            return -errno;
        }
        if (more == 0) {
            break;
        }
        n += (size_t)more;
    }
    return (ssize_t)n;
}

static int take_text(const char *path, const unsigned char *text, size_t size,
                     struct errmsg *msg)
{
    if (size > SECRET_MAX) {
        return errmsg_set(msg, ERR_INVALID, "%s is no secret: it has over %d bytes",
                          path, SECRET_MAX);
    }
    while (size > 0 && is_blank(text[size - 1])) {
        size--;
    }
    if (size < SECRET_MIN) {
        return errmsg_set(msg, ERR_INVALID,
                          "the secret in %s is too short to be one (%zu characters, at "
                          "least %d): 'ctrun keygen' makes a good one",
                          path, size, SECRET_MIN);
    }
    return (int)size;
}

/* The secret's size; its bytes are in `text`. */
static int read_text(const char *path, bool is_trusted,
                     unsigned char text[SECRET_MAX + 1], struct errmsg *msg)
{
    int fd = open_private(path, is_trusted, msg);
    ssize_t n;

    if (fd < 0) {
        return fd;
    }
    n = read_whole(fd, text, SECRET_MAX + 1);
    (void)close(fd); /* only read */
    if (n < 0) {
        return errmsg_set(msg, (int)n, "cannot read %s: %s", path, err_text((int)n));
    }
    return take_text(path, text, (size_t)n, msg);
}

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text);
    size_t tail = strlen(end);

    return size > tail && strcmp(text + size - tail, end) == 0;
}

bool secrets_is_operators(const char *name)
{
    return strcmp(name, "operator") == 0 || str_starts_with(name, "operator-");
}

static int name_secret(struct secret *s, const char *path, const char *file,
                       struct errmsg *msg)
{
    size_t size = strlen(file) - (ends_with(file, previous) ? strlen(previous) : 0);

    if (size >= SECRET_NAME_MAX) {
        return errmsg_set(msg, ERR_INVALID,
                          "the name of %s is too long for a secret's: at most %d "
                          "characters",
                          path, SECRET_NAME_MAX - 1);
    }
    memcpy(s->name, file, size);
    s->name[size] = '\0';
    s->is_operator = secrets_is_operators(s->name);
    return 0;
}

/* Adds the secret of the file `path`, called `file`. */
static int add(struct secrets *s, const char *path, const char *file, bool is_trusted,
               struct errmsg *msg)
{
    unsigned char text[SECRET_MAX + 1];
    struct secret one = {.bytes = NULL};
    int rv = name_secret(&one, path, file, msg);

    if (rv == 0 && s->n == SECRETS_MAX) {
        return errmsg_set(msg, ERR_INVALID, "%s is one secret too many: at most %d",
                          path, SECRETS_MAX);
    }
    rv = rv < 0 ? rv : read_text(path, is_trusted, text, msg);
    if (rv > 0) {
        one.size = (size_t)rv;
        one.bytes = mem_dup(text, one.size);
    }
    explicit_bzero(text, sizeof(text)); /* one that is too short or long, too */
    if (rv < 0) {
        return rv;
    }
    s->list = mem_grow(s->list, s->n + 1, sizeof(*s->list));
    s->list[s->n++] = one;
    return 0;
}

/* --- a folder --- */

/* What people, editors and package managers call what they keep of a file. */
static bool is_backup(const char *file, size_t size)
{
    static const char *const ends[] = {"~",       ".bak",     ".backup",   ".old",
                                       ".orig",   ".rej",     ".swp",      ".swo",
                                       ".tmp",    ".save",    ".previous", ".rpmnew",
                                       ".rpmold", ".rpmorig", ".rpmsave"};
    const char *dot = memrchr(file, '.', size);

    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        size_t tail = strlen(ends[i]);

        if (size >= tail && strncasecmp(file + size - tail, ends[i], tail) == 0) {
            return true;
        }
    }
    return dot && (str_starts_with(dot, ".dpkg-") || str_starts_with(dot, ".ucf-"));
}

/* Why a file called so is no owner's secret; NULL: it may be one. */
static const char *why_not(const char *file)
{
    static const char chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789-_.@";
    size_t size = strlen(file);

    if (file[0] == '.') {
        return "its name begins with a dot";
    }
    if (is_backup(file, size - (ends_with(file, previous) ? strlen(previous) : 0))) {
        return "its name is a backup's";
    }
    if (file[strspn(file, chars)] != '\0') {
        return "its name has other characters than letters, digits, - _ . @";
    }
    return NULL;
}

static void leave_out(struct secrets *s, const char *file, const char *why)
{
    s->others = mem_grow(s->others, s->n_others + 1, sizeof(*s->others));
    s->others[s->n_others++] = (struct secrets_other){mem_strdup(file), why};
}

/* As a folder of secrets has it. A credential is PREFIX_NAME, or PREFIX alone (and
 * PREFIX.previous), where systemd was given a single file. */
static char *name_in_folder(const char *file, const char *prefix)
{
    const char *rest = file + strlen(prefix);
    bool is_single = prefix[0] != '\0' && (rest[0] == '\0' || rest[0] == '.');

    return mem_printf("%s%s", is_single ? "secret" : "",
                      rest + (prefix[0] != '\0' && rest[0] == '_' ? 1 : 0));
}

static int add_entry(struct secrets *s, const char *path, const char *file,
                     const char *prefix, bool is_trusted, struct errmsg *msg)
{
    char *name = name_in_folder(file, prefix);
    const char *why = why_not(name);
    int rv = 0;

    if (why) {
        leave_out(s, file, why);
    } else {
        char *full = mem_printf("%s/%s", path, file);

        rv = add(s, full, name, is_trusted, msg);
        mem_free(full);
    }
    mem_free(name);
    return rv;
}

/* Of a folder's files, those whose names begin with `prefix`, which is no part of the
 * secret's. */
static int add_folder(struct secrets *s, const char *path, const char *prefix,
                      bool is_trusted, struct errmsg *msg)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int rv = 0;

    if (!dir) {
        rv = -errno;
        return errmsg_set(msg, rv, "cannot read the folder %s: %s", path, err_text(rv));
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody else has this DIR */
    while (rv == 0 && (entry = readdir(dir)) != NULL) {
        const char *file = entry->d_name;

        /* `..data` and its like are Kubernetes', which swaps all of a mount's files */
        if (str_starts_with(file, prefix) && strcmp(file, ".") != 0 &&
            !str_starts_with(file, "..")) {
            rv = add_entry(s, path, file, prefix, is_trusted, msg);
        }
    }
    (void)closedir(dir); /* only read */
    return rv;
}

static int check_folder(const char *path, const struct stat *st, struct errmsg *msg)
{
    if ((st->st_uid != geteuid() && st->st_uid != 0) ||
        (st->st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "others may put secrets into %s: make it your own, chmod 700",
                          path);
    }
    return 0;
}

static int read_folder(const char *path, const struct stat *st, struct secrets *s,
                       struct errmsg *msg)
{
    int rv = check_folder(path, st, msg);

    rv = rv < 0 ? rv : add_folder(s, path, "", false, msg);
    if (rv == 0 && s->n == 0 && s->n_others > 0) {
        return errmsg_set(
            msg, ERR_MISSING,
            "the folder %s holds no secret (%s is none: %s): 'ctrun keygen "
            "%s/NAME' makes one",
            path, s->others[0].file, s->others[0].why, path);
    }
    if (rv == 0 && s->n == 0) {
        return errmsg_set(msg, ERR_MISSING,
                          "the folder %s holds no secret: 'ctrun keygen %s/NAME' makes "
                          "one",
                          path, path);
    }
    return rv;
}

static int read_file(const char *path, struct secrets *s, struct errmsg *msg)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    char *older = mem_printf("%s%s", path, previous);
    int rv = add(s, path, file, false, msg);

    if (rv == 0 && access(older, F_OK) == 0) {
        rv = add(s, older, file, false, msg);
    }
    mem_free(older);
    return rv;
}

int secrets_read_file(const char *path, struct secrets *ret, struct errmsg *msg)
{
    struct secrets s = {0};
    int rv = read_file(path, &s, msg);

    if (rv < 0) {
        secrets_release(&s);
        return rv;
    }
    *ret = s;
    return 0;
}

int secrets_read(const char *path, struct secrets *ret, struct errmsg *msg)
{
    struct secrets s = {0};
    struct stat st;
    int rv;

    if (stat(path, &st) < 0) {
        rv = -errno;
        return errmsg_set(msg, rv, "cannot read the secret %s: %s", path, err_text(rv));
    }
    if (!S_ISDIR(st.st_mode)) {
        return secrets_read_file(path, ret, msg);
    }
    rv = read_folder(path, &st, &s, msg);
    if (rv < 0) {
        secrets_release(&s);
        return rv;
    }
    *ret = s;
    return 0;
}

/* Their rights are systemd's business, which sets an ACL where the user is dynamic. */
int secrets_read_credentials(const char *folder, struct secrets *ret,
                             struct errmsg *msg)
{
    struct secrets s = {0};
    int rv = add_folder(&s, folder, SECRET_CREDENTIAL, true, msg);

    if (rv == 0 && s.n == 0 && s.n_others > 0) {
        /* not ERR_MISSING: who has given one wants no open door */
        rv = errmsg_set(msg, ERR_INVALID, "the credential %s is no secret: %s",
                        s.others[0].file, s.others[0].why);
    } else if (rv == 0 && s.n == 0) {
        return ERR_MISSING;
    }
    if (rv < 0) {
        secrets_release(&s);
        return rv;
    }
    *ret = s;
    return 0;
}

/* --- making --- */

void auth_make_secret(char ret[65])
{
    unsigned char bytes[32];
    ssize_t n = getrandom(bytes, sizeof(bytes), 0);

    ASSERT(n == (ssize_t)sizeof(bytes)); /* so few always come, once the kernel is up */
    for (size_t i = 0; i < sizeof(bytes); i++) {
        (void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]); /* fits */
    }
    explicit_bzero(bytes, sizeof(bytes));
}

/* mkdir -p, the new ones for us alone. */
static int make_folders(const char *path)
{
    char *copy = mem_strdup(path);
    int rv = 0;

    for (char *slash = strchr(copy + 1, '/'); slash && rv == 0;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        rv = mkdir(copy, S_IRWXU) < 0 && errno != EEXIST ? -errno : 0;
        *slash = '/';
    }
    mem_free(copy);
    return rv;
}

static int sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder =
        slash ? mem_printf("%.*s", (int)MAX(slash - path, 1), path) : mem_strdup(".");
    int rv = storage_sync_dir(folder);

    mem_free(folder);
    return rv;
}

int auth_write_private(const char *path, const void *data, size_t size,
                       struct errmsg *msg)
{
    int rv = make_folders(path);
    int fd;

    if (rv < 0) {
        return errmsg_set(msg, rv, "cannot make the folder of %s: %s", path,
                          err_text(rv));
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
              S_IRUSR | S_IWUSR);
    if (fd < 0 && errno == EEXIST) {
        return errmsg_set(msg, -EEXIST,
                          "%s is there already, and is not replaced: move it away "
                          "first, or name another file",
                          path);
    }
    if (fd < 0) {
        rv = -errno;
        return errmsg_set(msg, rv, "cannot make %s: %s", path, err_text(rv));
    }
    rv = storage_write_all(fd, data, size);
    rv = rv < 0 ? rv : storage_sync(fd);
    if (close(fd) < 0 && rv == 0) {
        rv = -errno;
    }
    rv = rv < 0 ? rv : sync_folder(path);
    if (rv < 0) {
        (void)unlink(path); /* half a secret is none */
        return errmsg_set(msg, rv, "cannot write %s: %s", path, err_text(rv));
    }
    return 0;
}
