#include "launcher/channel.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum { MAX_HEARD = 128 };

struct ear {
    unsigned n;
    struct control heard[MAX_HEARD];
};

static void on_control(void *arg, uint32_t slot, const struct control *c)
{
    struct ear *ear = arg;

    if (slot == 3 && ear->n < MAX_HEARD) {
        ear->heard[ear->n++] = *c;
    }
}

/* A channel, the worker's ends of it, and the loop it lives in. */
struct rig {
    uv_loop_t loop;
    struct ear ear;
    struct channel *channel;
    int control, progress;
};

static void setup(struct rig *rig)
{
    struct channel_config config = {.slot = 3, .on_control = on_control};
    struct errmsg msg = {0};

    memset(rig, 0, sizeof(*rig));
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    config.loop = &rig->loop;
    config.arg = &rig->ear;
    assert_int_equal(
        channel_open(&config, &rig->channel, &rig->control, &rig->progress, &msg), 0);
}

/* The worker is gone; what it said is heard; nothing stays open. */
static void finish(struct rig *rig)
{
    (void)close(rig->control);
    (void)close(rig->progress);
    channel_close(rig->channel);
    assert_int_equal(uv_run(&rig->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&rig->loop), 0);
}

static void say(const struct rig *rig, const char *text)
{
    assert_int_equal(write(rig->progress, text, strlen(text)), (ssize_t)strlen(text));
}

static void send_control(const struct rig *rig, const struct control *c)
{
    struct buf packet;

    buf_init(&packet, CONTROL_MAX);
    assert_int_equal(control_encode(c, &packet), 0);
    assert_int_equal(send(rig->control, buf_bytes(&packet), buf_len(&packet), 0),
                     (ssize_t)buf_len(&packet));
    buf_release(&packet);
}

static void progress_lines_are_parsed_strictly(void **state)
{
    static const char *const bad[] = {
        "",
        "step",
        "step ",
        "step x",
        "Step 4",
        "step -1",
        "step 1x",
        "steps 1",
        "step 99999999999999999999",
        "step 9223372036854775808", /* JSON has it below zero */
        "loss",
        "loss ",
        "loss x",
        "loss 1 x",
        "loss 1 2 3",
        "losses 1"};
    struct control c = {0};

    (void)state;
    assert_true(channel_parse_progress("step 12", &c));
    assert_int_equal(c.type, CONTROL_PROGRESS);
    assert_int_equal(c.step, 12);
    assert_string_equal(c.phase, "");
    assert_true(channel_parse_progress("step 9223372036854775807", &c));
    assert_true(channel_parse_progress("step 7 saving the checkpoint", &c));
    assert_string_equal(c.phase, "saving the checkpoint");
    assert_true(channel_parse_progress(
        "step 7 a phase that is longer than thirty-two characters", &c));
    assert_int_equal(strlen(c.phase), 31);
    assert_true(channel_parse_progress("loss 2.5e-1", &c));
    assert_string_equal(c.loss, "2.5e-1");
    assert_int_equal(c.step, 7); /* as it was said before */
    assert_int_equal(c.loss_step, 7);
    assert_true(channel_parse_progress("step 8", &c));
    assert_string_equal(c.loss, "2.5e-1"); /* still of the step before */
    assert_int_equal(c.loss_step, 7);
    assert_true(channel_parse_progress("loss nan 4096.7", &c));
    assert_string_equal(c.loss, "nan");
    assert_int_equal(c.tok_s, 4096);
    assert_true(channel_parse_progress("loss 1 -1", &c));
    assert_int_equal(c.tok_s, 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(channel_parse_progress(bad[i], &c));
    }
}

static void a_stacks_signal_is_one_that_means_nothing_else(void **state)
{
    static const char *const bad[] = {"stack",     "stack ",    "stack 9",
                                      "stack 11",  "stack x",   "stack 65",
                                      "stack -10", "stack 10 ", "stack 33"};

    (void)state;
    assert_int_equal(channel_parse_stack("stack 10"), SIGUSR1);
    assert_int_equal(channel_parse_stack("stack 12"), SIGUSR2);
    assert_int_equal(channel_parse_stack("stack 57"), 57);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(channel_parse_stack(bad[i]), 0);
    }
}

static void lines_in_pieces_are_put_together_and_long_ones_skipped(void **state)
{
    char line[600];
    struct rig rig;

    (void)state;
    setup(&rig);
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    say(&rig, "step 1\nst");
    say(&rig, "ep 2 eval\nnoise\nstep 9 ");
    say(&rig, line);
    say(&rig, "\nstep 3\nstep 4");
    finish(&rig);
    assert_int_equal(rig.ear.n, 3); /* the last line has no end */
    assert_int_equal(rig.ear.heard[1].step, 2);
    assert_string_equal(rig.ear.heard[1].phase, "eval");
    assert_int_equal(rig.ear.heard[2].step, 3);
}

static void what_comes_after_the_question_is_the_stack(void **state)
{
    char frame[200];
    struct rig rig;

    (void)state;
    setup(&rig);
    assert_int_equal(channel_ask_stack(rig.channel), 0);
    say(&rig, "noise\nstack 57\n");
    (void)uv_run(&rig.loop, UV_RUN_NOWAIT);
    assert_string_equal(channel_stack(rig.channel), "");
    assert_int_equal(channel_ask_stack(rig.channel), 57);
    say(&rig, "Stack:\nstep 4\n  \"a.py\", \x1b line 3\n");
    (void)uv_run(&rig.loop, UV_RUN_NOWAIT);
    assert_string_equal(channel_stack(rig.channel), "Stack:\n  \"a.py\", ? line 3\n");
    assert_int_equal(rig.ear.n, 1);
    memset(frame, 'f', sizeof(frame));
    frame[sizeof(frame) - 2] = '\n';
    frame[sizeof(frame) - 1] = '\0';
    for (int i = 0; i < 100; i++) { /* it may say what it likes */
        say(&rig, frame);
        (void)uv_run(&rig.loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(strlen(channel_stack(rig.channel)), 26 + 5 * 199);
    finish(&rig);
}

static void last_words_are_heard_at_the_close(void **state)
{
    struct control refuse = {.type = CONTROL_REFUSE, .code = 2, .text = "no"};
    struct rig rig;

    (void)state;
    setup(&rig);
    send_control(&rig, &refuse);
    finish(&rig);
    assert_int_equal(rig.ear.n, 1);
    assert_int_equal(rig.ear.heard[0].code, 2);
    assert_string_equal(rig.ear.heard[0].text, "no");
}

static void of_many_words_at_the_close_the_last_are_heard(void **state)
{
    struct control progress = {.type = CONTROL_PROGRESS};
    struct rig rig;

    (void)state;
    setup(&rig);
    for (progress.step = 1; progress.step <= 100; progress.step++) {
        send_control(&rig, &progress);
    }
    finish(&rig);
    assert_int_equal(rig.ear.n, 100);
    assert_int_equal(rig.ear.heard[99].step, 100);
}

static void last_words_of_a_worker_that_has_not_read_are_heard_too(void **state)
{
    struct control start = {.type = CONTROL_START};
    struct control refuse = {.type = CONTROL_REFUSE, .code = 2, .text = "no"};
    struct rig rig;

    (void)state;
    setup(&rig);
    assert_int_equal(channel_send(rig.channel, &start), 0);
    send_control(&rig, &refuse);
    finish(&rig);
    assert_int_equal(rig.ear.n, 1);
    assert_int_equal(rig.ear.heard[0].code, 2);
}

static void odd_packets_are_passed_over(void **state)
{
    struct control hello = {.type = CONTROL_HELLO, .path = "/x"};
    struct rig rig;

    (void)state;
    setup(&rig);
    assert_int_equal(send(rig.control, "\377junk", 5, 0), 5);
    send_control(&rig, &hello);
    finish(&rig);
    assert_int_equal(rig.ear.n, 1);
    assert_int_equal(rig.ear.heard[0].type, CONTROL_HELLO);
}

static void worker_that_does_not_read_is_noticed(void **state)
{
    struct control leave = {.type = CONTROL_LEAVE};
    struct rig rig;
    int rv = 0;

    (void)state;
    setup(&rig);
    for (int i = 0; i < 100000 && rv == 0; i++) {
        rv = channel_send(rig.channel, &leave);
    }
    assert_int_equal(rv, ERR_BUSY);
    finish(&rig);
}

static void worker_hears_what_is_sent(void **state)
{
    struct control start = {.type = CONTROL_START, .step = 40, .hash = "abc"};
    uint8_t packet[CONTROL_MAX];
    struct control heard;
    struct rig rig;
    ssize_t n;

    (void)state;
    setup(&rig);
    assert_int_equal(channel_send(rig.channel, &start), 0);
    n = recv(rig.control, packet, sizeof(packet), MSG_DONTWAIT);
    assert_true(n > 0);
    assert_int_equal(control_decode(packet, (size_t)n, &heard), 0);
    assert_int_equal(heard.type, CONTROL_START);
    assert_int_equal(heard.step, 40);
    finish(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_lines_are_parsed_strictly),
        cmocka_unit_test(a_stacks_signal_is_one_that_means_nothing_else),
        cmocka_unit_test(lines_in_pieces_are_put_together_and_long_ones_skipped),
        cmocka_unit_test(what_comes_after_the_question_is_the_stack),
        cmocka_unit_test(last_words_are_heard_at_the_close),
        cmocka_unit_test(of_many_words_at_the_close_the_last_are_heard),
        cmocka_unit_test(last_words_of_a_worker_that_has_not_read_are_heard_too),
        cmocka_unit_test(odd_packets_are_passed_over),
        cmocka_unit_test(worker_that_does_not_read_is_noticed),
        cmocka_unit_test(worker_hears_what_is_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
