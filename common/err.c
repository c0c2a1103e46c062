#include "common/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *err_name(int err)
{
    const char *name;

    switch (err) {
#define ERR_CASE(name, value, text) \
    case value:                     \
        return #name;
        ERR_MAP(ERR_CASE)
#undef ERR_CASE
    default:
        name = strerrorname_np(-err);
        return name ? name : "unknown error";
    }
}

const char *err_text(int err)
{
    const char *text;

    switch (err) {
#define ERR_CASE(name, value, text) \
    case value:                     \
        return text;
        ERR_MAP(ERR_CASE)
#undef ERR_CASE
    default:
        text = strerrordesc_np(-err);
        return text ? text : "unknown error";
    }
}

int errmsg_set(struct errmsg *msg, int err, const char *fmt, ...)
{
    va_list args;

    if (msg) {
        va_start(args, fmt);
        (void)vsnprintf(msg->text, sizeof(msg->text), fmt, args); /* cut is fine */
        va_end(args);
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
    used = strlen(msg->text);
    (void)snprintf(msg->text + used, sizeof(msg->text) - used, ": %s", inner);
    return err;
}
