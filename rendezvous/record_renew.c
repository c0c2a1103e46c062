#include "rendezvous/record_renew.h"

#include "rendezvous/record_fields.h"

#include "common/mem.h"
#include "common/wire.h"

#include <string.h>

/* Of frames, as versions 5 and 6 of the protocol had them:
 *
 *   u32 length of the rest | u8 type | fields */
enum {
    FRAME_HEAD = 5,
    FRAME_RANK_ENDED = 10,
    FRAME_REPORT = 21,
    NO_COMMIT_SIZE = 4 + 8 + 4, /* run, step and hash, which 5 may lack */
};

static int fields_of(struct bytes frame, uint8_t type, struct bytes *ret)
{
    struct wire_reader r;
    uint32_t length;

    wire_reader_init(&r, frame.data, frame.size);
    length = wire_get_u32(&r);
    if (wire_get_u8(&r) != type || r.bad || length != frame.size - sizeof(length)) {
        return ERR_CORRUPT;
    }
    *ret = (struct bytes){frame.data + FRAME_HEAD, frame.size - FRAME_HEAD};
    return 0;
}

/* --- a cause: of its fields, `first` was a frame --- */

static int put_rank(struct bytes frame, struct buf *out)
{
    struct bytes fields;
    int rv = fields_of(frame, FRAME_RANK_ENDED, &fields);

    rv = rv < 0 ? rv : wire_put_u8(out, RECORD_RANK_VERSION);
    return rv < 0 ? rv : buf_append(out, fields.data, fields.size);
}

static int renew_cause(struct bytes value, struct buf *out)
{
    struct record_cause cause;
    struct buf copy;
    struct buf first;
    int rv;

    buf_init(&copy, value.size);
    buf_init(&first, RECORD_VALUE_MAX);
    rv = wire_put_u8(&copy, RECORD_CAUSE_VERSION);
    rv = rv < 0 ? rv : buf_append(&copy, value.data + 1, value.size - 1);
    rv = rv < 0 ? rv : record_get_cause(record_bytes(&copy), &cause);
    if (rv == 0 && cause.has_rank != 0) {
        rv = put_rank(cause.first, &first);
    }
    if (rv == 0) {
        cause.first = record_bytes(&first);
        rv = record_put_cause(&cause, out);
    }
    buf_release(&first);
    buf_release(&copy);
    return rv;
}

/* --- a report: all but n_arrivals was in a frame --- */

static bool is_report(const struct buf *value)
{
    struct record_report *report = mem_alloc(sizeof(*report));
    int rv = record_get_report(record_bytes(value), report);

    mem_free(report);
    return rv == 0;
}

static int renew_report(struct bytes value, struct buf *out)
{
    static const uint8_t no_commit[NO_COMMIT_SIZE];
    struct wire_reader r;
    struct bytes frame;
    struct bytes fields;
    struct buf renewed;
    uint64_t n_arrivals;
    int rv;

    wire_reader_init(&r, value.data + 1, value.size - 1);
    n_arrivals = wire_get_u64(&r);
    frame.data = wire_get_bytes(&r, RECORD_VALUE_MAX, &frame.size);
    rv = wire_reader_done(&r) ? fields_of(frame, FRAME_REPORT, &fields) : ERR_CORRUPT;
    buf_init(&renewed, RECORD_VALUE_MAX);
    rv = rv < 0 ? rv : wire_put_u8(&renewed, RECORD_REPORT_VERSION);
    rv = rv < 0 ? rv : wire_put_u64(&renewed, n_arrivals);
    rv = rv < 0 ? rv : buf_append(&renewed, fields.data, fields.size);
    if (rv == 0 && !is_report(&renewed)) {
        rv = buf_append(&renewed, no_commit, sizeof(no_commit));
        rv = rv < 0 || is_report(&renewed) ? rv : ERR_CORRUPT;
    }
    rv = rv < 0 ? rv : buf_append(out, buf_bytes(&renewed), buf_len(&renewed));
    buf_release(&renewed);
    return rv;
}

/* --- the end of a job: it did not say whose it was --- */

static int renew_finished(struct bytes value, struct buf *out)
{
    struct record_finished *fields = mem_alloc(sizeof(*fields));
    struct buf renewed;
    int rv;

    buf_init(&renewed, RECORD_VALUE_MAX);
    rv = wire_put_u8(&renewed, RECORD_FINISHED_VERSION);
    rv = rv < 0 ? rv : buf_append(&renewed, value.data + 1, value.size - 1);
    rv = rv < 0 ? rv : wire_put_bytes(&renewed, "", 0);
    rv = rv < 0 ? rv : record_get_finished(record_bytes(&renewed), fields);
    rv = rv < 0 ? rv : buf_append(out, buf_bytes(&renewed), buf_len(&renewed));
    buf_release(&renewed);
    mem_free(fields);
    return rv;
}

int record_renew(const struct record *r, struct buf *out)
{
    bool is_first = r->value.size > 0 && r->value.data[0] == 1;
    int rv;

    if (r->kind == RECORD_CAUSE && is_first) {
        rv = renew_cause(r->value, out);
    } else if (r->kind == RECORD_REPORT && is_first) {
        rv = renew_report(r->value, out);
    } else if (r->kind == RECORD_FINISHED && is_first) {
        rv = renew_finished(r->value, out);
    } else {
        return 0;
    }
    return rv < 0 ? ERR_CORRUPT : 1;
}
