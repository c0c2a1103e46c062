/* A manifest of any bytes; its own hash is put right, so that what comes behind it is
 * reached. What is accepted is written again and read to the same. */

#include "worker/checkpoint/digest.h"
#include "worker/checkpoint/manifest.h"

#include "common/mem.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* libFuzzer's name: NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char head_text[] = "{\n  \"hash\": \"";

/* The input follows the hash's digits. */
static char *make_text(const uint8_t *data, size_t size, size_t *ret_size)
{
    const size_t head = sizeof(head_text) - 1;
    const size_t digits = DIGEST_HEX - 1;
    struct digest *digest = digest_create();
    char hash[DIGEST_HEX];
    char *text;

    *ret_size = head + digits + size;
    text = mem_alloc(*ret_size);
    memcpy(text, head_text, head);
    memset(text + head, '0', digits);
    if (size > 0) {
        memcpy(text + head + digits, data, size);
    }
    digest_add(digest, text, *ret_size);
    digest_finish(digest, hash);
    digest_free(digest);
    memcpy(text + head, hash, digits);
    return text;
}

static void write_again(const struct manifest *m)
{
    struct manifest again;
    struct errmsg msg;
    struct buf b;
    char hash[CHECKPOINT_HASH_HEX];

    buf_init(&b, SIZE_MAX / 2);
    ASSERT(manifest_encode(&m->meta, m->files, m->n_files, &b, hash, &msg) == 0);
    ASSERT(manifest_decode((char *)b.data + b.start, buf_len(&b), &again, &msg) == 0);
    ASSERT(strcmp(again.hash, hash) == 0);
    ASSERT(again.meta.step == m->meta.step && again.meta.seed == m->meta.seed);
    ASSERT(again.n_files == m->n_files);
    manifest_release(&again);
    buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest m;
    struct errmsg msg;
    size_t text_size;
    char *text = make_text(data, size, &text_size);

    if (manifest_decode(text, text_size, &m, &msg) == 0) {
        write_again(&m);
        manifest_release(&m);
    }
    mem_free(text);
    return 0;
}
