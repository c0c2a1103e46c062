#include "rendezvous/state_batch.h"

#include "rendezvous/state_schema.h"

#include <string.h>

struct head {
    uint32_t act, kind;
    uint64_t generation;
    size_t job_size; /* with its terminator */
    size_t key_size, value_size;
};

static void append(struct buf *b, const void *data, size_t size)
{
    int rv = size > 0 ? buf_append(b, data, size) : 0;

    ASSERT(rv == 0); /* it has no ceiling */
}

void state_batch_add(struct buf *batch, const struct record *r)
{
    const struct head head = {
        .act = (uint32_t)r->act,
        .kind = (uint32_t)r->kind,
        .generation = r->generation,
        .job_size = strlen(r->job) + 1,
        .key_size = r->key.size,
        .value_size = r->value.size,
    };

    if (r->act == RECORD_PUT || r->act == RECORD_DROP) {
        struct state_part parts[STATE_MAX_COLUMNS];

        ASSERT(state_split(state_table(r->kind), r->key, parts));
    }
    append(batch, &head, sizeof(head));
    append(batch, r->job, head.job_size);
    append(batch, r->key.data, head.key_size);
    append(batch, r->value.data, head.value_size);
}

static const uint8_t *take(struct bytes *batch, size_t size)
{
    const uint8_t *data = batch->data;

    ASSERT(size <= batch->size);
    batch->data += size;
    batch->size -= size;
    return data;
}

bool state_batch_next(struct bytes *batch, struct record *ret)
{
    struct head head;

    if (batch->size == 0) {
        return false;
    }
    memcpy(&head, take(batch, sizeof(head)), sizeof(head));
    *ret = (struct record){
        .act = (enum record_act)head.act,
        .kind = (enum record_kind)head.kind,
        .generation = head.generation,
    };
    ret->job = (const char *)take(batch, head.job_size);
    ret->key = (struct bytes){take(batch, head.key_size), head.key_size};
    ret->value = (struct bytes){take(batch, head.value_size), head.value_size};
    return true;
}
