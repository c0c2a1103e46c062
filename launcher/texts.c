#include "launcher/texts.h"

#include "common/mem.h"

#include <string.h>

/* All of it comes from our own command line and environment, which exec has limited. */
enum { TEXTS_MAX = 64 * 1024 * 1024 };

void texts_init(struct buf *texts)
{
    buf_init(texts, TEXTS_MAX);
}

void texts_put(struct buf *texts, const char *text)
{
    int rv = buf_append(texts, text, strlen(text) + 1);

    ASSERT(rv == 0);
}

char **texts_block(struct buf *texts)
{
    size_t size = buf_len(texts);
    size_t n = 0;
    char **block;
    char *copy;

    for (size_t i = 0; i < size; i++) {
        n += buf_bytes(texts)[i] == '\0';
    }
    block = mem_alloc((n + 1) * sizeof(*block) + size);
    copy = (char *)(block + n + 1);
    if (size > 0) {
        memcpy(copy, buf_bytes(texts), size);
    }
    for (size_t i = 0; i < n; i++) {
        block[i] = copy;
        copy += strlen(copy) + 1;
    }
    block[n] = NULL;
    buf_release(texts);
    return block;
}
