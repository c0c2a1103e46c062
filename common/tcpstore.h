#ifndef COMMON_TCPSTORE_H
#define COMMON_TCPSTORE_H

/* PURE. The wire of PyTorch's TCPStore: opcodes, limits, an incremental parser.
 *
 *   request:  u8 opcode | body; integers little-endian, a string is u64 + bytes
 *   modern:   the first frame is 00 CE F7 85 3C (VALIDATE); opcodes as below
 *   legacy:   PyTorch ≤ 2.1, no VALIDATE; opcodes one lower (dialect A: 1.8–2.0,
 *             WATCH_KEY 7, DELETE_KEY 8; B: 2.1, DELETE_KEY 7 … CANCEL_WAIT 11); told
 *             from modern by the first five bytes, A unless the parser is told B
 *
 * There are no error frames: a request that breaks the rules costs its connection. */

#include "common/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tcpstore_op {
    TCPSTORE_VALIDATE = 0,
    TCPSTORE_SET,
    TCPSTORE_COMPARE_SET,
    TCPSTORE_GET,
    TCPSTORE_ADD,
    TCPSTORE_CHECK,
    TCPSTORE_WAIT,
    TCPSTORE_GETNUMKEYS,
    TCPSTORE_DELETE_KEY,
    TCPSTORE_APPEND,
    TCPSTORE_MULTI_GET,
    TCPSTORE_MULTI_SET,
    TCPSTORE_CANCEL_WAIT,
    TCPSTORE_PING,
    TCPSTORE_QUEUE_PUSH,
    TCPSTORE_QUEUE_POP,
    TCPSTORE_QUEUE_LEN,
    TCPSTORE_LIST_KEYS,
    TCPSTORE_BARRIER,
    TCPSTORE_OP_COUNT,
};

enum {
    TCPSTORE_MAGIC = 0x3C85F7CE,
    TCPSTORE_MAX_KEY = 8192,
    TCPSTORE_MAX_VALUE = 8 * 1024 * 1024,
    TCPSTORE_MAX_KEYS = 131072,
    TCPSTORE_MAX_REQUEST = 64 * 1024 * 1024, /* of one whole request */
};

enum tcpstore_dialect {
    TCPSTORE_UNKNOWN,
    TCPSTORE_MODERN,
    TCPSTORE_LEGACY_A,
    TCPSTORE_LEGACY_B
};

struct tcpstore_parser {
    enum tcpstore_dialect dialect;
    bool validated; /* VALIDATE was seen (modern) */
    bool legacy_b;  /* read legacy clients as dialect B */
    /* private: where the scan of an incomplete request stands, so that a request that
     * arrives byte by byte costs linear time */
    size_t scanned;
    uint64_t remaining;
};

struct tcpstore_request {
    enum tcpstore_op op; /* numbered as modern */
    const uint8_t *body; /* after the opcode; points into the caller's bytes */
    size_t size;
};

void tcpstore_parser_init(struct tcpstore_parser *p, bool legacy_b);

/* The first request in `data`. Returns the bytes it took, 0 if more are needed,
 * ERR_PROTOCOL (bad magic, unknown opcode, second VALIDATE, WATCH_KEY) or
 * ERR_TOO_LARGE, from the length alone. VALIDATE is returned as a request too. Call
 * again with the same bytes plus new ones. */
int tcpstore_parse(struct tcpstore_parser *p, const uint8_t *data, size_t size,
                   struct tcpstore_request *ret) MUST_CHECK;

/* 0 if `body` is exactly one well-formed body of `op`, within the limits; else
 * ERR_PROTOCOL or ERR_TOO_LARGE. For bodies that did not come through the parser. */
int tcpstore_check_body(enum tcpstore_op op, const uint8_t *body,
                        size_t size) MUST_CHECK;

/* True if the op sends a reply (SET, MULTI_SET, APPEND, QUEUE_PUSH, VALIDATE do not).
 */
bool tcpstore_has_reply(enum tcpstore_op op);

/* True if the reply may come much later (WAIT, BARRIER). */
bool tcpstore_may_wait(enum tcpstore_op op);

#endif
