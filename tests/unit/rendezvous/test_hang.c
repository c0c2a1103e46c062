/* The judge of hangs, on a virtual clock: ranks that train together and report as
 * ctrun-worker does (a sample of what they do every 250 ms), agents that answer. */

#include "rendezvous/hang.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SESSION = 7,
    TURN_MS = 10,
    REPORT_MS = 250,
    ANSWER_MS = 300, /* an agent looks twice at a process */
    MAX_RANKS = 8,
    HOUR_MS = 3600 * 1000,
};

enum deed { COMPUTES, WAITS, SAVES };

struct sim_rank {
    enum deed deed;
    uint64_t until_ms; /* COMPUTES, SAVES */
    bool is_stopped;   /* SIGSTOP: does nothing, says nothing */
    bool is_spinning;  /* never comes to the end of what it computes */
    bool is_traced;
    bool is_unread;  /* blocked by its output … */
    bool is_reading; /* … or a file server */
    uint64_t said_step;
    enum deed said_deed;
};

struct rig {
    struct progress p;
    struct hang h;
    uint64_t now_ms;
    uint32_t n;
    struct sim_rank rank[MAX_RANKS];
    uint64_t step;
    uint64_t least_ms, most_ms; /* of a step's computation */
    unsigned seed;
    uint64_t answer_ms; /* when the agents will have answered; 0: they are not asked */
    uint64_t answer_takes_ms;
    bool tells_news;     /* … and nothing twice: a program's lines */
    bool tells_waits;    /* for whom it waits … */
    bool tells_phases;   /* … and that it does */
    enum hang_news news; /* the last but QUIET and ASK */
    struct hang_verdict verdict;
    uint64_t verdict_ms;
    unsigned n_verdicts, n_asked;
};

static uint64_t between(struct rig *r, uint64_t least, uint64_t most)
{
    r->seed = r->seed * 1103515245U + 12345U;
    return least + (r->seed >> 8) % (most - least + 1);
}

static void next_step(struct rig *r)
{
    r->step++;
    for (uint32_t i = 0; i < r->n; i++) {
        r->rank[i].deed = COMPUTES;
        r->rank[i].until_ms = r->now_ms + between(r, r->least_ms, r->most_ms);
    }
}

static void open_rig(struct rig *r, uint32_t n, uint64_t least_ms, uint64_t most_ms)
{
    *r = (struct rig){.n = n,
                      .now_ms = 1000,
                      .seed = 1,
                      .step = 100,
                      .least_ms = least_ms,
                      .most_ms = most_ms,
                      .answer_takes_ms = ANSWER_MS,
                      .tells_waits = true,
                      .tells_phases = true};
    progress_begin(&r->p, 1, 1);
    progress_add_node(&r->p, SESSION, "host", n);
    progress_start(&r->p);
    hang_begin(&r->h, r->now_ms);
    next_step(r);
}

static bool does_nothing(const struct sim_rank *rank)
{
    return rank->is_stopped || rank->is_spinning || rank->is_traced ||
           rank->is_unread || rank->is_reading;
}

static void move_ranks(struct rig *r)
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
static int32_t awaited(const struct rig *r, uint32_t by)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (i != by && (r->rank[i].deed != WAITS || does_nothing(&r->rank[i]))) {
            return (int32_t)i;
        }
    }
    return -1;
}

static void report(struct rig *r, uint32_t i)
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
    assert_true(progress_note(&r->p, SESSION, &m, r->now_ms));
}

static bool has_to_report(const struct rig *r, uint32_t i)
{
    const struct sim_rank *rank = &r->rank[i];

    if (r->tells_news) {
        return rank->said_step != r->step || rank->said_deed != rank->deed;
    }
    return (r->now_ms + 30 * i) % REPORT_MS < TURN_MS;
}

static void report_all(struct rig *r)
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
        return rank->is_stopped ? "T" : "t";
    }
    if (rank->is_unread) {
        return "O pipe_write";
    }
    if (rank->is_reading) {
        return "D rpc_wait_bit_killable";
    }
    return rank->deed == WAITS ? "S futex_wait" : "R";
}

static void answer(struct rig *r)
{
    for (uint32_t k = 0; k < r->h.n_suspects; k++) {
        uint32_t i = r->h.suspect[k].rank;

        hang_answer(&r->h, i, state_of(&r->rank[i]), r->now_ms);
    }
    r->answer_ms = 0;
}

static void look(struct rig *r)
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

static void turn(struct rig *r)
{
    r->now_ms += TURN_MS;
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

static void pass(struct rig *r, uint64_t ms)
{
    for (uint64_t end = r->now_ms + ms; r->now_ms < end;) {
        turn(r);
    }
}

static void close_rig(struct rig *r)
{
    progress_release(&r->p);
}

static void assert_found(const struct rig *r, uint32_t rank, uint64_t since_ms,
                         uint64_t within_ms)
{
    assert_int_equal(r->n_verdicts, 1);
    assert_int_equal(r->news, HANG_FOUND);
    assert_int_equal(r->verdict.rank, rank);
    assert_in_range(r->verdict_ms - since_ms, 0, within_ms);
}

/* --- what is found --- */

static void a_stopped_rank_is_found_within_three_seconds_wherever_it_is(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 300; seed++) {
        uint32_t n = 2 + seed % 3;
        uint32_t victim = seed % n;
        uint64_t since_ms;
        struct rig r;

        open_rig(&r, n, 20 + seed % 400, 60 + seed % 500);
        r.seed = seed;
        pass(&r, 20000 + 10 * seed);
        assert_int_equal(r.n_verdicts, 0);
        since_ms = r.now_ms;
        r.rank[victim].is_stopped = true;
        pass(&r, 20000);
        assert_found(&r, victim, since_ms, 3000);
        assert_string_equal(r.verdict.state, "T");
        close_rig(&r);
    }
}

static void a_spinning_rank_is_found_by_who_waits_for_it(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 300; seed++) {
        uint32_t n = 2 + seed % 3;
        uint32_t victim = seed % n;
        uint64_t since_ms;
        struct rig r;

        open_rig(&r, n, 50, 150);
        r.seed = seed;
        r.tells_waits = seed % 2 == 0;
        pass(&r, 20000 + 10 * seed);
        while (r.rank[victim].deed != COMPUTES) { /* outside a collective */
            pass(&r, TURN_MS);
        }
        since_ms = r.now_ms;
        r.rank[victim].is_spinning = true;
        pass(&r, 20000);
        assert_found(&r, victim, since_ms, 3000);
        assert_int_equal(r.verdict.n_waiting, n - 1);
        close_rig(&r);
    }
}

static void long_steps_are_given_five_of_them(void **state)
{
    uint64_t since_ms;
    struct rig r;

    (void)state;
    open_rig(&r, 3, 3800, 4200);
    pass(&r, 200000);
    since_ms = r.now_ms;
    r.rank[1].is_stopped = true;
    pass(&r, 60000);
    assert_found(&r, 1, since_ms, 5 * 4200);
    assert_true(r.verdict_ms - since_ms > 3 * 4200);
    close_rig(&r);
}

static void it_is_told_once_and_again_after_a_move(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 2, 50, 150);
    pass(&r, 20000);
    r.rank[1].is_stopped = true;
    pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 1);
    r.rank[1].is_stopped = false;
    pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 1);
    r.rank[0].is_stopped = true;
    pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 2);
    assert_int_equal(r.verdict.rank, 0);
    close_rig(&r);
}

static void without_a_word_of_waiting_only_a_stopped_process_is_proof(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 3, 50, 150);
    r.tells_phases = r.tells_waits = false;
    pass(&r, 20000);
    r.rank[2].is_spinning = true;
    pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 0);
    assert_true(r.n_asked > 0);
    r.rank[2].is_spinning = false;
    r.rank[2].is_stopped = true;
    pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 1);
    assert_int_equal(r.verdict.rank, 2);
    close_rig(&r);
}

static void ranks_that_wait_for_each_other_are_told_of_without_blame(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 2, 50, 150);
    pass(&r, 20000);
    while (r.rank[1].deed != WAITS) {
        pass(&r, TURN_MS);
    }
    r.rank[1].is_spinning = true; /* inside the collective */
    pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 1);
    assert_int_equal(r.news, HANG_UNCLEAR);
    close_rig(&r);
}

static void a_process_that_a_debugger_holds_is_told_of(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 2, 50, 150);
    pass(&r, 20000);
    r.rank[1].is_traced = true;
    pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 1);
    assert_int_equal(r.news, HANG_HELD);
    assert_int_equal(r.verdict.rank, 1);
    close_rig(&r);
}

static void a_process_that_is_let_go_and_hangs_all_the_same_is_found(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 2, 50, 150);
    pass(&r, 20000);
    r.rank[1].is_traced = true;
    pass(&r, 20000);
    assert_int_equal(r.news, HANG_HELD);
    r.rank[1].is_traced = false;
    r.rank[1].is_stopped = true;
    pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 2);
    assert_int_equal(r.news, HANG_FOUND);
    assert_int_equal(r.verdict.rank, 1);
    close_rig(&r);
}

static void a_rank_whose_output_nobody_reads_is_told_of(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 2, 50, 150);
    pass(&r, 20000);
    while (r.rank[1].deed != COMPUTES) {
        pass(&r, TURN_MS);
    }
    r.rank[1].is_unread = true;
    pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 1);
    assert_int_equal(r.news, HANG_HELD);
    assert_int_equal(r.verdict.rank, 1);
    close_rig(&r);
}

/* --- no alarm --- */

static void an_hour_of_steps_that_vary_threefold_has_no_alarm(void **state)
{
    static const uint64_t least_ms[] = {20, 100, 500, 700, 1000, 3000, 10000};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(least_ms); i++) {
        struct rig r;

        open_rig(&r, 3, least_ms[i], 3 * least_ms[i]);
        pass(&r, HOUR_MS);
        assert_int_equal(r.n_verdicts, 0);
        assert_true(r.step > 100 + HOUR_MS / (4 * least_ms[i]));
        close_rig(&r);
    }
}

/* The median is the short step, each long one takes three of them. */
static void rare_long_steps_are_no_alarm(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 2, 1000, 1000);
    for (int i = 0; i < 100; i++) {
        r.least_ms = r.most_ms = i % 5 == 4 ? 3000 : 1000;
        pass(&r, r.least_ms);
    }
    assert_int_equal(r.n_verdicts, 0);
    close_rig(&r);
}

/* The others are done at once, and stand still from then on. */
static void rare_long_steps_of_one_rank_are_no_alarm(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 3, 10, 10);
    for (int i = 0; i < 100; i++) {
        uint64_t step = r.step;

        r.rank[1].until_ms = r.now_ms + (i % 5 == 4 ? 3000 : 1000);
        while (r.step == step) {
            turn(&r);
        }
    }
    assert_int_equal(r.n_verdicts, 0);
    assert_true(r.n_asked > 0);
    close_rig(&r);
}

static void between_who_saves_and_who_computes_nobody_decides(void **state)
{
    (void)state;
    for (int tells_waits = 0; tells_waits < 2; tells_waits++) {
        struct rig r;

        open_rig(&r, 3, 50, 150);
        r.tells_waits = tells_waits;
        pass(&r, 20000);
        while (r.rank[0].deed != COMPUTES || r.rank[1].deed != COMPUTES) {
            pass(&r, TURN_MS);
        }
        r.rank[0].deed = SAVES;
        r.rank[0].until_ms = r.now_ms + 300000;
        r.rank[1].is_spinning = true;
        pass(&r, 60000);
        assert_int_equal(r.n_verdicts, 0);
        assert_true(r.n_asked > 0);
        close_rig(&r);
    }
}

static void who_saves_for_minutes_is_not_waited_for_in_vain(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 3, 50, 150);
    pass(&r, 20000);
    while (r.rank[0].deed != COMPUTES) {
        pass(&r, TURN_MS);
    }
    r.rank[0].deed = SAVES;
    r.rank[0].until_ms = r.now_ms + 300000;
    pass(&r, 320000);
    assert_int_equal(r.n_verdicts, 0);
    assert_true(r.n_asked > 0);
    close_rig(&r);
}

static void who_is_stopped_while_it_saves_is_found(void **state)
{
    uint64_t since_ms;
    struct rig r;

    (void)state;
    open_rig(&r, 3, 50, 150);
    pass(&r, 20000);
    while (r.rank[0].deed != COMPUTES) {
        pass(&r, TURN_MS);
    }
    r.rank[0].deed = SAVES;
    r.rank[0].until_ms = r.now_ms + 300000;
    pass(&r, 1000);
    r.rank[0].is_stopped = true;
    since_ms = r.now_ms;
    pass(&r, 20000);
    assert_found(&r, 0, since_ms, 10000);
    close_rig(&r);
}

static void who_waits_for_a_device_gets_half_a_minute(void **state)
{
    uint64_t since_ms;
    struct rig r;

    (void)state;
    open_rig(&r, 3, 50, 150);
    for (int i = 0; i < 20; i++) {
        pass(&r, 20000);
        while (r.rank[2].deed != COMPUTES) {
            pass(&r, TURN_MS);
        }
        r.rank[2].is_reading = true;
        pass(&r, 1300 * (uint64_t)(i + 1));
        r.rank[2].is_reading = false;
    }
    assert_int_equal(r.n_verdicts, 0);
    assert_true(r.n_asked > 20);
    pass(&r, 20000);
    while (r.rank[2].deed != COMPUTES) {
        pass(&r, TURN_MS);
    }
    since_ms = r.now_ms;
    r.rank[2].is_reading = true;
    pass(&r, 60000);
    assert_found(&r, 2, since_ms, 36000);
    assert_true(r.verdict_ms - since_ms > 30000);
    close_rig(&r);
}

static void nothing_is_judged_before_steps_are_known(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 3, 100000, 300000); /* the first step compiles, say */
    pass(&r, 400000);
    assert_int_equal(r.n_verdicts, 0);
    close_rig(&r);
}

static void a_rank_that_never_reported_is_not_judged(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 3, 50, 150);
    r.rank[2].is_stopped = true;
    pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 0);
    assert_int_equal(r.n_asked, 0);
    assert_int_equal(hang_deadline(&r.h, &r.p), UINT64_MAX);
    close_rig(&r);
}

static void a_job_that_is_stopped_as_a_whole_does_not_hang(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 3, 50, 150);
    pass(&r, 20000);
    for (uint32_t i = 0; i < r.n; i++) {
        r.rank[i].is_stopped = true;
    }
    pass(&r, 600000);
    assert_int_equal(r.n_verdicts, 0);
    close_rig(&r);
}

static void a_rank_that_has_ended_ends_the_judging(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 3, 50, 150);
    pass(&r, 20000);
    r.rank[1].is_spinning = true;
    progress_end(&r.p, SESSION, 1);
    pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 0);
    close_rig(&r);
}

/* Everybody was: what lies between counts for nothing. */
static void a_service_that_was_asleep_judges_nobody_by_that(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 2, 50, 150);
    for (int i = 0; i < 20; i++) {
        pass(&r, 5000);
        r.now_ms += 10000;
        hang_excuse(&r.h, r.now_ms);
    }
    assert_int_equal(r.n_verdicts, 0);
    close_rig(&r);
}

/* A node sleeps with its agent: no reports, and an answer that comes when it wakes. */
static void a_node_that_was_asleep_is_not_blamed(void **state)
{
    (void)state;
    for (uint64_t asleep_ms = 1500; asleep_ms < 12000; asleep_ms += 130) {
        struct rig r;

        open_rig(&r, 2, 600, 900);
        pass(&r, 20000);
        r.rank[1].is_stopped = true;
        r.answer_takes_ms = UINT32_MAX;
        pass(&r, asleep_ms);
        r.rank[1].is_stopped = false;
        r.rank[1].until_ms += asleep_ms; /* what is left to do is left to do */
        if (r.answer_ms != 0) {
            r.answer_ms = r.now_ms + ANSWER_MS;
        }
        r.answer_takes_ms = ANSWER_MS;
        pass(&r, 20000);
        assert_int_equal(r.n_verdicts, 0);
        close_rig(&r);
    }
}

/* A program that says nothing twice does not show that it is back. */
static void an_answer_that_comes_late_blames_nobody(void **state)
{
    (void)state;
    for (uint64_t asleep_ms = 4000; asleep_ms < 20000; asleep_ms += 130) {
        struct rig r;

        open_rig(&r, 2, 600, 900);
        r.tells_news = true;
        pass(&r, 20000);
        while (r.rank[1].deed != COMPUTES) {
            pass(&r, TURN_MS);
        }
        r.rank[1].is_stopped = true;
        r.answer_takes_ms = UINT32_MAX;
        pass(&r, asleep_ms);
        r.rank[1].is_stopped = false;
        r.rank[1].until_ms += asleep_ms;
        r.answer_ms = r.answer_ms != 0 ? r.now_ms + ANSWER_MS : 0;
        r.answer_takes_ms = ANSWER_MS;
        pass(&r, 20000);
        assert_int_equal(r.n_verdicts, 0);
        close_rig(&r);
    }
}

static void nobody_is_blamed_before_likelier_ones_have_been_heard(void **state)
{
    struct hang_verdict v;
    struct rig r;

    (void)state;
    open_rig(&r, 3, 50, 150);
    pass(&r, 20000);
    r.rank[1].is_stopped = true;
    r.answer_takes_ms = UINT32_MAX;
    pass(&r, 2400);
    assert_int_equal(r.n_asked, 1);
    assert_int_equal(r.h.suspect[0].rank, 1);
    hang_answer(&r.h, 0, "T", r.now_ms);
    hang_answer(&r.h, 2, "S", r.now_ms);
    assert_int_equal(hang_look(&r.h, &r.p, r.now_ms + 2000, &v), HANG_QUIET);
    close_rig(&r);
}

/* --- many --- */

static void of_ten_thousand_the_one_is_found_at_once(void **state)
{
    enum { N = 10000, GUILTY = 7777 };
    struct msg_progress m = {.generation = 1, .pid = 1};
    struct hang_verdict v;
    struct progress p = {0};
    struct hang h;
    uint64_t now_ms = 1000;

    (void)state;
    progress_begin(&p, 1, 1);
    progress_add_node(&p, SESSION, "host", N);
    progress_start(&p);
    hang_begin(&h, now_ms);
    for (uint64_t step = 1; step <= 20; step++, now_ms += 100) {
        for (m.rank = 0; m.rank < N; m.rank++) {
            m.step = step - (step == 20 && m.rank == GUILTY);
            m.waits_for = step == 20 && m.rank != GUILTY ? GUILTY : -1;
            assert_true(progress_note(&p, SESSION, &m, now_ms));
        }
    }
    now_ms = hang_deadline(&h, &p);
    assert_int_equal(hang_look(&h, &p, now_ms, &v), HANG_ASK);
    assert_int_equal(h.suspect[0].rank, GUILTY);
    assert_int_equal(h.n_suspects, HANG_SUSPECTS);
    for (uint32_t i = 0; i < h.n_suspects; i++) {
        hang_answer(&h, h.suspect[i].rank, i == 0 ? "R" : "S", now_ms + 300);
    }
    now_ms = hang_deadline(&h, &p);
    assert_int_equal(hang_look(&h, &p, now_ms, &v), HANG_FOUND);
    assert_int_equal(v.rank, GUILTY);
    assert_int_equal(v.n_waiting, N - 1);
    progress_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_rank_is_found_within_three_seconds_wherever_it_is),
        cmocka_unit_test(a_spinning_rank_is_found_by_who_waits_for_it),
        cmocka_unit_test(long_steps_are_given_five_of_them),
        cmocka_unit_test(it_is_told_once_and_again_after_a_move),
        cmocka_unit_test(without_a_word_of_waiting_only_a_stopped_process_is_proof),
        cmocka_unit_test(ranks_that_wait_for_each_other_are_told_of_without_blame),
        cmocka_unit_test(a_process_that_a_debugger_holds_is_told_of),
        cmocka_unit_test(a_process_that_is_let_go_and_hangs_all_the_same_is_found),
        cmocka_unit_test(a_rank_whose_output_nobody_reads_is_told_of),
        cmocka_unit_test(an_hour_of_steps_that_vary_threefold_has_no_alarm),
        cmocka_unit_test(rare_long_steps_are_no_alarm),
        cmocka_unit_test(rare_long_steps_of_one_rank_are_no_alarm),
        cmocka_unit_test(between_who_saves_and_who_computes_nobody_decides),
        cmocka_unit_test(who_saves_for_minutes_is_not_waited_for_in_vain),
        cmocka_unit_test(who_is_stopped_while_it_saves_is_found),
        cmocka_unit_test(who_waits_for_a_device_gets_half_a_minute),
        cmocka_unit_test(nothing_is_judged_before_steps_are_known),
        cmocka_unit_test(a_rank_that_never_reported_is_not_judged),
        cmocka_unit_test(a_job_that_is_stopped_as_a_whole_does_not_hang),
        cmocka_unit_test(a_rank_that_has_ended_ends_the_judging),
        cmocka_unit_test(a_service_that_was_asleep_judges_nobody_by_that),
        cmocka_unit_test(a_node_that_was_asleep_is_not_blamed),
        cmocka_unit_test(an_answer_that_comes_late_blames_nobody),
        cmocka_unit_test(nobody_is_blamed_before_likelier_ones_have_been_heard),
        cmocka_unit_test(of_ten_thousand_the_one_is_found_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
