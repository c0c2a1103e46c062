/* The ranks beside the first cause: in a few lines, however many they are. */

#include "rendezvous/others.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct end {
    uint32_t rank;
    int32_t code, signal;
    uint64_t ended_ms;
    bool engine, stopped;
    const char *error;
};

/* Two ranks a node, process ids from 1000 on. */
static struct msg_rank_ended make(const struct end *e)
{
    struct msg_rank_ended m = {.rank = e->rank,
                               .local_rank = e->rank % 2,
                               .pid = 1000 + e->rank,
                               .exit_code = e->code,
                               .signal = e->signal,
                               .ended_ms = e->ended_ms,
                               .engine = e->engine,
                               .stopped = e->stopped};

    (void)snprintf(m.error, sizeof(m.error), "%s", e->error ? e->error : "");
    return m;
}

static void put(struct others *o, const struct end *e)
{
    struct msg_rank_ended m = make(e);
    char host[32];

    (void)snprintf(host, sizeof(host), "node%u", e->rank / 2);
    others_put(o, &m, host);
}

/* `first`: the first cause's rank, ended at 100; -1: none. */
static void assert_lines(const struct others *o, int first, const char *expected)
{
    struct msg_rank_ended m = {.rank = (uint32_t)first, .ended_ms = 100};
    char text[MSG_TAIL_MAX];

    others_format(o, first < 0 ? NULL : &m, text, sizeof(text));
    assert_string_equal(text, expected);
}

/* What is said of one, beside rank 9, that failed first. */
static void others_were_stopped_only_where_our_word_ended_them(void **state)
{
    static const struct {
        struct end end;
        const char *words;
    } cases[] = {
        {{0, 1, 0, 310, false, true, ""},
         "exitcode 1 (pid: 1000), also failed 0.210 s later"},
        {{0, 1, 0, 119, false, false, ""},
         "exitcode 1 (pid: 1000), also failed at the same time"},
        {{0, 1, 0, 90, false, false, ""},
         "exitcode 1 (pid: 1000), also failed at the same time"},
        {{0, 0, SIGSEGV, 12345, true, true, ""},
         "exitcode -11 (SIGSEGV) (pid: 1000), also failed 12.245 s later"},
        {{0, 82, 0, 200, true, true, ""},
         "exitcode 82 (pid: 1000), also failed 0.100 s later"},
        {{0, 80, 0, 200, false, true, ""},
         "exitcode 80 (pid: 1000), also failed 0.100 s later"},
        {{0, 0, SIGTERM, 200, false, false, ""},
         "exitcode -15 (SIGTERM) (pid: 1000), also failed 0.100 s later"},
        {{0, 0, 37, 200, true, true, ""},
         "exitcode -37 (SIGRTMIN+3) (pid: 1000), also failed 0.100 s later"},
        {{0, 1, 0, 200, false, false, "E: x\nmore"},
         "exitcode 1 (pid: 1000), also failed 0.100 s later: E: x"},
        {{0, 0, SIGTERM, 200, false, true, ""}, NULL},
        {{0, 143, 0, 200, false, true, ""}, NULL},
        {{0, 80, 0, 200, true, true, ""}, NULL},
        {{0, 83, 0, 200, true, true, ""}, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct others o = {0};
        char line[256];

        put(&o, &(struct end){9, 1, 0, 100, false, false, "first"});
        put(&o, &cases[i].end);
        (void)snprintf(line, sizeof(line), "rank 0 (local_rank: 0) on node0: %s\n",
                       cases[i].words);
        assert_lines(&o, 9,
                     cases[i].words ? line : "rank 0: stopped because of rank 9\n");
        others_clear(&o);
    }
}

static void those_that_ended_alike_share_a_line(void **state)
{
    struct others o = {0};

    (void)state;
    for (uint32_t rank = 0; rank < 40; rank++) {
        struct end e = {rank, 0, SIGTERM, 200, false, true, ""};

        if (rank == 3 || rank == 7 || rank == 8) {
            e = (struct end){rank, 1, 0, 400 - rank, false, false, "ImportError: m"};
        } else if (rank == 12) {
            e.signal = SIGKILL;
        } else if (rank >= 20 && rank < 24) {
            e = (struct end){
                rank, rank < 22 ? 80 : rank == 22 ? 81 : 82, 0, 300, true, false, ""};
        } else if (rank == 30) {
            continue; /* ended well */
        }
        put(&o, &e);
    }
    assert_lines(
        &o, 3,
        "rank 23 (local_rank: 1) on node11: exitcode 82 (pid: 1023), also failed "
        "0.200 s later\n"
        "rank 8 (local_rank: 0) on node4: exitcode 1 (pid: 1008), also failed "
        "0.292 s later: ImportError: m; so did rank 7\n"
        "ranks 20-21: lost a peer (exitcode 80)\n"
        "rank 22: communication timed out (exitcode 81)\n"
        "ranks 0-2, 4-6, 9-11, 13-19, 24-29, 31-39 (31 ranks): stopped because "
        "of rank 3\n"
        "rank 12: stopped because of rank 3, by SIGKILL\n");
    others_clear(&o);
}

/* An end is told at once, and again when the exception is known, or that it was no
 * consequence. */
static void what_is_told_again_counts_once(void **state)
{
    struct others o = {0};

    (void)state;
    for (uint32_t rank = 0; rank < 4; rank++) {
        put(&o, &(struct end){rank, 1, 0, 300 + rank, false, false, ""});
    }
    put(&o, &(struct end){4, 0, SIGTERM, 310, false, true, ""});
    for (uint32_t rank = 0; rank < 3; rank++) {
        put(&o, &(struct end){rank, 1, 0, 290 + rank, false, false, "E: x"});
    }
    put(&o, &(struct end){4, 1, 0, 250, false, false, "E: y"});
    assert_lines(&o, 0,
                 "rank 4 (local_rank: 0) on node2: exitcode 1 (pid: 1004), also failed "
                 "0.150 s later: E: y\n"
                 "rank 1 (local_rank: 1) on node0: exitcode 1 (pid: 1001), also failed "
                 "0.191 s later: E: x; so did rank 2\n"
                 "rank 3: exitcode 1, also failed\n");
    assert_int_equal(others_how(&o, 5), HOW_UNKNOWN);
    assert_int_equal(others_how(&o, 4000), HOW_UNKNOWN);
    others_clear(&o);
}

/* All of 10,000 lack the same module: one line. */
static void ten_thousand_that_fail_alike_are_one_line(void **state)
{
    struct others o = {0};

    (void)state;
    for (uint32_t i = 0; i < 20000; i++) { /* each twice, as agents do */
        struct end e = {i / 2, 1, 0, 100 + i, false, false, i % 2 ? "E: m" : ""};

        put(&o, &e);
    }
    assert_lines(&o, 0,
                 "rank 1 (local_rank: 1) on node0: exitcode 1 (pid: 1001), also failed "
                 "at the same time: E: m; so did ranks 2-9999\n");
    others_clear(&o);
}

/* Each in its own way, and at its longest: nothing is lost, but in number. */
static void what_does_not_fit_is_counted(void **state)
{
    enum { N = 10000 };
    struct others o = {0};
    char text[MSG_TAIL_MAX];
    char error[1000];
    unsigned n_lines = 0;

    (void)state;
    memset(error, 'x', sizeof(error));
    error[sizeof(error) - 1] = '\0';
    for (uint32_t rank = 0; rank < N; rank++) {
        (void)snprintf(error, 8, "%05u: ", rank);
        error[7] = 'x';
        put(&o, &(struct end){rank, 1, 0, 100, false, false, error});
    }
    others_format(&o, NULL, text, sizeof(text));
    assert_non_null(strstr(text, "\nranks 16-9999: also failed, in other ways\n"));
    for (const char *c = text; *c != '\0'; c++) {
        n_lines += *c == '\n';
    }
    assert_int_equal(n_lines, OTHERS_OUTCOMES + 1);
    others_format(&o, NULL, text, 600);
    assert_true(strlen(text) < 600);
    assert_string_equal(strstr(text, "\nand "), "\nand 14 more lines\n");
    for (uint32_t rank = 0; rank < N; rank += 2) {
        put(&o, &(struct end){rank, 0, SIGTERM, 100, false, true, ""});
    }
    others_format(&o, NULL, text, sizeof(text));
    assert_non_null(
        strstr(text, ", 20, 22, … (5000 ranks): stopped because of the others\n"));
    others_clear(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_were_stopped_only_where_our_word_ended_them),
        cmocka_unit_test(those_that_ended_alike_share_a_line),
        cmocka_unit_test(what_is_told_again_counts_once),
        cmocka_unit_test(ten_thousand_that_fail_alike_are_one_line),
        cmocka_unit_test(what_does_not_fit_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
