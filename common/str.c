#include "common/str.h"

#include "common/err.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int str_parse_i64(const char *text, int64_t *ret)
{
    char *end;
    long long v;

    if (!isdigit((unsigned char)text[0]) && text[0] != '-') {
        return ERR_INVALID; /* strtoll would skip white space and take a plus */
    }
    errno = 0;
    v = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') {
        return ERR_INVALID;
    }
    *ret = v;
    return 0;
}

int str_parse_u64(const char *text, uint64_t *ret)
{
    char *end;
    unsigned long long v;

    if (!isdigit((unsigned char)text[0])) {
        return ERR_INVALID;
    }
    errno = 0;
    v = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0') {
        return ERR_INVALID;
    }
    *ret = v;
    return 0;
}

int str_parse_double(const char *text, double *ret)
{
    char *end;
    double v;

    if (text[0] == '\0' || isspace((unsigned char)text[0])) {
        return ERR_INVALID;
    }
    errno = 0;
    v = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(v)) {
        return ERR_INVALID;
    }
    *ret = v;
    return 0;
}

/* A scope ("%eth0") behind it is its user's business. */
static bool is_ipv6(const char *text)
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr addr;
    size_t len = strcspn(text, "%");

    if (len >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    return inet_pton(AF_INET6, copy, &addr) == 1;
}

/* Splits at the port's colon; an unbracketed address with two colons has no port. */
static int split_host_port(const char *text, size_t *ret_skip, size_t *ret_len,
                           const char **ret_port)
{
    const char *colon = strchr(text, ':');
    const char *close;

    *ret_skip = 0;
    *ret_port = NULL;
    if (text[0] == '[') {
        close = strchr(text, ']');
        if (!close || (close[1] != '\0' && close[1] != ':')) {
            return ERR_INVALID;
        }
        *ret_skip = 1;
        *ret_len = (size_t)(close - text) - 1;
        *ret_port = close[1] == ':' ? close + 2 : NULL;
    } else if (colon && !strchr(colon + 1, ':')) {
        *ret_len = (size_t)(colon - text);
        *ret_port = colon + 1;
    } else if (colon && !is_ipv6(text)) {
        return ERR_INVALID;
    } else {
        *ret_len = strlen(text);
    }
    return 0;
}

int str_parse_host_port(const char *text, char *host, size_t host_size, int *ret_port)
{
    const char *port_text;
    size_t skip;
    size_t len;
    uint64_t port = 0;
    int rv;

    rv = split_host_port(text, &skip, &len, &port_text);
    if (rv < 0 || len == 0 || len >= host_size) {
        return ERR_INVALID;
    }
    if (port_text && (str_parse_u64(port_text, &port) < 0 || port > 65535)) {
        return ERR_INVALID;
    }
    memcpy(host, text + skip, len);
    host[len] = '\0';
    if (port_text) {
        *ret_port = (int)port;
    }
    return 0;
}

void str_format_host(char *text, size_t size, const char *host)
{
    bool is_v6 = strchr(host, ':') != NULL;

    (void)snprintf(text, size, "%s%s%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "");
}

bool str_starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool str_is_plain(const char *text)
{
    while (*text != '\0' && *text != '/' && (unsigned char)*text >= ' ' &&
           *text != 0x7f) {
        text++;
    }
    return *text == '\0';
}

unsigned str_distance(const char *a, const char *b)
{
    unsigned row[64];
    size_t len_a = strlen(a);
    size_t len_b = strlen(b);

    if (len_a >= ARRAY_LEN(row) || len_b >= ARRAY_LEN(row)) {
        return strcmp(a, b) == 0 ? 0 : (unsigned)ARRAY_LEN(row);
    }
    for (size_t j = 0; j <= len_b; j++) {
        row[j] = (unsigned)j;
    }
    for (size_t i = 1; i <= len_a; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= len_b; j++) {
            unsigned changed = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            row[j] = MIN(changed, MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[len_b];
}

const char *str_nearest(const char *text, const char *const *names, size_t n)
{
    unsigned best = 2 + (unsigned)strlen(text) / 3;
    const char *nearest = NULL;

    for (size_t i = 0; i < n; i++) {
        unsigned distance = str_distance(text, names[i]);

        if (distance < best) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

const char *str_find_variable(char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; env[i]; i++) {
        if (strncmp(env[i], name, len) == 0 && env[i][len] == '=') {
            return env[i] + len + 1;
        }
    }
    return NULL;
}

bool str_format(char *text, size_t size, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text, size, fmt, args);
    va_end(args);
    return n >= 0 && (size_t)n < size;
}
