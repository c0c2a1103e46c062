#include "launcher/own_error.h"

#include "launcher/json_text.h"
#include "launcher/options/signals.h"

#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ERROR_MAX = 1024 * 1024 };

/* --- the text --- */

/* `of` NULL: no rank is to blame. */
static char *format(const char *message, const char *stack, uint64_t wall_ms,
                    const struct msg_report *of, int code)
{
    struct buf out;

    buf_init(&out, ERROR_MAX);
    json_put(&out, "{\"message\": {\"message\": ");
    json_put_text(&out, message);
    json_put(&out, ", \"extraInfo\": {\"py_callstack\": ");
    json_put_text(&out, stack);
    json_put(&out, ", \"timestamp\": \"%" PRIu64 "\"", wall_ms / 1000);
    if (of) {
        json_put(&out, ", \"rank\": %d, \"local_rank\": %u, \"host\": ", of->rank,
                 of->local_rank);
        json_put_text(&out, of->host);
        json_put(&out, ", \"generation\": %" PRIu64, of->generation);
    }
    json_put(&out, "}, \"errorCode\": %d}}%c", code, 0);
    return (char *)out.data; /* nothing was consumed: the text begins there */
}

/* "rank 5 (local_rank: 1) on b: exitcode -9 (pid: 4711) (SIGKILL)" */
static void name_end(const struct msg_report *r, char *text, size_t size)
{
    char name[SIGNALS_NAME_MAX] = "";

    if (r->signal > 0) {
        signals_name(r->signal, name);
    }
    (void)snprintf(
        text, size, "rank %d (local_rank: %u) on %s: exitcode %d (pid: %u)%s%s%s",
        r->rank, r->local_rank, r->host, r->signal != 0 ? -r->signal : r->code, r->pid,
        name[0] != '\0' ? " (" : "", name, name[0] != '\0' ? ")" : "");
}

static char *of_rank(const struct msg_report *r)
{
    char end[MSG_ID_MAX + 128];
    char *stack;
    char *text;

    name_end(r, end, sizeof(end));
    stack = r->message[0] != '\0' ? mem_strdup(r->message)
            : r->tail[0] != '\0'  ? mem_printf("%s\nlast lines:\n%s", end, r->tail)
                                  : mem_strdup(end);
    text = format(r->error[0] != '\0' ? r->error : end, stack, r->wall_ms, r,
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
    text = format(r->text, stack, r->wall_ms, NULL, (int)r->exit_code);
    mem_free(stack);
    return text;
}

char *own_error_of_text(const char *text, int exit_code, uint64_t wall_ms)
{
    return format(text, text, wall_ms, NULL, exit_code);
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
