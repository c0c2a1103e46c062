#include "rendezvous/cause.h"

#include "common/exit_code.h"
#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { CRASH_LOOP = 3, BITS = 64 };

void cause_clear(struct cause *c)
{
    c->has_rank = false;
    c->n_ends = 0;
    c->n_dropped = 0;
    mem_free(c->dropped);
    c->dropped = NULL;
    c->host[0] = '\0';
}

void cause_release(struct cause *c)
{
    cause_clear(c);
    c->loops = 0;
}

/* An engine's that says that others are the cause. */
static bool is_reaction_code(int32_t code)
{
    return code == EXIT_LOST_PEER || code == EXIT_COMM_TIMEOUT || code == EXIT_LEFT;
}

enum guilt { GUILT_STOPPED, GUILT_REACTED, GUILT_OWN };

/* Whether nobody else has brought this end about. */
static enum guilt guilt_of(const struct msg_rank_ended *end)
{
    bool is_reaction =
        end->engine && end->signal == 0 && is_reaction_code(end->exit_code);

    if (end->stopped) {
        return GUILT_STOPPED;
    }
    return is_reaction ? GUILT_REACTED : GUILT_OWN;
}

bool cause_is_consequence(const struct cause *c)
{
    return !c->has_rank || guilt_of(&c->first) != GUILT_OWN;
}

bool cause_is_reaction(const struct cause *c)
{
    return c->has_rank && guilt_of(&c->first) == GUILT_REACTED;
}

const char *cause_reaction_text(const struct cause *c)
{
    bool has_timed_out = c->first.exit_code == EXIT_COMM_TIMEOUT;

    for (size_t i = 0; i < c->n_ends; i++) {
        const struct rank_end *end = &c->end[i];

        has_timed_out =
            has_timed_out || (end->engine && end->code == EXIT_COMM_TIMEOUT);
    }
    return has_timed_out
               ? "every rank lost a peer or timed out; none failed by itself (where "
                 "exchanges take long, raise comm.timeout)"
               : "every rank lost a peer or timed out; none failed by itself";
}

static bool comes_before(const struct msg_rank_ended *a, const struct msg_rank_ended *b)
{
    enum guilt guilt_a = guilt_of(a);
    enum guilt guilt_b = guilt_of(b);

    return guilt_a != guilt_b ? guilt_a > guilt_b : a->ended_ms < b->ended_ms;
}

static bool is_listed(const struct cause *c, uint32_t rank)
{
    for (size_t i = 0; i < c->n_ends; i++) {
        if (c->end[i].rank == rank) {
            return true;
        }
    }
    return false;
}

static bool is_known(const struct cause *c, uint32_t rank)
{
    return is_listed(c, rank) ||
           (c->dropped && (c->dropped[rank / BITS] >> (rank % BITS) & 1) != 0);
}

/* Counted, and remembered so that it is counted once. */
static void drop(struct cause *c, uint32_t rank)
{
    if (!c->dropped) {
        c->dropped = mem_zalloc(MSG_MAX_WORLD / BITS * sizeof(*c->dropped));
    }
    c->dropped[rank / BITS] |= (uint64_t)1 << (rank % BITS);
    c->n_dropped++;
}

static void make_first(struct cause *c, const struct msg_rank_ended *end,
                       const char *host)
{
    c->first = *end;
    (void)snprintf(c->host, sizeof(c->host), "%s", host);
}

/* An end is told at once, and again when the worker's output has been read. */
static void take_last_words(struct cause *c, const struct msg_rank_ended *end,
                            const char *host)
{
    for (size_t i = 0; i < c->n_ends; i++) {
        if (c->end[i].rank == end->rank) {
            c->end[i].code = end->exit_code;
            c->end[i].signal = end->signal;
            c->end[i].stopped = end->stopped != 0;
        }
    }
    if (c->first.rank == end->rank && c->first.stopped == end->stopped) {
        memcpy(c->first.log_path, end->log_path, sizeof(c->first.log_path));
        memcpy(c->first.message, end->message, sizeof(c->first.message));
        memcpy(c->first.tail, end->tail, sizeof(c->first.tail));
        memcpy(c->first.error, end->error, sizeof(c->first.error));
        memcpy(c->first.error_file, end->error_file, sizeof(c->first.error_file));
        c->first.ended_ms = end->ended_ms;
    } else if (c->first.rank == end->rank || comes_before(end, &c->first)) {
        make_first(c, end, host);
    }
}

void cause_add(struct cause *c, const struct msg_rank_ended *end, const char *host)
{
    if (end->rank >= MSG_MAX_WORLD) {
        return; /* there is no such rank */
    }
    if (is_known(c, end->rank)) {
        take_last_words(c, end, host);
        return;
    }
    if (!c->has_rank || comes_before(end, &c->first)) {
        make_first(c, end, host);
    }
    c->has_rank = true;
    if (c->n_ends == CAUSE_MAX_ENDS) {
        drop(c, end->rank);
        return;
    }
    c->end[c->n_ends] = (struct rank_end){
        .rank = end->rank,
        .code = end->exit_code,
        .signal = end->signal,
        .stopped = end->stopped != 0,
        .engine = end->engine != 0,
    };
    (void)snprintf(c->end[c->n_ends].host, sizeof(c->end[0].host), "%.63s", host);
    c->n_ends++;
}

/* Signals that a process does not bring upon itself. */
static bool is_from_outside(int32_t signal)
{
    return signal == SIGKILL || signal == SIGTERM || signal == SIGINT ||
           signal == SIGHUP || signal == SIGQUIT;
}

bool cause_is_crash_loop(struct cause *c)
{
    const struct msg_rank_ended *first = &c->first;

    if (!c->has_rank || first->step == 0 || is_from_outside(first->signal) ||
        guilt_of(first) != GUILT_OWN) {
        c->loops = 0;
        return false;
    }
    if (c->loops == 0 || c->loop_rank != first->rank ||
        c->loop_code != first->exit_code || c->loop_signal != first->signal ||
        c->loop_step != first->step) {
        c->loops = 0;
        c->loop_rank = first->rank;
        c->loop_code = first->exit_code;
        c->loop_signal = first->signal;
        c->loop_step = first->step;
    }
    c->loops++;
    return c->loops >= CRASH_LOOP;
}

uint32_t cause_exit_code(const struct cause *c)
{
    uint32_t code = (uint32_t)c->first.exit_code & 0xff;

    if (!c->has_rank || cause_is_reaction(c)) {
        return 1;
    }
    if (c->first.signal != 0) {
        return EXIT_SIGNAL + ((uint32_t)c->first.signal & 0x7f);
    }
    return code != 0 ? code : 1;
}

/* Whether our signal or our word ended a rank that had been told to stop: it may as
 * well have failed by itself at the same time. */
static bool was_ended_by_us(const struct rank_end *end)
{
    if (end->signal != 0 || end->code > EXIT_SIGNAL) { /* a shell's way to say it */
        return is_from_outside(end->signal ? end->signal : end->code - EXIT_SIGNAL);
    }
    return end->engine && is_reaction_code(end->code);
}

/* What is to be said of an end beside the first cause. */
static void explain(const struct cause *c, const struct rank_end *end, char *text,
                    size_t size)
{
    bool has_culprit = !cause_is_reaction(c);
    bool has_reacted = end->engine && end->signal == 0 && is_reaction_code(end->code);

    if (end->stopped && was_ended_by_us(end) && has_culprit) {
        (void)snprintf(text, size, "stopped because of rank %u", c->first.rank);
    } else if (end->stopped && was_ended_by_us(end)) {
        (void)snprintf(text, size, "stopped because of the others");
    } else if (has_reacted) {
        (void)snprintf(text, size, "%s",
                       end->code == EXIT_LOST_PEER      ? "lost a peer"
                       : end->code == EXIT_COMM_TIMEOUT ? "its communication timed out"
                                                        : "left on request");
    } else {
        (void)snprintf(text, size, "also failed");
    }
}

/* "rank 3 on host: signal 9 (SIGKILL), also failed". */
static int format_end(const struct cause *c, const struct rank_end *end, char *text,
                      size_t size)
{
    char because[64];

    explain(c, end, because, sizeof(because));
    if (end->signal != 0) {
        const char *name = sigabbrev_np(end->signal);

        return snprintf(text, size, "rank %u on %s: signal %d (SIG%s), %s\n", end->rank,
                        end->host, end->signal, name ? name : "?", because);
    }
    return snprintf(text, size, "rank %u on %s: exit code %d, %s\n", end->rank,
                    end->host, end->code, because);
}

/* One line for each end but the first cause's, where one is; as many as fit whole. */
static void format_others(const struct cause *c, char *text, size_t size)
{
    char line[256];
    size_t used = 0;
    bool has_culprit = !cause_is_reaction(c);
    size_t n_left = c->n_dropped - (has_culprit && !is_listed(c, c->first.rank));

    text[0] = '\0';
    for (size_t i = 0; i < c->n_ends; i++) {
        int n = format_end(c, &c->end[i], line, sizeof(line));

        if (has_culprit && c->end[i].rank == c->first.rank) {
            continue;
        }
        if (n < 0 || used + (size_t)n + 64 > size) {
            n_left++;
            continue;
        }
        memcpy(text + used, line, (size_t)n + 1);
        used += (size_t)n;
    }
    if (n_left > 0) {
        (void)snprintf(text + used, size - used, "and %zu more\n", n_left);
    }
}

void cause_report(const struct cause *c, struct msg_report *ret)
{
    ret->rank = -1;
    if (!c->has_rank) {
        return;
    }
    memcpy(ret->program, c->first.program, sizeof(ret->program));
    format_others(c, ret->others, sizeof(ret->others));
    if (cause_is_reaction(c)) {
        return;
    }
    ret->rank = (int32_t)c->first.rank;
    ret->local_rank = c->first.local_rank;
    ret->pid = c->first.pid;
    ret->code = c->first.exit_code;
    ret->signal = c->first.signal;
    ret->wall_ms = c->first.wall_ms;
    memcpy(ret->host, c->host, sizeof(ret->host));
    memcpy(ret->log_path, c->first.log_path, sizeof(ret->log_path));
    memcpy(ret->message, c->first.message, sizeof(ret->message));
    memcpy(ret->tail, c->first.tail, sizeof(ret->tail));
    memcpy(ret->error, c->first.error, sizeof(ret->error));
    memcpy(ret->error_file, c->first.error_file, sizeof(ret->error_file));
}
