/* States that real services have left when they were killed, of each schema
 * (states/make_state.py has played the jobs): this version finds in them what stands in
 * states/schema-N.txt, record by record, and tells people the same of it. What is in
 * these files never changes but with a bug: another form of a record is another schema.
 * To write the text of a new one: run this once without it. */

#include "rendezvous/history.h"
#include "rendezvous/record_fields.h"
#include "rendezvous/state_db.h"
#include "rendezvous/state_schema.h"
#include "rendezvous/view.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"
#include "tests/lib/shelf.h"

#include "common/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LATER_MS = 1800000 }; /* than all of it, on the service's clock */

struct rig {
    struct scratch scratch;
    struct state_db *db;
    struct shelf shelf;
    FILE *out; /* what is found, as text */
    char *text;
    size_t size;
};

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t size = 0;

    if (file && getdelim(&text, &size, 0, file) < 0) {
        free(text);
        text = NULL;
    }
    if (file) {
        assert_int_equal(fclose(file), 0);
    }
    return text;
}

static void make_database(struct rig *r, int schema)
{
    char name[80];
    char *sql;
    char *why = NULL;
    sqlite3 *db;

    (void)snprintf(name, sizeof(name), "tests/unit/rendezvous/states/schema-%d.sql",
                   schema);
    sql = read_file(name);
    if (!sql) {
        fail_msg("%s is missing: states/make_state.py writes it", name);
    }
    assert_int_equal(sqlite3_open(scratch_path(&r->scratch, "state.db"), &db),
                     SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s: %s", name, why);
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    free(sql);
}

/* ---- records as text ---- */

static void print_bytes(FILE *out, struct bytes b)
{
    bool is_text = true;

    for (size_t i = 0; i < b.size; i++) {
        is_text = is_text && isprint(b.data[i]);
    }
    if (is_text) {
        (void)fprintf(out, "\"%.*s\"", (int)b.size, (const char *)b.data);
        return;
    }
    for (size_t i = 0; i < b.size; i++) {
        (void)fprintf(out, "%02x", b.data[i]);
    }
}

#define PRINT_U(bits, field) \
    (void)fprintf(out, "  " #field " %" PRIu##bits "\n", v->field);
#define PRINT_I(field)       (void)fprintf(out, "  " #field " %" PRId32 "\n", v->field);
#define PRINT_T(size, field) (void)fprintf(out, "  " #field " \"%s\"\n", v->field);
#define PRINT_B(field)                   \
    (void)fprintf(out, "  " #field " "); \
    print_bytes(out, v->field);          \
    (void)fprintf(out, "\n");
#define PRINT(NAME, name, version)                                              \
    static void print_##name(FILE *out, struct bytes value)                     \
    {                                                                           \
        struct record_##name *v = mem_alloc(sizeof(*v));                        \
                                                                                \
        assert_int_equal(record_get_##name(value, v), 0);                       \
        RECORD_##NAME##_FIELDS(PRINT_U, PRINT_I, PRINT_T, PRINT_B) mem_free(v); \
    }
RECORD_FIELDS_MAP(PRINT)
#undef PRINT

static void print_cause_and_rank(FILE *out, struct bytes value)
{
    struct record_cause cause;

    print_cause(out, value);
    assert_int_equal(record_get_cause(value, &cause), 0);
    if (cause.has_rank) {
        print_rank(out, cause.first);
    }
    for (struct bytes one; record_list_next(&cause.outcomes, &one);) {
        struct record_outcome outcome;

        print_outcome(out, one);
        assert_int_equal(record_get_outcome(one, &outcome), 0);
        while (record_list_next(&outcome.firsts, &one)) {
            print_first(out, one);
        }
    }
}

static void print_flappers_all(FILE *out, struct bytes value)
{
    struct record_flappers flappers;

    print_flappers(out, value);
    assert_int_equal(record_get_flappers(value, &flappers), 0);
    for (struct bytes one; record_list_next(&flappers.flappers, &one);) {
        print_flapper(out, one);
    }
}

static void print_value(FILE *out, const struct record *r)
{
    static void (*const printers[RECORD_KIND_COUNT])(FILE *, struct bytes) = {
        [RECORD_JOB] = print_job,
        [RECORD_NODE] = print_node,
        [RECORD_CLIENT] = print_client,
        [RECORD_FINISHED] = print_finished,
        [RECORD_CAUSE] = print_cause_and_rank,
        [RECORD_MEMBERS] = print_members,
        [RECORD_FLAPPERS] = print_flappers_all,
        [RECORD_REPORT] = print_report,
        [RECORD_CURVE] = print_curve,
        [RECORD_PACE] = print_pace,
        [RECORD_START] = print_start,
    };

    if (printers[r->kind]) {
        printers[r->kind](out, r->value);
        return;
    }
    (void)fprintf(out, "  ");
    print_bytes(out, r->value);
    (void)fprintf(out, "\n");
}

/* ---- what is found ---- */

static int take(void *arg, const struct record *r, struct errmsg *msg)
{
    struct rig *rig = arg;

    (void)msg;
    (void)fprintf(rig->out, "%s \"%s\" %" PRIu64 " ", state_table(r->kind)->name,
                  r->job, r->generation);
    print_bytes(rig->out, r->key);
    (void)fprintf(rig->out, "\n");
    print_value(rig->out, r);
    shelf_save(&rig->shelf, r);
    return 0;
}

static void begin_text(struct rig *r)
{
    r->out = open_memstream(&r->text, &r->size);
    assert_non_null(r->out);
}

static void end_text(struct rig *r)
{
    assert_int_equal(fclose(r->out), 0);
}

static void load(struct rig *r)
{
    struct errmsg msg = {""};
    int rv = state_db_open(
        &(struct state_db_config){.path = scratch_path(&r->scratch, "state.db"),
                                  .clock_ms = LATER_MS,
                                  .clock_name = 1,
                                  .start = 7,
                                  .history_ms = LATER_MS,
                                  .history_bytes = 1 << 20},
        &r->db, &msg);

    rv = rv == 0 ? state_db_load(r->db, take, r, &msg) : rv;
    if (rv < 0) {
        fail_msg("refused: %s", msg.text);
    }
    shelf_commit(&r->shelf);
}

static void print_json(struct rig *r, const char *name, json_t *json)
{
    char *text;

    assert_non_null(json);
    text = json_dumps(json, JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    assert_non_null(text);
    (void)fprintf(r->out, "%s\n%s\n", name, text);
    free(text);
    json_decref(json);
}

/* A service that goes on from it. */
static void look(struct rig *r)
{
    const struct state_identity *identity = state_db_identity(r->db);
    struct service *service =
        service_new(&(struct service_config){.cluster = 1,
                                             .boot = identity->boot,
                                             .start = identity->start,
                                             .found = identity->found,
                                             .lease_ms = 3000,
                                             .store_max_bytes = 1 << 20});
    struct errmsg msg = {""};
    struct history history;
    struct view view = {service, &history, LATER_MS, NULL};

    (void)fprintf(r->out, "start %" PRIu64 ", behind %" PRIu64 " transactions\n",
                  identity->boot, identity->found);
    history_init(&history, &(struct history_config){.seed = 1});
    if (shelf_restore(&r->shelf, service, &history, LATER_MS, &msg) < 0) {
        fail_msg("not restored: %s", msg.text);
    }
    print_json(r, "jobs", view_jobs(&view, NULL));
    print_json(r, "job", view_job(&view, "lives"));
    print_json(r, "nodes", view_nodes(&view, "lives", 0, 10));
    print_json(r, "ranks", view_ranks(&view, "lives", 0, 10));
    print_json(r, "events", view_events(&view, NULL, 0, 100));
    print_json(r, "history", view_history(&view, NULL));
    service_free(service);
    history_release(&history);
}

static void compare(struct rig *r, int schema)
{
    char name[80];
    char *expected;
    size_t at = 0;
    size_t line = 1;

    (void)snprintf(name, sizeof(name), "tests/unit/rendezvous/states/schema-%d.txt",
                   schema);
    expected = read_file(name);
    if (!expected) {
        FILE *file = fopen(name, "we");

        assert_non_null(file);
        assert_int_equal(fwrite(r->text, 1, r->size, file), r->size);
        assert_int_equal(fclose(file), 0);
        fail_msg("%s was missing: it is what was found now; look at it", name);
    }
    while (expected[at] != '\0' && expected[at] == r->text[at]) {
        line += expected[at++] == '\n';
    }
    if (expected[at] != r->text[at]) {
        fail_msg("%s:%zu: found otherwise: %.80s", name, line, r->text + at);
    }
    free(expected);
}

/* How old the ends of jobs are, and in which order they go. */
static void get_ages(struct rig *r, char ages[256])
{
    sqlite3_stmt *s;
    sqlite3 *db;

    assert_int_equal(sqlite3_open(scratch_path(&r->scratch, "state.db"), &db),
                     SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "select coalesce(group_concat(id || ' ' || job "
                                        "|| ' ' || saved_ms), '') from finished",
                                        -1, &s, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    (void)snprintf(ages, 256, "%s", (const char *)sqlite3_column_text(s, 0));
    (void)sqlite3_finalize(s);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_schema(int schema)
{
    char ages[2][256];
    struct rig r = {.out = NULL};
    struct errmsg msg = {""};
    char *before;
    char this_start[128];
    size_t size;

    scratch_open(&r.scratch);
    make_database(&r, schema);
    get_ages(&r, ages[0]);
    begin_text(&r);
    load(&r);
    size = (size_t)ftell(r.out); /* of the records alone */
    look(&r);
    end_text(&r);
    compare(&r, schema);
    before = r.text;
    (void)snprintf(this_start, sizeof(this_start),
                   "starts \"\" 0 %016" PRIx64 "\n  id 7\n  found %" PRIu64 "\n",
                   state_db_identity(r.db)->boot, state_db_identity(r.db)->found);
    assert_int_equal(state_db_begin(r.db, &msg), 0);
    state_db_close(r.db);
    get_ages(&r, ages[1]);
    assert_string_equal(ages[1], ages[0]);
    begin_text(&r);
    load(&r); /* of this schema now */
    end_text(&r);
    assert_true(r.size > size); /* by the start */
    assert_memory_equal(r.text, before, size);
    assert_string_equal(r.text + size, this_start);
    state_db_close(r.db);
    free(r.text);
    free(before);
    shelf_release(&r.shelf);
    scratch_close(&r.scratch);
}

static void state_of_each_schema_is_taken_over(void **unused)
{
    (void)unused;
    for (int schema = STATE_OLDEST; schema <= STATE_SCHEMA; schema++) {
        test_schema(schema);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_of_each_schema_is_taken_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
