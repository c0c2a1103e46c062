#ifndef RENDEZVOUS_OPERATOR_CORE_H
#define RENDEZVOUS_OPERATOR_CORE_H

/* PURE. What operator.c, operator_ranks.c, operator_logs.c and operator_lines.c share.
 */

#include "rendezvous/operator.h"

#include "common/buf.h"
#include "common/identity.h"

struct job;

enum { OPERATOR_BEHIND_MS = 50 }; /* then to look whether it has caught up */

enum asking { ASKING_NOTHING, ASKING_EVENTS, ASKING_RANKS, ASKING_LOGS };

/* One stream of one rank in one generation, read piece by piece. */
struct log_stream {
    uint64_t generation;
    uint64_t request; /* of all that is asked about it */
    uint64_t session; /* of the agent that has it */
    uint32_t rank;
    uint8_t what;      /* enum inspect_what */
    bool is_asked;     /* a piece is under way … */
    bool is_ended;     /* no more will come … */
    bool is_cut;       /* … though there is more: that was said */
    uint64_t asked_ms; /* … since then */
    uint64_t due_ms;   /* to be asked then */
    uint64_t offset;   /* of the next byte */
    struct buf held;   /* owned; last words that have come before its turn … */
    uint64_t held_at;  /* … from there on */
    bool is_held;      /* there are some … */
    bool is_held_all;  /* … and then it has ended */
};

struct asker {
    uint64_t conn;
    char who[MSG_ID_MAX];
    const struct identity *key; /* borrowed from the connection; NULL: shown none */
    enum asking asking;
    uint64_t request;
    bool follows;
    bool is_done; /* all was answered: to be forgotten */
    char job[MSG_ID_MAX];
    uint64_t after;        /* ASKING_EVENTS: the last that was told */
    char told[MSG_ID_MAX]; /* ASKING_RANKS: the last job of which some were told … */
    size_t first_rank;     /* … and which comes next; 0: the next job's first */
    int32_t rank;          /* ASKING_LOGS: -1: all */
    bool from_end;         /* … beginning with the last lines */
    bool has_begun;        /* … some generation's */
    uint64_t generation;   /* the newest that is known; ASKING_RANKS: of the last job */
    uint32_t world;        /* its ranks */
    /* owned; by generation: of those before the newest what was not told to its end */
    struct log_stream *stream;
    size_t n_streams, next; /* who is asked next */
    size_t n_asked;
    size_t n_held; /* bytes */
    uint64_t due_ms;
};

struct operators {
    struct operators_config config;
    struct asker *list; /* owned; OPERATORS_MAX of them */
    size_t n;
    uint64_t n_requests; /* so far */
    size_t next;         /* whose turn it is to be told ranks … */
    uint64_t ranks_ms;   /* … not before then */
};

/* operator.c */
void operator_answer(const struct operators *o, const struct asker *op,
                     const void *data, size_t size);
void operator_finish(const struct operators *o, struct asker *op);
PRINTF_LIKE(4, 5)
void operator_fail(const struct operators *o, struct asker *op, uint32_t exit_code,
                   const char *fmt, ...);
/* NULL: there is none (any more), or it is not for this operator. */
struct job *operator_job(const struct operators *o, const struct asker *op,
                         const char *id);

/* Nothing more will come of it: it is over, or stopped: then a job that is begun anew
 * under its name is another one. NULL: it has been forgotten. */
bool operator_job_ended(const struct job *j);

/* operator_ranks.c */
void operator_ranks_begin(const struct operators *o, struct asker *op, uint64_t now_ms);
void operator_ranks_go_on(struct operators *o, uint64_t now_ms); /* one's next page */

/* operator_logs.c */
void operator_logs_begin(struct operators *o, struct asker *op,
                         const struct msg_ask *ask, uint64_t now_ms);
void operator_logs_go_on(struct operators *o, struct asker *op, uint64_t now_ms);
void operator_logs_take(struct operators *o, struct asker *op,
                        const struct msg_inspected *m, uint64_t now_ms);
void operator_logs_release(struct asker *op);
/* Whose answer that is; NULL: nobody's. */
struct log_stream *operator_logs_find(const struct asker *op, uint64_t request);

/* operator_lines.c */
void operator_lines_note(const struct operators *o, const struct asker *op,
                         const struct log_stream *s, const char *note);
/* Of a stream whose turn it is. */
void operator_lines_piece(const struct operators *o, const struct asker *op,
                          struct log_stream *s, const struct msg_inspected *m);
/* What is held of it: that can be read again. */
void operator_lines_drop(struct asker *op, struct log_stream *s);
/* The first that was not told to its end; NULL: all were. */
const struct log_stream *operator_lines_first(const struct asker *op);
/* One that has not ended: another generation is read before it. */
bool operator_lines_is_early(const struct asker *op, const struct log_stream *s);
void operator_lines_hold(const struct operators *o, struct asker *op,
                         struct log_stream *s, const struct msg_inspected *m);
/* Tells what is held of it. */
void operator_lines_held(const struct operators *o, struct asker *op,
                         struct log_stream *s);
/* Which generation is to be read; what is held of it is told. 0: none. */
uint64_t operator_lines_turn(const struct operators *o, struct asker *op);
void operator_lines_stop_asking(struct asker *op, struct log_stream *s);
/* No more can be read of it, which is said; _all: of the first n. */
void operator_lines_cut(const struct operators *o, struct asker *op,
                        struct log_stream *s, const char *why);
void operator_lines_cut_all(const struct operators *o, struct asker *op, size_t n,
                            const char *why);

#endif
