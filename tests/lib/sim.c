#include "tests/lib/sim.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void sim_init(struct sim *s, uint64_t seed)
{
    *s = (struct sim){.now_ms = 1000, .hash = 14695981039346656037U, .rng = seed};
    s->is_traced = getenv("SIM_TRACE") != NULL; /* NOLINT(concurrency-mt-unsafe) */
}

void sim_release(struct sim *s)
{
    mem_free(s->heap);
}

uint64_t sim_random(struct sim *s, uint64_t below)
{
    uint64_t z;

    s->rng += 0x9E3779B97F4A7C15U; /* splitmix64 */
    z = s->rng;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return (z ^ (z >> 31)) % below;
}

uint64_t sim_between(struct sim *s, uint64_t low, uint64_t high)
{
    return low + sim_random(s, high - low + 1);
}

bool sim_chance(struct sim *s, unsigned percent)
{
    return sim_random(s, 100) < percent;
}

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static void swap(struct sim_event *a, struct sim_event *b)
{
    struct sim_event t = *a;

    *a = *b;
    *b = t;
}

static void put(struct sim *s, const struct sim_event *event)
{
    size_t i = s->n++;

    if (s->n > s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 1024;
        s->heap = mem_grow(s->heap, s->capacity, sizeof(*s->heap));
    }
    s->heap[i] = *event;
    while (i > 0 && is_before(&s->heap[i], &s->heap[(i - 1) / 2])) {
        swap(&s->heap[i], &s->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
}

void sim_at(struct sim *s, uint64_t at_ms, sim_cb cb, void *arg, uint64_t tag)
{
    struct sim_event event = {.at_ms = MAX(at_ms, s->now_ms),
                              .order = ++s->last_order,
                              .cb = cb,
                              .arg = arg,
                              .tag = tag};

    put(s, &event);
}

void sim_after(struct sim *s, uint64_t delay_ms, sim_cb cb, void *arg, uint64_t tag)
{
    sim_at(s, s->now_ms + delay_ms, cb, arg, tag);
}

void sim_put_off(struct sim *s, const struct sim_event *event, uint64_t at_ms)
{
    struct sim_event later = *event;

    later.at_ms = at_ms;
    put(s, &later);
}

static void sift_down(struct sim *s)
{
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < s->n && is_before(&s->heap[child + 1], &s->heap[child])) {
            child++;
        }
        if (child >= s->n || !is_before(&s->heap[child], &s->heap[i])) {
            return;
        }
        swap(&s->heap[i], &s->heap[child]);
        i = child;
    }
}

bool sim_next(struct sim *s, struct sim_event *ret)
{
    if (s->n == 0) {
        return false;
    }
    *ret = s->heap[0];
    s->heap[0] = s->heap[--s->n];
    sift_down(s);
    s->now_ms = ret->at_ms;
    return true;
}

void sim_note(struct sim *s, const char *fmt, ...)
{
    char text[512];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (s->is_traced) {
        (void)printf("%8" PRIu64 " %s\n", s->now_ms, text);
    }
    for (int i = 0; i < n && i < (int)sizeof(text) - 1; i++) {
        s->hash = (s->hash ^ (uint8_t)text[i]) * 1099511628211U; /* FNV-1a */
    }
    s->hash = (s->hash ^ s->now_ms) * 1099511628211U;
}
