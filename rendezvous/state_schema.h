#ifndef RENDEZVOUS_STATE_SCHEMA_H
#define RENDEZVOUS_STATE_SCHEMA_H

/* PURE. The tables of the state's database, one for each kind of record (record.h), and
 * the SQL that follows from them. A record's key is cut into columns, so that people
 * can read them with sqlite3(1): `select job, step from commits`. */

#include "rendezvous/record.h"

#include "common/buf.h"

enum {
    STATE_SCHEMA = 3,               /* PRAGMA user_version; any change raises it */
    STATE_OF_FRAMES = 2,            /* up to here values are renewed (record_renew.h) */
    STATE_OLDEST = 1,               /* that is taken over */
    STATE_OF_JOURNAL = 2,           /* the first with that, and identity.commits */
    STATE_OF_STARTS = 3,            /* the first that knows its starts */
    STATE_APPLICATION = 0x6374726e, /* PRAGMA application_id: "ctrn" */
    STATE_MAX_COLUMNS = 3,
    STATE_SQL_MAX = 1024,
};

enum state_form {
    STATE_BLOB,   /* the whole key, as it is */
    STATE_NUMBER, /* of so many bytes */
    STATE_HEX,    /* a random one as text: it sorts as the key does */
};

struct state_column {
    const char *name; /* NULL: none */
    unsigned width;   /* bytes in the record's key */
    enum state_form form;
};

struct state_table {
    const char *name;
    struct state_column columns[STATE_MAX_COLUMNS]; /* of the key */
    bool is_history; /* rows have an age, and the oldest go */
};

/* A state of that schema has tables for the kinds before this one. */
int state_kinds_of(int schema);

const struct state_table *state_table(enum record_kind kind);

/* Whether a key is as long as the table has it: then it has these parts. */
bool state_fits(const struct state_table *t, struct bytes key);

/* The parts of a key. False: it is not as the table has it, which is a bug of whoever
 * made the record. */
struct state_part {
    uint64_t number;
    struct bytes bytes;
};
bool state_split(const struct state_table *t, struct bytes key,
                 struct state_part parts[STATE_MAX_COLUMNS]) MUST_CHECK;

/* Appends the column's bytes to a key again. */
void state_join(const struct state_column *c, const struct state_part *part,
                struct buf *key);

enum state_statement {
    STATE_CREATE,
    STATE_FIND,            /* ?1 job, ?2 generation, ?3 … columns → sum */
    STATE_PUT,             /* … ?6 value, ?7 sum, ?8 saved_ms */
    STATE_RENEW,           /* … ?6, ?7 */
    STATE_DROP,            /* … */
    STATE_DROP_GENERATION, /* ?1 job, ?2 generation → sums */
    STATE_DROP_JOB,        /* ?1 job → sums */
    STATE_ALL,             /* → value, sum, job, generation, columns */
    STATE_MEASURE,         /* history: → bytes */
    STATE_PRUNE, /* history: ?1 rows saved before, ?2 at most → sum, bytes */
    STATE_STATEMENT_COUNT,
};

/* "" where the table has no such statement. */
void state_sql(enum record_kind kind, enum state_statement what,
               char sql[STATE_SQL_MAX]);

/* What is in one row, as a number: by it a damaged row is known. */
uint64_t state_row_sum(const struct record *r);

#endif
