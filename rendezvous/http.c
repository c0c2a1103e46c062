#include "rendezvous/http.h"

#include "common/err.h"
#include "common/str.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- requests ---- */

struct head {
    struct http_request *request;
    size_t n_fields;
    size_t n_hosts;
    bool is_1_0;
    bool says_close, says_keep_alive;
    int status; /* the first objection */
};

static void object(struct head *h, int status)
{
    h->status = h->status != 0 ? h->status : status;
}

/* RFC 9110, 5.6.2: what methods and names of fields are made of. */
static bool is_token_char(unsigned char c)
{
    return c > ' ' && c < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", c);
}

static bool is_token(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (!is_token_char((unsigned char)text[i])) {
            return false;
        }
    }
    return size > 0;
}

/* Copies with a terminator; false when it is too long. */
static bool copy(char *ret, size_t ret_size, const char *text, size_t size)
{
    if (size >= ret_size) {
        return false;
    }
    memcpy(ret, text, size);
    ret[size] = '\0';
    return true;
}

static void read_target(struct head *h, const char *text, size_t size)
{
    const char *mark = memchr(text, '?', size);
    size_t path_size = mark ? (size_t)(mark - text) : size;

    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c <= ' ' || c >= 0x7f || c == '#') {
            object(h, 400);
        }
    }
    if (size == 0 || text[0] != '/') {
        object(h, 400); /* the forms for proxies are none of ours */
    } else if (!copy(h->request->path, HTTP_TARGET_MAX, text, path_size) ||
               (mark && !copy(h->request->query, HTTP_TARGET_MAX, mark + 1,
                              size - path_size - 1))) {
        object(h, 414);
    }
}

static void read_version(struct head *h, const char *text, size_t size)
{
    h->is_1_0 = size == 8 && memcmp(text, "HTTP/1.0", 8) == 0;
    if (!h->is_1_0 && (size != 8 || memcmp(text, "HTTP/1.1", 8) != 0)) {
        object(h, size > 5 && memcmp(text, "HTTP/", 5) == 0 ? 505 : 400);
    }
}

/* GET /path?query HTTP/1.1 */
static void read_first_line(struct head *h, const char *line, size_t size)
{
    const char *target = memchr(line, ' ', size);
    size_t method_size = target ? (size_t)(target - line) : size;
    const char *version =
        target ? memchr(target + 1, ' ', size - method_size - 1) : NULL;

    if (!version || !is_token(line, method_size)) {
        object(h, 400);
        return;
    }
    h->request->is_head = method_size == 4 && memcmp(line, "HEAD", 4) == 0;
    read_version(h, version + 1, size - (size_t)(version + 1 - line));
    read_target(h, target + 1, (size_t)(version - target - 1));
    if (!h->request->is_head && (method_size != 3 || memcmp(line, "GET", 3) != 0)) {
        object(h, 405);
    }
}

/* What stands behind the host: nothing, or ":port", whose digits may be missing. */
static bool is_port(const char *text, size_t size)
{
    unsigned port = 0;

    for (size_t i = 1; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        port = MIN(port * 10 + (unsigned)(text[i] - '0'), 65536U);
    }
    return size == 0 || (text[0] == ':' && port <= 65535);
}

/* "name:port", "[v6]:port" → the name; a name in brackets is no way to write it. */
static void read_host(struct head *h, const char *value, size_t size)
{
    bool is_v6 = size > 0 && value[0] == '[';
    const char *end = value + size;
    const char *mark = memchr(value, is_v6 ? ']' : ':', size);
    const char *name = value + (is_v6 ? 1 : 0);
    const char *name_end = mark ? mark : end;
    const char *port = mark && is_v6 ? mark + 1 : name_end;
    size_t name_size = (size_t)(name_end - name);

    h->n_hosts++;
    if (h->n_hosts > 1 || name_size == 0 ||
        (is_v6 && (!mark || !memchr(name, ':', name_size))) ||
        !is_port(port, (size_t)(end - port)) ||
        !copy(h->request->host, HTTP_HOST_MAX, name, name_size)) {
        object(h, 400);
    }
}

static bool is_name(const char *name, size_t size, const char *is)
{
    return size == strlen(is) && strncasecmp(name, is, size) == 0;
}

/* "keep-alive, close" */
static void read_connection(struct head *h, const char *value, size_t size)
{
    size_t at = 0;

    while (at < size) {
        const char *comma = memchr(value + at, ',', size - at);
        size_t end = comma ? (size_t)(comma - value) : size;
        size_t first = at;
        size_t last = end;

        while (first < last && (value[first] == ' ' || value[first] == '\t')) {
            first++;
        }
        while (last > first && (value[last - 1] == ' ' || value[last - 1] == '\t')) {
            last--;
        }
        h->says_close |= is_name(value + first, last - first, "close");
        h->says_keep_alive |= is_name(value + first, last - first, "keep-alive");
        at = end + 1;
    }
}

static void read_field(struct head *h, const char *line, size_t size)
{
    const char *colon = memchr(line, ':', size);
    size_t name_size = colon ? (size_t)(colon - line) : 0;
    const char *value = colon ? colon + 1 : line;
    size_t value_size = colon ? size - name_size - 1 : 0;

    if (!is_token(line, name_size)) { /* a folded line, too */
        object(h, 400);
        return;
    }
    while (value_size > 0 && (*value == ' ' || *value == '\t')) {
        value++;
        value_size--;
    }
    while (value_size > 0 &&
           (value[value_size - 1] == ' ' || value[value_size - 1] == '\t')) {
        value_size--;
    }
    if (++h->n_fields > HTTP_MAX_FIELDS) {
        object(h, 431);
    } else if (is_name(line, name_size, "host")) {
        read_host(h, value, value_size);
    } else if (is_name(line, name_size, "connection")) {
        read_connection(h, value, value_size);
    } else if (is_name(line, name_size, "transfer-encoding") ||
               (is_name(line, name_size, "content-length") &&
                (value_size != 1 || value[0] != '0'))) {
        object(h, 413); /* a body, of which we want none */
    } else if (is_name(line, name_size, "expect")) {
        object(h, 417);
    }
}

/* The bytes of a whole line with its CR LF; 0: it is not all there. Control characters
 * but a tab end in 400. */
static size_t find_line(struct head *h, const char *text, size_t size)
{
    const char *end = memchr(text, '\n', size);
    size_t line_size = end ? (size_t)(end - text) + 1 : 0;

    for (size_t i = 0; i + 2 < line_size; i++) {
        unsigned char c = (unsigned char)text[i];

        if ((c < ' ' && c != '\t') || c == 0x7f) {
            object(h, 400);
        }
    }
    if (end && (line_size < 2 || end[-1] != '\r')) {
        object(h, 400);
    }
    return line_size;
}

size_t http_parse(const uint8_t *data, size_t size, struct http_request *ret,
                  int *ret_status)
{
    struct head h = {.request = ret};
    const char *text = (const char *)data;
    bool is_whole = false;
    size_t at = 0;
    size_t n = 1;

    *ret = (struct http_request){.path = ""};
    size = MIN(size, (size_t)HTTP_MAX_HEAD);
    n = size > 0;
    while (!is_whole && h.status == 0 && n > 0) {
        n = find_line(&h, text + at, size - at);
        is_whole = n == 2 && at > 0;
        if (n > 2 && h.status == 0 && at == 0) {
            read_first_line(&h, text, n - 2);
        } else if (n > 2 && h.status == 0) {
            read_field(&h, text + at, n - 2);
        } else if (n > 0 && !is_whole) {
            object(&h, 400); /* an empty first line */
        }
        at += n;
    }
    if (h.status == 0 && !is_whole) {
        object(&h, size == HTTP_MAX_HEAD ? 431 : 0);
        *ret_status = h.status;
        return h.status != 0 ? size : 0;
    }
    if (h.n_hosts == 0 && !h.is_1_0) {
        object(&h, 400);
    }
    ret->keeps_alive =
        h.status == 0 && !h.says_close && (!h.is_1_0 || h.says_keep_alive);
    *ret_status = h.status;
    return at;
}

/* ---- texts ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The next character, and how many bytes it takes; 0: no valid escape. */
static int decode_char(const char *text, unsigned char *ret)
{
    int high;
    int low;

    *ret = (unsigned char)text[0];
    if (text[0] != '%') {
        return 1;
    }
    high = hex_digit(text[1]);
    low = high >= 0 ? hex_digit(text[2]) : -1;
    *ret = (unsigned char)(MAX(high, 0) * 16 + MAX(low, 0));
    return low >= 0 ? 3 : 0;
}

int http_decode(const char *text, char end, char *ret, size_t size)
{
    size_t used = 0;
    int at = 0;

    while (text[at] != '\0' && text[at] != end) {
        unsigned char c;
        int n = decode_char(text + at, &c);

        if (n == 0 || c < ' ' || c == 0x7f || used + 1 >= size) {
            return -1;
        }
        ret[used++] = (char)c;
        at += n;
    }
    ret[used] = '\0';
    return at;
}

int http_query(const char *query, const char *name, char *ret, size_t size)
{
    size_t name_size = strlen(name);

    while (*query) {
        if (strncmp(query, name, name_size) == 0 && query[name_size] == '=') {
            query += name_size + 1;
            return http_decode(query, '&', ret, size) < 0 ? ERR_INVALID : 0;
        }
        query += strcspn(query, "&");
        query += *query == '&';
    }
    return ERR_MISSING;
}

bool http_host_is_numeric(const char *host)
{
    struct in6_addr addr;

    return strcasecmp(host, "localhost") == 0 || inet_pton(AF_INET, host, &addr) == 1 ||
           inet_pton(AF_INET6, host, &addr) == 1;
}

/* ---- responses ---- */

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {200, "OK"},
    {400, "Bad Request"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {431, "Request Header Fields Too Large"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

const char *http_reason(int status)
{
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    UNREACHABLE();
}

int http_put_head(struct buf *out, const struct http_response *r)
{
    return buf_printf(out,
                      "HTTP/1.1 %d %s\r\n"
                      "Date: %s\r\n"
                      "Content-Type: %s\r\n"
                      "Content-Length: %zu\r\n"
                      "%s"
                      "Connection: %s\r\n"
                      "Cache-Control: no-store\r\n"
                      "Content-Security-Policy: %s\r\n"
                      "Cross-Origin-Resource-Policy: same-origin\r\n"
                      "Referrer-Policy: no-referrer\r\n"
                      "X-Content-Type-Options: nosniff\r\n"
                      "X-Frame-Options: DENY\r\n\r\n",
                      r->status, http_reason(r->status), r->date, r->type, r->size,
                      r->status == 405 ? "Allow: GET, HEAD\r\n" : "",
                      r->keeps_alive ? "keep-alive" : "close",
                      r->policy ? r->policy
                                : "default-src 'none'; frame-ancestors 'none'");
}
