#include "tests/lib/hang_rig.h"

#include "tests/lib/cmocka.h"

#include <stdio.h>

enum { REPORT_MS = 250 };

static uint64_t between(struct hang_rig *r, uint64_t least, uint64_t most)
{
    r->seed = r->seed * 1103515245U + 12345U;
    return least + (r->seed >> 8) % (most - least + 1);
}

static void next_step(struct hang_rig *r)
{
    r->step++;
    for (uint32_t i = 0; i < r->n; i++) {
        r->rank[i].deed = COMPUTES;
        r->rank[i].until_ms = r->now_ms + between(r, r->least_ms, r->most_ms);
    }
}

void hang_rig_open(struct hang_rig *r, uint32_t n, uint64_t least_ms, uint64_t most_ms)
{
    *r = (struct hang_rig){.n = n,
                           .now_ms = 1000,
                           .seed = 1,
                           .step = 100,
                           .least_ms = least_ms,
                           .most_ms = most_ms,
                           .answer_takes_ms = HANG_RIG_ANSWER_MS,
                           .tells_waits = true,
                           .tells_phases = true};
    progress_begin(&r->p, 1, 1);
    progress_add_node(&r->p, HANG_RIG_SESSION, "host", n);
    progress_start(&r->p);
    hang_begin(&r->h, r->now_ms);
    next_step(r);
}

static bool does_nothing(const struct sim_rank *rank)
{
    return rank->is_stopped || rank->is_spinning || rank->is_traced ||
           rank->is_unread || rank->is_reading;
}

static void move_ranks(struct hang_rig *r)
{
    bool all_wait = true;

    for (uint32_t i = 0; i < r->n; i++) {
        struct sim_rank *rank = &r->rank[i];

        if (rank->deed != WAITS && rank->until_ms <= r->now_ms && !does_nothing(rank)) {
            rank->deed = WAITS;
        }
        all_wait = all_wait && rank->deed == WAITS && !does_nothing(rank);
    }
    if (all_wait) {
        next_step(r);
    }
}

/* The first whose part is missing. */
static int32_t awaited(const struct hang_rig *r, uint32_t by)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (i != by && (r->rank[i].deed != WAITS || does_nothing(&r->rank[i]))) {
            return (int32_t)i;
        }
    }
    return -1;
}

static void report(struct hang_rig *r, uint32_t i)
{
    static const char *const phases[] = {"forward", "reduce", "save"};
    const struct sim_rank *rank = &r->rank[i];
    struct msg_progress m = {.generation = 1,
                             .rank = i,
                             .step = r->step - 1,
                             .waits_for = -1,
                             .pid = 100 + i};

    if (r->tells_phases) {
        (void)snprintf(m.phase, sizeof(m.phase), "%s", phases[rank->deed]);
    }
    if (rank->deed == WAITS && r->tells_waits) {
        m.waits_for = awaited(r, i);
    }
    assert_true(progress_note(&r->p, HANG_RIG_SESSION, &m, r->now_ms));
}

static bool has_to_report(const struct hang_rig *r, uint32_t i)
{
    const struct sim_rank *rank = &r->rank[i];

    if (r->tells_news) {
        return rank->said_step != r->step || rank->said_deed != rank->deed;
    }
    return (r->now_ms + 30 * i) % REPORT_MS < HANG_RIG_TURN_MS;
}

static void report_all(struct hang_rig *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct sim_rank *rank = &r->rank[i];

        if (has_to_report(r, i) && !rank->is_stopped && !rank->is_traced) {
            report(r, i);
            rank->said_step = r->step;
            rank->said_deed = rank->deed;
        }
    }
}

static const char *state_of(const struct sim_rank *rank)
{
    if (rank->is_stopped || rank->is_traced) {
        return rank->is_stopped ? "T" : "t gdb, pid 7";
    }
    if (rank->is_attached) {
        return "P strace, pid 7";
    }
    if (rank->is_unread) {
        return "O pipe_write";
    }
    if (rank->is_reading) {
        return "D rpc_wait_bit_killable";
    }
    return rank->deed == WAITS ? "S futex_wait" : "R";
}

static void answer(struct hang_rig *r)
{
    for (uint32_t k = 0; k < r->h.n_suspects; k++) {
        uint32_t i = r->h.suspect[k].rank;

        hang_answer(&r->h, i, state_of(&r->rank[i]), r->now_ms);
    }
    r->answer_ms = 0;
}

static void look(struct hang_rig *r)
{
    struct hang_verdict v;
    enum hang_news news = hang_look(&r->h, &r->p, r->now_ms, &v);

    if (news == HANG_ASK) {
        r->answer_ms = r->now_ms + r->answer_takes_ms;
        r->n_asked++;
    } else if (news != HANG_QUIET) {
        r->news = news;
        r->verdict = v;
        r->verdict_ms = r->now_ms;
        r->n_verdicts++;
    }
}

void hang_rig_turn(struct hang_rig *r)
{
    r->now_ms += HANG_RIG_TURN_MS;
    move_ranks(r);
    report_all(r);
    if (r->answer_ms != 0 && r->now_ms >= r->answer_ms) {
        answer(r);
        look(r);
    }
    if (hang_deadline(&r->h, &r->p) <= r->now_ms) {
        look(r);
        assert_true(hang_deadline(&r->h, &r->p) > r->now_ms); /* or it would spin */
    }
}

void hang_rig_pass(struct hang_rig *r, uint64_t ms)
{
    for (uint64_t end = r->now_ms + ms; r->now_ms < end;) {
        hang_rig_turn(r);
    }
}

void hang_rig_until(struct hang_rig *r, uint32_t rank, enum deed deed)
{
    while (r->rank[rank].deed != deed) {
        hang_rig_turn(r);
    }
}

void hang_rig_close(struct hang_rig *r)
{
    progress_release(&r->p);
}

void hang_rig_expect_found(const struct hang_rig *r, uint32_t rank, uint64_t since_ms,
                           uint64_t within_ms)
{
    assert_int_equal(r->n_verdicts, 1);
    assert_int_equal(r->news, HANG_FOUND);
    assert_int_equal(r->verdict.rank, rank);
    assert_in_range(r->verdict_ms - since_ms, 0, within_ms);
}
