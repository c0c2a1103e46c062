#include "launcher/rdzv_conf.h"

#include "common/str.h"

#include <string.h>

enum { MAX_TIMEOUT_S = 1000000 };

/* Keys of --rdzv-conf. One without a place to keep it is refused with its remedy. */
struct conf_key {
    const char *name;
    size_t offset; /* in struct launch_options, of a uint64_t in ms */
    const char *remedy;
};

#define LEASE_REMEDY                                                                   \
    "a node's death shows at its connection and, at the latest, when its lease ends; " \
    "leave the key out"

static const struct conf_key conf_keys[] = {
    {"join_timeout", offsetof(struct launch_options, join_timeout_ms), NULL},
    {"last_call_timeout", offsetof(struct launch_options, last_call_timeout_ms), NULL},
    {"timeout", 0, "it belongs to the static backend; use join_timeout"},
    {"close_timeout", 0, "closing a job takes one message; leave the key out"},
    {"heartbeat_timeout", 0, LEASE_REMEDY},
    {"keep_alive_interval", 0, LEASE_REMEDY},
    {"keep_alive_max_attempt", 0, LEASE_REMEDY},
    {"read_timeout", 0, "use join_timeout"},
    {"is_host", 0,
     "the node that owns the endpoint's address serves; leave the key out"},
    {"cas_backoff_max_seconds", 0, "nothing races here; leave the key out"},
    {"use_libuv", 0, "the store is always the fast one; leave the key out"},
};

static int refuse_conf_key(const char *key, struct errmsg *msg)
{
    const char *names[ARRAY_LEN(conf_keys)];
    const char *nearest;

    for (size_t i = 0; i < ARRAY_LEN(conf_keys); i++) {
        names[i] = conf_keys[i].name;
    }
    nearest = str_nearest(key, names, ARRAY_LEN(names));
    return errmsg_set(
        msg, ERR_INVALID,
        "unknown key '%.60s'%s%s; known are join_timeout, last_call_timeout "
        "and store_type",
        key, nearest ? ", near " : "", nearest ? nearest : "");
}

static int set_conf(struct launch_options *o, const char *key, const char *value,
                    struct errmsg *msg)
{
    uint64_t seconds;

    if (strcmp(key, "store_type") == 0) {
        return strcmp(value, "tcp") == 0
                   ? 0
                   : errmsg_set(msg, ERR_INVALID,
                                "store_type=%.60s is not there; tcp is the only store",
                                value);
    }
    for (size_t i = 0; i < ARRAY_LEN(conf_keys); i++) {
        const struct conf_key *k = &conf_keys[i];

        if (strcmp(key, k->name) != 0) {
            continue;
        }
        if (k->remedy) {
            return errmsg_set(msg, ERR_INVALID, "%s is not there yet; %s", key,
                              k->remedy);
        }
        if (str_parse_u64(value, &seconds) < 0 || seconds < 1 ||
            seconds > MAX_TIMEOUT_S) {
            return errmsg_set(msg, ERR_INVALID,
                              "%s expects seconds from 1 to %d, not '%.60s'", key,
                              MAX_TIMEOUT_S, value);
        }
        *(uint64_t *)(void *)((char *)o + k->offset) = seconds * 1000;
        return 0;
    }
    return refuse_conf_key(key, msg);
}

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

int rdzv_conf_parse(const char *value, struct launch_options *o, struct errmsg *msg)
{
    const char *text = skip_blanks(value);

    while (*text != '\0') {
        size_t len = strcspn(text, ",");
        size_t key_len = strcspn(text, "=,");
        char pair[128];
        int rv;

        if (key_len == len || key_len == 0 || key_len + 1 == len ||
            len >= sizeof(pair)) {
            return errmsg_set(msg, ERR_INVALID, "expects KEY=VALUE,…, not '%.80s'",
                              value);
        }
        memcpy(pair, text, len);
        pair[len] = '\0';
        pair[key_len] = '\0';
        rv = set_conf(o, pair, pair + key_len + 1, msg);
        if (rv < 0) {
            return rv;
        }
        text = skip_blanks(text + len);
        if (*text == ',' && *(text = skip_blanks(text + 1)) == '\0') {
            return errmsg_set(msg, ERR_INVALID, "ends in a comma: '%.80s'", value);
        }
    }
    return 0;
}
