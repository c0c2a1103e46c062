/* The format: https://www.sqlite.org/fileformat2.html#walformat. Happy path: each frame
 * fits the checksum that runs through all before it, up to the end or to what an older
 * log has left there, which has other salts. */

#include "rendezvous/state_wal.h"

#include "common/err.h"
#include "common/mem.h"

#include <stdbool.h>
#include <string.h>

enum {
    HEADER_SIZE = 32,
    FRAME_HEADER_SIZE = 24,
    CHECKED_HEADER = 24, /* what a header's checksum covers … */
    CHECKED_FRAME = 8,   /* … and a frame's, beside its page */
    MAX_PAGE = 65536,
    SECTOR_SIZE = 512,      /* what a crash leaves whole, of the smallest */
    LOG_MAGIC = 0x377f0682, /* with 1 added: big-endian checksums */
    LOG_VERSION = 3007000,
};

struct sums {
    uint32_t a, b;
};

struct reading {
    const struct state_wal *wal;
    bool is_big; /* checksums are made of big-endian words */
    uint8_t salts[8];
    size_t page_size;
    uint8_t *frame; /* owned */
};

static uint32_t big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint32_t word(const uint8_t *p, bool is_big)
{
    return is_big ? big32(p) : __builtin_bswap32(big32(p));
}

static struct sums sum_up(struct sums s, const uint8_t *data, size_t size, bool is_big)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        s.a += word(data + i, is_big) + s.b;
        s.b += word(data + i + 4, is_big) + s.a;
    }
    return s;
}

static bool same(struct sums s, const uint8_t *stored)
{
    return s.a == big32(stored) && s.b == big32(stored + 4);
}

static struct sums stored_sums(const uint8_t *frame)
{
    return (struct sums){big32(frame + 16), big32(frame + 20)};
}

/* The frame's own sum, going on from that of the one before. */
static struct sums frame_sums(const struct reading *r, struct sums before)
{
    struct sums s = sum_up(before, r->frame, CHECKED_FRAME, r->is_big);

    return sum_up(s, r->frame + FRAME_HEADER_SIZE, r->page_size, r->is_big);
}

static bool is_ours(const struct reading *r)
{
    return memcmp(r->frame + 8, r->salts, sizeof(r->salts)) == 0;
}

/* … but for damage: of an older log's both halves are others. */
static bool was_ours(const struct reading *r)
{
    return memcmp(r->frame + 8, r->salts, 4) == 0 ||
           memcmp(r->frame + 12, r->salts + 4, 4) == 0;
}

static bool ends_transaction(const struct reading *r)
{
    return big32(r->frame + 4) != 0;
}

static int read_frame(struct reading *r, uint64_t number)
{
    uint64_t size = FRAME_HEADER_SIZE + r->page_size;

    return r->wal->read(r->wal->arg, HEADER_SIZE + number * size, r->frame,
                        (size_t)size);
}

/* The sector in which the frame's salts begin may be there and the one before, with the
 * mark of a transaction's end, of an older log. */
static bool is_split(const struct reading *r, uint64_t number)
{
    uint64_t at = HEADER_SIZE + number * (FRAME_HEADER_SIZE + r->page_size);

    return (at + CHECKED_FRAME) % SECTOR_SIZE == 0;
}

/* From frame `number` on, which is broken: does anything that fits lie behind the end
 * of its transaction? Each is checked against what the one before says of itself. */
static int check_behind(struct reading *r, uint64_t number, uint64_t n_frames)
{
    struct sums before = {0, 0};
    bool is_past_end = false;
    int rv;

    for (uint64_t i = number; i < n_frames; i++) {
        bool fits;

        rv = read_frame(r, i);
        if (rv < 0) {
            return rv;
        }
        fits = is_ours(r) && same(frame_sums(r, before), r->frame + 16);
        if (is_past_end && fits) {
            return ERR_CORRUPT;
        }
        is_past_end = is_past_end ||
                      (ends_transaction(r) && was_ours(r) && (fits || !is_split(r, i)));
        before = stored_sums(r->frame);
    }
    return 0;
}

static int check_frames(struct reading *r, struct sums before)
{
    uint64_t n_frames =
        (r->wal->size - HEADER_SIZE) / (FRAME_HEADER_SIZE + r->page_size);

    for (uint64_t i = 0; i < n_frames; i++) {
        int rv = read_frame(r, i);

        if (rv < 0) {
            return rv;
        }
        before = frame_sums(r, before);
        if (!is_ours(r) || !same(before, r->frame + 16)) {
            return check_behind(r, i, n_frames);
        }
    }
    return 0;
}

int state_wal_check(const struct state_wal *wal)
{
    struct reading r = {.wal = wal};
    uint8_t header[HEADER_SIZE];
    struct sums sums;
    int rv;

    if (wal->size <= HEADER_SIZE) {
        return 0; /* the header is synced before anything follows it */
    }
    rv = wal->read(wal->arg, 0, header, sizeof(header));
    if (rv < 0) {
        return rv;
    }
    r.is_big = (big32(header) & 1) != 0;
    r.page_size = big32(header + 8);
    memcpy(r.salts, header + 16, sizeof(r.salts));
    sums = sum_up((struct sums){0, 0}, header, CHECKED_HEADER, r.is_big);
    if ((big32(header) & ~1U) != LOG_MAGIC || big32(header + 4) != LOG_VERSION ||
        !same(sums, header + CHECKED_HEADER) || r.page_size > MAX_PAGE) {
        return ERR_CORRUPT;
    }
    r.frame = mem_alloc(FRAME_HEADER_SIZE + r.page_size);
    rv = check_frames(&r, sums);
    mem_free(r.frame);
    return rv;
}
