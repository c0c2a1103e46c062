#include "launcher/verbs/show.h"

#include "launcher/verbs/value.h"

#include "common/check.h"

#include <string.h>

/* ---- a row for each object, a cell for each column ---- */

struct column {
    struct table_column shape;
    value_format *format;
    const char *key;
};

static void put_cell(struct text_table *t, const struct column *c, struct value *v)
{
    const char *text;

    v->key = c->key;
    text = c->format(v);
    table_put(t, text, c->format == value_as_state ? value_colour(text) : TABLE_PLAIN);
}

static void show_list(const json_t *list, const struct column *columns, size_t n,
                      const struct show_style *style, struct buf *out)
{
    struct table_column shapes[TABLE_MAX_COLUMNS];
    struct text_table *t;

    ASSERT(n <= TABLE_MAX_COLUMNS);
    for (size_t i = 0; i < n; i++) {
        shapes[i] = columns[i].shape;
    }
    t = table_new(shapes, n);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct value v = {.json = json_array_get(list, i), .wall_ms = style->wall_ms};

        for (size_t k = 0; k < n; k++) {
            put_cell(t, &columns[k], &v);
        }
    }
    table_write(t, style->width, style->has_colours, out);
    table_free(t);
}

void show_jobs(const json_t *root, const struct show_style *style, struct buf *out)
{
    static const struct column columns[] = {
        {{"JOB", TABLE_LEFT, false, 12}, value_as_text, "id"},
        {{"STATE", TABLE_LEFT, false, 0}, value_as_state, NULL},
        {{"GEN", TABLE_RIGHT, true, 0}, value_as_number, "generation"},
        {{"NODES", TABLE_RIGHT, false, 0}, value_as_nodes, NULL},
        {{"RANKS", TABLE_RIGHT, true, 0}, value_as_number, "ranks"},
        {{"STEP", TABLE_RIGHT, true, 0}, value_as_number, "step"},
        {{"LOSS", TABLE_RIGHT, true, 0}, value_as_loss, "loss"},
        {{"TOK/S", TABLE_RIGHT, true, 0}, value_as_number, "tok_s"},
        {{"SAVED", TABLE_RIGHT, true, 0}, value_as_number, "committed_step"},
        {{"RESTARTS", TABLE_LEFT, false, 0}, value_as_restarts, NULL},
        {{"SINCE", TABLE_LEFT, true, 0}, value_as_age, "began_ms"},
        {{"LAST CAUSE", TABLE_LEFT, false, 24}, value_as_cause, NULL},
    };
    const json_t *list = json_object_get(root, "jobs");

    if (json_array_size(list) == 0) {
        value_put(out, "no jobs (ctrun history shows those that have ended)\n");
    } else {
        show_list(list, columns, ARRAY_LEN(columns), style, out);
    }
}

static bool has_several_jobs(const json_t *ranks)
{
    const char *first = value_text(json_array_get(ranks, 0), "job");

    for (size_t i = 1; i < json_array_size(ranks); i++) {
        if (strcmp(value_text(json_array_get(ranks, i), "job"), first) != 0) {
            return true;
        }
    }
    return false;
}

void show_ranks(const json_t *root, const struct show_style *style, struct buf *out)
{
    static const struct column columns[] = {
        {{"JOB", TABLE_LEFT, false, 12}, value_as_text, "job"},
        {{"RANK", TABLE_RIGHT, false, 0}, value_as_number, "rank"},
        {{"HOST", TABLE_LEFT, false, 12}, value_as_text, "host"},
        {{"LOCAL", TABLE_RIGHT, true, 0}, value_as_number, "local_rank"},
        {{"PID", TABLE_RIGHT, true, 0}, value_as_number, "pid"},
        {{"GEN", TABLE_RIGHT, true, 0}, value_as_number, "generation"},
        {{"STEP", TABLE_RIGHT, true, 0}, value_as_number, "step"},
        {{"TOK/S", TABLE_RIGHT, true, 0}, value_as_number, "tok_s"},
        {{"LOSS", TABLE_RIGHT, true, 0}, value_as_loss, "loss"},
        {{"PHASE", TABLE_LEFT, false, 12}, value_as_phase, NULL},
        {{"REPORT", TABLE_RIGHT, false, 0}, value_as_report_age, NULL},
    };
    const json_t *list = json_object_get(root, "ranks");
    size_t first = has_several_jobs(list) ? 0 : 1; /* else the column says nothing */

    if (json_array_size(list) == 0) {
        value_put(out, "no ranks\n");
    } else {
        show_list(list, columns + first, ARRAY_LEN(columns) - first, style, out);
    }
}

/* Of a job that no server knows there is no answer. */
static void put_no_history(const char *job, struct buf *out)
{
    if (job[0] == '\0') {
        value_put(out, "no job has ended\n");
        return;
    }
    value_put(out, "job ");
    table_write_text(out, job, TABLE_PLAIN, false);
    value_put(out, " has not ended yet: ctrun status ");
    table_write_text(out, job, TABLE_PLAIN, false);
    value_put(out, " shows how it is\n");
}

void show_history(const json_t *root, const char *job, const struct show_style *style,
                  struct buf *out)
{
    static const struct column columns[] = {
        {{"JOB", TABLE_LEFT, false, 12}, value_as_text, "id"},
        {{"STATE", TABLE_LEFT, false, 0}, value_as_state, NULL},
        {{"EXIT", TABLE_RIGHT, false, 0}, value_as_number, "exit_code"},
        {{"ENDED", TABLE_LEFT, true, 0}, value_as_time, "ended_ms"},
        {{"RAN", TABLE_LEFT, true, 0}, value_as_ran, NULL},
        {{"GEN", TABLE_RIGHT, true, 0}, value_as_number, "generation"},
        {{"NODES", TABLE_RIGHT, true, 0}, value_as_number, "nodes"},
        {{"RANKS", TABLE_RIGHT, true, 0}, value_as_number, "ranks"},
        {{"SAVED", TABLE_RIGHT, true, 0}, value_as_number, "committed_step"},
        {{"RESTARTS", TABLE_RIGHT, true, 0}, value_as_restarts, NULL},
        {{"CAUSE", TABLE_LEFT, false, 24}, value_as_cause, NULL},
    };
    const json_t *list = json_object_get(root, "jobs");

    if (json_array_size(list) == 0) {
        put_no_history(job, out);
    } else {
        show_list(list, columns, ARRAY_LEN(columns), style, out);
    }
}

/* ---- one job: a line for each of its facts ---- */

/* "failed, exit code 3, 2 min ago" */
static void put_state(struct buf *out, struct value *v, const struct show_style *style)
{
    const char *state = value_as_state(v);
    const char *text;

    value_put(out, "%-12s ", "state");
    table_write_text(out, state, value_colour(state), style->has_colours);
    v->key = "exit_code";
    text = value_as_number(v);
    value_put(out, "%s%s", text[0] != '\0' ? ", exit code " : "", text);
    v->key = "ended_ms";
    text = value_as_age(v);
    value_put(out, "%s%s%s\n", text[0] != '\0' ? ", " : "", text,
              text[0] != '\0' ? " ago" : "");
}

static void put_facts(struct buf *out, const json_t *job,
                      const struct show_style *style)
{
    static const struct fact {
        const char *name;
        value_format *format;
        const char *key;
    } facts[] = {
        {"job", value_as_text, "id"},
        {"state", value_as_state, NULL},
        {"server", value_as_text, "server"},
        {"generation", value_as_number, "generation"},
        {"nodes", value_as_nodes, NULL},
        {"ranks", value_as_number, "ranks"},
        {"restarts", value_as_restarts, NULL},
        {"began", value_as_time, "began_ms"},
        {"step", value_as_number, "step"},
        {"loss", value_as_loss, "loss"},
        {"tokens/s", value_as_number, "tok_s"},
        {"saved step", value_as_number, "committed_step"},
        {"what hangs", value_as_hang, NULL},
        {"draining", value_as_text, "draining"},
        {"last cause", value_as_last_cause, NULL},
    };
    struct value v = {.json = job, .wall_ms = style->wall_ms};

    for (size_t i = 0; i < ARRAY_LEN(facts); i++) {
        const char *text;

        v.key = facts[i].key;
        text = facts[i].format(&v);
        if (facts[i].format == value_as_state) {
            put_state(out, &v, style);
        } else if (text[0] != '\0') {
            value_put(out, "%-12s ", facts[i].name);
            table_write_text(out, text, TABLE_PLAIN, style->has_colours);
            value_put(out, "\n");
        }
    }
}

static void show_nodes(const json_t *list, const struct show_style *style,
                       struct buf *out)
{
    static const struct column columns[] = {
        {{"NODE", TABLE_RIGHT, false, 0}, value_as_number, "group_rank"},
        {{"HOST", TABLE_LEFT, false, 12}, value_as_text, "host"},
        {{"STATE", TABLE_LEFT, false, 0}, value_as_state, NULL},
        {{"RANKS", TABLE_RIGHT, false, 0}, value_as_number, "ranks"},
        {{"FIRST", TABLE_RIGHT, true, 0}, value_as_number, "first_rank"},
        {{"ADDRESS", TABLE_LEFT, true, 12}, value_as_text, "address"},
        {{"ROLE", TABLE_LEFT, true, 12}, value_as_text, "role"},
    };

    show_list(list, columns, ARRAY_LEN(columns), style, out);
}

void show_job(const json_t *job, const struct show_style *style, struct buf *out)
{
    const json_t *nodes = json_object_get(job, "nodes_list");

    put_facts(out, job, style);
    if (json_array_size(nodes) > 0) {
        value_put(out, "\n");
        show_nodes(nodes, style, out);
    }
}
