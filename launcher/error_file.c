/* error.json as torch's @record writes it (report.h): just enough JSON, without
 * recursion, to take two texts out of it. Whatever is odd makes the file "neither
 * form".
 *
 *   {"message": {"message": "T: text", "extraInfo": {"py_callstack": "…", "timestamp":
 * "…"}}}
 *   {"message": "text", "timestamp": 1}
 */

#include "launcher/report.h"

#include "common/mem.h"
#include "common/str.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX = 1024 * 1024, DEPTH_MAX = 32, KEY_MAX_LEN = 64 };

struct scan {
    const char *at;
    const char *end;
    char keys[DEPTH_MAX][KEY_MAX_LEN]; /* of the member at each depth; "" in arrays */
    char kinds[DEPTH_MAX];             /* '{' or '[' */
    size_t depth;
};

static void skip_space(struct scan *s)
{
    while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at != '\0') {
        s->at++;
    }
}

static bool take_char(struct scan *s, char c)
{
    skip_space(s);
    if (s->at < s->end && *s->at == c) {
        s->at++;
        return true;
    }
    return false;
}

static bool take_hex4(struct scan *s, unsigned *ret)
{
    char digits[5] = "";

    if (s->end - s->at < 4) {
        return false;
    }
    memcpy(digits, s->at, 4);
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)digits[i])) {
            return false;
        }
    }
    s->at += 4;
    *ret = (unsigned)strtoul(digits, NULL, 16);
    return true;
}

/* Behind "\u": one character, of one or two escapes. A lone half becomes U+FFFD. */
static bool take_unicode(struct scan *s, unsigned *ret)
{
    unsigned high;
    unsigned low;

    if (!take_hex4(s, &high)) {
        return false;
    }
    *ret = high;
    if (high < 0xd800 || high > 0xdfff) {
        return true;
    }
    *ret = 0xfffd;
    if (high < 0xdc00 && s->end - s->at >= 6 && s->at[0] == '\\' && s->at[1] == 'u') {
        s->at += 2;
        if (!take_hex4(s, &low)) {
            return false;
        }
        if (low >= 0xdc00 && low <= 0xdfff) {
            *ret = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    return true;
}

/* Where a text goes; what does not fit is cut, never in the middle of a character. */
struct sink {
    char *text;
    size_t size;
    size_t n;
    bool is_full;
};

static void put_bytes(struct sink *out, const char *bytes, size_t n)
{
    out->is_full = out->is_full || n >= out->size - out->n;
    if (!out->is_full) {
        memcpy(out->text + out->n, bytes, n);
        out->n += n;
    }
}

static void put_unicode(struct sink *out, unsigned c)
{
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char heads[] = {0, 0, 0xc0, 0xe0, 0xf0};

    c = c == 0 ? 0xfffd : c;
    n = c == 0xfffd ? 3 : n;
    for (size_t i = n - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    bytes[0] = (char)(heads[n] | c);
    put_bytes(out, bytes, n);
}

static bool take_escape(struct scan *s, struct sink *out)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *found;
    unsigned c;

    if (s->at >= s->end) {
        return false;
    }
    if (*s->at == 'u') {
        s->at++;
        if (!take_unicode(s, &c)) {
            return false;
        }
        put_unicode(out, c);
        return true;
    }
    found = *s->at != '\0' ? strchr(from, *s->at) : NULL;
    if (!found) {
        return false;
    }
    s->at++;
    put_bytes(out, &to[found - from], 1);
    return true;
}

/* How many bytes the UTF-8 character at `at` takes; 1 for what is none. */
static size_t char_length(const struct scan *s)
{
    unsigned char head = (unsigned char)*s->at;
    size_t n = head >= 0xf0 ? 4 : head >= 0xe0 ? 3 : head >= 0xc0 ? 2 : 1;

    return MIN(n, (size_t)(s->end - s->at));
}

/* One character of a text, or one escape. */
static bool take_piece(struct scan *s, struct sink *out)
{
    size_t n = char_length(s);

    if (*s->at == '\\') {
        s->at++;
        return take_escape(s, out);
    }
    put_bytes(out, s->at, n);
    s->at += n;
    return true;
}

static bool take_text(struct scan *s, char *text, size_t size)
{
    struct sink out = {text, size, 0, false};

    if (!take_char(s, '"')) {
        return false;
    }
    while (s->at < s->end && *s->at != '"') {
        if (!take_piece(s, &out)) {
            return false;
        }
    }
    text[out.n] = '\0';
    if (s->at >= s->end) {
        return false;
    }
    s->at++;
    return true;
}

/* Numbers, true, false, null: their letters, unchecked. */
static bool take_word(struct scan *s)
{
    const char *start = s->at;

    while (s->at < s->end &&
           (isalnum((unsigned char)*s->at) || strchr("+-.", *s->at)) &&
           *s->at != '\0') {
        s->at++;
    }
    return s->at > start;
}

static bool is_at(const struct scan *s, const char *const *path, size_t n)
{
    if (s->depth != n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (s->kinds[i] != '{' || strcmp(s->keys[i], path[i]) != 0) {
            return false;
        }
    }
    return true;
}

struct found {
    char *text; /* the caller's */
    size_t size;
    bool has_plain, has_message, has_stack;
};

/* A text value: into `found` where it is one of the three, the traceback above all. */
static bool take_value_text(struct scan *s, struct found *found, char *scratch)
{
    static const char *const path[] = {"message", "message"};
    static const char *const stack[] = {"message", "extraInfo", "py_callstack"};
    bool is_plain = is_at(s, path, 1);
    bool is_message = is_at(s, path, 2);
    bool is_stack = is_at(s, stack, 3);

    if (!take_text(s, scratch, found->size)) {
        return false;
    }
    found->has_plain = found->has_plain || is_plain;
    found->has_message = found->has_message || is_message;
    if (is_stack || ((is_plain || is_message) && !found->has_stack)) {
        memcpy(found->text, scratch, strlen(scratch) + 1);
    }
    found->has_stack = found->has_stack || is_stack;
    return true;
}

/* Enters or takes one value; in an object, its key first. */
static bool take_value(struct scan *s, struct found *found, char *scratch)
{
    bool in_object = s->depth > 0 && s->kinds[s->depth - 1] == '{';

    if (in_object &&
        !(take_text(s, s->keys[s->depth - 1], KEY_MAX_LEN) && take_char(s, ':'))) {
        return false;
    }
    skip_space(s);
    if (s->at < s->end && (*s->at == '{' || *s->at == '[')) {
        if (s->depth == DEPTH_MAX) {
            return false;
        }
        s->keys[s->depth][0] = '\0';
        s->kinds[s->depth++] = *s->at++;
        return true;
    }
    if (s->at < s->end && *s->at == '"') {
        return take_value_text(s, found, scratch);
    }
    return take_word(s);
}

/* Leaves what is closed here; true when a further value follows. *ret_done: the whole
 * is over. */
static bool take_closing(struct scan *s, bool just_opened, bool *ret_done)
{
    bool may_close = true;

    while (s->depth > 0 && may_close) {
        char close = s->kinds[s->depth - 1] == '{' ? '}' : ']';

        may_close = take_char(s, close);
        s->depth -= may_close;
        just_opened = just_opened && !may_close;
    }
    if (s->depth == 0) {
        skip_space(s);
        *ret_done = true;
        return s->at == s->end;
    }
    return just_opened || take_char(s, ',');
}

static bool scan_all(struct scan *s, struct found *found, char *scratch)
{
    bool is_done = false;

    skip_space(s);
    if (s->at >= s->end || *s->at != '{') {
        return false;
    }
    while (!is_done) {
        size_t before = s->depth;

        if (!take_value(s, found, scratch) ||
            !take_closing(s, s->depth > before, &is_done)) {
            return false;
        }
    }
    return found->has_plain || found->has_message;
}

static ssize_t read_file(const char *path, char *data, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    size_t n = 0;
    ssize_t got;

    if (fd < 0) {
        return -1;
    }
    do {
        got = read(fd, data + n, size - n);
        n += got > 0 ? (size_t)got : 0;
    } while (got > 0 && n < size);
    (void)close(fd); /* only read */
    return got < 0 ? -1 : (ssize_t)n;
}

bool report_read_error_file(const char *path, char *text, size_t size)
{
    char *data;
    char *scratch;
    char *result;
    struct scan s = {0};
    struct found found = {.size = size};
    ssize_t n;
    bool ok = false;

    if (size == 0 || *path == '\0') {
        return false;
    }
    data = mem_alloc(FILE_MAX);
    n = read_file(path, data, FILE_MAX);
    if (n > 0) {
        scratch = mem_alloc(size);
        result = mem_alloc(size);
        result[0] = '\0';
        found.text = result;
        s.at = data;
        s.end = data + n;
        ok = scan_all(&s, &found, scratch);
        if (ok) {
            memcpy(text, result, strlen(result) + 1);
        }
        mem_free(scratch);
        mem_free(result);
    }
    mem_free(data);
    return ok;
}
