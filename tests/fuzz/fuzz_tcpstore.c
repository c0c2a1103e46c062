/* The parser, fed in pieces: what it makes of a stream does not depend on how the
 * stream is cut, and every request that it hands out is well-formed. The first byte
 * chooses the legacy dialect and the pieces. */

#include "common/check.h"
#include "common/mem.h"
#include "common/tcpstore.h"

#include <string.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_REQUESTS = 64 };

struct outcome {
    unsigned n;
    struct {
        enum tcpstore_op op;
        size_t at;
        size_t size;
    } requests[MAX_REQUESTS];
    int end; /* 0: more bytes are needed */
};

/* Takes what is whole in `bytes`, which begin at `*at` of the stream. Returns the last
 * result. */
static int take(struct tcpstore_parser *p, const uint8_t *bytes, size_t size,
                size_t *at, struct outcome *ret)
{
    struct tcpstore_request request;
    int n = 1;

    for (size_t used = 0; n > 0 && ret->n < MAX_REQUESTS; used += (size_t)n) {
        n = tcpstore_parse(p, bytes + used, size - used, &request);
        if (n <= 0) {
            break;
        }
        ASSERT(tcpstore_check_body(request.op, request.body, request.size) == 0);
        ASSERT((size_t)n == 1 + request.size);
        ret->requests[ret->n].op = request.op;
        ret->requests[ret->n].at = *at;
        ret->requests[ret->n].size = request.size;
        ret->n++;
        *at += (size_t)n;
    }
    return n;
}

/* Each piece lies in a block of its own size, so that a read past it is seen. */
static void parse_all(const uint8_t *data, size_t size, bool legacy_b, size_t piece,
                      struct outcome *ret)
{
    struct tcpstore_parser p;
    size_t there = 0;
    size_t at = 0;

    *ret = (struct outcome){0};
    tcpstore_parser_init(&p, legacy_b);
    while (there < size && ret->end == 0 && ret->n < MAX_REQUESTS) {
        uint8_t *copy;
        int n;

        there = MIN(there + piece, size);
        copy = mem_dup(data + at, there - at);
        n = take(&p, copy, there - at, &at, ret);
        ret->end = MIN(n, 0);
        mem_free(copy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct outcome whole;
    static struct outcome pieces;

    if (size == 0) {
        return 0;
    }
    parse_all(data + 1, size - 1, data[0] & 1, SIZE_MAX / 2, &whole);
    parse_all(data + 1, size - 1, data[0] & 1, 1 + (data[0] >> 1) % 16, &pieces);
    ASSERT(whole.n == pieces.n && whole.end == pieces.end);
    for (unsigned i = 0; i < whole.n; i++) {
        ASSERT(whole.requests[i].op == pieces.requests[i].op);
        ASSERT(whole.requests[i].at == pieces.requests[i].at);
        ASSERT(whole.requests[i].size == pieces.requests[i].size);
    }
    return 0;
}
