#include "worker/config_table.h"

#include "common/mem.h"
#include "common/number.h"
#include "common/str.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* From struct train_config back to text: a file that config_parse reads to the same
 * struct, flat JSON, and the list of --help. */

enum {
    TEXT_CEILING = 1 << 20
}; /* two lists of 64 × 511 bytes, escaped, and the rest */

static void put(struct buf *b, const char *data, size_t size)
{
    int rv = buf_append(b, data, size);

    ASSERT(rv == 0); /* the struct's fields bound it */
}

static void put_text(struct buf *b, const char *text)
{
    put(b, text, strlen(text));
}

static char *finish(struct buf *b)
{
    char *text;

    put(b, "", 1);
    text = mem_dup(buf_bytes(b), buf_len(b));
    buf_release(b);
    return text;
}

/* The code of the character at *s, which is advanced; the text is UTF-8. */
static unsigned take_code(const unsigned char **s)
{
    unsigned code = *(*s)++;
    unsigned more = code < 0x80 ? 0 : code < 0xe0 ? 1 : code < 0xf0 ? 2 : 3;

    if (more > 0) {
        code &= 0x3fU >> more;
    }
    for (; more > 0 && **s; more--) {
        code = code << 6 | (*(*s)++ & 0x3fU);
    }
    return code;
}

static bool is_printable(unsigned code)
{
    return code >= 0x20 && !(code >= 0x7f && code < 0xa0) && code != 0x2028 &&
           code != 0x2029 && code != 0xfeff && (code & 0xfffe) != 0xfffe;
}

/* How many backslashes stand at `s` before "${"; such a run is doubled and one is
 * added, so that no interpolation is seen. -1: none is to be seen here. */
static int run_before_dollar(const char *s)
{
    size_t n = strspn(s, "\\");

    return s[n] == '$' && s[n + 1] == '{' ? (int)n : -1;
}

static void put_backslashes(struct buf *b, int n)
{
    for (; n > 0; n--) {
        put_text(b, "\\\\"); /* in double quotes each is written twice */
    }
}

static void put_quoted(struct buf *b, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    char escape[16];

    put_text(b, "\"");
    while (*s) {
        const unsigned char *begin = s;
        int run = run_before_dollar((const char *)s);
        unsigned code;

        if (run >= 0) {
            put_backslashes(b, 2 * run + 1);
            put_text(b, "${");
            s += run + 2;
            continue;
        }
        code = take_code(&s);
        if (code == '"' || code == '\\') {
            put_text(b, "\\");
            put(b, (const char *)begin, 1);
        } else if (is_printable(code)) {
            put(b, (const char *)begin, (size_t)(s - begin));
        } else {
            (void)snprintf(escape, sizeof(escape), "\\U%08x", code); /* fits */
            put_text(b, escape);
        }
    }
    put_text(b, "\"");
}

/* Plain only what no reader of YAML takes for anything but a text. */
static bool is_plain(const char *text)
{
    static const char *const words[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n"};
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/";
    static const char others[] = "0123456789.-";
    double number;

    if (text[0] == '\0' || !strchr(letters, text[0]) ||
        str_parse_double(text, &number) == 0) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcasecmp(words[i], text) == 0) {
            return false;
        }
    }
    for (const char *c = text; *c; c++) {
        if (!strchr(letters, *c) && !strchr(others, *c)) {
            return false;
        }
    }
    return true;
}

static void put_string(struct buf *b, const char *text)
{
    if (is_plain(text)) {
        put_text(b, text);
    } else {
        put_quoted(b, text);
    }
}

static void put_number(struct buf *b, double value)
{
    char text[NUMBER_TEXT_MAX];

    number_format(value, text);
    put_text(b, text);
}

static void put_int(struct buf *b, int64_t value)
{
    char text[NUMBER_TEXT_MAX];

    (void)snprintf(text, sizeof(text), "%lld", (long long)value); /* fits */
    put_text(b, text);
}

static void put_list(struct buf *b, const struct text_list *list)
{
    put_text(b, "[");
    for (int i = 0; i < list->n; i++) {
        put_text(b, i > 0 ? ", " : "");
        put_string(b, list->item[i]);
    }
    put_text(b, "]");
}

static void put_pair(struct buf *b, const double *pair)
{
    put_text(b, "[");
    put_number(b, pair[0]);
    put_text(b, ", ");
    put_number(b, pair[1]);
    put_text(b, "]");
}

/* In the largest unit that leaves no rest: "90m", "1.5s". */
static void put_interval(struct buf *b, const struct interval *v)
{
    static const struct {
        int64_t ms;
        const char *letter;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}};
    char text[NUMBER_TEXT_MAX];

    if (v->is_auto) {
        put_text(b, "auto");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(units) && v->ms > 0; i++) {
        if (v->ms % units[i].ms == 0) {
            put_int(b, v->ms / units[i].ms);
            put_text(b, units[i].letter);
            return;
        }
    }
    if (v->ms > 0) {
        (void)snprintf(text, sizeof(text), "%lld.%03llds", (long long)(v->ms / 1000),
                       (long long)(v->ms % 1000)); /* fits */
        put_text(b, text);
        return;
    }
    put_int(b, v->steps);
}

void config_key_format(const struct config_key *key, const struct train_config *config,
                       struct buf *b)
{
    const void *value = (const char *)config + key->offset;

    switch (key->type) {
    case CONFIG_TEXT:
    case CONFIG_CHOICE:
        put_string(b, value);
        break;
    case CONFIG_AUTO_TEXT:
    case CONFIG_BOOL_TEXT:
        put_text(b, value);
        break;
    case CONFIG_TEXTS:
        put_list(b, value);
        break;
    case CONFIG_AUTO_INT:
        if (*(const int64_t *)value == 0) {
            put_text(b, "auto");
            break;
        }
        put_int(b, *(const int64_t *)value);
        break;
    case CONFIG_INT:
        put_int(b, *(const int64_t *)value);
        break;
    case CONFIG_NUMBER:
    case CONFIG_FRACTION:
        put_number(b, *(const double *)value);
        break;
    case CONFIG_PAIR:
        put_pair(b, value);
        break;
    case CONFIG_BOOL:
        put_text(b, *(const bool *)value ? "true" : "false");
        break;
    case CONFIG_INTERVAL:
        put_interval(b, value);
        break;
    }
}

/* "optim" of "optim.lr", when it differs from the section before. */
static void put_section(struct buf *b, const struct config_key *key, size_t i)
{
    size_t len = strcspn(key->path, ".");

    if (i > 0 && strncmp(config_key_at(i - 1)->path, key->path, len + 1) == 0) {
        return;
    }
    put(b, key->path, len);
    put_text(b, ":\n");
}

char *config_to_yaml(const struct train_config *config)
{
    struct buf b;

    buf_init(&b, TEXT_CEILING);
    for (size_t i = 0; i < config_n_keys(); i++) {
        const struct config_key *key = config_key_at(i);

        put_section(&b, key, i);
        put_text(&b, "  ");
        put_text(&b, strchr(key->path, '.') + 1);
        put_text(&b, ": ");
        config_key_format(key, config, &b);
        put_text(&b, "\n");
    }
    return finish(&b);
}

/* The value for a machine: a text as it is, the rest as in a file. */
static char *plain_value(const struct config_key *key,
                         const struct train_config *config)
{
    struct buf b;

    if (key->type == CONFIG_TEXT || key->type == CONFIG_CHOICE) {
        return mem_strdup((const char *)config + key->offset);
    }
    buf_init(&b, TEXT_CEILING);
    config_key_format(key, config, &b);
    return finish(&b);
}

char *config_to_json(const struct train_config *config)
{
    json_t *object = json_object();
    char *dumped;
    char *text;

    ASSERT(object);
    for (size_t i = 0; i < config_n_keys(); i++) {
        const struct config_key *key = config_key_at(i);
        char *value = plain_value(key, config);
        int rv = json_object_set_new(object, key->path, json_string(value));

        ASSERT(rv == 0); /* texts are UTF-8: config_parse saw to it */
        mem_free(value);
    }
    dumped = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    ASSERT(dumped);
    text = mem_strdup(dumped);
    mem_free(dumped);
    return text;
}

/* What a value may be: the type, and the range of a number. */
static void describe_values(const struct config_key *key, char *text, size_t size)
{
    bool has_range = key->type == CONFIG_INT || key->type == CONFIG_AUTO_INT ||
                     key->type == CONFIG_AUTO_TEXT || key->type == CONFIG_BOOL_TEXT ||
                     key->type == CONFIG_NUMBER;
    size_t used;

    config_key_describe(key, text, size);
    used = strlen(text);
    if (has_range) {
        (void)snprintf(text + used, size - used, " from %.10g to %.10g", key->min,
                       key->max); /* the table's texts fit */
    }
}

char *config_help(void)
{
    struct buf b;

    buf_init(&b, TEXT_CEILING);
    for (size_t i = 0; i < config_n_keys(); i++) {
        const struct config_key *key = config_key_at(i);
        char values[200];
        int rv;

        describe_values(key, values, sizeof(values));
        rv = buf_printf(&b, "  %-32s %s\n%35s%s; default %s\n", key->path, key->help,
                        "", values, key->fallback[0] ? key->fallback : "\"\"");
        ASSERT(rv == 0); /* the table bounds it */
    }
    return finish(&b);
}
