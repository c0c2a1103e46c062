#include "rendezvous/state_schema.h"

#include "common/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct state_table tables[RECORD_KIND_COUNT] = {
    [RECORD_JOB] = {.name = "jobs"},
    [RECORD_NODE] = {.name = "nodes", .columns = {{"session", 8, STATE_HEX}}},
    [RECORD_END] = {.name = "ends", .columns = {{"rank", 4, STATE_NUMBER}}},
    [RECORD_KEY] = {.name = "keys", .columns = {{"key", 0, STATE_BLOB}}},
    [RECORD_QUEUE] = {.name = "queues", .columns = {{"key", 0, STATE_BLOB}}},
    [RECORD_CLIENT] = {.name = "clients",
                       .columns = {{"session", 8, STATE_HEX},
                                   {"client", 4, STATE_NUMBER},
                                   {"slot", 1, STATE_NUMBER}}},
    [RECORD_FINISHED] = {.name = "finished", .is_history = true},
    [RECORD_COMMIT] = {.name = "commits",
                       .columns = {{"run", 4, STATE_NUMBER}, {"step", 8, STATE_NUMBER}},
                       .is_history = true},
    [RECORD_EVENT] = {.name = "events",
                      .columns = {{"number", 8, STATE_NUMBER}},
                      .is_history = true},
    [RECORD_CAUSE] = {.name = "causes"},
    [RECORD_MEMBERS] = {.name = "members"},
    [RECORD_FLAPPERS] = {.name = "flappers"},
    [RECORD_REPORT] = {.name = "reports"},
    [RECORD_CURVE] = {.name = "curves",
                      .columns = {{"number", 8, STATE_NUMBER}},
                      .is_history = true},
    [RECORD_PACE] = {.name = "paces"},
    [RECORD_START] = {.name = "starts", .columns = {{"boot", 8, STATE_NUMBER}}},
};

int state_kinds_of(int schema)
{
    return schema < STATE_OF_JOURNAL  ? RECORD_CURVE
           : schema < STATE_OF_STARTS ? RECORD_START
                                      : RECORD_KIND_COUNT;
}

const struct state_table *state_table(enum record_kind kind)
{
    ASSERT(kind >= RECORD_JOB && kind < RECORD_KIND_COUNT);
    return &tables[kind];
}

bool state_fits(const struct state_table *t, struct bytes key)
{
    size_t size = 0;

    for (size_t i = 0; i < STATE_MAX_COLUMNS && t->columns[i].name; i++) {
        if (t->columns[i].form == STATE_BLOB) {
            return true;
        }
        size += t->columns[i].width;
    }
    return key.size == size;
}

static bool split_number(const struct state_column *c, struct bytes *key,
                         struct state_part *ret)
{
    if (key->size < c->width) {
        return false;
    }
    for (unsigned i = 0; i < c->width; i++) {
        ret->number = ret->number << 8 | key->data[i];
    }
    key->data += c->width;
    key->size -= c->width;
    return true;
}

bool state_split(const struct state_table *t, struct bytes key,
                 struct state_part parts[STATE_MAX_COLUMNS])
{
    for (size_t i = 0; i < STATE_MAX_COLUMNS && t->columns[i].name; i++) {
        parts[i] = (struct state_part){.bytes = key};
        if (t->columns[i].form == STATE_BLOB) {
            key.size = 0;
        } else if (!split_number(&t->columns[i], &key, &parts[i])) {
            return false;
        }
    }
    return key.size == 0;
}

void state_join(const struct state_column *c, const struct state_part *part,
                struct buf *key)
{
    uint8_t number[8];
    const uint8_t *bytes = part->bytes.data;
    size_t size = part->bytes.size;
    int rv;

    if (c->form != STATE_BLOB) {
        for (unsigned i = 0; i < c->width; i++) {
            number[i] = (uint8_t)(part->number >> 8 * (c->width - 1 - i));
        }
        bytes = number;
        size = c->width;
    }
    rv = size > 0 ? buf_append(key, bytes, size) : 0;
    ASSERT(rv == 0); /* it has no ceiling */
}

/* ---- SQL ---- */

struct texts {
    char names[128];   /* job, generation, key, number */
    char types[256];   /* … with their types */
    char values[64];   /* ?1, ?2, ?3, ?4 */
    char matches[128]; /* job = ?1 and … */
};

static void add(char *text, size_t size, const char *fmt, ...) PRINTF_LIKE(3, 4);

static void add(char *text, size_t size, const char *fmt, ...)
{
    size_t at = strlen(text);
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text + at, size - at, fmt, args);
    va_end(args);
    ASSERT(n >= 0 && (size_t)n < size - at);
}

static const char *type_of(const struct state_column *c)
{
    switch (c->form) {
    case STATE_BLOB:
        return "blob";
    case STATE_NUMBER:
        return "integer";
    case STATE_HEX:
        return "text";
    }
    UNREACHABLE();
}

static struct texts texts_of(const struct state_table *t)
{
    const struct state_column *c = t->columns;
    const char *names[] = {"job", "generation", c[0].name, c[1].name, c[2].name};
    const char *types[] = {"text", "integer", type_of(&c[0]), type_of(&c[1]),
                           type_of(&c[2])};
    struct texts ret = {"", "", "", ""};

    for (size_t i = 0; i < ARRAY_LEN(names) && names[i]; i++) {
        add(ret.names, sizeof(ret.names), "%s%s", i > 0 ? ", " : "", names[i]);
        add(ret.types, sizeof(ret.types), "%s %s not null, ", names[i], types[i]);
        add(ret.values, sizeof(ret.values), "%s?%zu", i > 0 ? ", " : "", i + 1);
        add(ret.matches, sizeof(ret.matches), "%s%s = ?%zu", i > 0 ? " and " : "",
            names[i], i + 1);
    }
    return ret;
}

/* History is kept in the order in which it was saved, in which it goes; all else by its
 * key. */
static void add_create(const struct state_table *t, const struct texts *x, char *sql)
{
    if (t->is_history) {
        add(sql, STATE_SQL_MAX,
            "create table %s (id integer primary key autoincrement, %svalue blob not "
            "null, sum integer not null, saved_ms integer not null, unique (%s))",
            t->name, x->types, x->names);
    } else {
        add(sql, STATE_SQL_MAX,
            "create table %s (%svalue blob not null, sum integer not null, primary key "
            "(%s)) without rowid",
            t->name, x->types, x->names);
    }
}

static void add_put(const struct state_table *t, const struct texts *x, char *sql)
{
    add(sql, STATE_SQL_MAX, "replace into %s (%s, value, sum%s) values (%s, ?6, ?7%s)",
        t->name, x->names, t->is_history ? ", saved_ms" : "", x->values,
        t->is_history ? ", ?8" : "");
}

static void add_history(const struct state_table *t, enum state_statement what,
                        char *sql)
{
    if (what == STATE_MEASURE) {
        add(sql, STATE_SQL_MAX, "select coalesce(sum(length(value)), 0) from %s",
            t->name);
    } else {
        add(sql, STATE_SQL_MAX,
            "delete from %s where id in (select id from %s order by id limit ?2) and "
            "saved_ms < ?1 returning sum, length(value)",
            t->name, t->name);
    }
}

void state_sql(enum record_kind kind, enum state_statement what,
               char sql[STATE_SQL_MAX])
{
    const struct state_table *t = state_table(kind);
    struct texts x = texts_of(t);

    sql[0] = '\0';
    switch (what) {
    case STATE_CREATE:
        add_create(t, &x, sql);
        break;
    case STATE_FIND:
        add(sql, STATE_SQL_MAX, "select sum%s from %s where %s",
            t->is_history ? ", length(value)" : "", t->name, x.matches);
        break;
    case STATE_PUT:
        add_put(t, &x, sql);
        break;
    case STATE_RENEW:
        add(sql, STATE_SQL_MAX, "update %s set value = ?6, sum = ?7 where %s", t->name,
            x.matches);
        break;
    case STATE_DROP:
        add(sql, STATE_SQL_MAX, "delete from %s where %s", t->name, x.matches);
        break;
    case STATE_DROP_GENERATION:
        add(sql, STATE_SQL_MAX,
            "delete from %s where job = ?1 and generation = ?2 returning sum", t->name);
        break;
    case STATE_DROP_JOB:
        add(sql, STATE_SQL_MAX, "delete from %s where job = ?1 returning sum", t->name);
        break;
    case STATE_ALL:
        add(sql, STATE_SQL_MAX, "select value, sum, %s from %s order by %s", x.names,
            t->name, x.names);
        break;
    case STATE_MEASURE:
    case STATE_PRUNE:
        if (t->is_history) {
            add_history(t, what, sql);
        }
        break;
    case STATE_STATEMENT_COUNT:
        UNREACHABLE();
    }
}

uint64_t state_row_sum(const struct record *r)
{
    uint64_t sum = table_hash(r->job, strlen(r->job), (uint64_t)r->kind);

    sum = table_hash(&r->generation, sizeof(r->generation), sum);
    sum = table_hash(r->key.data, r->key.size, sum);
    return table_hash(r->value.data, r->value.size, sum);
}
