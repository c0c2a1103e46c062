#include "launcher/verbs/show.h"

#include "launcher/verbs/table.h"

#include "common/utf8.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- values ---- */

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));

    return text ? text : "";
}

static bool has_number(const json_t *json, const char *key)
{
    return json_is_number(json_object_get(json, key));
}

static int64_t number_of(const json_t *json, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(json, key));
}

/* "" where it is not known. */
static const char *format_number(const json_t *json, const char *key, char *text,
                                 size_t size)
{
    text[0] = '\0';
    if (has_number(json, key)) {
        (void)snprintf(text, size, "%lld", (long long)number_of(json, key));
    }
    return text;
}

static const char *format_loss(const json_t *json, char *text, size_t size)
{
    const json_t *loss = json_object_get(json, "loss");

    text[0] = '\0';
    if (json_is_number(loss)) {
        (void)snprintf(text, size, "%.4f", json_number_value(loss));
    } else if (json_is_null(loss)) {
        (void)snprintf(text, size, "nan");
    }
    return text;
}

static const char *format_span(uint64_t ms, char *text, size_t size)
{
    unsigned long long s = ms / 1000;

    if (s < 60) {
        (void)snprintf(text, size, "%llu s", s);
    } else if (s < 3600) {
        (void)snprintf(text, size, "%llu min", s / 60);
    } else if (s < 24ULL * 3600) {
        (void)snprintf(text, size, "%llu h %llu min", s / 3600, s / 60 % 60);
    } else {
        (void)snprintf(text, size, "%llu d %llu h", s / 86400, s / 3600 % 24);
    }
    return text;
}

/* How long ago that moment was. */
static const char *format_age(const json_t *json, const char *key,
                              const struct show_style *style, char *text, size_t size)
{
    uint64_t ms = (uint64_t)number_of(json, key);

    text[0] = '\0';
    if (ms > 0 && has_number(json, key)) {
        (void)format_span(style->wall_ms > ms ? style->wall_ms - ms : 0, text, size);
    }
    return text;
}

static const char *format_time(uint64_t wall_ms, char *text, size_t size)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;

    if (wall_ms == 0 || !localtime_r(&seconds, &tm) ||
        strftime(text, size, "%Y-%m-%d %H:%M:%S", &tm) == 0) {
        (void)snprintf(text, size, "-");
    }
    return text;
}

static enum table_colour colour_of(const char *state)
{
    static const struct {
        const char *state;
        enum table_colour colour;
    } colours[] = {
        {"running", TABLE_GREEN},   {"done", TABLE_GREEN},
        {"formed", TABLE_GREEN},    {"failed", TABLE_RED},
        {"hang", TABLE_RED},        {"node_lost", TABLE_RED},
        {"refused", TABLE_RED},     {"forming", TABLE_YELLOW},
        {"draining", TABLE_YELLOW}, {"restarting", TABLE_YELLOW},
        {"cancelled", TABLE_DIM},   {"stopped", TABLE_DIM},
        {"idle", TABLE_DIM},
    };

    for (size_t i = 0; i < ARRAY_LEN(colours); i++) {
        if (strcmp(state, colours[i].state) == 0) {
            return colours[i].colour;
        }
    }
    return TABLE_PLAIN;
}

static void put_state(struct text_table *t, const json_t *json)
{
    const char *state = text_of(json, "state");

    table_put_coloured(t, state, colour_of(state));
}

static void put_number(struct text_table *t, const json_t *json, const char *key)
{
    char text[32];

    table_put(t, format_number(json, key, text, sizeof(text)));
}

static void put_age(struct text_table *t, const json_t *json, const char *key,
                    const struct show_style *style)
{
    char text[48];

    table_put(t, format_age(json, key, style, text, sizeof(text)));
}

static void finish(struct text_table *t, const struct show_style *style,
                   struct buf *out)
{
    table_write(t, style->width, style->has_colours, out);
    table_free(t);
}

PRINTF_LIKE(2, 3) static void put(struct buf *out, const char *fmt, ...)
{
    va_list args;
    int rv;

    va_start(args, fmt);
    rv = buf_vprintf(out, fmt, args);
    va_end(args);
    (void)rv; /* past the buffer's ceiling the rest is missing */
}

/* ---- jobs ---- */

/* "2 of 1:4", or "2". */
static const char *format_nodes(const json_t *job, char *text, size_t size)
{
    long long n = (long long)number_of(job, "nodes");
    long long min = (long long)number_of(job, "min_nodes");
    long long max = (long long)number_of(job, "max_nodes");

    if (min != max) {
        (void)snprintf(text, size, "%lld of %lld:%lld", n, min, max);
    } else if (max > 0 && n != max) {
        (void)snprintf(text, size, "%lld of %lld", n, max);
    } else {
        (void)snprintf(text, size, "%lld", n);
    }
    return text;
}

static int64_t count_restarts(const json_t *job)
{
    json_t *restarts = json_object_get(job, "restarts"); /* {"failure": 2, …} */
    int64_t n = 0;

    for (void *at = json_object_iter(restarts); at;
         at = json_object_iter_next(restarts, at)) {
        n += (int64_t)json_integer_value(json_object_iter_value(at));
    }
    return n;
}

/* All of them, and how many of those that are allowed. */
static const char *format_restarts(const json_t *job, char *text, size_t size)
{
    int64_t n = count_restarts(job);
    long long failures = (long long)number_of(job, "failures");
    long long max = (long long)number_of(job, "max_restarts");

    if (!has_number(job, "max_restarts")) {
        (void)snprintf(text, size, "%lld", (long long)n);
    } else if (n <= failures) {
        (void)snprintf(text, size, "%lld of %lld", failures, max);
    } else {
        (void)snprintf(text, size, "%lld (%lld of %lld)", (long long)n, failures, max);
    }
    return text;
}

static const char *cause_of(const json_t *job)
{
    return text_of(json_object_get(job, "cause"), "text");
}

void show_jobs(const json_t *root, const struct show_style *style, struct buf *out)
{
    static const struct table_column columns[] = {
        {"JOB", TABLE_LEFT, true},     {"STATE", TABLE_LEFT, false},
        {"GEN", TABLE_RIGHT, false},   {"NODES", TABLE_RIGHT, false},
        {"RANKS", TABLE_RIGHT, false}, {"STEP", TABLE_RIGHT, false},
        {"LOSS", TABLE_RIGHT, false},  {"TOK/S", TABLE_RIGHT, false},
        {"SAVED", TABLE_RIGHT, false}, {"RESTARTS", TABLE_LEFT, false},
        {"SINCE", TABLE_LEFT, false},  {"LAST CAUSE", TABLE_LEFT, true},
    };
    const json_t *list = json_object_get(root, "jobs");
    struct text_table *t;
    char text[96];

    if (json_array_size(list) == 0) {
        put(out, "no jobs\n");
        return;
    }
    t = table_new(columns, ARRAY_LEN(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *job = json_array_get(list, i);

        table_put(t, text_of(job, "id"));
        put_state(t, job);
        put_number(t, job, "generation");
        table_put(t, format_nodes(job, text, sizeof(text)));
        put_number(t, job, "ranks");
        put_number(t, job, "step");
        table_put(t, format_loss(job, text, sizeof(text)));
        put_number(t, job, "tok_s");
        put_number(t, job, "committed_step");
        table_put(t, format_restarts(job, text, sizeof(text)));
        put_age(t, job, "began_ms", style);
        table_put(t, cause_of(job));
    }
    finish(t, style, out);
}

/* ---- one job ---- */

static void put_fact(struct buf *out, const struct show_style *style, const char *name,
                     const char *value)
{
    if (value[0] != '\0') {
        put(out, "%-12s ", name);
        table_write_text(out, value, TABLE_PLAIN, style->has_colours);
        put(out, "\n");
    }
}

static void put_state_line(struct buf *out, const json_t *job,
                           const struct show_style *style)
{
    const char *state = text_of(job, "state");
    char age[48];
    char code[32];

    put(out, "%-12s ", "state");
    table_write_text(out, state, colour_of(state), style->has_colours);
    if (format_number(job, "exit_code", code, sizeof(code))[0] != '\0') {
        put(out, ", exit code %s", code);
    }
    if (format_age(job, "ended_ms", style, age, sizeof(age))[0] != '\0') {
        put(out, ", %s ago", age);
    }
    put(out, "\n");
}

static void put_facts(struct buf *out, const json_t *job,
                      const struct show_style *style)
{
    char text[96];

    put_fact(out, style, "job", text_of(job, "id"));
    put_state_line(out, job, style);
    put_fact(out, style, "server", text_of(job, "server"));
    put_fact(out, style, "generation",
             format_number(job, "generation", text, sizeof(text)));
    put_fact(out, style, "nodes", format_nodes(job, text, sizeof(text)));
    put_fact(out, style, "ranks", format_number(job, "ranks", text, sizeof(text)));
    put_fact(out, style, "restarts", format_restarts(job, text, sizeof(text)));
    put_fact(out, style, "began",
             format_time((uint64_t)number_of(job, "began_ms"), text, sizeof(text)));
    put_fact(out, style, "step", format_number(job, "step", text, sizeof(text)));
    put_fact(out, style, "loss", format_loss(job, text, sizeof(text)));
    put_fact(out, style, "tokens/s", format_number(job, "tok_s", text, sizeof(text)));
    put_fact(out, style, "saved step",
             format_number(job, "committed_step", text, sizeof(text)));
    put_fact(out, style, "last cause", cause_of(job));
}

static void put_nodes(struct buf *out, const json_t *list,
                      const struct show_style *style)
{
    static const struct table_column columns[] = {
        {"NODE", TABLE_RIGHT, false},  {"HOST", TABLE_LEFT, true},
        {"STATE", TABLE_LEFT, false},  {"RANKS", TABLE_RIGHT, false},
        {"FIRST", TABLE_RIGHT, false}, {"ADDRESS", TABLE_LEFT, true},
        {"ROLE", TABLE_LEFT, true},
    };
    struct text_table *t = table_new(columns, ARRAY_LEN(columns));

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *node = json_array_get(list, i);

        put_number(t, node, "group_rank");
        table_put(t, text_of(node, "host"));
        put_state(t, node);
        put_number(t, node, "ranks");
        put_number(t, node, "first_rank");
        table_put(t, text_of(node, "address"));
        table_put(t, text_of(node, "role"));
    }
    finish(t, style, out);
}

void show_job(const json_t *job, const struct show_style *style, struct buf *out)
{
    const json_t *nodes = json_object_get(job, "nodes_list");

    put_facts(out, job, style);
    if (json_array_size(nodes) > 0) {
        put(out, "\n");
        put_nodes(out, nodes, style);
    }
}

/* ---- ranks ---- */

static const char *format_report_age(const json_t *rank, char *text, size_t size)
{
    int64_t ms = number_of(rank, "age_ms");

    text[0] = '\0';
    if (has_number(rank, "age_ms") && ms >= 0) {
        (void)(ms < 10000 ? snprintf(text, size, "%.1f s", (double)ms / 1000) > 0
                          : format_span((uint64_t)ms, text, size) != NULL);
    }
    return text;
}

/* "backward", "reduce, waits for 3", "ended". */
static const char *format_phase(const json_t *rank, char *text, size_t size)
{
    const char *phase = text_of(rank, "phase");

    if (json_is_true(json_object_get(rank, "ended"))) {
        (void)snprintf(text, size, "ended");
    } else if (has_number(rank, "waits_for")) {
        (void)snprintf(text, size, "%.40s%swaits for %lld", phase,
                       phase[0] != '\0' ? ", " : "",
                       (long long)number_of(rank, "waits_for"));
    } else {
        (void)snprintf(text, size, "%.60s", phase);
    }
    return text;
}

static bool has_several_jobs(const json_t *ranks)
{
    const char *first = text_of(json_array_get(ranks, 0), "job");

    for (size_t i = 1; i < json_array_size(ranks); i++) {
        if (strcmp(text_of(json_array_get(ranks, i), "job"), first) != 0) {
            return true;
        }
    }
    return false;
}

void show_ranks(const json_t *root, const struct show_style *style, struct buf *out)
{
    static const struct table_column columns[] = {
        {"JOB", TABLE_LEFT, true},      {"RANK", TABLE_RIGHT, false},
        {"HOST", TABLE_LEFT, true},     {"LOCAL", TABLE_RIGHT, false},
        {"PID", TABLE_RIGHT, false},    {"GEN", TABLE_RIGHT, false},
        {"STEP", TABLE_RIGHT, false},   {"TOK/S", TABLE_RIGHT, false},
        {"LOSS", TABLE_RIGHT, false},   {"PHASE", TABLE_LEFT, true},
        {"REPORT", TABLE_RIGHT, false},
    };
    const json_t *list = json_object_get(root, "ranks");
    struct text_table *t;
    bool has_jobs;
    char text[96];

    if (json_array_size(list) == 0) {
        put(out, "no ranks\n");
        return;
    }
    has_jobs = has_several_jobs(list);
    t = table_new(has_jobs ? columns : columns + 1, ARRAY_LEN(columns) - !has_jobs);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *rank = json_array_get(list, i);

        if (has_jobs) {
            table_put(t, text_of(rank, "job"));
        }
        put_number(t, rank, "rank");
        table_put(t, text_of(rank, "host"));
        put_number(t, rank, "local_rank");
        put_number(t, rank, "pid");
        put_number(t, rank, "generation");
        put_number(t, rank, "step");
        put_number(t, rank, "tok_s");
        table_put(t, format_loss(rank, text, sizeof(text)));
        table_put(t, format_phase(rank, text, sizeof(text)));
        table_put(t, format_report_age(rank, text, sizeof(text)));
    }
    finish(t, style, out);
}

/* ---- history ---- */

static const char *format_ran(const json_t *job, char *text, size_t size)
{
    int64_t began = number_of(job, "began_ms");
    int64_t ended = number_of(job, "ended_ms");

    text[0] = '\0';
    if (began > 0 && ended >= began) {
        (void)format_span((uint64_t)(ended - began), text, size);
    }
    return text;
}

void show_history(const json_t *root, const struct show_style *style, struct buf *out)
{
    static const struct table_column columns[] = {
        {"JOB", TABLE_LEFT, true},     {"STATE", TABLE_LEFT, false},
        {"EXIT", TABLE_RIGHT, false},  {"ENDED", TABLE_LEFT, false},
        {"RAN", TABLE_LEFT, false},    {"GEN", TABLE_RIGHT, false},
        {"NODES", TABLE_RIGHT, false}, {"RANKS", TABLE_RIGHT, false},
        {"SAVED", TABLE_RIGHT, false}, {"RESTARTS", TABLE_RIGHT, false},
        {"CAUSE", TABLE_LEFT, true},
    };
    const json_t *list = json_object_get(root, "jobs");
    struct text_table *t;
    char text[96];

    if (json_array_size(list) == 0) {
        put(out, "no job has ended\n");
        return;
    }
    t = table_new(columns, ARRAY_LEN(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *job = json_array_get(list, i);

        table_put(t, text_of(job, "id"));
        put_state(t, job);
        put_number(t, job, "exit_code");
        table_put(
            t, format_time((uint64_t)number_of(job, "ended_ms"), text, sizeof(text)));
        table_put(t, format_ran(job, text, sizeof(text)));
        put_number(t, job, "generation");
        put_number(t, job, "nodes");
        put_number(t, job, "ranks");
        put_number(t, job, "committed_step");
        table_put(t, format_restarts(job, text, sizeof(text)));
        table_put(t, cause_of(job));
    }
    finish(t, style, out);
}

/* ---- events and lines ---- */

static void put_some(struct buf *out, const json_t *json, const char *key,
                     const char *name)
{
    char text[32];

    if (format_number(json, key, text, sizeof(text))[0] != '\0') {
        put(out, "  %s %s", name, text);
    }
}

void show_event(const json_t *event, const struct show_style *style, struct buf *out)
{
    const char *kind = text_of(event, "kind");
    const char *text = text_of(event, "text");
    const char *node = text_of(event, "node");
    char when[32];

    put(out, "%s  ",
        format_time((uint64_t)number_of(event, "wall_ms"), when, sizeof(when)));
    table_write_text(out, text_of(event, "job"), TABLE_PLAIN, false);
    put(out, "  ");
    table_write_text(out, kind, colour_of(kind), style->has_colours);
    put_some(out, event, "generation", "generation");
    put_some(out, event, "nodes", "nodes");
    put_some(out, event, "ranks", "ranks");
    put_some(out, event, "step", "step");
    put_some(out, event, "exit_code", "exit code");
    if (node[0] != '\0') {
        put(out, "  on ");
        table_write_text(out, node, TABLE_PLAIN, false);
    }
    if (text[0] != '\0') {
        put(out, "  ");
        table_write_text(out, text, TABLE_PLAIN, false);
    }
    put(out, "\n");
}

void show_log_line(const json_t *line, const struct show_style *style, struct buf *out,
                   bool *ret_is_note)
{
    const json_t *text = json_object_get(line, "text");
    const char *note = text_of(line, "note");
    int rv;

    *ret_is_note = !json_is_string(text);
    if (*ret_is_note) {
        put(out, "rank %lld ", (long long)number_of(line, "rank"));
        table_write_text(out, note, TABLE_PLAIN, false);
        return;
    }
    if (style->has_prefix) {
        put(out, "[%lld] ", (long long)number_of(line, "rank"));
    }
    if (style->is_terminal) {
        rv = utf8_tame(out, json_string_value(text), json_string_length(text));
    } else {
        rv = buf_append(out, json_string_value(text), json_string_length(text));
    }
    (void)rv; /* past the buffer's ceiling the rest is missing */
    put(out, "\n");
}

void show_done(const json_t *item, bool is_node, struct buf *out)
{
    if (is_node) {
        put(out, "node ");
        table_write_text(out, text_of(item, "host"), TABLE_PLAIN, false);
        put(out, " of job ");
        table_write_text(out, text_of(item, "job"), TABLE_PLAIN, false);
        put(out, " was told to leave\n");
    } else {
        put(out, "job ");
        table_write_text(out, text_of(item, "job"), TABLE_PLAIN, false);
        put(out, " was cancelled\n");
    }
}
