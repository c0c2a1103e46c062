#include "launcher/verbs/value.h"

#include "common/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

const char *value_text(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));

    return text ? text : "";
}

static bool has_number(const json_t *json, const char *key)
{
    return json_is_number(json_object_get(json, key));
}

int64_t value_number(const json_t *json, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(json, key));
}

void value_put(struct buf *out, const char *fmt, ...)
{
    va_list args;
    int rv;

    va_start(args, fmt);
    rv = buf_vprintf(out, fmt, args);
    va_end(args);
    (void)rv; /* as promised */
}

enum table_colour value_colour(const char *state)
{
    static const struct {
        const char *state;
        enum table_colour colour;
    } colours[] = {
        {"running", TABLE_GREEN},   {"done", TABLE_GREEN},
        {"formed", TABLE_GREEN},    {"hang_over", TABLE_GREEN},
        {"failed", TABLE_RED},      {"hang", TABLE_RED},
        {"hangs", TABLE_RED},       {"node_lost", TABLE_RED},
        {"refused", TABLE_RED},     {"forming", TABLE_YELLOW},
        {"draining", TABLE_YELLOW}, {"restarting", TABLE_YELLOW},
        {"stopped", TABLE_DIM},     {"idle", TABLE_DIM},
        {"cancelled", TABLE_DIM},
    };

    for (size_t i = 0; i < ARRAY_LEN(colours); i++) {
        if (strcmp(state, colours[i].state) == 0) {
            return colours[i].colour;
        }
    }
    return TABLE_PLAIN;
}

/* ---- any object's ---- */

const char *value_as_text(struct value *v)
{
    return value_text(v->json, v->key);
}

const char *value_as_number(struct value *v)
{
    v->text[0] = '\0';
    if (has_number(v->json, v->key)) {
        (void)snprintf(v->text, sizeof(v->text), "%lld",
                       (long long)value_number(v->json, v->key));
    }
    return v->text;
}

const char *value_as_loss(struct value *v)
{
    const json_t *loss = json_object_get(v->json, v->key);

    v->text[0] = '\0';
    if (json_is_number(loss)) {
        (void)snprintf(v->text, sizeof(v->text), "%.4f", json_number_value(loss));
    } else if (json_is_null(loss)) {
        (void)snprintf(v->text, sizeof(v->text), "nan");
    }
    return v->text;
}

static const char *put_span(struct value *v, uint64_t ms)
{
    unsigned long long s = ms / 1000;

    if (s < 60) {
        (void)snprintf(v->text, sizeof(v->text), "%llu s", s);
    } else if (s < 3600) {
        (void)snprintf(v->text, sizeof(v->text), "%llu min", s / 60);
    } else if (s < 24ULL * 3600) {
        (void)snprintf(v->text, sizeof(v->text), "%llu h %llu min", s / 3600,
                       s / 60 % 60);
    } else {
        (void)snprintf(v->text, sizeof(v->text), "%llu d %llu h", s / 86400,
                       s / 3600 % 24);
    }
    return v->text;
}

const char *value_as_age(struct value *v)
{
    int64_t ms = value_number(v->json, v->key);

    if (ms <= 0) {
        return "";
    }
    return put_span(v, v->wall_ms > (uint64_t)ms ? v->wall_ms - (uint64_t)ms : 0);
}

const char *value_as_time(struct value *v)
{
    int64_t ms = value_number(v->json, v->key);
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;

    if (ms <= 0 || !localtime_r(&seconds, &tm) ||
        strftime(v->text, sizeof(v->text), "%Y-%m-%d %H:%M:%S", &tm) == 0) {
        return "";
    }
    return v->text;
}

/* ---- a job's ---- */

const char *value_as_nodes(struct value *v)
{
    long long n = (long long)value_number(v->json, "nodes");
    long long min = (long long)value_number(v->json, "min_nodes");
    long long max = (long long)value_number(v->json, "max_nodes");

    if (min != max) {
        (void)snprintf(v->text, sizeof(v->text), "%lld of %lld:%lld", n, min, max);
    } else if (max > 0 && n != max) {
        (void)snprintf(v->text, sizeof(v->text), "%lld of %lld", n, max);
    } else {
        (void)snprintf(v->text, sizeof(v->text), "%lld", n);
    }
    return v->text;
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
const char *value_as_restarts(struct value *v)
{
    long long n = (long long)count_restarts(v->json);
    long long failures = (long long)value_number(v->json, "failures");
    long long max = (long long)value_number(v->json, "max_restarts");

    if (!has_number(v->json, "max_restarts")) {
        (void)snprintf(v->text, sizeof(v->text), "%lld", n);
    } else if (n <= failures) {
        (void)snprintf(v->text, sizeof(v->text), "%lld of %lld", failures, max);
    } else {
        (void)snprintf(v->text, sizeof(v->text), "%lld (%lld of %lld)", n, failures,
                       max);
    }
    return v->text;
}

const char *value_as_ran(struct value *v)
{
    int64_t began = value_number(v->json, "began_ms");
    int64_t ended = value_number(v->json, "ended_ms");

    return began > 0 && ended >= began ? put_span(v, (uint64_t)(ended - began)) : "";
}

const char *value_as_hang(struct value *v)
{
    return value_text(json_object_get(v->json, "hang"), "text");
}

const char *value_as_last_cause(struct value *v)
{
    return value_text(json_object_get(v->json, "cause"), "text");
}

const char *value_as_cause(struct value *v)
{
    const char *hang = value_as_hang(v);
    const char *draining = value_text(v->json, "draining");

    return hang[0] != '\0'       ? hang
           : draining[0] != '\0' ? draining
                                 : value_as_last_cause(v);
}

const char *value_as_state(struct value *v)
{
    const char *state = value_text(v->json, "state");
    bool hangs = strcmp(state, "running") == 0 && json_object_get(v->json, "hang");

    return hangs ? "hangs" : state;
}

/* ---- a rank's ---- */

const char *value_as_report_age(struct value *v)
{
    int64_t ms = value_number(v->json, "age_ms");

    if (!has_number(v->json, "age_ms") || ms < 0) {
        return "";
    }
    if (ms >= 10000) {
        return put_span(v, (uint64_t)ms);
    }
    (void)snprintf(v->text, sizeof(v->text), "%.1f s", (double)ms / 1000);
    return v->text;
}

const char *value_as_phase(struct value *v)
{
    const char *phase = value_text(v->json, "phase");
    const char *comma = phase[0] != '\0' ? ", " : "";

    if (json_is_true(json_object_get(v->json, "ended"))) {
        return "ended";
    }
    if (json_is_true(json_object_get(v->json, "away"))) {
        (void)snprintf(v->text, sizeof(v->text), "%.40s%snode away", phase, comma);
    } else if (json_is_true(json_object_get(v->json, "hangs"))) {
        (void)snprintf(v->text, sizeof(v->text), "%.40s%shangs", phase, comma);
    } else if (has_number(v->json, "waits_for")) {
        (void)snprintf(v->text, sizeof(v->text), "%.40s%swaits for %lld", phase, comma,
                       (long long)value_number(v->json, "waits_for"));
    } else {
        (void)snprintf(v->text, sizeof(v->text), "%.60s", phase);
    }
    return v->text;
}
