#include "worker/config_table.h"

#include "common/number.h"
#include "common/str.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* From a scalar or list to a field of struct train_config. The key alone decides the
 * type: `695e0514` is a name for a text key, `1e-1` a number for a number key. */

static void *field(const struct config_key *key, struct train_config *config)
{
    return (char *)config + key->offset;
}

static size_t count(const struct yaml_node *list)
{
    size_t n = 0;

    for (const struct yaml_node *item = list->first; item; item = item->next) {
        n++;
    }
    return n;
}

static int blame_type(const struct config_key *key, const struct yaml_node *n,
                      struct errmsg *msg)
{
    static const char *const kinds[] = {
        [YAML_SCALAR] = "", [YAML_SEQ] = "a list", [YAML_MAP] = "a section"};
    char wanted[160];

    config_key_describe(key, wanted, sizeof(wanted));
    if (n->kind == YAML_SCALAR) {
        return yaml_blame(n, ERR_INVALID, msg, "%s: \"%s\" is not %s", key->path,
                          n->text, wanted);
    }
    if (n->kind == YAML_SEQ && key->type == CONFIG_PAIR) {
        return yaml_blame(n, ERR_INVALID, msg, "%s is %s, not of %zu", key->path,
                          wanted, count(n));
    }
    return yaml_blame(n, ERR_INVALID, msg, "%s is %s, not %s", key->path, wanted,
                      kinds[n->kind]);
}

static int blame_range(const struct config_key *key, const struct yaml_node *n,
                       struct errmsg *msg)
{
    return yaml_blame(n, ERR_INVALID, msg, "%s: %s is out of range: %.10g … %.10g",
                      key->path, n->text, key->min, key->max);
}

/* Texts must be UTF-8, for they go into YAML and JSON. Returns the length of the
 * character at `s`, or 0. */
static size_t utf8_length(const unsigned char *s)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = s[0] < 0x80   ? 1
                 : s[0] < 0xc0 ? 0
                 : s[0] < 0xe0 ? 2
                 : s[0] < 0xf0 ? 3
                               : 4;
    unsigned code = s[0];

    if (len <= 1) {
        return len;
    }
    code &= 0x7fU >> len;
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80) { /* the terminator too */
            return 0;
        }
        code = code << 6 | (s[i] & 0x3fU);
    }
    if (s[0] > 0xf4 || code < least[len] || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000)) {
        return 0;
    }
    return len;
}

static bool is_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    while (*s) {
        size_t len = utf8_length(s);

        if (len == 0) {
            return false;
        }
        s += len;
    }
    return true;
}

static int decode_text(const struct config_key *key, const struct yaml_node *n,
                       char *text, size_t size, struct errmsg *msg)
{
    if (n->kind != YAML_SCALAR) {
        return blame_type(key, n, msg);
    }
    if (strlen(n->text) >= size) {
        return yaml_blame(n, ERR_TOO_LARGE, msg, "%s: longer than %zu bytes", key->path,
                          size - 1);
    }
    if (!is_utf8(n->text)) {
        return yaml_blame(n, ERR_INVALID, msg, "%s: not UTF-8 text", key->path);
    }
    memcpy(text, n->text, strlen(n->text) + 1);
    return 0;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t len = strlen(text);

    for (const char *c = choices; c; c = strchr(c, '|')) {
        c += *c == '|';
        if (strncmp(c, text, len) == 0 && (c[len] == '|' || c[len] == '\0')) {
            return len > 0;
        }
    }
    return false;
}

static int decode_choice(const struct config_key *key, const struct yaml_node *n,
                         struct train_config *config, struct errmsg *msg)
{
    if (n->kind != YAML_SCALAR || !is_choice(key->choices, n->text)) {
        return blame_type(key, n, msg);
    }
    return decode_text(key, n, field(key, config), key->size, msg);
}

/* A single text is a list of one. */
static int decode_texts(const struct config_key *key, const struct yaml_node *n,
                        struct train_config *config, struct errmsg *msg)
{
    struct text_list *list = field(key, config);
    const struct yaml_node *item = n->kind == YAML_SEQ ? n->first : n;

    list->n = 0;
    for (; item; item = n->kind == YAML_SEQ ? item->next : NULL) {
        int rv;

        if (list->n == CONFIG_LIST_MAX) {
            return yaml_blame(item, ERR_TOO_LARGE, msg, "%s: more than %d items",
                              key->path, CONFIG_LIST_MAX);
        }
        rv = decode_text(key, item, list->item[list->n], CONFIG_TEXT_MAX, msg);
        if (rv < 0) {
            return rv;
        }
        if (list->item[list->n][0] == '\0') {
            return yaml_blame(item, ERR_INVALID, msg, "%s: an empty item", key->path);
        }
        list->n++;
    }
    return 0;
}

/* 1_000_000 is allowed, as in Hydra. */
static int parse_int(const char *text, int64_t *ret)
{
    char digits[32];
    size_t n = 0;

    for (const char *c = text; *c; c++) {
        bool between =
            c > text && c[-1] >= '0' && c[-1] <= '9' && c[1] >= '0' && c[1] <= '9';

        if (*c == '_' && between) {
            continue;
        }
        if (n + 1 == sizeof(digits)) {
            return ERR_INVALID;
        }
        digits[n++] = *c;
    }
    digits[n] = '\0';
    return str_parse_i64(digits, ret);
}

static int decode_int(const struct config_key *key, const struct yaml_node *n,
                      int64_t *ret, struct errmsg *msg)
{
    int64_t v;

    if (n->kind != YAML_SCALAR || parse_int(n->text, &v) < 0) {
        return blame_type(key, n, msg);
    }
    if ((double)v < key->min || (double)v > key->max) {
        return blame_range(key, n, msg);
    }
    *ret = v;
    return 0;
}

static bool is_auto(const struct yaml_node *n)
{
    return n->kind == YAML_SCALAR && strcmp(n->text, "auto") == 0;
}

static int decode_int_text(const struct config_key *key, const struct yaml_node *n,
                           char *text, struct errmsg *msg)
{
    int64_t v = 0;
    int rv = decode_int(key, n, &v, msg);

    if (rv == 0 && !str_format(text, key->size, "%lld", (long long)v)) {
        return blame_range(key, n, msg);
    }
    return rv;
}

static int decode_auto_text(const struct config_key *key, const struct yaml_node *n,
                            struct train_config *config, struct errmsg *msg)
{
    char *text = field(key, config);

    return is_auto(n) ? decode_text(key, n, text, key->size, msg)
                      : decode_int_text(key, n, text, msg);
}

static int decode_number(const struct config_key *key, const struct yaml_node *n,
                         double *ret, struct errmsg *msg)
{
    bool is_half_open = key->type == CONFIG_FRACTION || key->type == CONFIG_PAIR;
    double v;

    if (n->kind != YAML_SCALAR || strpbrk(n->text, "xXnN") ||
        str_parse_double(n->text, &v) < 0) {
        return blame_type(key, n, msg);
    }
    if (v < key->min || v > key->max || (is_half_open && v >= 1)) {
        return is_half_open ? blame_type(key, n, msg) : blame_range(key, n, msg);
    }
    *ret = v == 0 ? 0 : v; /* no negative zero */
    return 0;
}

static int decode_pair(const struct config_key *key, const struct yaml_node *n,
                       struct train_config *config, struct errmsg *msg)
{
    double *pair = field(key, config);
    int rv;

    if (n->kind != YAML_SEQ || !n->first || !n->first->next || n->first->next->next) {
        return blame_type(key, n, msg);
    }
    rv = decode_number(key, n->first, &pair[0], msg);
    return rv < 0 ? rv : decode_number(key, n->last, &pair[1], msg);
}

static int decode_bool(const struct config_key *key, const struct yaml_node *n,
                       bool *ret, struct errmsg *msg)
{
    static const char *const names[] = {"false", "False", "FALSE",
                                        "true",  "True",  "TRUE"};

    for (size_t i = 0; n->kind == YAML_SCALAR && i < ARRAY_LEN(names); i++) {
        if (strcmp(n->text, names[i]) == 0) {
            *ret = i >= 3;
            return 0;
        }
    }
    return blame_type(key, n, msg);
}

static int decode_bool_text(const struct config_key *key, const struct yaml_node *n,
                            struct train_config *config, struct errmsg *msg)
{
    bool v = false;

    if (decode_bool(key, n, &v, NULL) < 0) {
        return decode_int_text(key, n, field(key, config), msg);
    }
    return str_format(field(key, config), key->size, "%s", v ? "true" : "false")
               ? 0
               : blame_range(key, n, msg);
}

enum { LONGEST_DAYS = 3650 };

/* Milliseconds; 0: no unit. */
static double unit_of_time(char letter)
{
    static const struct {
        char letter;
        double ms;
    } units[] = {{'s', 1e3}, {'m', 60e3}, {'h', 3600e3}, {'d', 86400e3}};

    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (units[i].letter == letter) {
            return units[i].ms;
        }
    }
    return 0;
}

/* "30s", "1.5h". */
static int parse_time(const char *text, int64_t *ret_ms)
{
    size_t len = strlen(text);
    double unit = len > 1 ? unit_of_time(text[len - 1]) : 0;
    char number[32];
    double v;

    if (unit == 0 || !str_format(number, sizeof(number), "%.*s", (int)len - 1, text) ||
        strpbrk(number, "xXnN") || str_parse_double(number, &v) < 0) {
        return ERR_INVALID;
    }
    v *= unit;
    if (v < 1 || v > LONGEST_DAYS * 86400e3) {
        return ERR_TOO_LARGE;
    }
    *ret_ms = (int64_t)(v + 0.5);
    return 0;
}

static int decode_interval(const struct config_key *key, const struct yaml_node *n,
                           struct interval *ret, struct errmsg *msg)
{
    struct interval v = {.is_auto = is_auto(n)};
    int rv = v.is_auto                ? 0
             : n->kind == YAML_SCALAR ? parse_time(n->text, &v.ms)
                                      : ERR_INVALID;

    if (rv == ERR_TOO_LARGE) {
        return yaml_blame(n, ERR_INVALID, msg, "%s: %s is out of range: 0.001s … %dd",
                          key->path, n->text, LONGEST_DAYS);
    }
    if (rv < 0) {
        rv = decode_int(key, n, &v.steps, msg);
    }
    if (rv == 0) { /* one by one: the padding stays zero, structs are compared */
        ret->steps = v.steps;
        ret->ms = v.ms;
        ret->is_auto = v.is_auto;
    }
    return rv;
}

int config_key_decode(const struct config_key *key, const struct yaml_node *n,
                      struct train_config *config, struct errmsg *msg)
{
    switch (key->type) {
    case CONFIG_TEXT:
        return decode_text(key, n, field(key, config), key->size, msg);
    case CONFIG_CHOICE:
        return decode_choice(key, n, config, msg);
    case CONFIG_TEXTS:
        return decode_texts(key, n, config, msg);
    case CONFIG_AUTO_INT:
        if (is_auto(n)) {
            *(int64_t *)field(key, config) = 0;
            return 0;
        }
        return decode_int(key, n, field(key, config), msg);
    case CONFIG_INT:
        return decode_int(key, n, field(key, config), msg);
    case CONFIG_AUTO_TEXT:
        return decode_auto_text(key, n, config, msg);
    case CONFIG_NUMBER:
    case CONFIG_FRACTION:
        return decode_number(key, n, field(key, config), msg);
    case CONFIG_PAIR:
        return decode_pair(key, n, config, msg);
    case CONFIG_BOOL:
        return decode_bool(key, n, field(key, config), msg);
    case CONFIG_BOOL_TEXT:
        return decode_bool_text(key, n, config, msg);
    case CONFIG_INTERVAL:
        return decode_interval(key, n, field(key, config), msg);
    }
    UNREACHABLE();
}
