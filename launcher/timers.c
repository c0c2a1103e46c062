#include "launcher/timers.h"

#include "common/check.h"
#include "common/mem.h"

#include <jansson.h>
#include <string.h>

enum { LAST_SIGNAL = 64 };

void timers_init(struct timers *t)
{
    *t = (struct timers){0};
}

void timers_release(struct timers *t)
{
    mem_free(t->all);
    t->all = NULL;
    t->n = 0;
}

void timers_clear(struct timers *t)
{
    timers_release(t);
    t->line_len = 0;
    t->is_skipping = false;
}

static void drop(struct timers *t, size_t i)
{
    t->all[i] = t->all[--t->n];
}

bool timers_are_many(const struct timers *t)
{
    return t->n > TIMERS_MAX / 2;
}

void timers_prune(struct timers *t, bool (*is_there)(void *arg, const struct timer *),
                  void *arg)
{
    for (size_t i = t->n; i-- > 0;) {
        if (!is_there(arg, &t->all[i])) {
            drop(t, i);
        }
    }
}

void timers_forget(struct timers *t, int32_t pid)
{
    for (size_t i = t->n; i-- > 0;) {
        if (t->all[i].pid == pid) {
            drop(t, i);
        }
    }
}

static void put(struct timers *t, const struct timer *timer)
{
    if (t->n == TIMERS_MAX) {
        t->has_overflowed = true;
        return;
    }
    t->all = mem_grow(t->all, t->n + 1, sizeof(*t->all));
    t->all[t->n++] = *timer;
}

/* Far away is never; in the past is now. */
static uint64_t deadline_of(double time_s, uint64_t wall_ms, uint64_t now_ms)
{
    double left_ms = time_s * 1000 - (double)wall_ms;

    if (left_ms >= 1e15) {
        return UINT64_MAX;
    }
    return now_ms + (left_ms > 0 ? (uint64_t)left_ms : 0);
}

static bool in_range(const json_t *value, json_int_t low, json_int_t high)
{
    return json_is_integer(value) && json_integer_value(value) >= low &&
           json_integer_value(value) <= high;
}

/* False: it is no request. */
static bool take_request(struct timers *t, const json_t *root, uint64_t wall_ms,
                         uint64_t now_ms)
{
    const json_t *pid = json_object_get(root, "pid");
    const json_t *scope = json_object_get(root, "scope_id");
    const json_t *time = json_object_get(root, "expiration_time");
    const json_t *signal_number = json_object_get(root, "signal");
    const char *name = json_string_value(scope);
    struct timer timer = {0};
    size_t len;

    if (!in_range(pid, 1, INT32_MAX) || !name || !json_is_number(time) ||
        !in_range(signal_number, 0, LAST_SIGNAL)) {
        return false;
    }
    len = strlen(name);
    name += len > TIMERS_SCOPE_MAX - 1 ? len - (TIMERS_SCOPE_MAX - 1) : 0;
    memcpy(timer.scope, name, strlen(name));
    timer.pid = (int32_t)json_integer_value(pid);
    timer.signal = (int32_t)json_integer_value(signal_number);
    for (size_t i = t->n; i-- > 0;) {
        if (t->all[i].pid == timer.pid && strcmp(t->all[i].scope, timer.scope) == 0) {
            drop(t, i);
        }
    }
    if (json_number_value(time) >= 0 && timer.signal != 0) {
        timer.deadline_ms = deadline_of(json_number_value(time), wall_ms, now_ms);
        timer.since_ms = now_ms;
        put(t, &timer);
    }
    return true;
}

static void end_line(struct timers *t, uint64_t wall_ms, uint64_t now_ms)
{
    json_t *root = json_loadb(t->line, t->line_len, 0, NULL);

    if (!root || !take_request(t, root, wall_ms, now_ms)) {
        t->has_bad = true;
    }
    json_decref(root);
}

void timers_feed(struct timers *t, const char *data, size_t size, uint64_t wall_ms,
                 uint64_t now_ms)
{
    const char *end = data + size;

    while (data < end) {
        const char *newline = memchr(data, '\n', (size_t)(end - data));
        size_t n = (size_t)((newline ? newline : end) - data);

        t->is_skipping = t->is_skipping || n > sizeof(t->line) - t->line_len;
        if (!t->is_skipping) {
            memcpy(t->line + t->line_len, data, n);
            t->line_len += n;
        }
        if (newline && t->is_skipping) {
            t->has_bad = true;
        } else if (newline) {
            end_line(t, wall_ms, now_ms);
        }
        if (newline) {
            t->line_len = 0;
            t->is_skipping = false;
        }
        data += n + (newline ? 1 : 0);
    }
}

static const struct timer *first(const struct timers *t)
{
    const struct timer *found = NULL;

    for (size_t i = 0; i < t->n; i++) {
        if (!found || t->all[i].deadline_ms < found->deadline_ms) {
            found = &t->all[i];
        }
    }
    return found;
}

uint64_t timers_deadline(const struct timers *t)
{
    const struct timer *timer = first(t);

    return timer ? timer->deadline_ms : UINT64_MAX;
}

bool timers_take(struct timers *t, uint64_t now_ms, struct timer *ret)
{
    const struct timer *timer = first(t);

    if (!timer || timer->deadline_ms > now_ms) {
        return false;
    }
    *ret = *timer;
    timers_forget(t, ret->pid);
    return true;
}

const char *timers_trouble(struct timers *t)
{
    if (t->has_bad && !t->told_bad) {
        t->told_bad = true;
        return "a worker wrote something into TORCHELASTIC_TIMER_FILE that is no "
               "request of torch's file timers: ignored";
    }
    if (t->has_overflowed && !t->told_overflow) {
        t->told_overflow = true;
        return "the workers have more file timers at once than ctrun keeps: the newest "
               "are ignored";
    }
    return NULL;
}
