#include "launcher/output/line_prefix.h"

#include "common/check.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The length of a name at `text`, 0 for none. */
static size_t name_length(const char *text)
{
    size_t n = 0;

    if (!isalpha((unsigned char)*text) && *text != '_') {
        return 0;
    }
    while (isalnum((unsigned char)text[n]) || text[n] == '_') {
        n++;
    }
    return n;
}

struct reference {
    const char *name; /* NULL: an escaped dollar sign, or no reference */
    size_t name_size;
    size_t size; /* of all of it */
};

/* What stands at a dollar sign. */
static struct reference read_reference(const char *text)
{
    struct reference r = {.size = 1};
    bool is_braced = text[1] == '{';
    size_t n = name_length(text + 1 + (is_braced ? 1 : 0));

    if (text[1] == '$') {
        r.size = 2;
    } else if (n > 0 && (!is_braced || text[2 + n] == '}')) {
        r.name = text + 1 + (is_braced ? 1 : 0);
        r.name_size = n;
        r.size = 1 + n + (is_braced ? 2 : 0);
    }
    return r;
}

static bool is_named(const struct reference *r, const char *name)
{
    return r->name_size == strlen(name) && memcmp(r->name, name, r->name_size) == 0;
}

/* NULL: nothing of ours. `number` is room for one. */
static const char *value_of(const struct reference *r,
                            const struct line_prefix_values *values, char number[16])
{
    if (!r->name) {
        return NULL;
    }
    if (is_named(r, "rank") || is_named(r, "local_rank")) {
        (void)snprintf(number, 16, "%u",
                       is_named(r, "rank") ? values->rank : values->local_rank);
        return number;
    }
    if (is_named(r, "role_name")) {
        return values->role_name;
    }
    if (is_named(r, "hostname")) {
        return values->hostname;
    }
    return is_named(r, "time") ? values->time : NULL;
}

static size_t add(char *ret, size_t n, const char *text, size_t size)
{
    size_t room = LINE_PREFIX_MAX - 1 - n;
    size_t taken = MIN(size, room);

    memcpy(ret + n, text, taken);
    return n + taken;
}

size_t line_prefix_format(const char *template, const struct line_prefix_values *values,
                          char ret[LINE_PREFIX_MAX])
{
    size_t n = 0;

    while (*template != '\0') {
        size_t plain = strcspn(template, "$");
        struct reference r;
        const char *value;
        char number[16];

        n = add(ret, n, template, plain);
        template += plain;
        if (*template == '\0') {
            break;
        }
        r = read_reference(template);
        value = value_of(&r, values, number);
        if (value) {
            n = add(ret, n, value, strlen(value));
        } else { /* of "$$" one sign; all of what is unknown */
            n = add(ret, n, template, r.name ? r.size : 1);
        }
        template += r.size;
    }
    ret[n] = '\0';
    return n;
}

bool line_prefix_has_time(const char *template)
{
    for (const char *at = strchr(template, '$'); at;) {
        struct reference r = read_reference(at);

        if (r.name && is_named(&r, "time")) {
            return true;
        }
        at = strchr(at + r.size, '$');
    }
    return false;
}

static void append(struct buf *out, const char *data, size_t size)
{
    int rv = buf_append(out, data, size);

    ASSERT(rv == 0);
}

/* Up to the end of the line, or to a carriage return: that and what is in front. */
static size_t piece_size(const char *data, size_t size)
{
    const char *newline = memchr(data, '\n', size);
    size_t line = newline ? (size_t)(newline - data) + 1 : size;
    const char *back = memchr(data, '\r', line);

    return back ? (size_t)(back - data) + 1 : line;
}

void line_prefix_add(struct buf *out, const char *prefix, size_t prefix_size,
                     const char *data, size_t size, enum line_place *place)
{
    while (size > 0) {
        size_t n = piece_size(data, size);
        char last = data[n - 1];
        bool is_text = n > 1 || (last != '\r' && last != '\n');

        if ((is_text && *place != LINE_WITHIN) ||
            (last == '\n' && *place == LINE_START)) {
            append(out, prefix, prefix_size);
        }
        append(out, data, n);
        *place = last == '\n' ? LINE_START : last == '\r' ? LINE_RETURNED : LINE_WITHIN;
        data += n;
        size -= n;
    }
}
