/* The incremental parser. Happy path: 1. the first five bytes tell the dialect; 2. the
 * opcode names the body's items (`layouts`); 3. items are passed over one by one, and
 * where the scan stands is kept between calls, so that every byte is looked at once; 4.
 * the whole request is handed out. Failures: a length over its limit → ERR_TOO_LARGE
 * before the bytes are there; anything else that no client sends → ERR_PROTOCOL. */

#include "common/tcpstore.h"

#include "common/err.h"

#include <endian.h>
#include <string.h>

enum {
    MAGIC_SIZE = 4,
    LENGTH_SIZE = 8, /* of a string or a vector */
    LEGACY_A_WATCH_KEY = 7,
    LEGACY_A_COUNT = 9,
    LEGACY_B_COUNT = 12,
};

enum item { ITEM_U32, ITEM_I64, ITEM_KEY, ITEM_VALUE, ITEM_KEYS, ITEM_PAIRS };

struct layout {
    uint8_t n;
    uint8_t items[3]; /* enum item; a vector stands alone */
};

static const struct layout layouts[TCPSTORE_OP_COUNT] = {
    [TCPSTORE_VALIDATE] = {1, {ITEM_U32}},
    [TCPSTORE_SET] = {2, {ITEM_KEY, ITEM_VALUE}},
    [TCPSTORE_COMPARE_SET] = {3, {ITEM_KEY, ITEM_VALUE, ITEM_VALUE}},
    [TCPSTORE_GET] = {1, {ITEM_KEY}},
    [TCPSTORE_ADD] = {2, {ITEM_KEY, ITEM_I64}},
    [TCPSTORE_CHECK] = {1, {ITEM_KEYS}},
    [TCPSTORE_WAIT] = {1, {ITEM_KEYS}},
    [TCPSTORE_GETNUMKEYS] = {0},
    [TCPSTORE_DELETE_KEY] = {1, {ITEM_KEY}},
    [TCPSTORE_APPEND] = {2, {ITEM_KEY, ITEM_VALUE}},
    [TCPSTORE_MULTI_GET] = {1, {ITEM_KEYS}},
    [TCPSTORE_MULTI_SET] = {1, {ITEM_PAIRS}},
    [TCPSTORE_CANCEL_WAIT] = {0},
    [TCPSTORE_PING] = {1, {ITEM_U32}},
    [TCPSTORE_QUEUE_PUSH] = {2, {ITEM_KEY, ITEM_VALUE}},
    [TCPSTORE_QUEUE_POP] = {1, {ITEM_KEY}},
    [TCPSTORE_QUEUE_LEN] = {1, {ITEM_KEY}},
    [TCPSTORE_LIST_KEYS] = {0},
    [TCPSTORE_BARRIER] = {2, {ITEM_KEY, ITEM_I64}},
};

void tcpstore_parser_init(struct tcpstore_parser *p, bool legacy_b)
{
    *p = (struct tcpstore_parser){.legacy_b = legacy_b};
}

bool tcpstore_has_reply(enum tcpstore_op op)
{
    return op != TCPSTORE_VALIDATE && op != TCPSTORE_SET && op != TCPSTORE_MULTI_SET &&
           op != TCPSTORE_APPEND && op != TCPSTORE_QUEUE_PUSH;
}

bool tcpstore_may_wait(enum tcpstore_op op)
{
    return op == TCPSTORE_WAIT || op == TCPSTORE_BARRIER;
}

/* A body being passed over: `left` items (of a vector: elements) lie from `at` on. */
struct scan {
    enum tcpstore_op op;
    const uint8_t *body;
    size_t size;
    size_t at;
    uint64_t left;
};

/* The length at `at`, as far as its bytes are there: enough to refuse a bad one early.
 */
static uint64_t peek_length(const struct scan *s, bool *ret_whole)
{
    size_t there = MIN(s->size - s->at, (size_t)LENGTH_SIZE);
    uint64_t length = 0;

    memcpy(&length, s->body + s->at, there);
    *ret_whole = there == LENGTH_SIZE;
    return le64toh(length);
}

/* Each pass_… returns 1 when it went past its item, 0 when bytes are missing. */
static int pass_fixed(struct scan *s, size_t size)
{
    if (s->size - s->at < size) {
        return 0;
    }
    s->at += size;
    s->left--;
    return 1;
}

static int pass_string(struct scan *s, size_t max)
{
    bool whole;
    uint64_t length = peek_length(s, &whole);

    if (length > max || s->at + LENGTH_SIZE + length > TCPSTORE_MAX_REQUEST) {
        return ERR_TOO_LARGE;
    }
    return whole ? pass_fixed(s, LENGTH_SIZE + length) : 0;
}

static int pass_count(struct scan *s, unsigned items_each)
{
    bool whole;
    uint64_t count = peek_length(s, &whole);

    if (count > TCPSTORE_MAX_KEYS) {
        return ERR_TOO_LARGE; /* a negative MULTI_SET count is one of these */
    }
    if (!whole) {
        return 0;
    }
    s->at = LENGTH_SIZE;
    s->left = count * items_each;
    return 1;
}

static int pass_element(struct scan *s, enum item vector)
{
    bool is_value = vector == ITEM_PAIRS && s->left % 2 == 1;

    if (s->at == 0) {
        return pass_count(s, vector == ITEM_PAIRS ? 2 : 1);
    }
    return pass_string(s, is_value ? TCPSTORE_MAX_VALUE : TCPSTORE_MAX_KEY);
}

static int pass_item(struct scan *s)
{
    const struct layout *layout = &layouts[s->op];
    bool is_vector = layout->items[0] == ITEM_KEYS || layout->items[0] == ITEM_PAIRS;
    enum item item = layout->items[is_vector ? 0 : layout->n - s->left];

    switch (item) {
    case ITEM_U32:
        return pass_fixed(s, sizeof(uint32_t));
    case ITEM_I64:
        return pass_fixed(s, sizeof(int64_t));
    case ITEM_KEY:
        return pass_string(s, TCPSTORE_MAX_KEY);
    case ITEM_VALUE:
        return pass_string(s, TCPSTORE_MAX_VALUE);
    case ITEM_KEYS:
    case ITEM_PAIRS:
        return pass_element(s, item);
    }
    UNREACHABLE();
}

/* 1 when the whole body was passed, 0 when bytes are missing. */
static int pass_body(struct scan *s)
{
    int rv = 1;

    while (rv > 0 && s->left > 0) {
        rv = pass_item(s);
    }
    return rv;
}

int tcpstore_check_body(enum tcpstore_op op, const uint8_t *body, size_t size)
{
    static const uint8_t nothing; /* an empty body may be NULL */
    struct scan scan;
    int rv;

    if ((unsigned)op >= TCPSTORE_OP_COUNT) {
        return ERR_PROTOCOL;
    }
    scan = (struct scan){op, size > 0 ? body : &nothing, size, .left = layouts[op].n};
    rv = pass_body(&scan);
    if (rv < 0) {
        return rv;
    }
    return rv > 0 && scan.at == size ? 0 : ERR_PROTOCOL;
}

/* Returns 1 when the dialect is known. A legacy SET begins with 00 too, but its next
 * four bytes are the low half of a key's length. */
static int detect(struct tcpstore_parser *p, const uint8_t *data, size_t size)
{
    uint32_t magic;

    if (p->dialect != TCPSTORE_UNKNOWN) {
        return 1;
    }
    if (data[0] == TCPSTORE_VALIDATE) {
        if (size < 1 + MAGIC_SIZE) {
            return 0;
        }
        memcpy(&magic, data + 1, MAGIC_SIZE);
        magic = le32toh(magic);
        if (magic == TCPSTORE_MAGIC) {
            p->dialect = TCPSTORE_MODERN;
            return 1;
        }
        if (magic > TCPSTORE_MAX_KEY) {
            return ERR_PROTOCOL;
        }
    }
    p->dialect = p->legacy_b ? TCPSTORE_LEGACY_B : TCPSTORE_LEGACY_A;
    return 1;
}

static int decode_op(const struct tcpstore_parser *p, uint8_t byte,
                     enum tcpstore_op *ret)
{
    switch (p->dialect) {
    case TCPSTORE_MODERN:
        if (byte >= TCPSTORE_OP_COUNT || (byte == TCPSTORE_VALIDATE) == p->validated) {
            return ERR_PROTOCOL;
        }
        *ret = byte;
        return 0;
    case TCPSTORE_LEGACY_A:
        if (byte >= LEGACY_A_COUNT || byte == LEGACY_A_WATCH_KEY) {
            return ERR_PROTOCOL;
        }
        /* WATCH_KEY took a number, VALIDATE gave one back */
        *ret = byte < LEGACY_A_WATCH_KEY ? (enum tcpstore_op)(byte + 1) : byte;
        return 0;
    case TCPSTORE_LEGACY_B:
        if (byte >= LEGACY_B_COUNT) {
            return ERR_PROTOCOL;
        }
        *ret = (enum tcpstore_op)(byte + 1);
        return 0;
    case TCPSTORE_UNKNOWN:
        break;
    }
    UNREACHABLE();
}

int tcpstore_parse(struct tcpstore_parser *p, const uint8_t *data, size_t size,
                   struct tcpstore_request *ret)
{
    struct scan scan;
    int rv;

    if (size == 0) {
        return 0;
    }
    rv = detect(p, data, size);
    if (rv <= 0) {
        return rv;
    }
    scan = (struct scan){.body = data + 1, .size = size - 1, .at = p->scanned};
    rv = decode_op(p, data[0], &scan.op);
    if (rv < 0) {
        return rv;
    }
    scan.left = p->scanned > 0 ? p->remaining : layouts[scan.op].n;
    rv = pass_body(&scan);
    if (rv <= 0) {
        p->scanned = scan.at;
        p->remaining = scan.left;
        return rv;
    }
    p->scanned = 0;
    p->validated = p->validated || scan.op == TCPSTORE_VALIDATE;
    *ret = (struct tcpstore_request){scan.op, scan.body, scan.at};
    return (int)(1 + scan.at);
}
