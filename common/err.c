#include "common/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Codes that are libuv's alone, with its names and texts: the base includes no <uv.h>,
 * and their values are part of libuv's ABI. Its others are -errno. */
#define UV_ONLY_MAP(X)                                             \
    X(EAI_ADDRFAMILY, -3000, "address family not supported")       \
    X(EAI_AGAIN, -3001, "temporary failure")                       \
    X(EAI_BADFLAGS, -3002, "bad ai_flags value")                   \
    X(EAI_CANCELED, -3003, "request canceled")                     \
    X(EAI_FAIL, -3004, "permanent failure")                        \
    X(EAI_FAMILY, -3005, "ai_family not supported")                \
    X(EAI_MEMORY, -3006, "out of memory")                          \
    X(EAI_NODATA, -3007, "no address")                             \
    X(EAI_NONAME, -3008, "unknown node or service")                \
    X(EAI_OVERFLOW, -3009, "argument buffer overflow")             \
    X(EAI_SERVICE, -3010, "service not available for socket type") \
    X(EAI_SOCKTYPE, -3011, "socket type not supported")            \
    X(EAI_BADHINTS, -3013, "invalid value for hints")              \
    X(EAI_PROTOCOL, -3014, "resolved protocol is unknown")         \
    X(EFTYPE, -4028, "inappropriate file type or format")          \
    X(ECHARSET, -4080, "invalid Unicode character")                \
    X(UNKNOWN, -4094, "unknown error")                             \
    X(EOF, -4095, "end of file")

static const struct {
    int value;
    const char *name, *text;
} known[] = {
#define ERR_ROW(name, value, text) {value, #name, text},
    ERR_MAP(ERR_ROW) UV_ONLY_MAP(ERR_ROW)
#undef ERR_ROW
};

const char *err_name(int err)
{
    const char *name = strerrorname_np(-err);

    for (size_t i = 0; i < ARRAY_LEN(known) && !name; i++) {
        name = known[i].value == err ? known[i].name : NULL;
    }
    return name ? name : "unknown error";
}

const char *err_text(int err)
{
    const char *text = strerrordesc_np(-err);

    for (size_t i = 0; i < ARRAY_LEN(known) && !text; i++) {
        text = known[i].value == err ? known[i].text : NULL;
    }
    return text ? text : "unknown error";
}

/* A user's value, or a peer's, may be in it: it is one line all the same. */
static void flatten(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            *text = ' ';
        }
    }
}

int errmsg_set(struct errmsg *msg, int err, const char *fmt, ...)
{
    va_list args;

    if (msg) {
        va_start(args, fmt);
        (void)vsnprintf(msg->text, sizeof(msg->text), fmt, args); /* cut is fine */
        va_end(args);
        flatten(msg->text);
    }
    return err;
}

int errmsg_wrap(struct errmsg *msg, int err, const char *fmt, ...)
{
    char inner[sizeof(msg->text)];
    va_list args;
    size_t used;

    if (!msg) {
        return err;
    }
    memcpy(inner, msg->text, sizeof(inner));
    va_start(args, fmt);
    (void)vsnprintf(msg->text, sizeof(msg->text), fmt, args); /* cut is fine */
    va_end(args);
    flatten(msg->text);
    used = strlen(msg->text);
    (void)snprintf(msg->text + used, sizeof(msg->text) - used, ": %s", inner);
    return err;
}

int errmsg_thread(struct errmsg *msg, int err, const char *what)
{
    return errmsg_set(msg, err, "%s: no thread: %s%s", what, err_text(err),
                      err == -EAGAIN || err == -ENOMEM
                          ? "; a limit of memory (ulimit -d, -v) or of processes "
                            "(ulimit -u, the cgroup's pids.max) is too low"
                          : "");
}
