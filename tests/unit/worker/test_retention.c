/* What is kept, by hand: one character a checkpoint, newest first. */

#include "tests/lib/cmocka.h"
#include "worker/checkpoint/retention.h"

#include "common/check.h"

#include <string.h>

enum { N_MAX = 8 };

static struct retained of(uint64_t step, int run_generation, double val_loss)
{
    return (struct retained){.entry = {.step = step, .run_generation = run_generation},
                             .has_val_loss = val_loss > 0,
                             .val_loss = val_loss};
}

/* 'k' for each that is kept, else '.'. */
static void expect(const struct retained *all, size_t n,
                   struct checkpoint_retention retention, const char *kept)
{
    struct retained copy[N_MAX];
    char seen[N_MAX + 1] = "";

    assert_true(n <= N_MAX);
    memcpy(copy, all, n * sizeof(*all));
    retention_choose(copy, n, &retention);
    for (size_t i = 0; i < n; i++) {
        seen[i] = copy[i].is_kept ? 'k' : '.';
    }
    assert_string_equal(seen, kept);
}

static void the_union_of_newest_every_nth_and_best_is_kept(void **state)
{
    const struct retained all[] = {of(60, 1, 3),   of(50, 1, 2.5), of(40, 1, 2),
                                   of(30, 1, 2.5), of(20, 1, 0),   of(10, 1, 4)};
    size_t n = ARRAY_LEN(all);

    (void)state;
    expect(all, n, (struct checkpoint_retention){0}, "kkkkkk");
    expect(all, n, (struct checkpoint_retention){.keep = 2}, "kk....");
    expect(all, n, (struct checkpoint_retention){.keep = 9}, "kkkkkk");
    expect(all, n, (struct checkpoint_retention){.keep = 1, .keep_every = 20},
           "k.k.k.");
    expect(all, n, (struct checkpoint_retention){.keep = 1, .keep_every = 25},
           "kk.k.."); /* the first at or after each multiple */
    expect(all, n, (struct checkpoint_retention){.keep = 1, .keep_best = 1}, "k.k...");
    /* of two that are alike the newer one */
    expect(all, n, (struct checkpoint_retention){.keep = 1, .keep_best = 2}, "kkk...");
    /* those that are kept anyway count among the best; one never evaluated is none */
    expect(all, n, (struct checkpoint_retention){.keep = 2, .keep_best = 3}, "kkkk..");
    expect(all, n, (struct checkpoint_retention){.keep = 1, .keep_best = 9}, "kkkk.k");
    expect(all, n,
           (struct checkpoint_retention){.keep = 1, .keep_every = 10, .keep_best = 1},
           "kkkkkk");
    expect(all, 0, (struct checkpoint_retention){.keep = 1, .keep_best = 1}, "");
}

static void of_one_step_only_the_newest_counts(void **state)
{
    const struct retained all[] = {of(30, 2, 3), of(20, 2, 2), of(20, 1, 1),
                                   of(10, 1, 2.5)};

    (void)state;
    expect(all, 4, (struct checkpoint_retention){.keep = 1, .keep_every = 20}, "kk..");
    expect(all, 4, (struct checkpoint_retention){.keep = 1, .keep_best = 2}, "kk.k");
    expect(all, 4, (struct checkpoint_retention){.keep = 3}, "kkk.");
}

static void one_that_cannot_be_read_now_may_be_a_best_one(void **state)
{
    struct retained all[] = {of(30, 1, 3), of(20, 1, 0), of(10, 1, 2)};

    (void)state;
    all[1].is_unreadable = true;
    expect(all, 3, (struct checkpoint_retention){.keep = 1, .keep_best = 1}, "kkk");
    expect(all, 3, (struct checkpoint_retention){.keep = 1}, "k..");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_union_of_newest_every_nth_and_best_is_kept),
        cmocka_unit_test(of_one_step_only_the_newest_counts),
        cmocka_unit_test(one_that_cannot_be_read_now_may_be_a_best_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
