#include "rendezvous/cause.h"

#include "common/exit_code.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    CRASH_LOOP = 3,
    WORDLESS_MS = 20, /* clocks over a network, and turns of the agents' loops */
};

void cause_clear(struct cause *c)
{
    c->has_changed = c->has_changed || c->has_rank || c->others.n_outcomes > 0;
    c->has_rank = false;
    c->is_hang = false;
    others_clear(&c->others);
    c->host[0] = '\0';
}

void cause_fold(struct cause *c)
{
    others_fold(&c->others);
}

void cause_release(struct cause *c)
{
    cause_clear(c);
    c->has_changed = c->has_changed || c->loops > 0;
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

bool cause_is_hang(const struct cause *c)
{
    return c->has_rank && c->is_hang && c->first.rank == c->hung_rank;
}

bool cause_is_reaction(const struct cause *c)
{
    return c->has_rank && guilt_of(&c->first) == GUILT_REACTED;
}

const char *cause_reaction_text(const struct cause *c)
{
    bool has_timed_out = others_have(&c->others, HOW_TIMED_OUT);

    return has_timed_out
               ? "every rank lost a peer or timed out; none failed by itself (where "
                 "exchanges take long, raise comm.timeout)"
               : "every rank lost a peer or timed out; none failed by itself";
}

/* By a signal, of its own or a shell's telling, other than ABRT, by which libraries
 * complain of others. */
static bool is_wordless(const struct msg_rank_ended *end)
{
    int32_t signal =
        end->signal != 0 ? end->signal : end->exit_code - (int32_t)EXIT_SIGNAL;

    return signal > 0 && signal < _NSIG && signal != SIGABRT;
}

/* A process dies without a word and at once, and others complain of it within less than
 * clocks can be compared: between the two the complaint is never the cause. As a date
 * that is moved, and not as a rule between two, it gives one order among any number. */
static uint64_t date_of(const struct msg_rank_ended *end)
{
    return is_wordless(end) ? end->ended_ms - MIN(end->ended_ms, (uint64_t)WORDLESS_MS)
                            : end->ended_ms;
}

static bool comes_before(const struct msg_rank_ended *a, const struct msg_rank_ended *b)
{
    enum guilt guilt_a = guilt_of(a);
    enum guilt guilt_b = guilt_of(b);

    return guilt_a != guilt_b ? guilt_a > guilt_b : date_of(a) < date_of(b);
}

static void make_first(struct cause *c, const struct msg_rank_ended *end,
                       const char *host)
{
    c->first = *end;
    c->has_changed = true;
    (void)snprintf(c->host, sizeof(c->host), "%s", host);
}

/* An end is told at once, and again when the worker's output has been read. */
static void take_last_words(struct cause *c, const struct msg_rank_ended *end,
                            const char *host)
{
    if (c->first.rank == end->rank && c->first.stopped == end->stopped) {
        memcpy(c->first.log_path, end->log_path, sizeof(c->first.log_path));
        memcpy(c->first.message, end->message, sizeof(c->first.message));
        memcpy(c->first.tail, end->tail, sizeof(c->first.tail));
        memcpy(c->first.error, end->error, sizeof(c->first.error));
        memcpy(c->first.error_file, end->error_file, sizeof(c->first.error_file));
        c->first.wall_ms = end->wall_ms;
        c->first.ended_ms = MIN(c->first.ended_ms, end->ended_ms);
        c->has_changed = true;
    } else if (c->first.rank == end->rank || comes_before(end, &c->first)) {
        make_first(c, end, host);
    }
}

/* Where to read on, and when it was; why is known already. */
static void take_end_of_hung(struct cause *c, const struct msg_rank_ended *end)
{
    if (c->first.rank == end->rank) {
        c->first.engine = end->engine;
        c->first.wall_ms = end->wall_ms;
        memcpy(c->first.program, end->program, sizeof(c->first.program));
        memcpy(c->first.log_path, end->log_path, sizeof(c->first.log_path));
        memcpy(c->first.tail, end->tail, sizeof(c->first.tail));
    }
}

void cause_hang(struct cause *c, const struct msg_rank_ended *end, const char *host)
{
    cause_add(c, end, host);
    c->is_hang = true;
    c->hung_rank = end->rank;
    c->has_changed = true;
}

void cause_add(struct cause *c, const struct msg_rank_ended *end, const char *host)
{
    enum how before;
    bool is_known;

    if (end->rank >= MSG_MAX_WORLD) {
        return; /* there is no such rank */
    }
    if (c->is_hang && end->rank == c->hung_rank) {
        take_end_of_hung(c, end);
        c->has_changed = true;
        return;
    }
    before = others_how(&c->others, end->rank);
    is_known = before != HOW_UNKNOWN;
    others_put(&c->others, end, host);
    c->has_changed = c->has_changed || before >= HOW_FAILED || !c->has_rank ||
                     others_how(&c->others, end->rank) >= HOW_FAILED;
    if (is_known) { /* an agent without our clock yet dates it by its telling */
        take_last_words(c, end, host);
    } else if (!c->has_rank || comes_before(end, &c->first)) {
        make_first(c, end, host);
    }
    c->has_rank = true;
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

    c->has_changed = true;
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

void cause_report(const struct cause *c, struct msg_report *ret)
{
    ret->rank = -1;
    if (!c->has_rank) {
        return;
    }
    memcpy(ret->program, c->first.program, sizeof(ret->program));
    others_format(&c->others, cause_is_reaction(c) ? NULL : &c->first, ret->others,
                  sizeof(ret->others));
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
