#ifndef COMMON_IDENTITY_H
#define COMMON_IDENTITY_H

/* PURE. Who is at the other end of a connection that has shown a key, and how that is
 * written on the wire and in certificates:
 *
 *   PSK identity   1:<key id>:<agent id>              both 16 hex digits
 *   URI SAN        ctrun://service
 *                  ctrun://operator/<name>
 *                  ctrun://job/<id>/agent/<n>
 *                  ctrun://job/<id>/worker/<n>        a client of the store
 *
 * <id> and <n> are percent-encoded where they must be; * stands for any. <n> is the
 * node's host name or its --node-rank. A secret's holder is an agent that may also ask
 * for its own jobs; an operator's secret is for asking alone. */

#include "common/msg.h"

enum identity_kind { IDENTITY_NONE, IDENTITY_PSK, IDENTITY_CERTIFICATE };

enum identity_role {
    IDENTITY_AGENT,
    IDENTITY_OPERATOR,
    IDENTITY_WORKER,
    IDENTITY_SERVICE,
};

enum {
    IDENTITY_OWNER_MAX = 80,
    IDENTITY_KEY_ID_SIZE = 17, /* 16 hex digits */
    IDENTITY_PSK_SIZE = 2 + 16 + 1 + 16 + 1,
    IDENTITY_URI_MAX = 2048,
};

struct identity {
    enum identity_kind kind;
    enum identity_role role;
    char owner[IDENTITY_OWNER_MAX]; /* to whom the jobs belong that it begins */
    char job[MSG_ID_MAX];           /* "": any */
    char name[MSG_ID_MAX];          /* <n>, or the operator's; "": any */
    uint64_t agent_id;              /* PSK: of the agent whose key it is */
};

/* Writes "1:<key id>:<agent id>". */
void identity_format_psk(const char *key_id, uint64_t agent_id,
                         char ret[IDENTITY_PSK_SIZE]);

/* ERR_INVALID unless it is exactly what identity_format_psk writes. */
int identity_parse_psk(const uint8_t *text, size_t size,
                       char ret_key_id[IDENTITY_KEY_ID_SIZE],
                       uint64_t *ret_agent_id) MUST_CHECK;

/* Fills role, job, name of a certificate's URI; ERR_INVALID for another one. */
int identity_parse_uri(const uint8_t *text, size_t size,
                       struct identity *ret) MUST_CHECK;

/* Writes "ctrun://job/<id>/agent/<n>" and the like, "" as *; false: it does not fit. */
bool identity_format_uri(const struct identity *who, char *ret, size_t size) MUST_CHECK;

/* The same holder: what one has begun the other may go on with. */
bool identity_is_same(const struct identity *a, const struct identity *b);

/* For people: "secret team-a", "certificate ctrun://job/7/agent/3". */
void identity_describe(const struct identity *who, char *ret, size_t size);

#endif
