#include "rendezvous/frames.h"

#include "common/mem.h"
#include "common/msg.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_VISITED = 4096,
    LARGE = 4096,   /* the body of a reply that is worth to be dropped */
    WORTH_PART = 8, /* … and the part of all that is worth moving the rest */
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

/* --- what is of no use any more --- */

void frames_gone_release(struct frames_gone *gone)
{
    mem_free(gone->clients);
    *gone = (struct frames_gone){0};
}

bool frames_gone_add(struct frames_gone *gone, uint64_t generation, uint32_t client)
{
    ASSERT(gone->n < FRAMES_MAX_GONE);
    if (!gone->clients) {
        gone->clients = mem_array(FRAMES_MAX_GONE, sizeof(gone->clients[0]));
    }
    gone->clients[gone->n++] = (struct frames_client){generation, client};
    gone->is_new = true;
    return gone->n < FRAMES_MAX_GONE;
}

static int compare(const void *left, const void *right)
{
    const struct frames_client *a = left;
    const struct frames_client *b = right;

    if (a->generation != b->generation) {
        return a->generation < b->generation ? -1 : 1;
    }
    return (a->client > b->client) - (a->client < b->client);
}

/* A large reply to one of those who are gone. */
static bool is_useless(const struct msg *m, const struct frames_gone *gone)
{
    struct frames_client to;

    if (m->type != MSG_STORE_REPLY || m->u.store_reply.body.size < LARGE) {
        return false;
    }
    to = (struct frames_client){m->u.store_reply.generation, m->u.store_reply.client};
    return bsearch(&to, gone->clients, gone->n, sizeof(to), compare) != NULL;
}

/* What compact would save. */
static size_t count_useless(const struct buf *frames, const struct frames_gone *gone)
{
    size_t at = frames->start;
    size_t saved = 0;
    struct msg m;

    for (int i = 0; i < MAX_VISITED && at < frames->end; i++) {
        int n = msg_decode(frames->data + at, frames->end - at, &m);

        ASSERT(n > 0); /* we have encoded it */
        if (is_useless(&m, gone)) {
            saved += m.u.store_reply.more ? (size_t)n : m.u.store_reply.body.size;
        }
        at += (size_t)n;
    }
    return saved;
}

static void move(struct buf *frames, size_t to, size_t from, size_t size,
                 struct frames_gone *gone)
{
    if (to < from) {
        memmove(frames->data + to, frames->data + from, size);
        gone->n_moved += size;
    }
}

/* The acknowledgement that a useless reply becomes. Returns its size. */
static size_t put_short(uint8_t *at, size_t size, struct msg *reply)
{
    struct buf short_one;

    if (reply->u.store_reply.more) {
        return 0; /* its last part acknowledges */
    }
    buf_init(&short_one, size);
    reply->u.store_reply.body = (struct bytes){0};
    if (msg_encode(reply, &short_one) < 0) {
        UNREACHABLE(); /* it is shorter than it was */
    }
    size = buf_len(&short_one);
    memcpy(at, buf_bytes(&short_one), size);
    buf_release(&short_one);
    return size;
}

static void compact(struct buf *frames, struct frames_gone *gone)
{
    size_t from = frames->start;
    size_t to = from;
    struct msg m;

    for (int i = 0; i < MAX_VISITED && from < frames->end; i++) {
        int n = msg_decode(frames->data + from, frames->end - from, &m);

        ASSERT(n > 0);
        if (is_useless(&m, gone)) {
            to += put_short(frames->data + to, (size_t)n, &m);
        } else {
            move(frames, to, from, (size_t)n, gone);
            to += (size_t)n;
        }
        from += (size_t)n;
    }
    move(frames, to, from, frames->end - from, gone);
    frames->end -= from - to;
}

size_t frames_drop_replies(struct buf *frames, struct frames_gone *gone)
{
    size_t before = buf_len(frames);
    bool is_full = gone->n == FRAMES_MAX_GONE;
    size_t useless = 0;

    if (before > 0 && !gone->is_new) {
        return 0;
    }
    if (before > 0) {
        qsort(gone->clients, gone->n, sizeof(gone->clients[0]), compare);
        useless = count_useless(frames, gone);
    }
    gone->is_new = false;
    if (useless > 0 && useless < before / WORTH_PART && !is_full) {
        return 0; /* not before more have gone */
    }
    if (useless > 0) {
        compact(frames, gone);
    }
    gone->n = 0;
    return before - buf_len(frames);
}
