#include "rendezvous/others.h"

#include "common/exit_code.h"
#include "common/mem.h"
#include "common/signame.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    RANGES_MAX = 12,       /* "0-3, 7, …" */
    SAME_TIME_MS = 20,     /* nobody's clock is better over a network */
    LINE_MAX_BYTES = 1024, /* host, exception and ranges at their longest */
    REST_MAX_BYTES = 32,   /* "and 12 more lines" */
};

void others_fold(struct others *o)
{
    mem_free(o->how);
    o->how = NULL;
    o->n_ranks = 0;
}

void others_clear(struct others *o)
{
    others_fold(o);
    o->n_outcomes = 0;
}

enum how others_how(const struct others *o, uint32_t rank)
{
    return rank < o->n_ranks ? (enum how)o->how[rank] : HOW_UNKNOWN;
}

bool others_have(const struct others *o, enum how how)
{
    return o->how && memchr(o->how, (int)how, o->n_ranks) != NULL;
}

/* Room for this rank, and some more. */
static void make_room(struct others *o, uint32_t rank)
{
    size_t n = o->n_ranks > 0 ? o->n_ranks : 64;
    uint8_t *how;

    if (rank < o->n_ranks) {
        return;
    }
    while (n <= rank) {
        n *= 2;
    }
    how = mem_zalloc(n);
    if (o->how) {
        memcpy(how, o->how, o->n_ranks);
    }
    mem_free(o->how);
    o->how = how;
    o->n_ranks = n;
}

/* --- how a rank ended --- */

/* A shell tells its child's signal by its code. */
static int32_t signal_of(const struct msg_rank_ended *end)
{
    return end->signal != 0 ? end->signal : end->exit_code - EXIT_SIGNAL;
}

static bool is_ours_to_send(int32_t signal)
{
    return signal == SIGKILL || signal == SIGTERM || signal == SIGINT ||
           signal == SIGHUP || signal == SIGQUIT;
}

static enum how reaction_of(const struct msg_rank_ended *end)
{
    if (!end->engine || end->signal != 0) {
        return HOW_UNKNOWN;
    }
    return end->exit_code == EXIT_LOST_PEER      ? HOW_LOST_PEER
           : end->exit_code == EXIT_COMM_TIMEOUT ? HOW_TIMED_OUT
           : end->exit_code == EXIT_LEFT         ? HOW_LEFT
                                                 : HOW_UNKNOWN;
}

/* HOW_FAILED without its outcome. A rank that was told to stop and ended in another way
 * than one does then may as well have failed by itself at the same time. */
static enum how judge(const struct msg_rank_ended *end)
{
    enum how reaction = reaction_of(end);

    if (end->stopped && is_ours_to_send(signal_of(end))) {
        return signal_of(end) == SIGKILL ? HOW_KILLED : HOW_STOPPED;
    }
    if (reaction != HOW_UNKNOWN) {
        return end->stopped ? HOW_STOPPED : reaction;
    }
    return HOW_FAILED;
}

/* --- outcomes --- */

static void format_error(const struct msg_rank_ended *end, char *text, size_t size)
{
    int n = (int)MIN(strcspn(end->error, "\n"), size - 1); /* one line of it */

    while (n > 0 && ((unsigned char)end->error[n] & 0xc0) == 0x80) {
        n--; /* not in the middle of a character */
    }
    (void)snprintf(text, size, "%.*s", n, end->error);
}

static struct outcome *find_outcome(struct others *o, const struct msg_rank_ended *end)
{
    char error[sizeof(o->outcome[0].error)];
    struct outcome *out;

    format_error(end, error, sizeof(error));
    for (size_t i = 0; i < o->n_outcomes; i++) {
        out = &o->outcome[i];
        if (out->code == end->exit_code && out->signal == end->signal &&
            strcmp(out->error, error) == 0) {
            return out;
        }
    }
    if (o->n_outcomes == OTHERS_OUTCOMES) {
        return NULL;
    }
    out = &o->outcome[o->n_outcomes++];
    *out = (struct outcome){.code = end->exit_code, .signal = end->signal};
    memcpy(out->error, error, sizeof(error));
    return out;
}

static void forget_first(struct outcome *out, uint32_t rank)
{
    size_t kept = 0;

    for (size_t i = 0; i < out->n_first; i++) {
        if (out->first[i].rank != rank) {
            out->first[kept++] = out->first[i];
        }
    }
    out->n_first = kept;
}

/* Among the earliest with this outcome, if it is one. */
static void note_first(struct outcome *out, const struct msg_rank_ended *end,
                       const char *host)
{
    size_t at;

    forget_first(out, end->rank);
    for (at = out->n_first; at > 0 && end->ended_ms < out->first[at - 1].ended_ms;) {
        at--;
    }
    if (at == OTHERS_FIRSTS) {
        return;
    }
    out->n_first = MIN(out->n_first + 1, (size_t)OTHERS_FIRSTS);
    for (size_t i = out->n_first - 1; i > at; i--) {
        out->first[i] = out->first[i - 1];
    }
    out->first[at] = (struct failed_rank){.rank = end->rank,
                                          .local_rank = end->local_rank,
                                          .pid = end->pid,
                                          .ended_ms = end->ended_ms};
    (void)snprintf(out->first[at].host, sizeof(out->first[at].host), "%.63s", host);
}

void others_put(struct others *o, const struct msg_rank_ended *end, const char *host)
{
    enum how how = judge(end);
    struct outcome *out = NULL;

    ASSERT(end->rank < MSG_MAX_WORLD);
    make_room(o, end->rank);
    if (o->how[end->rank] >= HOW_FAILED) {
        forget_first(&o->outcome[o->how[end->rank] - HOW_FAILED], end->rank);
    }
    if (how == HOW_FAILED) {
        out = find_outcome(o, end);
        how = out ? (enum how)(HOW_FAILED + (out - o->outcome)) : HOW_FAILED_OTHERWISE;
    }
    if (out) {
        note_first(out, end, host);
    }
    o->how[end->rank] = (uint8_t)how;
}

int others_restore(struct others *o, uint32_t rank, uint8_t how)
{
    if (rank >= MSG_MAX_WORLD || how == HOW_UNKNOWN ||
        how >= HOW_FAILED + OTHERS_OUTCOMES) {
        return ERR_CORRUPT;
    }
    make_room(o, rank);
    o->how[rank] = how;
    return 0;
}

/* --- in words --- */

struct lines {
    char *text;
    size_t used, size;
    unsigned n_dropped;
};

/* Whole, or counted. */
static void put_line(struct lines *l, const char *line)
{
    size_t n = strlen(line);

    if (l->used + n + 2 + REST_MAX_BYTES > l->size) {
        l->n_dropped++;
        return;
    }
    (void)snprintf(l->text + l->used, l->size - l->used, "%s\n", line);
    l->used += n + 1;
}

static void end_lines(struct lines *l)
{
    if (l->n_dropped > 0) {
        (void)snprintf(l->text + l->used, l->size - l->used, "and %u more lines\n",
                       l->n_dropped);
    }
}

struct ranges {
    char text[RANGES_MAX * 24 + 48];
    size_t n_ranks;
};

static bool is_meant(const struct others *o, size_t rank, enum how how, int64_t but)
{
    return rank < o->n_ranks && o->how[rank] == (uint8_t)how && (int64_t)rank != but;
}

/* "rank 3" or "ranks 0-1, 3 (3 ranks)": those that ended so, without `but` and `but2`. */
static void find_ranges(const struct others *o, enum how how, const int64_t but[2],
                        struct ranges *ret)
{
    size_t n_ranges = 0;
    size_t used = 0;

    ret->n_ranks = 0;
    ret->text[0] = '\0';
    for (size_t rank = 0; rank < o->n_ranks; rank++) {
        size_t last = rank;

        if (!is_meant(o, rank, how, but[0]) || (int64_t)rank == but[1]) {
            continue;
        }
        while (is_meant(o, last + 1, how, but[0]) && (int64_t)last + 1 != but[1]) {
            last++;
        }
        ret->n_ranks += last - rank + 1;
        if (n_ranges++ < RANGES_MAX) {
            used += (size_t)snprintf(ret->text + used, sizeof(ret->text) - used,
                                     last > rank ? "%s%zu-%zu" : "%s%zu",
                                     n_ranges > 1 ? ", " : "", rank, last);
        }
        rank = last;
    }
    if (n_ranges > RANGES_MAX) {
        used += (size_t)snprintf(ret->text + used, sizeof(ret->text) - used, ", …");
    }
    if (n_ranges > 1) {
        (void)snprintf(ret->text + used, sizeof(ret->text) - used, " (%zu ranks)",
                       ret->n_ranks);
    }
}

/* "ranks 0-1, 3 (3 ranks): lost a peer". */
static void put_group(const struct others *o, enum how how, const char *words,
                      int64_t first, struct lines *l)
{
    const int64_t but[2] = {first, -1};
    char line[LINE_MAX_BYTES];
    struct ranges ranges;

    find_ranges(o, how, but, &ranges);
    if (ranges.n_ranks > 0) {
        (void)snprintf(line, sizeof(line), "rank%s %s: %s",
                       ranges.n_ranks > 1 ? "s" : "", ranges.text, words);
        put_line(l, line);
    }
}

/* torchrun's words: "exitcode -9 (SIGKILL)". */
static void format_code(const struct outcome *out, char *text, size_t size)
{
    char name[SIGNAME_MAX];

    if (out->signal != 0) {
        signame_format(out->signal, name);
        (void)snprintf(text, size, "exitcode %d (%s)", -out->signal, name);
    } else {
        (void)snprintf(text, size, "exitcode %d", out->code);
    }
}

/* When it failed, seen from the first cause. */
static void format_later(const struct failed_rank *f,
                         const struct msg_rank_ended *first, char *text, size_t size)
{
    uint64_t later_ms =
        first && f->ended_ms > first->ended_ms ? f->ended_ms - first->ended_ms : 0;

    if (first && later_ms < SAME_TIME_MS) {
        (void)snprintf(text, size, ", also failed at the same time");
    } else if (first) {
        (void)snprintf(text, size, ", also failed %" PRIu64 ".%03u s later",
                       later_ms / 1000, (unsigned)(later_ms % 1000));
    } else {
        (void)snprintf(text, size, ", failed");
    }
}

/* "rank 3 (local_rank: 1) on b: exitcode 1 (pid: 7), also failed 0.210 s later:
 * ValueError: x; so did ranks 4-9" */
static void put_outcome(const struct others *o, size_t index,
                        const struct msg_rank_ended *first, struct lines *l)
{
    const struct outcome *out = &o->outcome[index];
    int64_t but[2] = {first ? (int64_t)first->rank : -1, -1};
    const struct failed_rank *f = NULL;
    char line[LINE_MAX_BYTES];
    char code[64];
    char later[64];
    struct ranges ranges;

    for (size_t i = out->n_first; i > 0; i--) {
        f = (int64_t)out->first[i - 1].rank == but[0] ? f : &out->first[i - 1];
    }
    format_code(out, code, sizeof(code));
    if (!f) {
        (void)snprintf(line, sizeof(line), "%s, also failed%s%s", code,
                       out->error[0] != '\0' ? ": " : "", out->error);
        put_group(o, (enum how)(HOW_FAILED + index), line, but[0], l);
        return;
    }
    but[1] = f->rank;
    format_later(f, first, later, sizeof(later));
    find_ranges(o, (enum how)(HOW_FAILED + index), but, &ranges);
    (void)snprintf(line, sizeof(line),
                   "rank %u (local_rank: %u) on %s: %s (pid: %u)%s%s%s%s%s", f->rank,
                   f->local_rank, f->host, code, f->pid, later,
                   out->error[0] != '\0' ? ": " : "", out->error,
                   ranges.n_ranks > 1   ? "; so did ranks "
                   : ranges.n_ranks > 0 ? "; so did rank "
                                        : "",
                   ranges.text);
    put_line(l, line);
}

/* When the first with this outcome ended, where that is known. */
static uint64_t begin_of(const struct outcome *out)
{
    return out->n_first > 0 ? out->first[0].ended_ms : UINT64_MAX;
}

/* The outcomes in the order of their first ranks' ends. */
static void put_outcomes(const struct others *o, const struct msg_rank_ended *first,
                         struct lines *l)
{
    size_t order[OTHERS_OUTCOMES] = {0};

    for (size_t i = 0; i < o->n_outcomes; i++) {
        uint64_t ended_ms = begin_of(&o->outcome[i]);
        size_t at = i;

        while (at > 0 && ended_ms < begin_of(&o->outcome[order[at - 1]])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    for (size_t i = 0; i < o->n_outcomes; i++) {
        put_outcome(o, order[i], first, l);
    }
}

void others_format(const struct others *o, const struct msg_rank_ended *first,
                   char *text, size_t size)
{
    struct lines l = {.text = text, .size = size};
    int64_t rank = first ? (int64_t)first->rank : -1;
    char stopped[64] = "stopped because of the others";
    char killed[128];

    ASSERT(size > REST_MAX_BYTES);
    text[0] = '\0';
    if (first) {
        (void)snprintf(stopped, sizeof(stopped), "stopped because of rank %u",
                       first->rank);
    }
    (void)snprintf(killed, sizeof(killed), "%s, by SIGKILL", stopped);
    put_outcomes(o, first, &l);
    put_group(o, HOW_FAILED_OTHERWISE, "also failed, in other ways", rank, &l);
    put_group(o, HOW_LOST_PEER, "lost a peer (exitcode 80)", rank, &l);
    put_group(o, HOW_TIMED_OUT, "communication timed out (exitcode 81)", rank, &l);
    put_group(o, HOW_LEFT, "left on request (exitcode 83)", rank, &l);
    put_group(o, HOW_STOPPED, stopped, rank, &l);
    put_group(o, HOW_KILLED, killed, rank, &l);
    end_lines(&l);
}
