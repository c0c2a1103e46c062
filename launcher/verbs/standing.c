#include "launcher/verbs/standing.h"

#include "launcher/verbs/value.h"

#include "common/mem.h"

#include <string.h>

enum { N_STREAMS = 2 };

void standing_release(struct standing *s)
{
    mem_free(s->next);
    *s = (struct standing){0};
}

static void grow(struct standing *s, size_t n)
{
    if (n > s->n) {
        s->next = mem_grow(s->next, n, sizeof(*s->next));
        memset(s->next + s->n, 0, (n - s->n) * sizeof(*s->next));
        s->n = n;
    }
}

static bool begin_generation(struct standing *s, uint64_t generation)
{
    bool is_next = s->generation != 0;

    s->generation = generation;
    if (s->n > 0) {
        memset(s->next, 0, s->n * sizeof(*s->next));
    }
    return is_next;
}

bool standing_take(struct standing *s, const json_t *line)
{
    uint64_t generation = (uint64_t)value_number(line, "generation");
    int64_t rank = value_number(line, "rank");
    size_t at = strcmp(value_text(line, "stream"), "stderr") == 0;
    bool is_next = false;

    if (json_object_get(line, "number")) {
        s->after = (uint64_t)value_number(line, "number");
        return false;
    }
    if (!json_object_get(line, "next") || rank < 0 || rank >= MSG_MAX_WORLD) {
        return false; /* a note */
    }
    if (generation != s->generation) {
        is_next = begin_generation(s, generation);
    }
    at += N_STREAMS * (size_t)rank;
    grow(s, at + 1);
    s->next[at] = (uint64_t)value_number(line, "next");
    return is_next;
}

void standing_tell(const struct standing *s, struct msg_ask *ask, struct buf *places)
{
    int rv = 0;

    if (s->after != 0) {
        ask->after = s->after;
    }
    for (size_t i = 0; i < s->n && rv == 0; i++) {
        const struct msg_place place = {
            .rank = (uint32_t)(i / N_STREAMS),
            .what = i % N_STREAMS == 0 ? INSPECT_LOG : INSPECT_LOG_ERRORS,
            .offset = s->next[i],
        };

        rv = s->next[i] != 0 ? msg_place_encode(&place, places) : 0;
    }
    ask->generation = s->generation;
    ask->places = (struct bytes){buf_bytes(places), buf_len(places)};
}
