/* PURE. Temperature and top-k sampling; byte tokens as text. See sample.h. */

#include "worker/model/sample.h"

#include "worker/model/init.h"
#include "worker/model/philox.h"

#include "common/mem.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct candidate {
    double logit;
    int32_t token;
};

static int on_compare(const void *a, const void *b)
{
    const struct candidate *x = a;
    const struct candidate *y = b;
    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return (x->token > y->token) - (x->token < y->token);
}

static double u_of(const struct sample_config *config, uint64_t position)
{
    struct philox block = philox_block(
        config->seed, (struct philox){{(uint32_t)position, (uint32_t)(position >> 32),
                                       0, init_name_hash("sample")}});
    return philox_uniform(block.word[0]);
}

/* `c` sorted, likeliest first; the probability of each is exp((logit − max) /
 * temperature). */
static int32_t draw(const struct candidate *c, size_t n, double temperature, double u)
{
    double total = 0.0;
    for (size_t i = 0; i < n; i++) {
        total += exp((c[i].logit - c[0].logit) / temperature);
    }
    double left = u * total;
    size_t last = 0;
    for (size_t i = 0; i < n; i++) {
        double p = exp((c[i].logit - c[0].logit) / temperature);
        if (p <= 0.0) {
            break;
        }
        last = i;
        left -= p;
        if (left < 0.0) {
            break;
        }
    }
    return c[last].token;
}

int32_t sample_token(const struct sample_config *config, const float *logits, int vocab,
                     uint64_t position)
{
    ASSERT(vocab >= 1);
    size_t n = (size_t)vocab;
    struct candidate *c = mem_array(n, sizeof(*c));
    for (size_t i = 0; i < n; i++) {
        c[i].logit = isnan(logits[i]) ? -HUGE_VAL : (double)logits[i];
        c[i].token = (int32_t)i;
    }
    qsort(c, n, sizeof(*c), on_compare);

    int32_t token = c[0].token;
    if (config->temperature > 0 && isfinite(c[0].logit)) {
        size_t k = config->top_k > 0 ? MIN((size_t)config->top_k, n) : n;
        token = draw(c, k, config->temperature, u_of(config, position));
    }
    mem_free(c);
    return token;
}

/* The bytes of the UTF-8 character at tokens[0] when it is whole, shortest and
 * printable; else 0. */
static size_t printable(const int32_t *tokens, size_t n)
{
    int32_t lead = tokens[0];
    if (lead < 0x80) {
        return (lead >= 0x20 && lead != 0x7F) || lead == '\n' || lead == '\t' ? 1 : 0;
    }
    size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || size > n) {
        return 0;
    }
    int32_t code = lead & (0x7F >> size);
    for (size_t i = 1; i < size; i++) {
        if ((tokens[i] & ~0x3F) != 0x80) {
            return 0;
        }
        code = code * 64 + (tokens[i] & 0x3F);
    }
    static const int32_t smallest[] = {0, 0, 0xA0, 0x800, 0x10000}; /* 0x80…0x9F: C1 */
    bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    bool direction =
        (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    return code >= smallest[size] && code <= 0x10FFFF && !surrogate && !direction ? size
                                                                                  : 0;
}

int sample_text(const int32_t *tokens, size_t n, struct buf *ret)
{
    for (size_t i = 0; i < n;) {
        size_t size = tokens[i] >= 0 ? printable(tokens + i, n - i) : 0;
        int rc = 0;
        if (size == 0) {
            rc = buf_printf(ret, "\\x%02x", (unsigned)tokens[i]);
            i++;
        }
        for (; size > 0 && rc == 0; size--) {
            uint8_t byte = (uint8_t)tokens[i++];
            rc = buf_append(ret, &byte, 1);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
