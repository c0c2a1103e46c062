#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"
#include "worker/report/progress.h"

#include "common/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void the_line_is_for_people(void **state)
{
    (void)state;
    struct metrics_line line = {.step = 120,
                                .loss = 2.34567,
                                .grad_norm = 0.911,
                                .lr = 5.9e-4,
                                .tok_s = 31249,
                                .step_s = 0.15,
                                .val_loss = (double)NAN};
    char text[256];

    progress_format(&line, 400, text, sizeof(text));
    assert_string_equal(text,
                        "step 120/400  loss 2.3457   gnorm 0.91   lr 5.9e-04  31.2k "
                        "tok/s  ETA 0:42");
    line.val_loss = 2.5;
    progress_format(&line, 400, text, sizeof(text));
    assert_non_null(strstr(text, "  ETA 0:42  val 2.5000"));
    progress_format(&line, 400, text, 20);
    assert_string_equal(text, "step 120/400  loss ");
}

static void
what_the_step_took_of_the_machine_follows_as_far_as_it_is_known(void **state)
{
    struct metrics_line line = {.step = 1,
                                .step_s = 2,
                                .mfu = 0.427,
                                .val_loss = 2.5,
                                .mem_bytes = 512ULL << 20,
                                .mem_peak_bytes = 600ULL << 20,
                                .mem_peak_max_bytes = 3ULL << 29,
                                .mem_peak_max_rank = 3,
                                .queue_s = {1.68, 0.01, 0.5, 0.02}};
    char text[256];

    (void)state;
    progress_format(&line, 2, text, sizeof(text));
    assert_non_null(strstr(text, "  val 2.5000  mfu 43%  mem 512M peak 1.5G r3  "
                                 "compute 84%  reduce 25%  copy 1%"));
    line.mem_peak_max_rank = 0; /* the rank that speaks */
    line.mem_bytes = 900;
    progress_format(&line, 2, text, sizeof(text));
    assert_non_null(strstr(text, "  mem 0.9k peak 1.5G  compute"));
    line.mfu = -1;
    line.mem_bytes = 0;
    progress_format(&line, 2, text, sizeof(text));
    assert_non_null(strstr(text, "  val 2.5000  compute 84%"));
}

static void a_scale_is_shown_shortly_and_steps_that_were_skipped(void **state)
{
    struct metrics_line line = {
        .step = 1, .step_s = 2, .val_loss = (double)NAN, .loss_scale = 65536};
    char text[256];

    (void)state;
    progress_format(&line, 1, text, sizeof(text));
    assert_non_null(strstr(text, "  ETA 0:00  scale 2^16"));
    assert_null(strstr(text, "skipped"));
    line.skipped = 9; /* all in all */
    line.skipped_now = 2;
    line.loss_scale = 1;
    progress_format(&line, 1, text, sizeof(text));
    assert_non_null(strstr(text, "  scale 2^0  skipped 2"));
    line.loss_scale = 1000.5;
    progress_format(&line, 1, text, sizeof(text));
    assert_non_null(strstr(text, "  scale 1000  skipped 2"));
    line.loss_scale = 0;
    progress_format(&line, 1, text, sizeof(text));
    assert_null(strstr(text, "scale"));
}

/* x86 makes NaNs with the sign set. */
static void nan_has_no_sign(void **state)
{
    (void)state;
    struct metrics_line line = {.step = 1, .loss = -(double)NAN};
    char text[256];

    line.grad_norm = copysign((double)NAN, -1);
    progress_format(&line, 2, text, sizeof(text));
    assert_non_null(strstr(text, "loss nan "));
    assert_non_null(strstr(text, "gnorm nan "));
    assert_null(strstr(text, "-nan"));
}

/* The names of a run's lines stand below each other, whatever the values. */
static void lines_stand_in_columns(void **state)
{
    (void)state;
    static const struct metrics_line lines[] = {
        {.step = 1, .loss = 10.9876, .grad_norm = 12.34, .tok_s = 409, .val_loss = 3},
        {.step = 1000, .loss = 2.5, .grad_norm = 0.5, .tok_s = 31249, .val_loss = 3},
    };
    static const char *const names[] = {"loss", "gnorm", "lr", "tok/s", "ETA"};
    char text[ARRAY_LEN(lines)][256];

    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        progress_format(&lines[i], 1000, text[i], sizeof(text[i]));
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_int_equal(strstr(text[0], names[i]) - text[0],
                         strstr(text[1], names[i]) - text[1]);
    }
}

static void speeds_and_times_choose_their_units(void **state)
{
    (void)state;
    static const struct {
        double tok_s, step_s;
        const char *speed, *eta;
    } cases[] = {
        {0, 0, "0 tok/s", "ETA 0:00"},
        {842.4, 59.4, "842 tok/s", "ETA 0:59"},
        {999.6, 59.6, "1.0k tok/s", "ETA 1:00"},
        {99960, 3599.4, "100k tok/s", "ETA 59:59"},
        {123456, 11229, "123k tok/s", "ETA 3:07:09"},
        {1.5e6, 90000, "1.5M tok/s", "ETA 1d 01:00"},
        {2e15, (double)NAN, "2000T tok/s", "ETA ?"},
    };
    char text[256];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct metrics_line line = {
            .step = 9, .tok_s = cases[i].tok_s, .step_s = cases[i].step_s};

        progress_format(&line, 10, text, sizeof(text));
        assert_non_null(strstr(text, cases[i].speed));
        assert_non_null(strstr(text, cases[i].eta));
    }
}

static void write_losses(const double *loss, size_t n)
{
    char text[8192] = "";

    for (size_t i = 0; i < n; i++) {
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text),
                       "{\"step\":%zu,\"loss\":%.17g,\"lr\":1}\n", i + 1, loss[i]);
    }
    (void)scratch_text(&scratch, "metrics.jsonl", text);
}

static char *must_draw(int columns, int rows)
{
    struct errmsg msg = {0};
    char *text = NULL;

    if (progress_curve(scratch_path(&scratch, "metrics.jsonl"), columns, rows, &text,
                       &msg) != 0) {
        fail_msg("%s", msg.text);
    }
    return text;
}

static void a_falling_loss_falls_in_the_picture(void **state)
{
    (void)state;
    const double loss[] = {4, 3, 2, 1};
    char *text;

    write_losses(loss, ARRAY_LEN(loss));
    text = must_draw(2, 1); /* 4 × 4 dots: a diagonal */
    assert_string_equal(text, "    4.000 ┤⠑⢄\n"
                              "     loss └──\n"
                              "           1step 4\n");
    mem_free(text);
    text = must_draw(20, 3);
    assert_string_equal(text, "    4.000 ┤⠉⠒⠢⠤⢄⣀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀\n"
                              "          │⠀⠀⠀⠀⠀⠀⠉⠉⠒⠒⠤⠤⣀⣀⠀⠀⠀⠀⠀⠀\n"
                              "    1.000 ┤⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠉⠑⠒⠢⠤⣀\n"
                              "     loss └────────────────────\n"
                              "           1             step 4\n");
    mem_free(text);
}

static void odd_curves_are_drawn_too(void **state)
{
    (void)state;
    const double flat[] = {2, 2, 2};
    char *text;

    write_losses(flat, 1);
    text = must_draw(4, 2);
    assert_non_null(strstr(text, "2.000"));
    mem_free(text);
    write_losses(flat, 3);
    text = must_draw(1000000, -5); /* kept within the limits */
    assert_in_range(strlen(text), 400, 4000);
    mem_free(text);
    (void)scratch_text(&scratch, "metrics.jsonl",
                       "{\"step\":1,\"loss\":null}\nnot json\n{\"step\":2,\"loss\":3}\n"
                       "[1]\n{\"step\":3,\"lo");
    text = must_draw(10, 2);
    assert_non_null(strstr(text, "step 2"));
    mem_free(text);
}

static void without_a_line_there_is_no_curve(void **state)
{
    (void)state;
    struct errmsg msg = {0};
    char *text = NULL;

    assert_int_equal(progress_curve(scratch_path(&scratch, "none"), 10, 5, &text, &msg),
                     ERR_MISSING);
    (void)scratch_text(&scratch, "metrics.jsonl", "");
    assert_int_equal(
        progress_curve(scratch_path(&scratch, "metrics.jsonl"), 10, 5, &text, &msg),
        ERR_MISSING);
    assert_non_null(strstr(msg.text, "metrics.jsonl: no step in it yet"));
    assert_null(text);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, on_setup, on_teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_line_is_for_people),
        CASE(what_the_step_took_of_the_machine_follows_as_far_as_it_is_known),
        CASE(a_scale_is_shown_shortly_and_steps_that_were_skipped),
        CASE(nan_has_no_sign),
        CASE(lines_stand_in_columns),
        CASE(speeds_and_times_choose_their_units),
        CASE(a_falling_loss_falls_in_the_picture),
        CASE(odd_curves_are_drawn_too),
        CASE(without_a_line_there_is_no_curve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
