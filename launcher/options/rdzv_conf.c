#include "launcher/options/rdzv_conf.h"

#include "common/str.h"

#include <string.h>
#include <strings.h>

enum { MAX_TIMEOUT_S = 1000000 };

struct conf_key {
    const char *name;
    int (*set)(const struct conf_key *key, struct rdzv_conf *conf, const char *value,
               struct errmsg *msg);
    size_t offset; /* set_seconds: in struct rdzv_conf, of a uint64_t in ms */
};

/* An integer above 0, as torchrun wants it. */
static int check_count(const struct conf_key *key, const char *value, const char *what,
                       uint64_t *ret, struct errmsg *msg)
{
    if (str_parse_u64(value, ret) < 0 || *ret < 1 || *ret > MAX_TIMEOUT_S) {
        return errmsg_set(msg, ERR_INVALID, "%s expects %s from 1 to %d, not '%.60s'",
                          key->name, what, MAX_TIMEOUT_S, value);
    }
    return 0;
}

static int set_seconds(const struct conf_key *key, struct rdzv_conf *conf,
                       const char *value, struct errmsg *msg)
{
    uint64_t seconds;
    int rv = check_count(key, value, "seconds", &seconds, msg);

    if (rv == 0) {
        *(uint64_t *)(void *)((char *)conf + key->offset) = seconds * 1000;
    }
    return rv;
}

static int ignore_count(const struct conf_key *key, struct rdzv_conf *conf,
                        const char *value, struct errmsg *msg)
{
    uint64_t count;

    (void)conf;
    return check_count(key, value, "a number", &count, msg);
}

static int ignore_backoff(const struct conf_key *key, struct rdzv_conf *conf,
                          const char *value, struct errmsg *msg)
{
    double seconds;

    (void)conf;
    if (str_parse_double(value, &seconds) < 0 || seconds < 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "%s expects seconds, 0 or more, not '%.60s'", key->name,
                          value);
    }
    return 0;
}

static int parse_bool(const struct conf_key *key, const char *value, bool *ret,
                      struct errmsg *msg)
{
    static const char *const words[] = {"0", "1",  "false", "true", "f",
                                        "t", "no", "yes",   "n",    "y"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcasecmp(value, words[i]) == 0) {
            *ret = i % 2 == 1;
            return 0;
        }
    }
    return errmsg_set(msg, ERR_INVALID, "%s expects 1 or 0, not '%.60s'", key->name,
                      value);
}

static int set_is_host(const struct conf_key *key, struct rdzv_conf *conf,
                       const char *value, struct errmsg *msg)
{
    bool is_host = false;
    int rv = parse_bool(key, value, &is_host, msg);

    conf->serving = is_host ? RDZV_SERVE_ALWAYS : RDZV_SERVE_NEVER;
    return rv;
}

static int ignore_bool(const struct conf_key *key, struct rdzv_conf *conf,
                       const char *value, struct errmsg *msg)
{
    bool ignored;

    (void)conf;
    return parse_bool(key, value, &ignored, msg);
}

static int ignore(const struct conf_key *key, struct rdzv_conf *conf, const char *value,
                  struct errmsg *msg)
{
    (void)key;
    (void)conf;
    (void)value;
    (void)msg;
    return 0;
}

static int check_store_type(const struct conf_key *key, struct rdzv_conf *conf,
                            const char *value, struct errmsg *msg)
{
    (void)conf;
    if (strcmp(value, "tcp") == 0) {
        return 0;
    }
    return errmsg_set(msg, ERR_INVALID,
                      "%s=%.60s is not there; nodes meet at a port: leave the key out "
                      "and name a host by --rdzv-endpoint=HOST:PORT",
                      key->name, value);
}

static const struct conf_key conf_keys[] = {
    {"join_timeout", set_seconds, offsetof(struct rdzv_conf, join_timeout_ms)},
    {"last_call_timeout", set_seconds,
     offsetof(struct rdzv_conf, last_call_timeout_ms)},
    {"timeout", set_seconds, offsetof(struct rdzv_conf, timeout_ms)},
    {"is_host", set_is_host, 0},
    {"store_type", check_store_type, 0},
    {"close_timeout", ignore_count, 0}, /* closing a job takes one message */
    {"heartbeat_timeout", ignore_count, 0},
    {"keep_alive_interval", ignore_count, 0},
    {"keep_alive_max_attempt", ignore_count, 0},
    {"read_timeout", ignore_count, 0}, /* nobody polls */
    {"cas_backoff_max_seconds", ignore_backoff, 0},
    {"use_libuv", ignore_bool, 0},
    {"rank", ignore, 0}, /* torchrun puts --node-rank over it */
};

static int refuse_conf_key(const char *key, struct errmsg *msg)
{
    const char *names[ARRAY_LEN(conf_keys)];
    const char *nearest;

    for (size_t i = 0; i < ARRAY_LEN(conf_keys); i++) {
        names[i] = conf_keys[i].name;
    }
    nearest = str_nearest(key, names, ARRAY_LEN(names));
    return errmsg_set(msg, ERR_INVALID,
                      "unknown key '%.60s'%s%s; those with an effect are join_timeout, "
                      "last_call_timeout, timeout, is_host and store_type",
                      key, nearest ? ", near " : "", nearest ? nearest : "");
}

static int set_conf(struct rdzv_conf *conf, const char *key, const char *value,
                    struct errmsg *msg)
{
    for (size_t i = 0; i < ARRAY_LEN(conf_keys); i++) {
        if (strcmp(key, conf_keys[i].name) == 0) {
            return conf_keys[i].set(&conf_keys[i], conf, value, msg);
        }
    }
    return refuse_conf_key(key, msg);
}

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

/* Cuts `text` to `len`, and the blanks before that. */
static void end_without_blanks(char *text, size_t len)
{
    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t')) {
        len--;
    }
    text[len] = '\0';
}

int rdzv_conf_parse(const char *value, struct rdzv_conf *ret, struct errmsg *msg)
{
    struct rdzv_conf conf = {.serving = RDZV_SERVE_OWN_ADDRESS};
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
        end_without_blanks(pair, len);
        end_without_blanks(pair, key_len);
        rv = set_conf(&conf, pair, skip_blanks(pair + key_len + 1), msg);
        if (rv < 0) {
            return rv;
        }
        text = skip_blanks(text + len);
        if (*text == ',' && *(text = skip_blanks(text + 1)) == '\0') {
            return errmsg_set(msg, ERR_INVALID, "ends in a comma: '%.80s'", value);
        }
    }
    *ret = conf;
    return 0;
}
