#include "rendezvous/hang.h"

#include "common/check.h"

#include <stdio.h>
#include <string.h>

enum {
    LIMIT_MS = 3000,     /* at least, from the stop to the verdict */
    SLACK_MS = 500,      /* of it: until a report is here, and our own timer runs */
    ASK_MS = 1000,       /* so long before the verdict the agents are asked */
    LATE_MS = 1500,      /* an answer after more says that the agent was asleep */
    AGAIN_MS = 5000,     /* without answers: the next time */
    DEVICE_MS = 30000,   /* for a process that waits for a device */
    NO_STEPS_MS = 30000, /* for a stopped process, while nobody knows what steps take */
    SILENT_MS = 1500,    /* behind the others, of one that repeats its reports */
};

enum { CLASS_SILENT, CLASS_BUSY, CLASS_EXCUSED, CLASS_WAITING };

void hang_begin(struct hang *h, uint64_t now_ms)
{
    *h = (struct hang){.calm_ms = now_ms};
}

void hang_excuse(struct hang *h, uint64_t now_ms)
{
    h->state = h->state == HANG_ASKING ? HANG_MOVING : h->state;
    h->calm_ms = now_ms;
}

static bool is_watched(const struct progress *p)
{
    return p->world > 1 && p->n_reporting == p->world && p->n_ended == 0;
}

static uint64_t still_since(const struct hang *h, const struct progress *p)
{
    return MAX(h->calm_ms, p->moved_ms);
}

/* From the last move to the verdict. The others move on for up to a step after the one
 * has stopped. */
static uint64_t patience_ms(const struct progress *p)
{
    uint64_t step_ms = p->median_ms;
    uint64_t least_ms = LIMIT_MS - SLACK_MS - MIN(step_ms, (uint64_t)LIMIT_MS / 4);

    return step_ms == 0 ? NO_STEPS_MS : MAX(least_ms, step_ms * 7 / 2);
}

/* Since the agents were asked; or it has come to be known since, over a slow line: what
 * they say then is older than that, too. */
static bool has_moved(const struct hang *h, const struct progress *p)
{
    return still_since(h, p) > h->asked_ms || p->moved_ms > h->seen_ms;
}

/* A stand-still that goes on is asked about now and then. */
static uint64_t ask_at(const struct hang *h, const struct progress *p)
{
    uint64_t first_ms = still_since(h, p) + patience_ms(p) - ASK_MS;

    return has_moved(h, p) ? first_ms : MAX(first_ms, h->again_ms);
}

/* Who went on when the agents looked has said so by then. It moves with the ranks: they
 * may report slower steps meanwhile. */
static uint64_t verdict_at(const struct hang *h, const struct progress *p)
{
    return MAX(still_since(h, p) + patience_ms(p), h->asked_ms + ASK_MS);
}

/* It was told, and nothing has moved since. */
static bool is_told(const struct hang *h, const struct progress *p)
{
    return h->state == HANG_TOLD && p->moved_ms <= h->told_ms;
}

uint64_t hang_deadline(const struct hang *h, const struct progress *p)
{
    if (!is_watched(p) || is_told(h, p)) {
        return UINT64_MAX;
    }
    return h->state == HANG_ASKING && !has_moved(h, p)
               ? MAX(h->due_ms, verdict_at(h, p))
               : ask_at(h, p);
}

/* --- suspects --- */

static int classify(const struct progress *p, const struct progress_rank *r)
{
    if (r->repeats && r->said_ms + SILENT_MS < p->said_ms) {
        return CLASS_SILENT;
    }
    if (progress_is_waiting(r)) {
        return CLASS_WAITING;
    }
    return progress_is_excused(r) ? CLASS_EXCUSED : CLASS_BUSY;
}

static bool comes_before(const struct suspect *a, const struct suspect *b)
{
    return a->class != b->class ? a->class < b->class : a->step < b->step;
}

/* Ranks come in order: of equals the first stays the first. */
static void suspect_too(struct hang *h, const struct suspect *s)
{
    uint32_t at = h->n_suspects;

    while (at > 0 && comes_before(s, &h->suspect[at - 1])) {
        at--;
    }
    if (at == HANG_SUSPECTS) {
        return;
    }
    h->n_suspects = MIN(h->n_suspects + 1, (uint32_t)HANG_SUSPECTS);
    memmove(&h->suspect[at + 1], &h->suspect[at],
            (h->n_suspects - at - 1) * sizeof(*s));
    h->suspect[at] = *s;
}

static void count_votes(struct hang *h, const struct progress *p)
{
    for (uint32_t i = 0; i < p->world; i++) {
        for (uint32_t k = 0; k < h->n_suspects; k++) {
            h->suspect[k].votes += i != h->suspect[k].rank &&
                                   p->rank[i].waits_for == (int32_t)h->suspect[k].rank;
        }
    }
}

/* What the ranks say may have changed since the question. */
static void look_again(struct hang *h, const struct progress *p)
{
    h->n_waiting = h->n_mute = h->n_excused = 0;
    for (uint32_t i = 0; i < p->world; i++) {
        int class = classify(p, &p->rank[i]);

        h->n_waiting += class == CLASS_WAITING;
        h->n_mute += class == CLASS_WAITING && p->rank[i].waits_for < 0;
        h->n_excused += class == CLASS_EXCUSED;
    }
    for (uint32_t k = 0; k < h->n_suspects; k++) {
        h->suspect[k].class = classify(p, &p->rank[h->suspect[k].rank]);
        h->suspect[k].votes = 0;
    }
    count_votes(h, p);
}

static void choose_suspects(struct hang *h, const struct progress *p)
{
    h->n_suspects = 0;
    for (uint32_t i = 0; i < p->world; i++) {
        const struct progress_rank *r = &p->rank[i];
        struct suspect s = {.rank = i, .class = classify(p, r), .step = r->step};

        suspect_too(h, &s);
    }
}

void hang_answer(struct hang *h, uint32_t rank, const char *state, uint64_t now_ms)
{
    if (h->state != HANG_ASKING) {
        return;
    }
    if (h->has_missed || now_ms - h->asked_ms > LATE_MS) {
        h->has_missed = false;
        hang_excuse(h, now_ms);
        return;
    }
    for (uint32_t i = 0; i < h->n_suspects; i++) {
        if (h->suspect[i].rank == rank) {
            (void)snprintf(h->suspect[i].state, sizeof(h->suspect[i].state), "%s",
                           state[0] != '\0' ? state : "?");
        }
    }
}

/* --- the verdict --- */

static uint32_t count_state(const struct hang *h, char state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->n_suspects; i++) {
        n += h->suspect[i].state[0] == state;
    }
    return n;
}

static const struct suspect *find_state(const struct hang *h, char state)
{
    for (uint32_t i = 0; i < h->n_suspects; i++) {
        if (h->suspect[i].state[0] == state) {
            return &h->suspect[i];
        }
    }
    return NULL;
}

/* Somebody may wait for a rank that takes its time. */
static bool is_excused_awaited(const struct hang *h)
{
    for (uint32_t i = 0; i < h->n_suspects; i++) {
        if (h->suspect[i].class == CLASS_EXCUSED && h->suspect[i].votes > 0) {
            return true;
        }
    }
    return h->n_excused > 0 && h->n_mute > 0;
}

static bool may_be_guilty(const struct hang *h, const struct suspect *s)
{
    return s->class == CLASS_BUSY ? s->votes > 0 || h->n_mute > 0
                                  : s->class == CLASS_SILENT && s->votes > 0;
}

/* By what the ranks have said; NULL: it is not clear. */
static const struct suspect *find_busy(const struct hang *h)
{
    const struct suspect *best = NULL;

    if (h->n_waiting == 0 || is_excused_awaited(h)) {
        return NULL;
    }
    for (uint32_t i = 0; i < h->n_suspects; i++) {
        const struct suspect *s = &h->suspect[i];
        bool is_furthest = !best || s->step < best->step ||
                           (s->step == best->step && s->votes > best->votes);

        if (may_be_guilty(h, s) && is_furthest) {
            best = s;
        }
    }
    return best;
}

/* Nobody who is likelier has not been heard. */
static bool is_heard(const struct hang *h, const struct suspect *s)
{
    for (const struct suspect *other = h->suspect; other <= s; other++) {
        if (other->state[0] == '\0') {
            return false;
        }
    }
    return true;
}

static enum hang_news judge(const struct hang *h, const struct progress *p,
                            uint64_t now_ms, const struct suspect **ret)
{
    bool has_device = now_ms < still_since(h, p) + DEVICE_MS && count_state(h, 'D') > 0;
    bool are_all_stopped = count_state(h, 'T') == p->world;
    bool knows_steps = p->median_ms > 0;

    *ret = are_all_stopped ? NULL : find_state(h, 'T');
    if (*ret) {
        return is_heard(h, *ret) ? HANG_FOUND : HANG_QUIET;
    }
    *ret = find_state(h, 't');
    *ret = *ret ? *ret : find_state(h, 'O');
    if (*ret) {
        return HANG_HELD;
    }
    *ret = are_all_stopped || !knows_steps ? NULL : find_busy(h);
    if (*ret && !(has_device && (*ret)->state[0] == 'D')) {
        enum hang_news news = (*ret)->state[0] == 'P' ? HANG_HELD : HANG_FOUND;

        return is_heard(h, *ret) ? news : HANG_QUIET;
    }
    return h->n_waiting > 0 && h->n_excused == 0 && !has_device && !are_all_stopped &&
                   knows_steps && count_state(h, '\0') == 0
               ? HANG_UNCLEAR
               : HANG_QUIET;
}

static enum hang_news decide(struct hang *h, const struct progress *p, uint64_t now_ms,
                             struct hang_verdict *ret)
{
    const struct suspect *guilty;
    enum hang_news news;
    uint32_t waits_itself; /* stopped where it was to wait */

    look_again(h, p);
    news = judge(h, p, now_ms, &guilty);

    if (news == HANG_HELD && h->held_ms == p->moved_ms) {
        news = HANG_QUIET; /* that was told */
    }
    if (news == HANG_QUIET) {
        h->due_ms = h->again_ms;
        return news;
    }
    waits_itself = guilty && guilty->class == CLASS_WAITING;
    if (news == HANG_HELD) { /* it may be let go, and hang all the same */
        h->held_ms = p->moved_ms;
        h->due_ms = h->again_ms;
    } else {
        h->state = HANG_TOLD;
        h->told_ms = p->moved_ms;
    }
    *ret = (struct hang_verdict){.rank = guilty ? guilty->rank : 0,
                                 .n_waiting = h->n_waiting - waits_itself,
                                 .for_ms = now_ms - MIN(now_ms, p->moved_ms)};
    if (guilty) {
        memcpy(ret->state, guilty->state, sizeof(ret->state));
    }
    return news;
}

/* What was asked, or told, is over. */
static void begin_anew(struct hang *h, const struct progress *p, uint64_t now_ms)
{
    bool is_other = has_moved(h, p);
    bool has_waited = now_ms >= h->again_ms;

    if (h->state == HANG_TOLD) {
        h->state = HANG_MOVING;
    } else if (h->state == HANG_ASKING && (is_other || has_waited)) {
        h->has_missed = !is_other && count_state(h, '\0') > 0;
        h->state = HANG_MOVING;
    }
}

enum hang_news hang_look(struct hang *h, const struct progress *p, uint64_t now_ms,
                         struct hang_verdict *ret)
{
    if (!is_watched(p) || is_told(h, p)) {
        return HANG_QUIET;
    }
    begin_anew(h, p, now_ms);
    if (h->state == HANG_MOVING && now_ms >= ask_at(h, p)) {
        choose_suspects(h, p);
        h->state = HANG_ASKING;
        h->asked_ms = now_ms;
        h->seen_ms = p->moved_ms;
        h->again_ms = now_ms + AGAIN_MS;
        h->due_ms = MAX(still_since(h, p) + patience_ms(p), now_ms + ASK_MS);
        return HANG_ASK;
    }
    return h->state == HANG_ASKING && now_ms >= verdict_at(h, p)
               ? decide(h, p, now_ms, ret)
               : HANG_QUIET;
}
