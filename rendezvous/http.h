#ifndef RENDEZVOUS_HTTP_H
#define RENDEZVOUS_HTTP_H

/* PURE. As much of HTTP/1.1 (RFC 9112) as it takes to show things: the heads of
 * requests that have no body, and the heads of responses. Strict: what could be read in
 * two ways is refused, and the connection closed behind it. */

#include "common/buf.h"

#include <stdbool.h>

enum {
    HTTP_MAX_HEAD = 8192, /* bytes of a request */
    HTTP_MAX_FIELDS = 64,
    HTTP_TARGET_MAX = 2048,
    HTTP_HOST_MAX = 256,
};

struct http_request {
    bool is_head;                /* HEAD: the same as GET, without the body */
    bool keeps_alive;            /* further requests may follow on the connection */
    char path[HTTP_TARGET_MAX];  /* as it came: begins with '/', not decoded … */
    char query[HTTP_TARGET_MAX]; /* … and what stands behind the '?' */
    char host[HTTP_HOST_MAX];    /* of the Host field, without the port; "": none */
};

/* Reads a head. How many bytes it took, with *ret_status 0, or the status of the response
 * behind which the connection is closed (400, 405 …); 0: more is to come. */
size_t http_parse(const uint8_t *data, size_t size, struct http_request *ret,
                  int *ret_status);

/* %-decodes `text` up to `end` (a character, or NUL) into `ret`. How many bytes of it
 * that were; -1: no valid escape, a control character, or too long. */
int http_decode(const char *text, char end, char *ret, size_t size);

/* The value of `name` in the query, decoded. ERR_MISSING: it is not there; ERR_INVALID:
 * it is, and http_decode refuses it. */
int http_query(const char *query, const char *name, char *ret, size_t size) MUST_CHECK;

/* A host that a browser can only have from its user or from us, and not because the
 * name of some foreign page was made to point here: a numeric address, localhost. */
bool http_host_is_numeric(const char *host);

struct http_response {
    int status;
    const char *type;   /* Content-Type */
    const char *policy; /* Content-Security-Policy; NULL: nothing may be loaded */
    const char *date;   /* as RFC 9110 has it; "": the clock cannot be read */
    size_t size;        /* of the body */
    bool keeps_alive;
};

/* Appends its head. */
int http_put_head(struct buf *out, const struct http_response *r) MUST_CHECK;

const char *http_reason(int status);

#endif
