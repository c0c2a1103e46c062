/* The training loop. One step in ten lines:
 *
 *   for each turn: tokens → forward, backward; gradients go out as units complete
 *   the rest of the reduction; the loss sums of all leaves travel with the leave flag
 *   norm, clip, AdamW (after the snapshot that may still be copying)
 *   a loss or norm that is not finite ends the run: no checkpoint is taken of it; and so
 *     does a difference between ranks that hold the same weights; where the loss is
 *     scaled, such a norm skips the update and lowers the scale, and a loss of fp16 that
 *     is not finite ends nothing
 *   the loss arrives; every eval.every steps the validation loss, and with
 *     checkpoint.keep_best that of each checkpoint
 *   metrics.jsonl and the progress line (rank 0); progress to the agent (every rank)
 *   every checkpoint.every (steps or time), at the end, and when asked to leave: a
 *     snapshot
 */

#include "worker/train.h"

#include "worker/cadence.h"
#include "worker/divergence.h"
#include "worker/evaluate.h"
#include "worker/gauge.h"
#include "worker/plan.h"
#include "worker/replicas.h"
#include "worker/report/progress.h"
#include "worker/save_clock.h"
#include "worker/scaling.h"
#include "worker/trainer.h"

#include "common/clock.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { CURVE_COLUMNS = 72, CURVE_ROWS = 14, PROGRESS_MAX = 256, MEAN_STEPS = 10 };

struct loop {
    struct trainer *t;
    double step_s; /* mean of the last MEAN_STEPS or so, for tok/s and ETA */
    int n_steps;   /* of them */
    struct save_clock save;
    struct gauge gauge;
    uint64_t skipped_shown; /* steps without an update: as of the last progress line */
    bool is_terminal;       /* stdout: progress lines are written over each other */
};

/* The last progress line. The saver thread logs while the loop shows progress. */
static struct {
    pthread_mutex_t lock; /* of what is written to the terminal, too */
    bool is_open;         /* it has no newline yet */
} shown_line = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_backward(void *arg)
{
    const struct trainer *t = arg;

    trainer_phase(t, "backward");
}

static int run_leaf(struct trainer *t, uint32_t index, struct errmsg *msg)
{
    struct gpt2_leaf leaf = {
        .params = t->strategy->pass(t->parallel, true),
        .loss_scale = scaling_of_leaf(t),
        .loss_sum = losses_slot(t->losses, index),
        .position = t->data_step * (uint64_t)t->config->train.global_batch +
                    index * (uint64_t)t->config->train.micro_batch,
        .on_backward = on_backward,
        .arg = t,
    };
    int rv;

    trainer_phase(t, "data");
    rv = trainer_find_tokens(t, index, &leaf, msg);
    if (rv < 0) {
        return rv;
    }
    trainer_phase(t, "forward");
    (void)fault_at("train.leaf");
    leaf.grads = t->strategy->turn(t->parallel, &leaf.grad_head);
    gpt2_forward_backward(t->model, &leaf);
    return 0;
}

static unsigned own_flags(const struct loop *loop)
{
    const struct trainer *t = loop->t;

    return save_clock_flags(&loop->save) |
           (control_client_should_leave(t->control) ? LOSSES_LEAVE : 0U) |
           (saver_is_busy(t->saver) ? LOSSES_SAVING : 0U);
}

/* Without a leaf for the last turn a rank still has parameters and shards to share. */
static int run_turns(struct trainer *t, struct errmsg *msg)
{
    const struct leaf_run *leaves = &t->parallel->leaves;
    int rv = t->feed ? feed_step(t->feed, msg) : 0;

    for (uint32_t i = 0; i < t->parallel->n_turns && rv == 0; i++) {
        uint32_t index = leaves->begin + i * leaves->stride;

        if (index < leaves->end) {
            rv = run_leaf(t, index, msg);
        } else {
            parallel_idle(t->parallel, true);
        }
    }
    return rv;
}

/* One optimizer step. Fills loss, norm, lr of `line`; *ret_flags is every rank's. */
static int run_step(struct loop *loop, struct metrics_line *line, unsigned *ret_flags,
                    struct errmsg *msg)
{
    struct trainer *t = loop->t;
    struct schedule_config schedule = trainer_adamw_config(t).schedule;
    const double *norm;
    const float *grads;
    double sum;
    int rv = run_turns(t, msg);

    if (rv < 0) {
        return rv;
    }
    trainer_phase(t, "reduce");
    grads = t->strategy->finish(t->parallel);
    gauge_note(&loop->gauge, t);
    losses_exchange(t->losses, own_flags(loop));
    device_wait(t->device, QUEUE_COMPUTE, saver_snapshot_ticket(t->saver));
    saver_wait_state(t->saver);
    trainer_phase(t, "optimizer");
    adamw_step(t->optimizer, t->parallel->params, grads, scaling_turn(t), &norm);
    t->strategy->updated(t->parallel);
    trainer_phase(t, "reduce");
    rv = losses_finish(t->losses, t->timeout_ms, &sum, ret_flags, msg);
    rv = rv < 0 ? rv
                : device_finish(t->device, device_mark(t->device, QUEUE_COMPUTE),
                                t->timeout_ms, msg);
    rv = rv < 0 ? rv : device_last_error(t->device, msg);
    if (rv < 0) {
        return rv;
    }
    line->loss = sum / ((double)t->config->train.global_batch *
                        (double)t->config->train.seq_len);
    line->grad_norm = *norm;
    scaling_after(t, line);
    line->lr = schedule_lr(&schedule, line->step);
    t->step = line->step;
    t->data_step++;
    return 0;
}

static void end_locked(void)
{
    if (shown_line.is_open) {
        (void)printf("\n");
        (void)fflush(stdout);
        shown_line.is_open = false;
    }
}

/* Before anything else is printed. */
static void end_line(void)
{
    (void)pthread_mutex_lock(&shown_line.lock);
    end_locked();
    (void)pthread_mutex_unlock(&shown_line.lock);
}

/* The logger's sink where stdout is a terminal; any thread's. */
static void put_log_line(const char *line, size_t size)
{
    (void)pthread_mutex_lock(&shown_line.lock);
    end_locked();
    (void)fwrite(line, 1, size, stderr);
    (void)pthread_mutex_unlock(&shown_line.lock);
}

/* --- saving --- */

static void tell_save_failure(struct loop *loop, const struct errmsg *msg)
{
    if (trainer_leads(loop->t)) {
        end_line();
        (void)fprintf(
            stderr,
            "ctrun-worker: a checkpoint was not written: %s; training goes on, "
            "the last good one stays\n",
            msg->text);
    }
}

static uint64_t n_steps(const struct trainer *t)
{
    return (uint64_t)t->config->train.steps;
}

static bool is_last(const struct trainer *t)
{
    return t->step >= n_steps(t);
}

/* Begins a checkpoint of the state as it is; `line` is its step's. ERR_REFUSED: fenced.
 */
static int begin_save(struct loop *loop, const struct metrics_line *line,
                      unsigned flags, struct errmsg *msg)
{
    struct trainer *t = loop->t;
    uint64_t began_us = clock_us();
    const float *const state[] = {t->parallel->params, adamw_exp_avg(t->optimizer),
                                  adamw_exp_avg_sq(t->optimizer)};
    int rv;

    t->meta.step = t->step;
    t->meta.position = t->data_step * (uint64_t)t->config->train.global_batch;
    t->meta.has_val_loss = isfinite(line->val_loss);
    t->meta.val_loss = t->meta.has_val_loss ? line->val_loss : 0;
    t->meta.trained_ms = save_clock_trained_ms(&loop->save);
    t->meta.is_end = is_last(t) || (flags & LOSSES_LEAVE);
    scaling_save(t);
    trainer_phase(t, "save");
    rv = saver_begin(t->saver, state, &t->meta, msg);
    save_clock_begin(&loop->save, clock_us() - began_us);
    if (rv < 0 && rv != ERR_REFUSED) {
        tell_save_failure(loop, msg);
        return 0;
    }
    return rv;
}

/* --- telling --- */

/* What fits into a terminal's line: one that wraps cannot be written over. */
static int room(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1
               ? size.ws_col - 1
               : PROGRESS_MAX;
}

/* The first step pages memory in: the second one takes its place. */
static void add_time(struct loop *loop, double step_s)
{
    loop->step_s += (step_s - loop->step_s) / MAX(loop->n_steps, 1);
    loop->n_steps = MIN(loop->n_steps + 1, MEAN_STEPS);
}

/* The step's shares hold for the mean of the last steps, too. */
static void scale_shares(struct metrics_line *shown, double step_s)
{
    double scale = step_s > 0 ? shown->step_s / step_s : 0;

    shown->mfu = scale > 0 ? shown->mfu / scale : -1;
    for (int q = 0; q < METRICS_QUEUES; q++) {
        shown->queue_s[q] *= scale;
    }
}

/* On a terminal a line is written over by the next one, unless it has more to say. */
static void show_progress(struct loop *loop, const struct metrics_line *line,
                          double tokens)
{
    const struct trainer *t = loop->t;
    struct metrics_line shown = *line;
    char text[PROGRESS_MAX];
    bool stays;

    add_time(loop, line->step_s);
    if (!cadence_is_due_or_last(t->config->log.every, t->step, n_steps(t))) {
        return;
    }
    shown.skipped_now = t->scaler.skipped - loop->skipped_shown;
    loop->skipped_shown = t->scaler.skipped;
    stays = !loop->is_terminal || is_last(t) || !isnan(line->val_loss) ||
            shown.skipped_now > 0;
    shown.step_s = loop->step_s;
    shown.tok_s = loop->step_s > 0 ? tokens / loop->step_s : 0;
    scale_shares(&shown, line->step_s);
    progress_format(&shown, n_steps(t), text, sizeof(text));
    (void)pthread_mutex_lock(&shown_line.lock);
    (void)printf("%s%.*s%s", shown_line.is_open ? "\r\033[K" : "",
                 stays ? PROGRESS_MAX : room(), text, stays ? "\n" : "");
    (void)fflush(stdout);
    shown_line.is_open = !stays;
    (void)pthread_mutex_unlock(&shown_line.lock);
}

/* What checkpoint.every=auto has chosen, when that is new. */
static void tell_interval(struct loop *loop)
{
    char text[PROGRESS_MAX];

    if (save_clock_news(&loop->save, text, sizeof(text))) {
        end_line();
        (void)printf("%s\n", text);
        (void)fflush(stdout);
    }
}

static int report(struct loop *loop, struct metrics_line *line, uint64_t began_us,
                  struct errmsg *msg)
{
    struct trainer *t = loop->t;
    double tokens =
        (double)t->config->train.global_batch * (double)t->config->train.seq_len;
    int rv;

    line->step_s = (double)(clock_us() - began_us) / 1e6;
    line->tok_s = line->step_s > 0 ? tokens / line->step_s : 0;
    line->tokens = t->data_step * (uint64_t)tokens;
    save_clock_report(&loop->save, line);
    trainer_phase(t, "step");
    control_client_progress(t->control, t->step, "step", (uint32_t)line->tok_s,
                            line->loss);
    if (!trainer_leads(t)) {
        return 0;
    }
    gauge_read(&loop->gauge, t, line);
    rv = metrics_append(t->metrics, line, msg);
    if (rv < 0) {
        return rv;
    }
    show_progress(loop, line, tokens);
    tell_interval(loop);
    return 0;
}

/* --- a step from which no training goes on --- */

/* The same start would come here again: no restart, a refusal. */
static int stop_diverged(struct loop *loop, struct metrics_line *line,
                         uint64_t began_us, struct errmsg *msg)
{
    struct trainer *t = loop->t;
    int rv = report(loop, line, began_us, msg);

    if (rv < 0) {
        return rv;
    }
    rv = saver_wait(t->saver, msg);
    if (rv == ERR_REFUSED || rv == ERR_PEER_LOST || rv == ERR_ABORTED) {
        return rv;
    }
    if (rv < 0) {
        tell_save_failure(loop, msg);
    }
    end_line();
    if (trainer_leads(t)) {
        divergence_tell(t, line, msg);
    }
    rv = divergence_share(t, msg);
    return rv < 0 ? rv : ERR_NOT_FINITE;
}

/* The best checkpoints are known by their val_loss: each has one, but where the job was
 * asked to leave, which is not to take longer. */
static bool is_evaluated(const struct trainer *t, bool is_saved, unsigned flags)
{
    bool is_due = cadence_is_due_or_last(t->config->eval.every, t->step, n_steps(t));

    return t->val_losses &&
           (is_due || (is_saved && t->config->checkpoint.keep_best > 0 &&
                       !(flags & LOSSES_LEAVE)));
}

static int step_once(struct loop *loop, unsigned *ret_flags, struct errmsg *msg)
{
    struct trainer *t = loop->t;
    uint64_t began_us = clock_us();
    struct metrics_line line = {
        .step = t->step + 1,
        .mfu = -1,
        .generation = t->run_dir.run_generation,
        .world_size = t->launch->world_size,
        .val_loss = NAN,
    };
    bool is_saved;
    int rv;

    trace_step(line.step);
    rv = run_step(loop, &line, ret_flags, msg);
    trace_end(t->trace, TRACE_ROW_STEP, "step", began_us);
    if (rv == 0 && saver_is_fenced(t->saver)) {
        return saver_wait(t->saver, msg);
    }
    if (rv == 0 && divergence_is(t, &line)) {
        return stop_diverged(loop, &line, began_us, msg);
    }
    is_saved = rv == 0 &&
               save_clock_step(&loop->save, t->step, clock_us() - began_us, *ret_flags);
    rv = rv < 0 ? rv : replicas_check(t, is_saved, msg);
    if (rv == 0 && is_evaluated(t, is_saved, *ret_flags)) {
        trainer_phase(t, "eval");
        rv = evaluate(t, &line.val_loss, msg);
    }
    rv = rv < 0 ? rv : report(loop, &line, began_us, msg);
    if (rv == 0 && is_saved) {
        rv = begin_save(loop, &line, *ret_flags, msg);
    }
    if (rv == 0 && (trainer_leads(t) || t->parallel->gathers) &&
        cadence_is_due_or_last(t->config->sample.every, t->step, n_steps(t))) {
        end_line();
        trainer_phase(t, "sample");
        rv = evaluate_sample(t, msg);
        gauge_skip(&loop->gauge, t);
    }
    return rv;
}

static void show_end(const struct trainer *t)
{
    char path[RUN_DIR_PATH_MAX + 16];
    struct errmsg msg;
    char *curve;

    if (!t->config->log.curve) {
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", t->run_dir.path);
    if (progress_curve(path, CURVE_COLUMNS, CURVE_ROWS, &curve, &msg) == 0) {
        (void)printf("%s\n", curve);
        (void)fflush(stdout);
        mem_free(curve);
    }
}

/* The exit code, or an error. */
static int train(struct trainer *t, struct errmsg *msg)
{
    struct loop loop = {
        .t = t,
        .skipped_shown = t->scaler.skipped,
        .is_terminal = isatty(STDOUT_FILENO),
    };
    unsigned flags = 0;
    int rv = 0;

    t->has_begun = true;
    save_clock_start(&loop.save, t);
    gauge_start(&loop.gauge, t);
    if (loop.is_terminal) {
        log_set_sink(put_log_line);
    }
    if (trainer_leads(t)) {
        evaluate_warn(t);
    }
    while (rv == 0 && !is_last(t) && !(flags & LOSSES_LEAVE)) {
        rv = step_once(&loop, &flags, msg);
    }
    trainer_phase(t, "save");
    end_line();
    if (rv < 0) {
        return rv;
    }
    rv = saver_wait(t->saver, msg);
    if (rv < 0) {
        return rv == ERR_REFUSED || rv == ERR_PEER_LOST || rv == ERR_ABORTED
                   ? rv
                   : errmsg_wrap(msg, -EIO, "the last checkpoint was not written");
    }
    if (!is_last(t)) {
        if (trainer_leads(t)) {
            (void)printf("left on request after step %" PRIu64 ", saved\n", t->step);
        }
        return EXIT_LEFT;
    }
    if (trainer_leads(t)) {
        show_end(t);
    }
    return 0;
}

/* A job's ranks write a file each. */
static int open_profile(struct trainer *t, struct errmsg *msg)
{
    const struct launch *l = t->launch;
    char path[4096];
    int n;

    if (!t->profile) {
        return 0;
    }
    n = l->world_size == 1
            ? snprintf(path, sizeof(path), "%s", t->profile)
            : snprintf(path, sizeof(path), "%s.rank%d", t->profile, l->rank);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        return errmsg_set(msg, ERR_INVALID, "--profile: the path is too long");
    }
    return trace_open(path, l->rank, &t->trace, msg);
}

static void close_profile(struct trainer *t)
{
    struct errmsg msg = {""};

    if (trace_close(t->trace, &msg) < 0) {
        (void)fprintf(stderr, "ctrun-worker: rank %d: %s\n", t->launch->rank, msg.text);
    }
}

static int prepare_and_train(struct trainer *t, struct errmsg *msg)
{
    bool finished = false;
    int rv;

    rv = open_profile(t, msg);
    trainer_phase(t, "start");
    rv = rv < 0 ? rv : trainer_open(t, msg);
    trainer_phase(t, "load");
    rv = rv < 0 ? rv : trainer_resume(t, &finished, msg);
    if (rv == 0 && finished) {
        if (trainer_leads(t)) {
            (void)printf("this run is finished: step %" PRIu64 " of %lld; a larger "
                         "train.steps goes on, another run.name starts anew\n",
                         t->step, (long long)t->config->train.steps);
        }
        return 0;
    }
    return rv < 0 ? rv : train(t, msg);
}

/* A rank that fails by itself goes at once: while it still closed, its peers would have
 * noticed and gone, and the agent would stop it before its code is known. They see its
 * connections end, as if it had been killed. */
static void leave_failed(const struct trainer *t, int code)
{
    bool is_own = code != EXIT_LOST_PEER && code != EXIT_COMM_TIMEOUT;

    if (is_own && t->launch->world_size > 1) {
        (void)fflush(stdout);
        _exit(code);
    }
}

int train_run(const struct worker_options *options, const struct launch *launch,
              struct control_client *control)
{
    struct trainer t = {
        .config = &options->config,
        .launch = launch,
        .control = control,
        .profile = options->profile,
    };
    struct errmsg msg = {""};
    int code;
    int rv;

    rv = options->dry_run ? plan_run(&t, &msg) : prepare_and_train(&t, &msg);
    rv = rv == -ENOMEM && !t.has_begun ? plan_blame(&t, &msg) : rv;
    code = rv < 0 ? trainer_exit_code(&t, rv) : rv;
    if (code == EXIT_MISTAKE || rv == ERR_NOT_FINITE) { /* no restart would help */
        control_client_refuse(control, code, t.max_world, msg.text);
    } else if (rv < 0) {
        (void)fprintf(stderr, "ctrun-worker: rank %d: %s\n", launch->rank, msg.text);
        leave_failed(&t, code);
    }
    if (rv < 0) {
        trainer_abort(&t);
    }
    trainer_close(&t);
    close_profile(&t); /* now no queue works any more */
    return code;
}
