#include "launcher/own_error.h"

#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the text --- */

/* Bytes that are no UTF-8 make all beyond ASCII '?'. */
static json_t *make_text(const char *text)
{
    json_t *made = json_string(text);
    char *plain;

    if (made) {
        return made;
    }
    plain = mem_strdup(text);
    for (char *c = plain; *c != '\0'; c++) {
        *c = (char)((unsigned char)*c < 0x80 ? *c : '?');
    }
    made = json_string(plain);
    mem_free(plain);
    return made;
}

static json_t *make_extra(const char *stack, uint64_t wall_ms)
{
    json_t *extra = json_object();
    char timestamp[24];
    int rv;

    (void)snprintf(timestamp, sizeof(timestamp), "%" PRIu64, wall_ms / 1000);
    rv = json_object_set_new(extra, "py_callstack", make_text(stack));
    rv |= json_object_set_new(extra, "timestamp", json_string(timestamp));
    ASSERT(rv == 0); /* but for memory, as of everything small */
    return extra;
}

/* Takes `extra`. */
static char *finish(const char *message, json_t *extra, int code)
{
    json_t *root = json_object();
    json_t *inner = json_object();
    char *dumped;
    char *text;
    int rv;

    rv = json_object_set_new(inner, "message", make_text(message));
    rv |= json_object_set_new(inner, "extraInfo", extra);
    rv |= json_object_set_new(inner, "errorCode", json_integer(code));
    rv |= json_object_set_new(root, "message", inner);
    dumped = json_dumps(root, JSON_ENSURE_ASCII);
    ASSERT(rv == 0 && dumped);
    text = mem_strdup(dumped);
    free(dumped);
    json_decref(root);
    return text;
}

/* "rank 5 (local_rank: 1) on b: exitcode -9 (pid: 4711) (SIGKILL)" */
static void name_end(const struct msg_report *r, char *text, size_t size)
{
    const char *name = r->signal > 0 ? sigabbrev_np(r->signal) : NULL;

    (void)snprintf(
        text, size, "rank %d (local_rank: %u) on %s: exitcode %d (pid: %u)%s%s%s",
        r->rank, r->local_rank, r->host, r->signal != 0 ? -r->signal : r->code, r->pid,
        name ? " (SIG" : "", name ? name : "", name ? ")" : "");
}

static char *of_rank(const struct msg_report *r)
{
    char end[MSG_ID_MAX + 128];
    char *stack;
    json_t *extra;
    char *text;
    int rv;

    name_end(r, end, sizeof(end));
    stack = r->message[0] != '\0' ? mem_strdup(r->message)
            : r->tail[0] != '\0'  ? mem_printf("%s\nlast lines:\n%s", end, r->tail)
                                  : mem_strdup(end);
    extra = make_extra(stack, r->wall_ms);
    rv = json_object_set_new(extra, "rank", json_integer(r->rank));
    rv |= json_object_set_new(extra, "local_rank", json_integer(r->local_rank));
    rv |= json_object_set_new(extra, "host", make_text(r->host));
    rv |= json_object_set_new(extra, "generation",
                              json_integer((json_int_t)r->generation));
    ASSERT(rv == 0);
    text = finish(r->error[0] != '\0' ? r->error : end, extra,
                  r->signal != 0 ? -r->signal : r->code);
    mem_free(stack);
    return text;
}

char *own_error_of_report(const struct msg_report *r)
{
    char *stack;
    char *text;

    if (r->rank >= 0) {
        return of_rank(r);
    }
    stack = mem_printf("%s\n%s", r->text, r->others);
    text = finish(r->text, make_extra(stack, r->wall_ms), (int)r->exit_code);
    mem_free(stack);
    return text;
}

char *own_error_of_text(const char *text, int exit_code, uint64_t wall_ms)
{
    return finish(text, make_extra(text, wall_ms), exit_code);
}

/* --- the file --- */

static int write_all(int fd, const char *text)
{
    size_t size = strlen(text);

    while (size > 0) {
        ssize_t n = write(fd, text, size);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        text += MAX(n, 0);
        size -= (size_t)MAX(n, 0);
    }
    return 0;
}

static int write_to(const char *path, int flags, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags,
                  0666);
    int rv = fd < 0 ? -errno : write_all(fd, text);

    if (fd >= 0 && close(fd) < 0 && rv == 0) {
        rv = -errno; /* a full disk may say so only now */
    }
    return rv;
}

static int replace(const char *path, const char *text)
{
    char made[PATH_MAX];
    int rv;

    if (!str_format(made, sizeof(made), "%s.%d.tmp", path, (int)getpid())) {
        return -ENAMETOOLONG;
    }
    rv = write_to(made, O_EXCL, text);
    if (rv == -EEXIST) {
        return rv; /* not ours */
    }
    if (rv == 0 && rename(made, path) < 0) {
        rv = -errno;
    }
    if (rv < 0) {
        (void)unlink(made); /* it may not be there */
    }
    return rv;
}

/* A link's target is not ours to replace, nor is a device. */
static bool is_replaceable(const char *path)
{
    struct stat st;

    return lstat(path, &st) < 0 ? errno == ENOENT : S_ISREG(st.st_mode);
}

int own_error_write(const char *path, const char *text, struct errmsg *msg)
{
    int rv = is_replaceable(path) ? replace(path, text) : -EBUSY;

    if (rv < 0) {
        rv = write_to(path, O_TRUNC, text);
    }
    return rv < 0 ? errmsg_set(msg, rv, "cannot write TORCHELASTIC_ERROR_FILE %s: %s",
                               path, err_text(rv))
                  : 0;
}
