/* The journal: batches that may wait (state_pending.h), behind one another, cut into
 * pieces that fill a page each. `identity` says how many of them count; the others are
 * of before, and are written over in place: so a transaction of many workers is a page
 * or two of the log, and the one of `identity`. Happy path: 1. write, again and again;
 * 2. settle: the last record of each name goes into its table, and no piece counts. */

#include "rendezvous/state_internal.h"

#include "common/mem.h"
#include "common/table.h"

#include <endian.h>
#include <string.h>

enum {
    /* A row of it, with its id and the head of its page, fills one, and no second. */
    PIECE_SIZE = 4032,
    PIECE_HEAD = 10, /* u64 sum, u16 size of what it carries */
    PIECE_ROOM = PIECE_SIZE - PIECE_HEAD,
    BATCH_MAX = 65536, /* what is larger would be written twice: it is not */
    PIECES_MAX = 512,  /* 2 MiB */
    NAMES_MAX = 4096,  /* settling must not take long, either */
};

/* Of the reserve, in pages. Settling writes one for each name where they are far apart,
 * two more where there is no place for it, and what the pieces carry: on a full disk the
 * reserve is all that there is for that. */
enum { NAMES_PART = 4, PIECES_PART = 8 };

int state_journal_create(const struct state_db *d, struct errmsg *msg)
{
    return state_db_query(
        d, "create table journal (id integer primary key, piece blob not null)", NULL,
        msg);
}

static size_t pieces_of(struct bytes batch)
{
    return (batch.size + PIECE_ROOM - 1) / PIECE_ROOM;
}

static size_t at_most(const struct state_db *d, size_t n, uint64_t part)
{
    uint64_t pages = d->config.reserve_bytes / STATE_PAGE_SIZE;

    return pages > 0 ? MIN(n, MAX(pages / part, 1)) : n;
}

bool state_journal_has_room(struct state_db *d, struct bytes batch, size_t n)
{
    size_t names = at_most(d, NAMES_MAX, NAMES_PART);
    size_t pieces = at_most(d, PIECES_MAX, PIECES_PART);

    return batch.size <= BATCH_MAX && n <= names &&
           d->totals.n_pieces + pieces_of(batch) <= pieces &&
           state_pending_are_few(&d->pending, names - n);
}

/* It is time to settle: so there is room for the next batches. */
bool state_journal_is_long(struct state_db *d)
{
    size_t names = at_most(d, NAMES_MAX, NAMES_PART);

    return 4 * d->totals.n_pieces >= 3 * at_most(d, PIECES_MAX, PIECES_PART) ||
           !state_pending_are_few(&d->pending, (3 * names - 1) / 4);
}

static uint64_t sum_of(uint64_t number, const uint8_t *data, size_t size)
{
    return table_hash(data, size, number);
}

static int write_piece(struct state_db *d, const uint8_t *data, size_t size,
                       struct errmsg *msg)
{
    uint8_t piece[PIECE_SIZE] = {0};
    uint64_t number = ++d->totals.n_pieces;
    uint64_t sum = sum_of(number, data, size);
    uint64_t le_sum = htole64(sum);
    uint16_t le_size = htole16((uint16_t)size);
    int rc;

    memcpy(piece, &le_sum, sizeof(le_sum));
    memcpy(piece + sizeof(le_sum), &le_size, sizeof(le_size));
    memcpy(piece + PIECE_HEAD, data, size);
    d->totals.sum ^= sum;
    d->totals.journal ^= sum;
    rc = sqlite3_bind_int64(d->piece, 1, (int64_t)number);
    rc |= sqlite3_bind_blob(d->piece, 2, piece, sizeof(piece), SQLITE_STATIC);
    ASSERT(rc == SQLITE_OK);
    return state_db_run(d, d->piece, "writing the journal", msg);
}

int state_journal_write(struct state_db *d, struct bytes batch, struct errmsg *msg)
{
    int rv = 0;

    while (rv == 0 && batch.size > 0) {
        size_t size = MIN(batch.size, (size_t)PIECE_ROOM);

        rv = write_piece(d, batch.data, size, msg);
        batch.data += size;
        batch.size -= size;
    }
    return rv;
}

int state_journal_settle(struct state_db *d, struct errmsg *msg)
{
    const struct record **sorted = state_pending_sorted(&d->pending);
    int rv = 0;

    for (size_t i = 0; sorted[i] && rv == 0; i++) {
        rv = state_db_apply(d, sorted[i], 0, msg); /* none of it is history */
    }
    mem_free(sorted);
    d->totals.sum ^= d->totals.journal;
    d->totals.journal = 0;
    d->totals.n_pieces = 0;
    return rv;
}

/* ---- at the start ---- */

/* Appends what the piece carries. */
static int take_piece(struct state_db *d, uint64_t number, struct bytes piece,
                      struct buf *batches)
{
    const uint8_t *carried = piece.data + PIECE_HEAD;
    uint64_t sum;
    uint16_t size;

    if (piece.size != PIECE_SIZE) {
        return ERR_CORRUPT;
    }
    memcpy(&sum, piece.data, sizeof(sum));
    memcpy(&size, piece.data + sizeof(sum), sizeof(size));
    sum = le64toh(sum);
    size = le16toh(size);
    if (size > PIECE_ROOM || sum_of(number, carried, size) != sum) {
        return ERR_CORRUPT;
    }
    d->totals.journal ^= sum;
    return buf_append(batches, carried, size);
}

static int read_pieces(struct state_db *d, sqlite3_stmt *s, struct buf *batches,
                       struct errmsg *msg)
{
    int rv = 0;

    for (uint64_t number = 1; number <= d->totals.n_pieces && rv == 0; number++) {
        int rc = sqlite3_step(s);

        if (rc == SQLITE_ROW && (uint64_t)sqlite3_column_int64(s, 0) == number) {
            const struct bytes piece = {sqlite3_column_blob(s, 1),
                                        (size_t)sqlite3_column_bytes(s, 1)};

            rv = take_piece(d, number, piece, batches);
        } else {
            rv = state_db_result(d, rc, "reading the journal", msg);
            rv = rv == 0 ? ERR_CORRUPT : rv;
        }
    }
    return rv;
}

int state_journal_read(struct state_db *d, struct errmsg *msg)
{
    sqlite3_stmt *s = NULL;
    struct buf batches;
    struct bytes all;
    size_t n = 0;
    int rc = sqlite3_prepare_v2(d->db, "select id, piece from journal order by id", -1,
                                &s, NULL);
    int rv = state_db_result(d, rc, "reading the journal", msg);

    buf_init(&batches, (size_t)PIECES_MAX * PIECE_ROOM);
    rv = rv == 0 ? read_pieces(d, s, &batches, msg) : rv;
    all = (struct bytes){buf_bytes(&batches), buf_len(&batches)};
    if (rv == 0) {
        rv = state_pending_may_wait(all, &n) ? 0 : ERR_CORRUPT;
    }
    if (rv == 0) {
        state_pending_add(&d->pending, all, n);
    }
    if (rv == ERR_CORRUPT) {
        (void)errmsg_set(msg, rv, "its journal is not what was written");
    }
    buf_release(&batches);
    (void)sqlite3_finalize(s); /* repeats the step's error */
    return rv;
}
