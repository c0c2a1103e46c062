#include "launcher/events.h"

#include "launcher/json_text.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>

enum { EVENT_MAX = 1024 * 1024 };

/* Its own text of JSON within the event, as torchrun has it. */
static void put_metadata(struct buf *out, const struct event *e)
{
    const struct event_worker *w = e->worker;
    const struct topology *t = e->topology;
    struct buf md;

    buf_init(&md, EVENT_MAX);
    json_put(&md,
             "{\"group_world_size\": %u, \"entry_point\": ", t ? t->group_world : 0);
    json_put_text(&md, e->program);
    if (w && t) {
        json_put(&md, ", \"local_rank\": [%u], \"role_rank\": [%u]", w->local_rank,
                 t->role_first_rank + w->local_rank);
        json_put(&md, ", \"role_world_size\": [%u]", t->role_world_size);
    }
    if (w && w->pid != 0) {
        json_put(&md, ", \"exit_code\": [%d], \"worker_pid\": [%u]", w->exit_code,
                 w->pid);
    } else if (w) {
        json_put(&md, ", \"exit_code\": [null], \"worker_pid\": [null]");
    }
    json_put(&md, "}%c", 0);
    json_put(out, ", \"metadata\": ");
    json_put_text(out, (const char *)buf_bytes(&md));
    buf_release(&md);
}

static void put_rank(struct buf *out, const struct event *e)
{
    char id[32] = "";

    if (!e->worker || !e->topology) {
        json_put(out, ", \"global_rank\": null");
    } else {
        json_put(out, ", \"global_rank\": %u",
                 e->topology->first_rank + e->worker->local_rank);
    }
    if (e->topology) {
        json_put(out, ", \"group_rank\": %u", e->topology->group_rank);
    } else {
        json_put(out, ", \"group_rank\": null");
    }
    if (e->worker) {
        (void)snprintf(id, sizeof(id), "%u", e->worker->local_rank);
    }
    json_put(out, ", \"worker_id\": ");
    json_put_text(out, e->worker ? id : NULL);
}

char *event_format(const struct event *e)
{
    struct buf out;

    buf_init(&out, EVENT_MAX);
    json_put(&out, "{\"name\": \"torchelastic.worker.status.%s\", \"source\": \"%s\"",
             e->state, e->worker ? "WORKER" : "AGENT");
    json_put(&out,
             ", \"timestamp\": %" PRIu64 ", \"metadata\": {\"run_id\": ", e->wall_ms);
    json_put_text(&out, e->run_id);
    put_rank(&out, e);
    json_put(&out, ", \"role\": ");
    json_put_text(&out, e->role);
    json_put(&out, ", \"hostname\": ");
    json_put_text(&out, e->host);
    json_put(&out, ", \"state\": \"%s\", \"total_run_time\": %" PRIu64, e->state,
             e->run_time_s);
    json_put(&out, ", \"rdzv_backend\": \"%s\", \"raw_error\": ", e->backend);
    json_put_text(&out, e->raw_error && e->raw_error[0] != '\0' ? e->raw_error : NULL);
    put_metadata(&out, e);
    json_put(&out, ", \"agent_restarts\": %u, \"duration_ms\": null}}\n", e->restarts);
    json_put(&out, "%c", 0);
    return (char *)out.data; /* nothing was consumed: the text begins there */
}
