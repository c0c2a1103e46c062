/* Heads of requests, byte by byte as a network may bring them: what is decided of a
 * beginning is decided of the whole; what is taken is sound, and its texts decode into
 * their bounds. */

#include "rendezvous/http.h"

#include "common/check.h"
#include "common/err.h"
#include "common/mem.h"

#include <string.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In a block of its own size, so that a read past it is seen. */
static size_t parse(const uint8_t *data, size_t size, struct http_request *ret,
                    int *ret_status)
{
    uint8_t *copy = mem_dup(data, size);
    size_t n = http_parse(copy, size, ret, ret_status);

    ASSERT(n <= size);
    ASSERT(n > 0 || *ret_status == 0);
    mem_free(copy);
    return n;
}

static void check_texts(const struct http_request *q)
{
    char small[16];
    char text[HTTP_TARGET_MAX];
    int n;

    ASSERT(q->path[0] == '/' && strlen(q->path) < sizeof(q->path));
    ASSERT(strlen(q->query) < sizeof(q->query) && strlen(q->host) < sizeof(q->host));
    n = http_decode(q->path, '/', text, sizeof(text));
    ASSERT(n == 0); /* it begins there */
    n = http_decode(q->path, '\0', text, sizeof(text));
    ASSERT(n == -1 || (n == (int)strlen(q->path) && (int)strlen(text) <= n));
    n = http_decode(q->path + 1, '/', small, sizeof(small));
    ASSERT(n == -1 || strlen(small) < sizeof(small));
    n = http_query(q->query, "a", small, sizeof(small));
    ASSERT(n == ERR_MISSING || n == ERR_INVALID ||
           (n == 0 && strlen(small) < sizeof(small)));
    (void)http_host_is_numeric(q->host);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_request whole;
    struct http_request part;
    int status;
    int part_status;
    size_t n;

    if (size == 0) {
        return 0;
    }
    n = parse(data, size, &whole, &status);
    if (n > 0 && status == 0) {
        ASSERT(n >= 4 && memcmp(data + n - 4, "\r\n\r\n", 4) == 0);
        ASSERT(n <= HTTP_MAX_HEAD);
        check_texts(&whole);
        ASSERT(parse(data, n, &part, &part_status) == n && part_status == 0);
        ASSERT(memcmp(&whole, &part, sizeof(part)) == 0);
        ASSERT(parse(data, n - 1, &part, &part_status) == 0); /* not before */
    } else if (n == 0) {
        ASSERT(size < HTTP_MAX_HEAD); /* that is all we wait for */
        n = parse(data, size / 2 + 1, &part, &part_status);
        ASSERT(n == 0); /* a beginning of it is no objection */
    } else {
        ASSERT(http_reason(status));
    }
    return 0;
}
