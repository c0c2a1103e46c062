#include "worker/device/trace.h"

#include "common/clock.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

struct event {
    const char *name; /* static text */
    uint64_t step;
    uint64_t begin_us;
    uint32_t duration_us;
    int row;
};

struct trace {
    FILE *file;
    int rank;
    _Atomic uint64_t n; /* also of those that found no place */
    struct event event[TRACE_EVENTS];
};

static const char *const rows[TRACE_ROWS] = {"compute", "gather", "reduce", "copy",
                                             "step"};

static _Thread_local const char *name_in_hand;
static _Thread_local uint64_t step_in_hand;

size_t trace_bytes(void)
{
    return sizeof(struct trace);
}

int trace_open(const char *path, int rank, struct trace **ret, struct errmsg *msg)
{
    FILE *file = fopen(path, "we");
    struct trace *t;

    if (!file) {
        int err = -errno;

        return errmsg_set(msg, err, "--profile: %s: %s", path, err_text(err));
    }
    t = mem_zalloc(sizeof(*t));
    t->file = file;
    t->rank = rank;
    *ret = t;
    return 0;
}

void trace_step(uint64_t step)
{
    step_in_hand = step;
}

uint64_t trace_step_in_hand(void)
{
    return step_in_hand;
}

uint64_t trace_begin(const struct trace *t)
{
    return t ? clock_us() : 0;
}

void trace_end(struct trace *t, int row, const char *name, uint64_t began_us)
{
    uint64_t i;

    if (!t) {
        return;
    }
    ASSERT(row >= 0 && row < TRACE_ROWS);
    i = atomic_fetch_add(&t->n, 1);
    if (i < TRACE_EVENTS) {
        t->event[i] = (struct event){.name = name,
                                     .step = step_in_hand,
                                     .begin_us = began_us,
                                     .duration_us = (uint32_t)(clock_us() - began_us),
                                     .row = row};
    }
}

void trace_name(const char *name)
{
    name_in_hand = name;
}

const char *trace_take_name(void)
{
    const char *name = name_in_hand;

    name_in_hand = NULL;
    return name ? name : "task";
}

/* Errors stay with the stream: trace_close asks once. */
static void write_events(const struct trace *t, uint64_t n)
{
    (void)fprintf(t->file,
                  "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
                  "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, "
                  "\"args\": {\"name\": \"rank %d\"}}",
                  t->rank, t->rank);
    for (int i = 0; i < TRACE_ROWS; i++) {
        (void)fprintf(t->file,
                      ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, "
                      "\"tid\": %d, \"args\": {\"name\": \"%s\"}}",
                      t->rank, i, rows[i]);
    }
    for (uint64_t i = 0; i < n; i++) {
        const struct event *e = &t->event[i];

        (void)fprintf(t->file,
                      ",\n{\"ph\": \"X\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, "
                      "\"ts\": %" PRIu64 ", \"dur\": %" PRIu32
                      ", \"args\": {\"step\": %" PRIu64 "}}",
                      e->name, t->rank, e->row, e->begin_us, e->duration_us, e->step);
    }
    (void)fprintf(t->file, "\n]}\n");
}

int trace_close(struct trace *t, struct errmsg *msg)
{
    uint64_t all, n;
    bool is_bad;

    if (!t) {
        return 0;
    }
    all = atomic_load(&t->n);
    n = MIN(all, (uint64_t)TRACE_EVENTS);
    write_events(t, n);
    if (all > n) {
        (void)fprintf(stderr,
                      "ctrun-worker: rank %d: the profile has the first %" PRIu64
                      " of %" PRIu64 " pieces of work, to step %" PRIu64 "\n",
                      t->rank, n, all, t->event[n - 1].step);
    }
    is_bad = ferror(t->file) != 0;
    is_bad = fclose(t->file) != 0 || is_bad;
    mem_free(t);
    return is_bad ? errmsg_set(msg, -EIO, "--profile: the file could not be written")
                  : 0;
}
