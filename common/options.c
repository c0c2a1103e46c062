#include "common/options.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/str.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { HELP_COLUMN = 30, HELP_WIDTH = 80, NAME_MAX_LEN = 64, HELP_MAX = 64 * 1024 };

/* One command line on its way through. */
struct cursor {
    const struct options *options;
    int argc;
    char *const *argv;
    int next; /* index of the next argument */
    void *target;
    bool *given; /* NULL: nobody asks */
};

/* The name before '=', underscores made dashes. False when it does not fit. */
static bool normalise(const char *text, char *name)
{
    size_t len = strcspn(text, "=");

    if (len >= NAME_MAX_LEN) {
        return false;
    }
    memcpy(name, text, len);
    name[len] = '\0';
    for (char *c = strchr(name, '_'); c; c = strchr(c, '_')) {
        *c = '-';
    }
    return true;
}

static int refuse_unknown(const struct options *options, const char *arg,
                          const char *name, struct errmsg *msg)
{
    const char **names = mem_array(options->n, sizeof(*names));
    const char *nearest;

    for (size_t i = 0; i < options->n; i++) {
        names[i] = options->specs[i].name;
    }
    nearest = str_nearest(name, names, options->n);
    mem_free(names);
    if (nearest) {
        return errmsg_set(msg, ERR_INVALID, "unknown option %.80s; did you mean --%s?",
                          arg, nearest);
    }
    return errmsg_set(msg, ERR_INVALID, "unknown option %.80s; '%s --help' lists them",
                      arg, options->program);
}

static int refuse_ambiguous(const struct options *options, const char *name,
                            struct errmsg *msg)
{
    struct buf list;
    int rv;

    buf_init(&list, HELP_MAX);
    for (size_t i = 0; i < options->n; i++) {
        if (str_starts_with(options->specs[i].name, name)) {
            rv = buf_printf(&list, "%s--%s", buf_len(&list) > 0 ? ", " : "",
                            options->specs[i].name);
            ASSERT(rv == 0);
        }
    }
    rv = errmsg_set(msg, ERR_INVALID, "--%s could be any of %.*s; write more of it",
                    name, (int)buf_len(&list), (const char *)buf_bytes(&list));
    buf_release(&list);
    return rv;
}

/* `arg` is "--name" or "--name=value". */
static int find_long(const struct options *options, const char *arg,
                     const struct option_spec **ret, struct errmsg *msg)
{
    const struct option_spec *found = NULL;
    char name[NAME_MAX_LEN];
    unsigned n = 0;

    if (!normalise(arg + 2, name)) {
        return errmsg_set(msg, ERR_INVALID,
                          "unknown option %.80s…; '%s --help' lists them", arg,
                          options->program);
    }
    for (size_t i = 0; i < options->n; i++) {
        const struct option_spec *spec = &options->specs[i];

        if (strcmp(spec->name, name) == 0) {
            *ret = spec;
            return 0;
        }
        if (str_starts_with(spec->name, name)) {
            found = spec;
            n++;
        }
    }
    if (n == 0 || name[0] == '\0') {
        return refuse_unknown(options, arg, name, msg);
    }
    if (n > 1) {
        return refuse_ambiguous(options, name, msg);
    }
    *ret = found;
    return 0;
}

static int apply(const struct cursor *c, const struct option_spec *spec,
                 const char *value, struct errmsg *msg)
{
    int rv;

    if (c->given) {
        c->given[spec - c->options->specs] = true;
    }
    if (!spec->set && spec->elsewhere) {
        return errmsg_set(msg, ERR_INVALID, "--%s is %s", spec->name, spec->elsewhere);
    }
    if (!spec->set) {
        return errmsg_set(msg, ERR_INVALID, "--%s is not there yet; %s", spec->name,
                          spec->remedy);
    }
    rv = spec->set(c->target, spec, value, msg);
    if (rv < 0) {
        return errmsg_wrap(msg, rv, "--%s", spec->name);
    }
    return rv;
}

/* As argparse: "-1" is a value, "-x" is an option. */
static bool looks_like_option(const char *text)
{
    return text[0] == '-' && text[1] != '\0' && !isdigit((unsigned char)text[1]);
}

/* The value in the next argument, for an option that needs one. */
static int take_value(struct cursor *c, const struct option_spec *spec,
                      const char **ret_value, struct errmsg *msg)
{
    if (c->next >= c->argc || looks_like_option(c->argv[c->next])) {
        return errmsg_set(msg, ERR_INVALID, "--%s needs a value: --%s=%s", spec->name,
                          spec->name, spec->value);
    }
    *ret_value = c->argv[c->next++];
    return 0;
}

static int parse_long(struct cursor *c, const char *arg, struct errmsg *msg)
{
    const struct option_spec *spec = NULL;
    const char *equals = strchr(arg, '=');
    const char *value = equals ? equals + 1 : NULL;
    int rv;

    rv = find_long(c->options, arg, &spec, msg);
    if (rv < 0) {
        return rv;
    }
    ASSERT(spec);
    if (!spec->value && value) {
        return errmsg_set(msg, ERR_INVALID, "--%s takes no value, but got '%.80s'",
                          spec->name, value);
    }
    if (spec->value && !value && spec->set) {
        rv = take_value(c, spec, &value, msg);
        if (rv < 0) {
            return rv;
        }
    }
    return apply(c, spec, value, msg);
}

static const struct option_spec *find_letter(const struct options *options, char letter)
{
    for (size_t i = 0; i < options->n; i++) {
        if (options->specs[i].letter == letter) {
            return &options->specs[i];
        }
    }
    return NULL;
}

/* "-m", "-mh", "-r3", "-r=3", "-r 3" */
static int parse_letters(struct cursor *c, const char *arg, struct errmsg *msg)
{
    int rv = 0;

    for (const char *p = arg + 1; *p != '\0' && rv == 0; p++) {
        const struct option_spec *spec = find_letter(c->options, *p);
        const char *value = p[1] == '=' ? p + 2 : p + 1;

        if (!spec) {
            return errmsg_set(msg, ERR_INVALID,
                              "unknown option %.80s; '%s --help' lists them", arg,
                              c->options->program);
        }
        if (!spec->value) {
            rv = apply(c, spec, NULL, msg);
            continue;
        }
        if (p[1] == '\0' && spec->set) {
            rv = take_value(c, spec, &value, msg);
        }
        return rv < 0 ? rv : apply(c, spec, value, msg);
    }
    return rv;
}

static int parse(struct cursor *c, int *ret_next, struct errmsg *msg)
{
    int rv = 0;

    while (c->next < c->argc && rv == 0) {
        const char *arg = c->argv[c->next];

        if (arg[0] != '-' || arg[1] == '\0') {
            break;
        }
        c->next++;
        if (strcmp(arg, "--") == 0) {
            break;
        }
        rv = arg[1] == '-' ? parse_long(c, arg, msg) : parse_letters(c, arg, msg);
    }
    if (rv >= 0) {
        *ret_next = c->next;
    }
    return rv;
}

int options_parse(const struct options *options, int argc, char *const *argv,
                  void *target, int *ret_next, struct errmsg *msg)
{
    struct cursor c = {options, argc, argv, 1, target, NULL};

    return parse(&c, ret_next, msg);
}

int options_parse_with_env(const struct options *options,
                           const struct options_source *source, void *target,
                           int *ret_next, struct errmsg *msg)
{
    bool *given = mem_array(options->n, sizeof(*given));
    struct cursor c = {options, source->argc, source->argv, 1, target, given};
    int rv = parse(&c, ret_next, msg);

    if (rv == 0) {
        rv = options_parse_env(options, source, given, target, msg);
    }
    mem_free(given);
    return rv;
}

static void put(struct buf *out, const char *text, size_t len)
{
    int rv = buf_append(out, text, len);

    ASSERT(rv == 0); /* a table of ours is small */
}

static void put_spaces(struct buf *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put(out, " ", 1);
    }
}

/* Columns of a UTF-8 text: continuation bytes take none. */
static size_t text_width(const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return n;
}

/* Words of `text` from that column on, broken at HELP_WIDTH. */
static void put_wrapped(struct buf *out, const char *text, size_t from)
{
    size_t column = from;

    while (*text != '\0') {
        size_t len = strcspn(text, " ");
        size_t width = text_width(text, len);

        if (column > from && column + 1 + width > HELP_WIDTH) {
            put(out, "\n", 1);
            put_spaces(out, from);
            column = from;
        } else if (column > from) {
            put(out, " ", 1);
            column++;
        }
        put(out, text, len);
        column += width;
        text += len;
        text += strspn(text, " ");
    }
    put(out, "\n", 1);
}

static void put_option(struct buf *out, const struct option_spec *spec)
{
    char head[128];
    size_t len;
    bool fits;

    if (spec->letter != 0) {
        fits =
            str_format(head, sizeof(head), "  -%c, --%s%s%s", spec->letter, spec->name,
                       spec->value ? " " : "", spec->value ? spec->value : "");
    } else {
        fits = str_format(head, sizeof(head), "  --%s%s%s", spec->name,
                          spec->value ? " " : "", spec->value ? spec->value : "");
    }
    ASSERT(fits);
    len = strlen(head);
    put(out, head, len);
    if (text_width(head, len) + 2 > HELP_COLUMN) {
        put(out, "\n", 1);
        put_spaces(out, HELP_COLUMN);
    } else {
        put_spaces(out, HELP_COLUMN - text_width(head, len));
    }
    put_wrapped(out, spec->help, HELP_COLUMN);
}

char *options_help(const struct options *options)
{
    struct buf out;

    buf_init(&out, HELP_MAX);
    for (size_t i = 0; i < options->n; i++) {
        if (options->specs[i].set) {
            put_option(&out, &options->specs[i]);
        }
    }
    put(&out, "", 1);
    return (char *)out.data; /* nothing was consumed: the text begins there */
}

char *options_wrap(const char *text)
{
    struct buf out;

    buf_init(&out, HELP_MAX);
    put_wrapped(&out, text, 0);
    put(&out, "", 1);
    return (char *)out.data; /* as above */
}

int option_set_true(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg)
{
    (void)value;
    (void)msg;
    *(bool *)((char *)target + spec->offset) = true;
    return 0;
}

int option_set_help(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg)
{
    int rv = option_set_true(target, spec, value, msg);

    return rv < 0 ? rv : OPTION_STOP;
}

int option_set_any_text(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg)
{
    size_t len = strlen(value);

    if (len >= spec->size) {
        return errmsg_set(msg, ERR_INVALID, "is longer than %zu characters",
                          spec->size - 1);
    }
    memcpy((char *)target + spec->offset, value, len + 1);
    return 0;
}

int option_set_text(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg)
{
    if (value[0] == '\0') {
        return errmsg_set(msg, ERR_INVALID, "needs a value that is not empty");
    }
    return option_set_any_text(target, spec, value, msg);
}

int option_set_u32(void *target, const struct option_spec *spec, const char *value,
                   struct errmsg *msg)
{
    uint64_t v;

    if (str_parse_u64(value, &v) < 0 || v < spec->min || v > spec->max) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects a number from %u to %u, not '%.80s'", spec->min,
                          spec->max, value);
    }
    *(uint32_t *)(void *)((char *)target + spec->offset) = (uint32_t)v;
    return 0;
}
