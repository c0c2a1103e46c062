#include "common/identity.h"

#include "common/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char scheme[] = "ctrun://";

/* --- PSK --- */

void identity_format_psk(const char *key_id, uint64_t agent_id,
                         char ret[IDENTITY_PSK_SIZE])
{
    int n = snprintf(ret, IDENTITY_PSK_SIZE, "1:%.16s:%016" PRIx64, key_id, agent_id);

    ASSERT(n == IDENTITY_PSK_SIZE - 1);
}

/* The value of a lower-case hex digit, or -1. */
static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_hex(const uint8_t *text, uint64_t *ret)
{
    uint64_t value = 0;

    for (size_t i = 0; i < 16; i++) {
        int digit = hex_value(text[i]);

        if (digit < 0) {
            return ERR_INVALID;
        }
        value = value << 4 | (uint64_t)digit;
    }
    *ret = value;
    return 0;
}

int identity_parse_psk(const uint8_t *text, size_t size,
                       char ret_key_id[IDENTITY_KEY_ID_SIZE], uint64_t *ret_agent_id)
{
    uint64_t key_id;
    uint64_t agent_id;

    if (size != IDENTITY_PSK_SIZE - 1 || text[0] != '1' || text[1] != ':' ||
        text[18] != ':' || parse_hex(text + 2, &key_id) < 0 ||
        parse_hex(text + 19, &agent_id) < 0) {
        return ERR_INVALID;
    }
    (void)snprintf(ret_key_id, IDENTITY_KEY_ID_SIZE, "%016" PRIx64, key_id); /* fits */
    *ret_agent_id = agent_id;
    return 0;
}

/* --- URI --- */

struct cursor {
    const uint8_t *at;
    const uint8_t *end;
};

static bool take_text(struct cursor *c, const char *text)
{
    size_t size = strlen(text);

    if ((size_t)(c->end - c->at) < size || memcmp(c->at, text, size) != 0) {
        return false;
    }
    c->at += size;
    return true;
}

static int hex_of_either_case(uint8_t c)
{
    return hex_value(c >= 'A' && c <= 'F' ? (uint8_t)(c - 'A' + 'a') : c);
}

/* One character of a segment, decoded; -1: none that may stand there. */
static int take_char(struct cursor *c)
{
    uint8_t first = *c->at++;
    int high;
    int low;

    if (first != '%') {
        return first > ' ' && first < 0x7f ? first : -1;
    }
    if (c->end - c->at < 2) {
        return -1;
    }
    high = hex_of_either_case(c->at[0]);
    low = hex_of_either_case(c->at[1]);
    c->at += 2;
    return high < 0 || low < 0 || (high == 0 && low == 0) ? -1 : high << 4 | low;
}

/* Up to the next slash or the end; never empty. A bare * is "". */
static bool take_segment(struct cursor *c, char *ret, size_t size)
{
    const uint8_t *first = c->at;
    size_t n = 0;

    while (c->at < c->end && *c->at != '/') {
        int value = take_char(c);

        if (value < 0 || n + 1 >= size) {
            return false;
        }
        ret[n++] = (char)value;
    }
    ret[n] = '\0';
    if (c->at - first == 1 && *first == '*') {
        ret[0] = '\0';
    }
    return n > 0;
}

static bool parse_job(struct cursor *c, struct identity *id)
{
    if (!take_segment(c, id->job, sizeof(id->job))) {
        return false;
    }
    if (take_text(c, "/agent/")) {
        id->role = IDENTITY_AGENT;
    } else if (take_text(c, "/worker/")) {
        id->role = IDENTITY_WORKER;
    } else {
        return false;
    }
    return take_segment(c, id->name, sizeof(id->name));
}

int identity_parse_uri(const uint8_t *text, size_t size, struct identity *ret)
{
    struct cursor c = {text, text + size};
    struct identity id = *ret;
    bool is_fine = false;

    id.job[0] = '\0';
    id.name[0] = '\0';
    if (size > IDENTITY_URI_MAX || !take_text(&c, scheme)) {
        return ERR_INVALID;
    }
    if (take_text(&c, "service")) {
        id.role = IDENTITY_SERVICE;
        is_fine = true;
    } else if (take_text(&c, "operator/")) {
        id.role = IDENTITY_OPERATOR;
        is_fine = take_segment(&c, id.name, sizeof(id.name));
    } else if (take_text(&c, "job/")) {
        is_fine = parse_job(&c, &id);
    }
    if (!is_fine || c.at != c.end) {
        return ERR_INVALID;
    }
    *ret = id;
    return 0;
}

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-._~:", c));
}

/* Appends the segment; false: it does not fit. */
static bool put_segment(char *ret, size_t size, const char *segment)
{
    size_t n = strlen(ret);

    if (segment[0] == '\0') {
        segment = "*";
        return n + 2 <= size && snprintf(ret + n, size - n, "%s", segment) == 1;
    }
    for (; *segment; segment++) {
        unsigned char c = (unsigned char)*segment;
        int more = is_unreserved(*segment) ? snprintf(ret + n, size - n, "%c", c)
                                           : snprintf(ret + n, size - n, "%%%02X", c);

        if (more < 0 || (size_t)more >= size - n) {
            return false;
        }
        n += (size_t)more;
    }
    return true;
}

static bool put_text(char *ret, size_t size, const char *text)
{
    size_t n = strlen(ret);

    return (size_t)snprintf(ret + n, size - n, "%s", text) < size - n;
}

bool identity_format_uri(const struct identity *who, char *ret, size_t size)
{
    ASSERT(size > 0);
    ret[0] = '\0';
    switch (who->role) {
    case IDENTITY_SERVICE:
        return put_text(ret, size, "ctrun://service");
    case IDENTITY_OPERATOR:
        return put_text(ret, size, "ctrun://operator/") &&
               put_segment(ret, size, who->name);
    case IDENTITY_AGENT:
    case IDENTITY_WORKER:
        break;
    }
    return put_text(ret, size, "ctrun://job/") && put_segment(ret, size, who->job) &&
           put_text(ret, size, who->role == IDENTITY_AGENT ? "/agent/" : "/worker/") &&
           put_segment(ret, size, who->name);
}

/* --- both --- */

bool identity_is_same(const struct identity *a, const struct identity *b)
{
    return a->kind == b->kind && a->role == b->role && a->agent_id == b->agent_id &&
           strcmp(a->owner, b->owner) == 0 && strcmp(a->job, b->job) == 0 &&
           strcmp(a->name, b->name) == 0;
}

void identity_describe(const struct identity *who, char *ret, size_t size)
{
    char uri[IDENTITY_URI_MAX];

    switch (who->kind) {
    case IDENTITY_NONE:
        (void)snprintf(ret, size, "nobody");
        return;
    case IDENTITY_PSK:
        (void)snprintf(ret, size, "%s", who->owner);
        return;
    case IDENTITY_CERTIFICATE:
        break;
    }
    (void)snprintf(ret, size, "certificate %s",
                   identity_format_uri(who, uri, sizeof(uri)) ? uri : "(too long)");
}
