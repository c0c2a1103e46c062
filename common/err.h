#ifndef COMMON_ERR_H
#define COMMON_ERR_H

/* Errors are ints: 0 or negative. System and libuv failures keep their value (-errno);
 * libuv's own codes lie at -3000…-4095, so ours start at -5000. Where a person needs
 * more than the name, the last parameter of a function is a `struct errmsg`: filled
 * once, at the place that knows, and wrapped with context on the way up. */

#include "common/check.h"

#define ERR_MAP(X)                                        \
    X(ERR_INVALID, -5000, "invalid value")                \
    X(ERR_TOO_LARGE, -5001, "larger than the limit")      \
    X(ERR_PROTOCOL, -5002, "the peer broke the protocol") \
    X(ERR_CLOSED, -5003, "already closed")                \
    X(ERR_TIMEOUT, -5004, "timed out")                    \
    X(ERR_PEER_LOST, -5005, "lost a peer")                \
    X(ERR_ABORTED, -5006, "aborted")                      \
    X(ERR_CORRUPT, -5007, "damaged data")                 \
    X(ERR_MISSING, -5008, "not found")                    \
    X(ERR_REFUSED, -5009, "refused")                      \
    X(ERR_BUSY, -5010, "in use")                          \
    X(ERR_STALE, -5011, "belongs to an older generation") \
    X(ERR_UNSUPPORTED, -5012, "not supported here")       \
    X(ERR_NOT_FINITE, -5013, "infinite or not a number")  \
    X(ERR_DIVERGED, -5014, "not what the others have")

#define ERR_ENUM(name, value, text) name = (value),
enum err { ERR_MAP(ERR_ENUM) };
#undef ERR_ENUM

/* The error's name ("ERR_TIMEOUT", "ENOENT") and its text. Never NULL; static storage.
 */
const char *err_name(int err);
const char *err_text(int err);

struct errmsg {
    char text[512]; /* "" while nothing went wrong; cut at the end, always terminated */
};

/* Sets the text; returns `err`, so that `return errmsg_set(msg, ERR_X, …)` reads well.
 * `msg` may be NULL. */
int errmsg_set(struct errmsg *msg, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts "<context>: " in front of the text. Returns `err`. */
int errmsg_wrap(struct errmsg *msg, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The text for a thread that could not be started: "<what>: …", and which limits may
 * be behind it. Returns `err`. */
int errmsg_thread(struct errmsg *msg, int err, const char *what);

#endif
