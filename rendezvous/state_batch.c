#include "rendezvous/state_batch.h"

#include "rendezvous/state_schema.h"

#include "common/err.h"

#include <endian.h>
#include <string.h>

struct head {
    uint8_t act, kind;
    uint16_t job_size; /* with its terminator */
    uint16_t key_size;
    uint32_t value_size;
    uint64_t generation;
} __attribute__((packed));

/* Many records have no value, or no key: memcpy wants none of theirs. */
static uint8_t *put(uint8_t *at, const void *data, size_t size)
{
    if (size > 0) {
        memcpy(at, data, size);
    }
    return at + size;
}

static bool has_name(const struct record *r)
{
    return r->act >= RECORD_DROP_GENERATION || state_fits(state_table(r->kind), r->key);
}

void state_batch_add(struct buf *batch, const struct record *r)
{
    size_t job_size = strlen(r->job) + 1;
    const struct head head = {
        .act = (uint8_t)r->act,
        .kind = (uint8_t)r->kind,
        .job_size = htole16((uint16_t)job_size),
        .key_size = htole16((uint16_t)r->key.size),
        .value_size = htole32((uint32_t)r->value.size),
        .generation = htole64(r->generation),
    };
    size_t size = sizeof(head) + job_size + r->key.size + r->value.size;
    uint8_t *at;

    ASSERT(job_size <= UINT16_MAX && r->key.size <= UINT16_MAX &&
           r->value.size <= UINT32_MAX && has_name(r));
    ASSERT(buf_reserve(batch, size, &at) == 0); /* it has no ceiling */
    at = put(at, &head, sizeof(head));
    at = put(at, r->job, job_size);
    at = put(at, r->key.data, r->key.size);
    (void)put(at, r->value.data, r->value.size);
    buf_commit(batch, size);
}

static struct bytes take(struct bytes *batch, size_t size)
{
    struct bytes taken = {batch->data, size};

    batch->data += size;
    batch->size -= size;
    return taken;
}

/* What the head says, of as many bytes as there are. */
static int take_parts(struct bytes *batch, const struct head *head, struct record *ret)
{
    size_t job_size = le16toh(head->job_size);
    size_t key_size = le16toh(head->key_size);
    size_t value_size = le32toh(head->value_size);
    struct bytes job;

    if (job_size == 0 || batch->size < job_size + key_size + value_size) {
        return ERR_CORRUPT;
    }
    job = take(batch, job_size);
    ret->job = (const char *)job.data;
    ret->key = take(batch, key_size);
    ret->value = take(batch, value_size);
    return memchr(job.data, 0, job_size) == job.data + job_size - 1 && has_name(ret)
               ? 1
               : ERR_CORRUPT;
}

int state_batch_next(struct bytes *batch, struct record *ret)
{
    struct bytes rest = *batch;
    struct head head;
    int rv;

    if (batch->size == 0) {
        return 0;
    }
    if (batch->size < sizeof(head)) {
        return ERR_CORRUPT;
    }
    memcpy(&head, take(&rest, sizeof(head)).data, sizeof(head));
    if (head.act > RECORD_DROP_JOB ||
        (head.act <= RECORD_DROP &&
         (head.kind < RECORD_JOB || head.kind >= RECORD_KIND_COUNT))) {
        return ERR_CORRUPT;
    }
    *ret = (struct record){
        .act = (enum record_act)head.act,
        .kind = (enum record_kind)head.kind,
        .generation = le64toh(head.generation),
    };
    rv = take_parts(&rest, &head, ret);
    if (rv == 1) {
        *batch = rest;
    }
    return rv;
}
