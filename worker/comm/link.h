#ifndef WORKER_COMM_LINK_H
#define WORKER_COMM_LINK_H

/* The two byte streams between this rank and one other: through shared memory or a TCP
 * connection. Nothing here blocks; used by the thread of the operation alone.
 *
 * Data travel in pieces whose ends both sides know; `is_first` tells that a call begins
 * a piece. Errors mean that the peer is lost; `why` has the words. */

#include "worker/comm/shm.h"

enum link_kind { LINK_SELF, LINK_SHM, LINK_TCP };

enum { LINK_STAGE_SIZE = 64 * 1024, LINK_CHUNK = 128 * 1024 };

/* How far an operation is with this link's pieces. */
struct cursor {
    size_t at;   /* index of the current piece */
    size_t done; /* bytes of it */
};

/* How to write the peer's ring. Through the caches, as long as the two cores share one:
 * the reader finds the data there. Where they do not, each line that is written comes
 * back from the reader's cache first, some eight times slower than writing past all
 * caches. Which is the case depends on where the threads run just now: it is measured,
 * by letting one write in some go the other way. */
struct pace {
    uint64_t us[2]; /* of the last LINK_CHUNK: through the caches, past them */
    unsigned turn;
};

struct link {
    enum link_kind kind;
    int rank;
    struct cursor sent, received; /* of the running operation */
    const char *why;              /* static text, after an error */
    /* shm */
    struct segment segment; /* the peer's */
    struct ring in, out;    /* in: in our segment; out: in the peer's */
    struct pace pace;
    int pidfd; /* -1: none */
    /* tcp */
    int fd;         /* -1: none */
    uint8_t *stage; /* owned; received, not yet consumed (reading in place) */
    size_t stage_begin, stage_end;
};

void link_init(struct link *l, int rank);
void link_close(struct link *l);

/* `fd` is ours from here on, on failure too. */
int link_open_tcp(struct link *l, int fd, int timeout_ms,
                  struct errmsg *msg) MUST_CHECK;

/* Moves at most LINK_CHUNK bytes. */
int link_send(struct link *l, const void *data, size_t size, bool is_first,
              size_t *ret_moved) MUST_CHECK;
int link_recv(struct link *l, void *data, size_t size, bool is_first,
              size_t *ret_moved) MUST_CHECK;

/* Reads whole floats in place: look at up to *ret_n, then consume some of them. */
int link_peek(struct link *l, bool is_first, const float **ret,
              size_t *ret_n) MUST_CHECK;
void link_consume(struct link *l, bool is_first, size_t n_floats);

/* Of an shm link (tcp tells by itself): the peer is gone and what is asked for, room to
 * send or data to receive, will never come. */
bool link_is_hopeless(struct link *l, bool wants_send, bool wants_recv);

#endif
