#include "rendezvous/event_json.h"

#include "common/mem.h"

#include <string.h>

/* The length of the valid UTF-8 sequence there, 0: it is none. */
static size_t sequence_at(const unsigned char *s)
{
    size_t n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : 4;

    if (n == 0 || *s > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) { /* the terminator, too */
            return 0;
        }
    }
    return n;
}

json_t *event_json_text(const char *text)
{
    json_t *json = json_string(text);
    char *clean;
    size_t used = 0;

    if (json) {
        return json;
    }
    clean = mem_alloc(strlen(text) + 1);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t n = sequence_at(s);

        if (n == 0) {
            clean[used++] = '?';
            s++;
            continue;
        }
        memcpy(clean + used, s, n);
        used += n;
        s += n;
    }
    clean[used] = '\0';
    json = json_string(clean);
    if (!json) { /* surrogates, overlong: as if nothing were said */
        json = json_string("?");
    }
    mem_free(clean);
    return json;
}

json_t *event_json_restarts(const uint32_t restarts[RESTART_CAUSE_COUNT])
{
    json_t *json = json_object();

    for (int i = 0; i < RESTART_CAUSE_COUNT; i++) {
        (void)json_object_set_new(json, event_cause_name((enum restart_cause)i),
                                  json_integer(restarts[i]));
    }
    return json;
}

static void set_integer(json_t *json, const char *key, uint64_t value)
{
    (void)json_object_set_new(json, key, json_integer((json_int_t)value));
}

/* Left out where it says nothing. */
static void set_some(json_t *json, const char *key, uint64_t value)
{
    if (value != 0) {
        set_integer(json, key, value);
    }
}

static void set_text(json_t *json, const char *key, const char *text)
{
    if (text[0] != '\0') {
        (void)json_object_set_new(json, key, event_json_text(text));
    }
}

static bool has_restarts(enum job_event_kind kind)
{
    return kind == JOB_RESTARTS || kind == JOB_HAS_FAILED || kind == JOB_IS_DONE ||
           kind == JOB_IS_CANCELLED || kind == JOB_IS_STOPPED;
}

json_t *event_json_make(const struct history_event *e)
{
    json_t *json = json_object();

    set_integer(json, "number", e->number);
    set_integer(json, "wall_ms", e->wall_ms);
    (void)json_object_set_new(json, "kind", json_string(event_kind_name(e->kind)));
    set_text(json, "job", e->job);
    set_some(json, "generation", e->generation);
    set_some(json, "nodes", e->nodes);
    set_some(json, "ranks", e->ranks);
    set_text(json, "node", e->node);
    if (e->has_group_rank) {
        set_integer(json, "group_rank", e->group_rank);
    }
    set_some(json, "step", e->step);
    if (e->has_rank) {
        set_integer(json, "rank", e->rank);
    }
    if (e->kind == JOB_HAS_FAILED || e->kind == JOB_IS_CANCELLED) {
        set_integer(json, "exit_code", e->exit_code);
    }
    if (e->kind == JOB_RESTARTS) {
        (void)json_object_set_new(json, "cause",
                                  json_string(event_cause_name(e->cause)));
    }
    if (has_restarts(e->kind)) {
        (void)json_object_set_new(json, "restarts", event_json_restarts(e->restarts));
    }
    set_text(json, "text", e->text);
    return json;
}

json_t *event_json_keep(const struct history_event *e)
{
    json_t *json = event_json_make(e);

    set_text(json, "owner", e->owner);
    set_some(json, "noted_ms", e->noted_ms);
    return json;
}

/* ---- back ---- */

static uint64_t integer_of(const json_t *json, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(json, key));

    return value > 0 ? (uint64_t)value : 0;
}

static char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));

    return mem_strdup(text ? text : "");
}

static bool find_kind(const json_t *json, enum job_event_kind *ret)
{
    const char *name = json_string_value(json_object_get(json, "kind"));

    for (int i = 0; name && i < JOB_EVENT_COUNT; i++) {
        if (strcmp(name, event_kind_name((enum job_event_kind)i)) == 0) {
            *ret = (enum job_event_kind)i;
            return true;
        }
    }
    return false;
}

static enum restart_cause find_cause(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "cause"));

    for (int i = 0; name && i < RESTART_CAUSE_COUNT; i++) {
        if (strcmp(name, event_cause_name((enum restart_cause)i)) == 0) {
            return (enum restart_cause)i;
        }
    }
    return RESTART_FAILURE;
}

bool event_json_parse(const uint8_t *text, size_t size, struct history_event *ret)
{
    json_t *json = json_loadb((const char *)text, size, 0, NULL);
    const json_t *restarts = json_object_get(json, "restarts");
    enum job_event_kind kind = JOB_IS_DONE;

    if (!find_kind(json, &kind)) {
        json_decref(json);
        return false;
    }
    *ret = (struct history_event){
        .kind = kind,
        .cause = find_cause(json),
        .wall_ms = integer_of(json, "wall_ms"),
        .noted_ms = integer_of(json, "noted_ms"),
        .generation = integer_of(json, "generation"),
        .step = integer_of(json, "step"),
        .nodes = (uint32_t)integer_of(json, "nodes"),
        .ranks = (uint32_t)integer_of(json, "ranks"),
        .exit_code = (uint32_t)integer_of(json, "exit_code"),
        .has_rank = json_object_get(json, "rank") != NULL,
        .rank = (uint32_t)integer_of(json, "rank"),
        .has_group_rank = json_object_get(json, "group_rank") != NULL,
        .group_rank = (uint32_t)integer_of(json, "group_rank"),
        .job = text_of(json, "job"),
        .node = text_of(json, "node"),
        .text = text_of(json, "text"),
        .owner = text_of(json, "owner"),
    };
    for (int i = 0; i < RESTART_CAUSE_COUNT; i++) {
        ret->restarts[i] =
            (uint32_t)integer_of(restarts, event_cause_name((enum restart_cause)i));
    }
    json_decref(json);
    return true;
}
