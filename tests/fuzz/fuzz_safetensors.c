/* A whole file of any bytes: never more than an error; and what is accepted holds what
 * the reader promises, and is written again with the same table. */

#include "worker/checkpoint/safetensors.h"

#include "common/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* libFuzzer's name: NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_table(const struct safetensors *s, uint64_t file_size, uint64_t begin)
{
    uint64_t end = begin;

    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensor[i];

        ASSERT(t->offset == end);
        end += t->bytes;
        ASSERT(safetensors_find(s, t->name) != NULL);
    }
    ASSERT(end == file_size);
}

/* Dimensions of the writer's entries end at four. */
static bool to_entries(const struct safetensors *s, struct st_entry *entry)
{
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensor[i];

        if (t->n_dims > ST_ENTRY_DIMS) {
            return false;
        }
        entry[i] = (struct st_entry){
            .name = t->name, .dtype = t->dtype, .n_dims = (int)t->n_dims};
        if (t->n_dims > 0) {
            memcpy(entry[i].shape, t->shape, t->n_dims * sizeof(*t->shape));
        }
    }
    return true;
}

static void write_again(const struct safetensors *s)
{
    struct st_entry *entry = mem_array(s->n_tensors, sizeof(*entry));
    struct safetensors again;
    struct errmsg msg;
    struct buf b;
    uint64_t bytes = 0;

    if (to_entries(s, entry)) {
        buf_init(&b, SIZE_MAX / 2);
        safetensors_sort(entry, s->n_tensors);
        ASSERT(safetensors_header(NULL, 0, entry, s->n_tensors, 8, &b) == 0);
        for (size_t i = 0; i < s->n_tensors; i++) {
            bytes += st_entry_bytes(&entry[i]);
        }
        ASSERT(safetensors_parse(buf_bytes(&b) + 8, buf_len(&b) - 8,
                                 buf_len(&b) + bytes, &again, &msg) == 0);
        ASSERT(again.n_tensors == s->n_tensors);
        safetensors_close(&again);
        buf_release(&b);
    }
    mem_free(entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s;
    struct errmsg msg;
    size_t n;

    if (safetensors_header_size(data, size, &n, &msg) < 0 ||
        safetensors_parse(data + 8, n, size, &s, &msg) < 0) {
        return 0;
    }
    check_table(&s, size, 8 + n);
    write_again(&s);
    safetensors_close(&s);
    return 0;
}
