/* The parser against frames recorded from PyTorch, whole, byte by byte and in one
 * piece. */

#include "tests/lib/cmocka.h"
#include "tests/lib/hex.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/tcpstore.h"
#include "common/wire.h"

#include <string.h>

#define VALIDATE "00 ce f7 85 3c"

struct vector {
    const char *name;
    enum tcpstore_op op;
    const char *hex;
};

/* Recorded from PyTorch 2.15's client, but APPEND and QUEUE_LEN, which are made alike.
 */
static const struct vector modern[] = {
    {"PING", TCPSTORE_PING, "0d 04 03 02 01"},
    {"ADD", TCPSTORE_ADD, "04 0500000000000000 696e69742f 0100000000000000"},
    {"SET", TCPSTORE_SET, "01 0200000000000000 2f6b 0100000000000000 76"},
    {"COMPARE_SET", TCPSTORE_COMPARE_SET,
     "02 0200000000000000 2f6b 0000000000000000 0100000000000000 78"},
    {"GET", TCPSTORE_GET, "03 0200000000000000 2f6b"},
    {"CHECK", TCPSTORE_CHECK, "05 0100000000000000 0200000000000000 2f6b"},
    {"WAIT", TCPSTORE_WAIT,
     "06 0200000000000000 0200000000000000 2f61 0200000000000000 2f62"},
    {"GETNUMKEYS", TCPSTORE_GETNUMKEYS, "07"},
    {"DELETE_KEY", TCPSTORE_DELETE_KEY, "08 0200000000000000 2f6b"},
    {"APPEND", TCPSTORE_APPEND, "09 0200000000000000 2f6b 0100000000000000 76"},
    {"MULTI_GET", TCPSTORE_MULTI_GET,
     "0a 0200000000000000 0200000000000000 2f61 0200000000000000 2f62"},
    {"MULTI_SET", TCPSTORE_MULTI_SET,
     "0b 0200000000000000 0200000000000000 2f61 0100000000000000 31 "
     "0200000000000000 2f62 0200000000000000 3232"},
    {"CANCEL_WAIT", TCPSTORE_CANCEL_WAIT, "0c"},
    {"QUEUE_PUSH", TCPSTORE_QUEUE_PUSH, "0e 0200000000000000 2f71 0100000000000000 78"},
    {"QUEUE_POP", TCPSTORE_QUEUE_POP, "0f 0200000000000000 2f71"},
    {"QUEUE_LEN", TCPSTORE_QUEUE_LEN, "10 0200000000000000 2f71"},
    {"LIST_KEYS", TCPSTORE_LIST_KEYS, "11"},
    {"BARRIER", TCPSTORE_BARRIER, "12 0400000000000000 2f626172 0200000000000000"},
    {"CHECK []", TCPSTORE_CHECK, "05 0000000000000000"},
    {"WAIT []", TCPSTORE_WAIT, "06 0000000000000000"},
    {"MULTI_GET []", TCPSTORE_MULTI_GET, "0a 0000000000000000"},
    {"MULTI_SET []", TCPSTORE_MULTI_SET, "0b 0000000000000000"},
    {"GET with the empty key", TCPSTORE_GET, "03 0000000000000000"},
};

static struct tcpstore_parser make_parser(bool legacy_b)
{
    struct tcpstore_parser p;

    tcpstore_parser_init(&p, legacy_b);
    return p;
}

static struct tcpstore_parser validated(void)
{
    struct tcpstore_parser p = make_parser(false);
    struct tcpstore_request request;
    uint8_t bytes[8];
    size_t n = hex_decode(VALIDATE, bytes, sizeof(bytes));

    assert_int_equal(tcpstore_parse(&p, bytes, n, &request), 5);
    return p;
}

static int parse_hex(struct tcpstore_parser *p, const char *hex,
                     struct tcpstore_request *ret)
{
    static uint8_t bytes[256];
    size_t n = hex_decode(hex, bytes, sizeof(bytes));

    return tcpstore_parse(p, bytes, n, ret);
}

static void validate_tells_a_modern_client(void **state)
{
    struct tcpstore_parser p = make_parser(false);
    struct tcpstore_request request;

    (void)state;
    assert_int_equal(parse_hex(&p, VALIDATE, &request), 5);
    assert_int_equal(request.op, TCPSTORE_VALIDATE);
    assert_int_equal(p.dialect, TCPSTORE_MODERN);
    assert_true(p.validated);
}

static void every_recorded_frame_is_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(modern); i++) {
        struct tcpstore_parser p = validated();
        struct tcpstore_request request;
        uint8_t bytes[128];
        size_t n = hex_decode(modern[i].hex, bytes, sizeof(bytes));

        assert_int_equal(tcpstore_parse(&p, bytes, n, &request), n);
        assert_int_equal(request.op, modern[i].op);
        assert_ptr_equal(request.body, bytes + 1);
        assert_int_equal(request.size, n - 1);
        assert_int_equal(tcpstore_check_body(request.op, request.body, request.size),
                         0);
    }
}

/* Each prefix is copied to a block of its own size, so that a sanitizer sees a read
 * past it. */
static void frames_may_come_byte_by_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(modern); i++) {
        struct tcpstore_parser p = validated();
        struct tcpstore_request request;
        uint8_t bytes[128];
        size_t n = hex_decode(modern[i].hex, bytes, sizeof(bytes));

        for (size_t there = 0; there <= n; there++) {
            uint8_t *part = mem_dup(bytes, there);
            int expected = there < n ? 0 : (int)n;

            assert_int_equal(tcpstore_parse(&p, part, there, &request), expected);
            mem_free(part);
        }
        assert_int_equal(request.op, modern[i].op);
        assert_int_equal(request.size, n - 1);
    }
}

static void pipelined_frames_are_taken_one_by_one(void **state)
{
    struct tcpstore_parser p = make_parser(false);
    struct tcpstore_request request;
    uint8_t bytes[1024];
    size_t n = hex_decode(VALIDATE, bytes, sizeof(bytes));
    size_t at;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(modern); i++) {
        n += hex_decode(modern[i].hex, bytes + n, sizeof(bytes) - n);
    }
    at = (size_t)tcpstore_parse(&p, bytes, n, &request);
    assert_int_equal(request.op, TCPSTORE_VALIDATE);
    for (size_t i = 0; i < ARRAY_LEN(modern); i++) {
        int taken = tcpstore_parse(&p, bytes + at, n - at, &request);

        assert_true(taken > 0);
        assert_int_equal(request.op, modern[i].op);
        at += (size_t)taken;
    }
    assert_int_equal(at, n);
}

static void a_validate_may_be_split(void **state)
{
    struct tcpstore_parser p = make_parser(false);
    struct tcpstore_request request;
    uint8_t bytes[8];
    size_t n = hex_decode(VALIDATE, bytes, sizeof(bytes));

    (void)state;
    for (size_t there = 0; there < n; there++) {
        assert_int_equal(tcpstore_parse(&p, bytes, there, &request), 0);
    }
    assert_int_equal(tcpstore_parse(&p, bytes, n, &request), 5);
}

static void a_bad_magic_is_refused(void **state)
{
    struct tcpstore_parser p = make_parser(false);
    struct tcpstore_request request;

    (void)state;
    assert_int_equal(parse_hex(&p, "00 ce f7 85 3d", &request), ERR_PROTOCOL);
}

static void a_second_validate_is_refused(void **state)
{
    struct tcpstore_parser p = validated();
    struct tcpstore_request request;

    (void)state;
    assert_int_equal(parse_hex(&p, VALIDATE, &request), ERR_PROTOCOL);
}

static void unknown_opcodes_are_refused(void **state)
{
    static const char *const opcodes[] = {"13", "14", "7f", "ff"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(opcodes); i++) {
        struct tcpstore_parser p = validated();
        struct tcpstore_request request;

        assert_int_equal(parse_hex(&p, opcodes[i], &request), ERR_PROTOCOL);
        p = make_parser(false);
        assert_int_equal(parse_hex(&p, opcodes[i], &request), ERR_PROTOCOL);
    }
}

/* Only the length is there, not what it promises. */
static void lengths_past_their_limit_are_refused_at_once(void **state)
{
    static const struct {
        const char *hex;
        int expected;
    } cases[] = {
        {"03 0020000000000000", 0},             /* a key of 8192 bytes */
        {"03 0120000000000000", ERR_TOO_LARGE}, /* one more */
        {"03 ffffffffffffffff", ERR_TOO_LARGE},
        {"03 0000000000000080", ERR_TOO_LARGE},
        {"03 ff ff ff", ERR_TOO_LARGE},                /* already too large */
        {"01 01000000000000002f 0000800000000000", 0}, /* a value of 8 MiB */
        {"01 01000000000000002f 0100800000000000", ERR_TOO_LARGE},
        {"05 0000020000000000", 0},             /* 131072 keys */
        {"05 0100020000000000", ERR_TOO_LARGE}, /* one more */
        {"06 0100020000000000", ERR_TOO_LARGE},
        {"0a 0100020000000000", ERR_TOO_LARGE},
        {"0b 0100020000000000", ERR_TOO_LARGE},
        {"0b ffffffffffffffff", ERR_TOO_LARGE}, /* a count of -1 */
        {"0e 01000000000000002f 0100800000000000", ERR_TOO_LARGE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tcpstore_parser p = validated();
        struct tcpstore_request request;

        assert_int_equal(parse_hex(&p, cases[i].hex, &request), cases[i].expected);
    }
}

static void a_multi_set_is_bounded_as_a_whole(void **state)
{
    struct tcpstore_parser p = validated();
    struct tcpstore_request request;
    struct buf b;
    uint8_t *space;
    int rv = 0;

    (void)state;
    buf_init(&b, 128 << 20);
    assert_int_equal(wire_put_u8(&b, TCPSTORE_MULTI_SET), 0);
    assert_int_equal(wire_put_u64(&b, 9), 0);
    for (int i = 0; i < 9 && rv == 0; i++) {
        assert_int_equal(wire_put_u64(&b, 0), 0);
        assert_int_equal(wire_put_u64(&b, TCPSTORE_MAX_VALUE), 0);
        rv = tcpstore_parse(&p, buf_bytes(&b), buf_len(&b), &request);
        assert_int_equal(buf_reserve(&b, TCPSTORE_MAX_VALUE, &space), 0);
        memset(space, 0, TCPSTORE_MAX_VALUE);
        buf_commit(&b, TCPSTORE_MAX_VALUE);
    }
    assert_int_equal(rv, ERR_TOO_LARGE);
    buf_release(&b);
}

/* ---- legacy ---- */

struct legacy_case {
    uint8_t opcode;
    int expected; /* modern opcode or error */
};

static void check_legacy(bool legacy_b, const struct legacy_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct tcpstore_parser p = make_parser(legacy_b);
        struct tcpstore_request request;
        uint8_t bytes[64] = {
            cases[i].opcode}; /* then zeros: empty keys, values, counts */
        int rv = tcpstore_parse(&p, bytes, sizeof(bytes), &request);

        if (cases[i].expected < 0) {
            assert_int_equal(rv, cases[i].expected);
        } else {
            assert_true(rv > 0);
            assert_int_equal(request.op, cases[i].expected);
            assert_int_equal(p.dialect,
                             legacy_b ? TCPSTORE_LEGACY_B : TCPSTORE_LEGACY_A);
        }
    }
}

static void legacy_a_opcodes_are_one_lower(void **state)
{
    static const struct legacy_case cases[] = {
        {0, TCPSTORE_SET},        {1, TCPSTORE_COMPARE_SET}, {2, TCPSTORE_GET},
        {3, TCPSTORE_ADD},        {4, TCPSTORE_CHECK},       {5, TCPSTORE_WAIT},
        {6, TCPSTORE_GETNUMKEYS}, {7, ERR_PROTOCOL},         {8, TCPSTORE_DELETE_KEY},
        {9, ERR_PROTOCOL},        {12, ERR_PROTOCOL},
    };

    (void)state;
    check_legacy(false, cases, ARRAY_LEN(cases));
}

static void legacy_b_has_no_watch_key(void **state)
{
    static const struct legacy_case cases[] = {
        {0, TCPSTORE_SET},          {6, TCPSTORE_GETNUMKEYS}, {7, TCPSTORE_DELETE_KEY},
        {8, TCPSTORE_APPEND},       {9, TCPSTORE_MULTI_GET},  {10, TCPSTORE_MULTI_SET},
        {11, TCPSTORE_CANCEL_WAIT}, {12, ERR_PROTOCOL},
    };

    (void)state;
    check_legacy(true, cases, ARRAY_LEN(cases));
}

/* As PyTorch 1.13 sends it: the opcode byte alone, the rest later. */
static void a_legacy_set_is_told_from_validate(void **state)
{
    struct tcpstore_parser p = make_parser(false);
    struct tcpstore_request request;
    uint8_t bytes[64];
    size_t n = hex_decode("00 0200000000000000 2f6b 0100000000000000 76", bytes,
                          sizeof(bytes));

    (void)state;
    for (size_t there = 1; there < n; there++) {
        assert_int_equal(tcpstore_parse(&p, bytes, there, &request), 0);
    }
    assert_int_equal(tcpstore_parse(&p, bytes, n, &request), n);
    assert_int_equal(request.op, TCPSTORE_SET);
    assert_int_equal(request.size, n - 1);
    /* and again: 00 stays a SET */
    assert_int_equal(tcpstore_parse(&p, bytes, n, &request), n);
}

/* ---- bodies that did not come through the parser ---- */

static void a_body_must_be_exactly_one(void **state)
{
    uint8_t bytes[64];
    size_t n = hex_decode("0200000000000000 2f6b 0100000000000000 76 00", bytes,
                          sizeof(bytes));

    (void)state;
    assert_int_equal(tcpstore_check_body(TCPSTORE_SET, bytes, n - 1), 0);
    assert_int_equal(tcpstore_check_body(TCPSTORE_SET, bytes, n), ERR_PROTOCOL);
    assert_int_equal(tcpstore_check_body(TCPSTORE_SET, bytes, n - 2), ERR_PROTOCOL);
    assert_int_equal(tcpstore_check_body(TCPSTORE_GETNUMKEYS, bytes, 0), 0);
    assert_int_equal(tcpstore_check_body(TCPSTORE_GETNUMKEYS, bytes, 1), ERR_PROTOCOL);
    assert_int_equal(tcpstore_check_body(TCPSTORE_OP_COUNT, bytes, 0), ERR_PROTOCOL);
}

static void ops_know_whether_they_reply(void **state)
{
    unsigned replies = 0;
    unsigned waits = 0;

    (void)state;
    for (unsigned op = 0; op < TCPSTORE_OP_COUNT; op++) {
        replies += tcpstore_has_reply((enum tcpstore_op)op);
        waits += tcpstore_may_wait((enum tcpstore_op)op);
    }
    assert_int_equal(replies, TCPSTORE_OP_COUNT - 5);
    assert_int_equal(waits, 2);
    assert_false(tcpstore_has_reply(TCPSTORE_QUEUE_PUSH));
    assert_true(tcpstore_may_wait(TCPSTORE_BARRIER));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(validate_tells_a_modern_client),
        cmocka_unit_test(every_recorded_frame_is_understood),
        cmocka_unit_test(frames_may_come_byte_by_byte),
        cmocka_unit_test(pipelined_frames_are_taken_one_by_one),
        cmocka_unit_test(a_validate_may_be_split),
        cmocka_unit_test(a_bad_magic_is_refused),
        cmocka_unit_test(a_second_validate_is_refused),
        cmocka_unit_test(unknown_opcodes_are_refused),
        cmocka_unit_test(lengths_past_their_limit_are_refused_at_once),
        cmocka_unit_test(a_multi_set_is_bounded_as_a_whole),
        cmocka_unit_test(legacy_a_opcodes_are_one_lower),
        cmocka_unit_test(legacy_b_has_no_watch_key),
        cmocka_unit_test(a_legacy_set_is_told_from_validate),
        cmocka_unit_test(a_body_must_be_exactly_one),
        cmocka_unit_test(ops_know_whether_they_reply),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
