#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"
#include "worker/report/metrics.h"

#include "common/fault.h"
#include "common/number.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct scratch scratch;

static int on_setup(void **state)
{
    (void)state;
    scratch_open(&scratch);
    return 0;
}

static int on_teardown(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

static struct metrics_line line_of(uint64_t step, int generation)
{
    return (struct metrics_line){.step = step,
                                 .loss = 2.5,
                                 .grad_norm = 0.1,
                                 .lr = 6e-4,
                                 .tokens = step * 1024,
                                 .tok_s = 31234.5,
                                 .step_s = 0.03125,
                                 .mfu = -1,
                                 .generation = generation,
                                 .world_size = 2,
                                 .val_loss = (double)NAN};
}

static struct metrics *must_take_over(int generation)
{
    struct metrics *m = NULL;
    struct errmsg msg = {0};

    if (metrics_take_over(scratch.dir, generation, &m, &msg) != 0) {
        fail_msg("%s", msg.text);
    }
    return m;
}

static void must_prepare(int generation, uint64_t keep_step)
{
    struct errmsg msg = {0};

    if (metrics_prepare(scratch.dir, generation, keep_step, UINT64_MAX, NULL, &msg) !=
        0) {
        fail_msg("%s", msg.text);
    }
}

static void append(struct metrics *m, uint64_t step, int generation)
{
    struct metrics_line line = line_of(step, generation);

    assert_int_equal(metrics_append(m, &line, NULL), 0);
}

/* "1:1 2:1 3:2": step:generation of each line of metrics.jsonl. */
static void assert_steps(const char *expected)
{
    char *text = scratch_read(&scratch, "metrics.jsonl");
    char seen[512] = "";

    assert_non_null(text);
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        unsigned long long step;
        const char *generation = strstr(line, "\"generation\":");

        assert_non_null(strchr(line, '\n'));
        assert_int_equal(sscanf(line, "{\"step\":%llu,", &step), 1);
        (void)snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s%llu:%d",
                       seen[0] ? " " : "", step,
                       generation ? atoi(generation + strlen("\"generation\":")) : -1);
    }
    assert_string_equal(seen, expected);
    free(text);
}

static void a_line_has_the_documented_form(void **state)
{
    (void)state;
    struct metrics_line line = line_of(100, 3);
    struct metrics *m;
    char *text;

    line.loss = 0.1 + 0.2;
    must_prepare(3, 0);
    m = must_take_over(3);
    assert_int_equal(metrics_append(m, &line, NULL), 0);
    line.step = 101;
    line.loss = (double)INFINITY;
    line.mfu = 0.5;
    line.val_loss = 1.0 / 3;
    line.gemm_flop_s = 2e10;
    line.mem_bytes = 1 << 20;
    line.mem_peak_bytes = 1 << 21;
    line.mem_peak_max_bytes = 1 << 22;
    line.mem_peak_max_rank = 1;
    line.queue_s[0] = 0.5;
    line.queue_s[3] = 0.25;
    line.ckpt_every_s = 90.5;
    line.ckpt_cost_s = 0.125;
    line.loss_scale = 32768;
    line.skipped = 1;
    assert_int_equal(metrics_append(m, &line, NULL), 0);
    assert_int_equal(metrics_sync(m, NULL), 0);
    metrics_close(m);
    text = scratch_read(&scratch, "metrics.jsonl");
    assert_string_equal(
        text,
        "{\"step\":100,\"loss\":0.30000000000000004,\"grad_norm\":0.1,\"lr\":0.0006,"
        "\"tokens\":102400,\"tok_s\":31234.5,\"step_s\":0.03125,\"mfu\":null,"
        "\"generation\":3,\"world_size\":2,\"gemm_flop_s\":null,\"mem_bytes\":null,"
        "\"mem_peak_bytes\":null,\"mem_peak_max_bytes\":null,\"mem_peak_max_rank\":0,"
        "\"compute_s\":0.0,\"gather_s\":0.0,\"reduce_s\":0.0,\"copy_s\":0.0}\n"
        "{\"step\":101,\"loss\":null,\"grad_norm\":0.1,\"lr\":0.0006,"
        "\"tokens\":102400,\"tok_s\":31234.5,\"step_s\":0.03125,\"mfu\":0.5,"
        "\"generation\":3,\"world_size\":2,\"loss_scale\":32768.0,\"skipped\":1,"
        "\"gemm_flop_s\":2.0e+10,"
        "\"mem_bytes\":1048576,\"mem_peak_bytes\":2097152,"
        "\"mem_peak_max_bytes\":4194304,\"mem_peak_max_rank\":1,\"compute_s\":0.5,"
        "\"gather_s\":0.0,\"reduce_s\":0.0,\"copy_s\":0.25,\"ckpt_every_s\":90.5,"
        "\"ckpt_cost_s\":0.125,\"val_loss\":0.3333333333333333}\n");
    free(text);
}

static void numbers_read_back_bit_for_bit(void **state)
{
    (void)state;
    const double values[] = {
        0,      1,    100,  0.1,       1.0 / 3, 6e-5,      DBL_MIN, DBL_MAX,
        5e-324, -2.5, 1e22, 123456789, 1e300,   3.1415927, 1e-7,    (double)0.1F};
    const char *const texts[] = {"0.0", "1.0", "1.0e+02", "0.1", NULL, "6.0e-05"};
    char text[NUMBER_TEXT_MAX];
    uint64_t x = 88172645463325252U; /* xorshift: any bits */

    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        number_format(values[i], text);
        assert_true(strtod(text, NULL) == values[i]);
        if (i < ARRAY_LEN(texts) && texts[i]) {
            assert_string_equal(text, texts[i]);
        }
    }
    for (int i = 0; i < 20000; i++) {
        double value;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(&value, &x, sizeof(value));
        if (isfinite(value)) {
            number_format(value, text);
            assert_true(strtod(text, NULL) == value);
            assert_non_null(strchr(text, '.'));
        }
    }
}

static void a_resume_drops_the_lines_after_its_step(void **state)
{
    (void)state;
    struct metrics *m;

    must_prepare(1, 0);
    m = must_take_over(1);
    for (uint64_t step = 1; step <= 5; step++) {
        append(m, step, 1);
    }
    metrics_close(m);
    must_prepare(2, 3);
    assert_steps("1:1 2:1 3:1 4:1 5:1"); /* nothing happens before it is accepted */
    m = must_take_over(2);
    append(m, 4, 2);
    metrics_close(m);
    assert_steps("1:1 2:1 3:1 4:2");
    assert_int_equal(access(scratch_path(&scratch, "metrics.jsonl.g2.tmp"), F_OK), -1);
}

static void torn_and_foreign_lines_are_dropped(void **state)
{
    (void)state;
    (void)scratch_text(&scratch, "metrics.jsonl",
                       "{\"step\":1,\"generation\":1}\n"
                       "\n"
                       "garbage\n"
                       "{\"step\":2,\"generation\":1}\n"
                       "{\"step\":2,\"generation\":9}\n"
                       "{\"step\":x}\n"
                       "{\"step\":3,\"generation\":1}\n"
                       "{\"step\":4,\"gene");
    must_prepare(2, 10);
    metrics_close(must_take_over(2));
    assert_steps("1:1 2:1 3:1");
}

static void assert_missing(const char *text, uint64_t keep_step, const char *missing)
{
    struct metrics_found found;
    struct errmsg msg = {0};

    if (text) {
        (void)scratch_text(&scratch, "metrics.jsonl", text);
    }
    assert_int_equal(metrics_prepare(scratch.dir, 2, keep_step, 1, &found, &msg), 0);
    metrics_close(must_take_over(2));
    assert_string_equal(found.missing, missing);
    assert_string_equal(found.kept, "");
}

#define LINE(n) "{\"step\":" #n ",\"generation\":1}\n"

static void a_resume_says_which_lines_are_missing(void **state)
{
    (void)state;
    char text[4096] = "";

    assert_missing(NULL, 7, "1-7");
    assert_missing("", 1, "1");
    assert_missing(LINE(1) LINE(2) LINE(3), 2, "");
    assert_missing(LINE(1) LINE(2) LINE(3), 3, "");
    assert_missing(LINE(3) "\377\1\2 random\n" LINE(5) LINE(9), 12,
                   "1-2, 4, 6-8, 10-12");
    for (int i = 2; i <= 100; i += 2) {
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text),
                       "{\"step\":%d,\"generation\":1}\n", i);
    }
    assert_missing(text, 100,
                   "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, "
                   "35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63 …");
}

static void assert_kept(int generation, uint64_t worth, const char *name,
                        const char *expected)
{
    struct metrics_found found;
    struct errmsg msg = {0};
    char *text;

    assert_int_equal(metrics_prepare(scratch.dir, generation, 0, worth, &found, &msg),
                     0);
    metrics_close(must_take_over(generation));
    assert_steps("");
    assert_string_equal(found.kept, name);
    assert_string_equal(found.missing, "");
    if (expected) {
        text = scratch_read(&scratch, name);
        assert_string_equal(text, expected);
        free(text);
    }
}

static void a_training_that_begins_anew_keeps_the_lines_of_the_one_before(void **state)
{
    (void)state;
    assert_kept(1, 0, "", NULL); /* nothing there */
    assert_kept(2, 0, "", NULL); /* no line in it */
    (void)scratch_text(&scratch, "metrics.jsonl", LINE(1) LINE(2) "torn");
    assert_kept(3, 2, "metrics.before-g3.jsonl", LINE(1) LINE(2) "torn");
    (void)scratch_text(&scratch, "metrics.jsonl", LINE(1));
    assert_kept(3, 1, "metrics.before-g3.1.jsonl", LINE(1));
    assert_kept(4, 0, "", NULL);
    (void)scratch_text(&scratch, "metrics.jsonl", LINE(1));
    assert_kept(5, 2, "", NULL); /* not worth it */
}

#ifdef FAULTS

/* FUSE and SMB may be without hard links, and say so in several ways. */
static void without_hard_links_the_lines_are_copied(void **state)
{
    static const int errors[] = {-EPERM, -EOPNOTSUPP, -ENOSYS, -EMLINK};
    char name[METRICS_NAME_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        (void)snprintf(name, sizeof(name), "metrics.before-g%zu.jsonl", i + 1);
        (void)scratch_text(&scratch, "metrics.jsonl", LINE(1) LINE(2) "torn");
        fault_arm("metrics.link", 1, errors[i]);
        assert_kept((int)i + 1, 1, name, LINE(1) LINE(2) "torn");
    }
    (void)scratch_text(&scratch, "metrics.before-g9.jsonl", LINE(7));
    (void)scratch_text(&scratch, "metrics.jsonl", LINE(1));
    fault_arm("metrics.link", 1,
              -EPERM); /* the name is taken: the next can be linked */
    assert_kept(9, 1, "metrics.before-g9.1.jsonl", LINE(1));
    fault_disarm_all();
}

static void lines_that_cannot_be_copied_either_do_not_stop_the_training(void **state)
{
    (void)state;
    (void)scratch_text(&scratch, "metrics.jsonl", LINE(1));
    fault_arm("metrics.link", 1, -EPERM);
    fault_arm("metrics.copy", 1, -ENOSPC);
    assert_kept(1, 1, "", NULL);
    assert_int_equal(access(scratch_path(&scratch, "metrics.before-g1.jsonl"), F_OK),
                     -1);
    fault_disarm_all();
}

static void failing_storage_loses_no_lines(void **state)
{
    struct errmsg msg = {0};

    (void)state;
    (void)scratch_text(&scratch, "metrics.jsonl", LINE(1));
    fault_arm("metrics.link", 1, -EIO);
    assert_int_equal(metrics_prepare(scratch.dir, 1, 0, 1, NULL, &msg), -EIO);
    assert_non_null(strstr(msg.text, "cannot be kept"));
    fault_disarm_all();
}

#endif

static void older_temporaries_are_removed(void **state)
{
    (void)state;
    struct metrics *m = NULL;

    must_prepare(1, 0);
    must_prepare(2, 0);
    assert_int_equal(access(scratch_path(&scratch, "metrics.jsonl.g1.tmp"), F_OK), -1);
    assert_int_equal(metrics_take_over(scratch.dir, 1, &m, NULL), -ENOENT);
    assert_null(m);
    metrics_close(must_take_over(2));
    assert_int_equal(access(scratch_path(&scratch, "trash-metrics.jsonl.g1.tmp"), F_OK),
                     -1);
}

static void an_older_generation_is_refused_by_a_newer_ones_temporary(void **state)
{
    (void)state;
    struct errmsg msg = {0};

    must_prepare(3, 0);
    assert_int_equal(metrics_prepare(scratch.dir, 2, 0, 1, NULL, &msg), ERR_STALE);
    assert_non_null(strstr(msg.text, "run generation 3 has taken over from 2"));
    metrics_close(must_take_over(3)); /* unharmed */
}

static void a_zombies_lines_never_reach_the_new_file(void **state)
{
    (void)state;
    struct metrics *zombie;
    struct metrics *m;

    must_prepare(1, 0);
    zombie = must_take_over(1);
    append(zombie, 1, 1);
    append(zombie, 2, 1);
    must_prepare(2, 1);
    append(zombie, 3, 1);
    m = must_take_over(2);
    append(zombie, 4, 1);
    append(m, 2, 2);
    append(zombie, 5, 1);
    metrics_close(zombie);
    metrics_close(m);
    assert_steps("1:1 2:2");
}

static void a_missing_folder_is_named(void **state)
{
    (void)state;
    struct errmsg msg = {0};

    assert_int_equal(
        metrics_prepare(scratch_path(&scratch, "none"), 1, 0, 1, NULL, &msg), -ENOENT);
    assert_non_null(strstr(msg.text, "/none: No such file or directory"));
    metrics_close(NULL);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, on_setup, on_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_line_has_the_documented_form),
        CASE(numbers_read_back_bit_for_bit),
        CASE(a_resume_drops_the_lines_after_its_step),
        CASE(torn_and_foreign_lines_are_dropped),
        CASE(a_resume_says_which_lines_are_missing),
        CASE(a_training_that_begins_anew_keeps_the_lines_of_the_one_before),
#ifdef FAULTS
        CASE(without_hard_links_the_lines_are_copied),
        CASE(lines_that_cannot_be_copied_either_do_not_stop_the_training),
        CASE(failing_storage_loses_no_lines),
#endif
        CASE(older_temporaries_are_removed),
        CASE(an_older_generation_is_refused_by_a_newer_ones_temporary),
        CASE(a_zombies_lines_never_reach_the_new_file),
        CASE(a_missing_folder_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
