#include "rendezvous/metrics.h"

#include "rendezvous/event_json.h"
#include "rendezvous/tracking.h"

#include "common/mem.h"
#include "common/version.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What passes the ceiling is left out; the ceiling is far above what there can be. */
static void put(struct buf *out, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void put(struct buf *out, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)buf_vprintf(out, fmt, args);
    va_end(args);
}

static void put_family(struct buf *out, const char *name, const char *type,
                       const char *help)
{
    put(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_gauge(struct buf *out, const char *name, const char *help,
                      uint64_t value)
{
    put_family(out, name, "gauge", help);
    put(out, "%s %" PRIu64 "\n", name, value);
}

static void put_counter(struct buf *out, const char *name, const char *help,
                        uint64_t value)
{
    put_family(out, name, "counter", help);
    put(out, "%s %" PRIu64 "\n", name, value);
}

/* A label's value: backslashes, quotes and newlines are escaped. */
static void put_label(struct buf *out, const char *text)
{
    json_t *clean = event_json_text(text);

    for (const char *c = json_string_value(clean); *c; c++) {
        if (*c == '\n') {
            put(out, "\\n");
        } else {
            put(out, "%s%c", *c == '\\' || *c == '"' ? "\\" : "", *c);
        }
    }
    json_decref(clean);
}

/* Cumulative, as Prometheus has it. `labels` "" or `op="get"`; values are divided. */
static void put_spread(struct buf *out, const char *name, const char *labels,
                       const struct tally_spread *s, const uint64_t *bounds,
                       double divisor)
{
    const char *comma = labels[0] != '\0' ? "," : "";
    const char *open = labels[0] != '\0' ? "{" : "";
    const char *close = labels[0] != '\0' ? "}" : "";
    uint64_t below = 0;

    for (size_t i = 0; i < TALLY_BUCKETS; i++) {
        below += s->bucket[i];
        put(out, "%s_bucket{%s%sle=\"%.9g\"} %" PRIu64 "\n", name, labels, comma,
            (double)bounds[i] / divisor, below);
    }
    put(out, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, comma, s->count);
    put(out, "%s_sum%s%s%s %.15g\n", name, open, labels, close,
        (double)s->sum / divisor);
    put(out, "%s_count%s%s%s %" PRIu64 "\n", name, open, labels, close, s->count);
}

/* ---- jobs, together ---- */

static const char *const job_states[] = {"forming", "running",   "draining", "done",
                                         "failed",  "cancelled", "stopped"};
static const char *const node_states[NODE_STATE_COUNT] = {
    [NODE_PRESENT] = "present", [NODE_JOINED] = "joined", [NODE_RUNNING] = "running",
    [NODE_DONE] = "done",       [NODE_LEFT] = "left",
};

struct totals {
    uint64_t jobs[ARRAY_LEN(job_states)];
    uint64_t nodes[NODE_STATE_COUNT];
    uint64_t ranks;
};

static void count_job(struct totals *t, const struct job *j)
{
    const char *state = view_job_state(j);

    for (size_t i = 0; i < ARRAY_LEN(job_states); i++) {
        t->jobs[i] += strcmp(state, job_states[i]) == 0;
    }
    for (size_t i = 0; i < NODE_STATE_COUNT; i++) {
        t->nodes[i] += j->count[i];
    }
    t->ranks += view_job_ranks(j);
}

static void put_totals(struct buf *out, const struct registry *jobs)
{
    struct totals t = {0};

    for (size_t i = 0; i < jobs->n; i++) {
        count_job(&t, jobs->entry[i]->job);
    }
    put_family(out, "ctrun_jobs", "gauge", "Jobs that the service knows, by state.");
    for (size_t i = 0; i < ARRAY_LEN(job_states); i++) {
        put(out, "ctrun_jobs{state=\"%s\"} %" PRIu64 "\n", job_states[i], t.jobs[i]);
    }
    put_family(out, "ctrun_nodes", "gauge",
               "Nodes of all jobs, by state; a node that stands by has joined.");
    for (size_t i = 0; i < NODE_STATE_COUNT; i++) {
        put(out, "ctrun_nodes{state=\"%s\"} %" PRIu64 "\n", node_states[i], t.nodes[i]);
    }
    put_gauge(out, "ctrun_ranks", "Ranks of all generations that run.", t.ranks);
}

static void put_history(struct buf *out, const struct history *h)
{
    put_counter(out, "ctrun_generations_total", "Generations that were formed.",
                h->n_kind[JOB_HAS_FORMED]);
    put_family(out, "ctrun_restarts_total", "counter",
               "Generations that another one followed, by why they ended.");
    for (int i = 0; i < RESTART_CAUSE_COUNT; i++) {
        put(out, "ctrun_restarts_total{cause=\"%s\"} %" PRIu64 "\n",
            event_cause_name((enum restart_cause)i), h->n_restarts[i]);
    }
    put_family(out, "ctrun_jobs_ended_total", "counter",
               "Jobs that have ended, by how.");
    put(out, "ctrun_jobs_ended_total{state=\"done\"} %" PRIu64 "\n",
        h->n_kind[JOB_IS_DONE]);
    put(out, "ctrun_jobs_ended_total{state=\"failed\"} %" PRIu64 "\n",
        h->n_kind[JOB_HAS_FAILED]);
    put(out, "ctrun_jobs_ended_total{state=\"cancelled\"} %" PRIu64 "\n",
        h->n_kind[JOB_IS_CANCELLED]);
    put(out, "ctrun_jobs_ended_total{state=\"stopped\"} %" PRIu64 "\n",
        h->n_kind[JOB_IS_STOPPED]);
    put_counter(out, "ctrun_nodes_joined_total", "Nodes that have joined a job.",
                h->n_kind[NODE_HAS_JOINED]);
    put_counter(out, "ctrun_nodes_lost_total", "Nodes that were lost.",
                h->n_kind[NODE_IS_LOST]);
    put_counter(out, "ctrun_nodes_left_total",
                "Nodes that have left as they were told.", h->n_kind[NODE_HAS_LEFT]);
    put_counter(out, "ctrun_commits_total", "Checkpoints that were accepted.",
                h->n_kind[JOB_HAS_COMMITTED]);
    put_counter(out, "ctrun_hangs_total", "Ranks that were found hanging.",
                h->n_kind[JOB_HANGS]);
}

/* ---- jobs, one by one ---- */

struct job_figures {
    const struct job *job;
    const struct history_job *record; /* NULL: nothing is known */
};

static double generation_of(const struct job_figures *f)
{
    return (double)f->job->generation;
}

static double nodes_of(const struct job_figures *f)
{
    return (double)job_members(f->job);
}

static double ranks_of(const struct job_figures *f)
{
    return (double)view_job_ranks(f->job);
}

static double restarts_of(const struct job_figures *f)
{
    double n = 0;

    for (int i = 0; i < RESTART_CAUSE_COUNT && f->record; i++) {
        n += f->record->restarts[i];
    }
    return n;
}

static double committed_of(const struct job_figures *f)
{
    return (double)f->job->fence.last.step;
}

static bool has_committed(const struct job_figures *f)
{
    return f->job->fence.last.hash[0] != '\0';
}

static double step_of(const struct job_figures *f)
{
    return (double)view_job_step(f->job, f->record);
}

static double rate_of(const struct job_figures *f)
{
    return view_job_tok_s(f->job);
}

static double loss_of(const struct job_figures *f)
{
    const struct loss_curve *c = f->record ? &f->record->curve : NULL;

    return c && c->n > 0 ? c->point[c->n - 1].loss : NAN;
}

static double hangs_of(const struct job_figures *f)
{
    return tracking_hung(f->job) != NULL;
}

static bool has_loss(const struct job_figures *f)
{
    return f->record && f->record->curve.n > 0;
}

static const struct job_metric {
    const char *name, *type, *help;
    double (*value)(const struct job_figures *f);
    bool (*is_known)(const struct job_figures *f); /* NULL: always */
} job_metrics[] = {
    {"ctrun_job_generation", "gauge", "The job's generation.", generation_of, NULL},
    {"ctrun_job_nodes", "gauge", "Nodes in the job's generation.", nodes_of, NULL},
    {"ctrun_job_ranks", "gauge", "Ranks in the job's generation.", ranks_of, NULL},
    {"ctrun_job_restarts_total", "counter", "The job's restarts, for any cause.",
     restarts_of, NULL},
    {"ctrun_job_committed_step", "gauge", "The step of the last checkpoint.",
     committed_of, has_committed},
    {"ctrun_job_step", "gauge", "The last step that was reported; 0: none.", step_of,
     NULL},
    {"ctrun_job_tokens_per_second", "gauge",
     "Throughput as last reported; 0: not known.", rate_of, NULL},
    {"ctrun_job_hangs", "gauge", "1 while a rank of it hangs, else 0.", hangs_of, NULL},
    {"ctrun_job_loss", "gauge", "The loss as last reported.", loss_of, has_loss},
};

static void put_value(struct buf *out, double value)
{
    if (isfinite(value)) {
        put(out, " %.15g\n", value);
    } else {
        put(out, isnan(value) ? " NaN\n" : value > 0 ? " +Inf\n" : " -Inf\n");
    }
}

static void put_job_metric(struct buf *out, const struct job_metric *m,
                           const struct job_figures *figures, size_t n)
{
    put_family(out, m->name, m->type, m->help);
    for (size_t i = 0; i < n; i++) {
        if (!m->is_known || m->is_known(&figures[i])) {
            put(out, "%s{job=\"", m->name);
            put_label(out, figures[i].job->id);
            put(out, "\"}");
            put_value(out, m->value(&figures[i]));
        }
    }
}

static void choose_if(const struct view *v, bool running, struct job_figures *ret,
                      size_t *n)
{
    const struct registry *jobs = service_jobs(v->service);

    for (size_t i = 0; i < jobs->n && *n < METRICS_MAX_JOBS; i++) {
        const struct job *j = jobs->entry[i]->job;
        bool runs = j->state == JOB_RUNNING || j->state == JOB_DRAINING;

        if (runs == running && !job_is_over(j) && !job_is_stopped(j)) {
            ret[(*n)++] = (struct job_figures){j, view_record(v, j)};
        }
    }
}

/* Those that run, then the others, as many as have room. */
static size_t choose(const struct view *v, struct job_figures *ret)
{
    size_t n = 0;

    choose_if(v, true, ret, &n);
    choose_if(v, false, ret, &n);
    return n;
}

static void put_jobs(struct buf *out, const struct view *v)
{
    struct job_figures *figures =
        mem_array(METRICS_MAX_JOBS, sizeof(struct job_figures));
    size_t n = choose(v, figures);

    put_gauge(out, "ctrun_jobs_with_series",
              "Jobs that have series of their own below (at most 256).", n);
    for (size_t i = 0; i < ARRAY_LEN(job_metrics); i++) {
        put_job_metric(out, &job_metrics[i], figures, n);
    }
    mem_free(figures);
}

/* ---- the service ---- */

static void put_tally(struct buf *out, const struct tally *t,
                      const struct metrics_shell *shell, uint64_t n_turned_away)
{
    char label[64];

    put_family(out, "ctrun_lease_seconds", "gauge",
               "How long an agent may be silent before its node counts as lost.");
    put(out, "ctrun_lease_seconds %.3f\n", shell->lease_ms / 1e3);
    put_family(out, "ctrun_lease_margin_ratio", "histogram",
               "How much of its lease an agent had left at each heartbeat.");
    put_spread(out, "ctrun_lease_margin_ratio", "", &t->lease_left, tally_lease_bounds,
               1e3);
    if (shell->is_durable) {
        put_family(out, "ctrun_state_commit_seconds", "histogram",
                   "Until what a turn of the loop has decided was on the disk.");
        put_spread(out, "ctrun_state_commit_seconds", "", &t->commits,
                   tally_time_bounds, 1e9);
    }
    put_family(out, "ctrun_store_operation_seconds", "histogram",
               "The key-value store's operations, by what they took to carry out.");
    for (int i = 0; i < TCPSTORE_OP_COUNT; i++) {
        if (t->store[i].count > 0) {
            (void)snprintf(label, sizeof(label), "op=\"%s\"",
                           tally_op_name((enum tcpstore_op)i));
            put_spread(out, "ctrun_store_operation_seconds", label, &t->store[i],
                       tally_time_bounds, 1e9);
        }
    }
    put_family(out, "ctrun_refusals_total", "counter",
               "Connections and nodes that were turned away, by why.");
    put(out, "ctrun_refusals_total{reason=\"node\"} %" PRIu64 "\n", n_turned_away);
    for (int i = 0; i < TALLY_REFUSAL_COUNT; i++) {
        put(out, "ctrun_refusals_total{reason=\"%s\"} %" PRIu64 "\n",
            tally_refusal_name((enum tally_refusal)i), t->refused[i]);
    }
    for (int i = 0; i < REFUSAL_COUNT && shell->refusals; i++) {
        put(out, "ctrun_refusals_total{reason=\"%s\"} %" PRIu64 "\n",
            refusal_name((enum refusal)i), shell->refusals->count[i]);
    }
}

static void put_shell(struct buf *out, const struct metrics_shell *s,
                      const struct tally *t)
{
    put_family(out, "ctrun_build_info", "gauge", "Always 1; which version runs.");
    put(out, "ctrun_build_info{version=\"%s\"} 1\n", CTRUN_VERSION);
    put_gauge(out, "ctrun_ready", "1 where /readyz is fine.", s->is_ready);
    put_gauge(out, "ctrun_durable", "1 where state outlives the service.",
              s->is_durable);
    put_counter(out, "ctrun_connections_accepted_total", "Connections that came.",
                t->accepted);
    put_family(out, "ctrun_connections", "gauge", "Open connections, by whose.");
    put(out, "ctrun_connections{kind=\"agent\"} %" PRIu64 "\n", s->agents);
    put(out, "ctrun_connections{kind=\"operator\"} %" PRIu64 "\n", s->operators);
    put(out, "ctrun_connections{kind=\"store\"} %" PRIu64 "\n", s->store_clients);
    put(out, "ctrun_connections{kind=\"other\"} %" PRIu64 "\n",
        s->connections - s->agents - s->operators - s->store_clients);
    put_counter(out, "ctrun_http_requests_total", "Requests to this port.",
                s->http_requests);
    put_gauge(out, "ctrun_store_bytes", "Memory of the jobs' key-value stores.",
              s->store_used);
    put_gauge(out, "ctrun_store_max_bytes", "… and what they may have.", s->store_max);
    put_family(out, "process_start_time_seconds", "gauge", "When the service began.");
    put(out, "process_start_time_seconds %.3f\n", (double)s->started_ms / 1e3);
    put_family(out, "process_cpu_seconds_total", "counter", "Its time on processors.");
    put(out, "process_cpu_seconds_total %.6f\n", (double)s->cpu_us / 1e6);
    if (s->resident > 0) {
        put_gauge(out, "process_resident_memory_bytes", "Its memory.", s->resident);
    }
    if (s->descriptors > 0) {
        put_gauge(out, "process_open_fds", "Its open files.", s->descriptors);
    }
}

void metrics_write(const struct view *v, const struct tally *t,
                   const struct metrics_shell *shell, struct buf *out)
{
    put_shell(out, shell, t);
    put_totals(out, service_jobs(v->service));
    put_history(out, v->history);
    put_tally(out, t, shell, v->history->n_kind[NODE_IS_REFUSED]);
    put_jobs(out, v);
}
