#include "launcher/events.h"
#include "launcher/output/own_lines.h"
#include "launcher/supervisor_core.h"

#include "common/clock.h"
#include "common/mem.h"

#include <sys/wait.h>

static void put(const struct supervisor *s, struct event *e)
{
    const struct launch_options *o = s->options;
    char *line;

    e->topology = s->topology.world_size > 0 ? &s->topology : NULL;
    e->run_id = o->rdzv_id;
    e->role = o->role;
    e->host = s->host;
    e->program = o->program[0];
    e->backend = o->is_static ? "static" : "c10d";
    e->restarts = s->failures;
    line = event_format(e);
    own_lines_put(line);
    mem_free(line);
}

void supervisor_event_start(const struct slot *slot)
{
    struct event_worker worker = {.local_rank = slot->number};
    struct event e = {.state = "START", .wall_ms = clock_wall_ms(), .worker = &worker};

    if (slot->supervisor->options->logs_events) {
        put(slot->supervisor, &e);
    }
}

void supervisor_event_end(const struct slot *slot, const char *raw_error)
{
    struct event_worker worker = {.local_rank = slot->number,
                                  .pid = slot->pid,
                                  .exit_code = WIFSIGNALED(slot->status)
                                                   ? -WTERMSIG(slot->status)
                                                   : WEXITSTATUS(slot->status)};
    struct event e = {
        .wall_ms = slot->wall_ms, .worker = &worker, .raw_error = raw_error};

    if (!slot->supervisor->options->logs_events) {
        return;
    }
    if (slot->status == 0) {
        e.state = "SUCCEEDED";
    } else {
        e.state = slot->was_stopped ? "TERMINATED" : "FAILED";
    }
    put(slot->supervisor, &e);
}

void supervisor_event_over(const struct supervisor *s)
{
    struct event e = {.state = s->exit_code == 0 ? "SUCCEEDED" : "FAILED",
                      .wall_ms = clock_wall_ms(),
                      .run_time_s = (clock_ms() - s->started_ms) / 1000};

    if (s->options->logs_events) {
        put(s, &e);
    }
}
