#include "rendezvous/frames.h"

#include "common/msg.h"

#include <endian.h>
#include <string.h>

enum {
    MAX_VISITED = 4096,
    LARGE = 4096, /* the body of a reply that is worth to be dropped */
};

static size_t frame_size(const uint8_t *frame)
{
    uint32_t rest;

    memcpy(&rest, frame, sizeof(rest));
    return sizeof(rest) + le32toh(rest);
}

int frames_move(struct buf *from, struct buf *to, size_t share)
{
    const uint8_t *first = buf_bytes(from);
    size_t size = 0;
    size_t next;
    int rv;

    while (size < buf_len(from)) {
        next = frame_size(first + size);
        if (size > 0 && size + next > share) {
            break;
        }
        size += next;
    }
    rv = buf_append(to, first, size);
    if (rv == 0) {
        buf_consume(from, size);
    }
    return rv;
}

static bool is_large_reply(const struct msg *m, uint64_t generation, uint32_t client)
{
    return m->type == MSG_STORE_REPLY && m->u.store_reply.generation == generation &&
           m->u.store_reply.client == client && m->u.store_reply.body.size >= LARGE;
}

/* Puts what is left of the frame at `at` to where it belongs now. Returns its size. */
static size_t put(uint8_t *at, const uint8_t *frame, size_t size, struct msg *dropped)
{
    struct buf short_one;

    if (!dropped) {
        memmove(at, frame, size);
        return size;
    }
    if (dropped->u.store_reply.more) {
        return 0; /* its last part acknowledges */
    }
    buf_init(&short_one, size);
    dropped->u.store_reply.body = (struct bytes){0};
    if (msg_encode(dropped, &short_one) < 0) {
        UNREACHABLE(); /* it is shorter than it was */
    }
    size = buf_len(&short_one);
    memcpy(at, buf_bytes(&short_one), size);
    buf_release(&short_one);
    return size;
}

size_t frames_drop_replies(struct buf *frames, uint64_t generation, uint32_t client)
{
    size_t before = buf_len(frames);
    size_t from = frames->start;
    size_t to = from;
    struct msg m;
    bool drops;

    for (int i = 0; i < MAX_VISITED && from < frames->end; i++) {
        int n = msg_decode(frames->data + from, frames->end - from, &m);

        ASSERT(n > 0); /* we have encoded it */
        drops = is_large_reply(&m, generation, client);
        to += put(frames->data + to, frames->data + from, (size_t)n, drops ? &m : NULL);
        from += (size_t)n;
    }
    if (to < from) {
        memmove(frames->data + to, frames->data + from, frames->end - from);
        frames->end -= from - to;
    }
    return before - buf_len(frames);
}
