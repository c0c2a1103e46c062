/* Values of the schemas 1 and 2: causes and reports had frames of the agents' protocol in
 * them, and the end of a job had no owner. */

#include "rendezvous/record_fields.h"
#include "rendezvous/record_renew.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"
#include "common/wire.h"

#include <stdio.h>

enum { RANK_ENDED = 10, REPORT = 21 };

/* A frame with what a record's value has behind its head, and `less` of it. */
static void put_frame(struct buf *out, uint8_t type, const struct buf *value,
                      size_t head, size_t less)
{
    size_t size = buf_len(value) - head - less;
    int rv = wire_put_u32(out, (uint32_t)(size + 5));

    rv |= wire_put_u32(out, (uint32_t)(size + 1));
    rv |= wire_put_u8(out, type);
    rv |= buf_append(out, buf_bytes(value) + head, size);
    assert_int_equal(rv, 0);
}

/* The value of now, and that of before. */
struct pair {
    struct buf now, old;
};

static void init(struct pair *p)
{
    buf_init(&p->now, RECORD_VALUE_MAX);
    buf_init(&p->old, RECORD_VALUE_MAX);
}

static void release(struct pair *p)
{
    buf_release(&p->now);
    buf_release(&p->old);
}

/* `less`: 16 where the protocol did not tell the last commit. */
static void make_report(struct pair *p, uint8_t type, size_t less)
{
    struct record_report *report = mem_zalloc(sizeof(*report));
    int rv;

    init(p);
    report->n_arrivals = 7;
    report->generation = 3;
    report->rank = -1;
    report->commit_run = less > 0 ? 0 : 2;
    report->commit_step = less > 0 ? 0 : 10;
    (void)snprintf(report->text, sizeof(report->text), "a node was lost");
    assert_int_equal(record_put_report(report, &p->now), 0);
    rv = wire_put_u8(&p->old, 1);
    rv |= wire_put_u64(&p->old, 7);
    assert_int_equal(rv, 0);
    put_frame(&p->old, type, &p->now, 1 + 8, less);
    mem_free(report);
}

static void make_cause(struct pair *p, uint8_t type, bool has_rank)
{
    struct record_rank *rank = mem_zalloc(sizeof(*rank));
    struct record_cause cause = {.has_rank = has_rank, .loops = 2};
    struct buf first;
    struct buf frame;

    init(p);
    buf_init(&first, RECORD_VALUE_MAX);
    buf_init(&frame, RECORD_VALUE_MAX);
    rank->rank = 3;
    (void)snprintf(rank->tail, sizeof(rank->tail), "its last line");
    assert_int_equal(record_put_rank(rank, &first), 0);
    put_frame(&frame, type, &first, 1, 0);
    cause.first = has_rank ? record_bytes(&first) : (struct bytes){NULL, 0};
    assert_int_equal(record_put_cause(&cause, &p->now), 0);
    cause.first = (struct bytes){buf_bytes(&frame) + 4, buf_len(&frame) - 4};
    cause.first.size = has_rank ? cause.first.size : 0;
    buf_clear(&first);
    assert_int_equal(record_put_cause(&cause, &first), 0);
    assert_int_equal(wire_put_u8(&p->old, 1), 0);
    assert_int_equal(buf_append(&p->old, buf_bytes(&first) + 1, buf_len(&first) - 1),
                     0);
    buf_release(&first);
    buf_release(&frame);
    mem_free(rank);
}

static int renew(enum record_kind kind, struct bytes value, struct buf *out)
{
    const struct record r = {
        .act = RECORD_PUT, .kind = kind, .job = "job", .value = value};

    return record_renew(&r, out);
}

static void check_renewed(enum record_kind kind, struct pair *p)
{
    struct buf out;

    buf_init(&out, RECORD_VALUE_MAX);
    assert_int_equal(renew(kind, record_bytes(&p->old), &out), 1);
    assert_int_equal(buf_len(&out), buf_len(&p->now));
    assert_memory_equal(buf_bytes(&out), buf_bytes(&p->now), buf_len(&out));
    buf_clear(&out);
    assert_int_equal(renew(kind, record_bytes(&p->now), &out), 0);
    assert_int_equal(buf_len(&out), 0);
    for (size_t size = 1; size < buf_len(&p->old); size++) { /* cut short */
        buf_clear(&out);
        assert_int_equal(renew(kind, (struct bytes){buf_bytes(&p->old), size}, &out),
                         ERR_CORRUPT);
    }
    buf_release(&out);
    release(p);
}

static void report_says_what_it_said(void **unused)
{
    struct pair p;

    (void)unused;
    make_report(&p, REPORT, 0);
    check_renewed(RECORD_REPORT, &p);
}

static void report_that_knew_no_commit_has_none(void **unused)
{
    struct pair p;

    (void)unused;
    make_report(&p, REPORT, 16);
    check_renewed(RECORD_REPORT, &p);
}

static void cause_has_its_rank(void **unused)
{
    struct pair p;

    (void)unused;
    make_cause(&p, RANK_ENDED, true);
    check_renewed(RECORD_CAUSE, &p);
    make_cause(&p, RANK_ENDED, false);
    check_renewed(RECORD_CAUSE, &p);
}

static void end_of_a_job_is_nobodys(void **unused)
{
    struct record_finished *fields = mem_zalloc(sizeof(*fields));
    static const uint8_t key[8];
    struct pair p;
    int rv;

    (void)unused;
    init(&p);
    fields->generation = 4;
    fields->exit_code = 7;
    (void)snprintf(fields->text, sizeof(fields->text), "it is over");
    fields->keys = (struct bytes){key, sizeof(key)};
    rv = record_put_finished(fields, &p.now);
    rv |= wire_put_u8(&p.old, 1);
    rv |= buf_append(&p.old, buf_bytes(&p.now) + 1, buf_len(&p.now) - 1 - 4);
    assert_int_equal(rv, 0);
    mem_free(fields);
    check_renewed(RECORD_FINISHED, &p);
}

static void frame_of_another_message_is_refused(void **unused)
{
    struct buf out;
    struct pair p;

    (void)unused;
    buf_init(&out, RECORD_VALUE_MAX);
    make_report(&p, RANK_ENDED, 0);
    assert_int_equal(renew(RECORD_REPORT, record_bytes(&p.old), &out), ERR_CORRUPT);
    release(&p);
    make_cause(&p, REPORT, true);
    assert_int_equal(renew(RECORD_CAUSE, record_bytes(&p.old), &out), ERR_CORRUPT);
    release(&p);
    buf_release(&out);
}

static void other_records_are_as_they_were(void **unused)
{
    static const uint8_t value[] = {1, 2, 3};
    struct buf out;

    (void)unused;
    buf_init(&out, RECORD_VALUE_MAX);
    for (int kind = RECORD_JOB; kind < RECORD_KIND_COUNT; kind++) {
        if (kind != RECORD_CAUSE && kind != RECORD_REPORT && kind != RECORD_FINISHED) {
            assert_int_equal(renew((enum record_kind)kind,
                                   (struct bytes){value, sizeof(value)}, &out),
                             0);
        }
    }
    assert_int_equal(renew(RECORD_REPORT, (struct bytes){NULL, 0}, &out), 0);
    assert_int_equal(buf_len(&out), 0);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report_says_what_it_said),
        cmocka_unit_test(report_that_knew_no_commit_has_none),
        cmocka_unit_test(cause_has_its_rank),
        cmocka_unit_test(end_of_a_job_is_nobodys),
        cmocka_unit_test(frame_of_another_message_is_refused),
        cmocka_unit_test(other_records_are_as_they_were),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
