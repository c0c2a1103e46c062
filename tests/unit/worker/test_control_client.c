/* The worker's end of the control channel; the test is the agent. */

#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "worker/control_client.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 60, MANY = 20000 };

struct fixture {
    int agent;
    int worker; /* the client's */
    struct control_client *client;
};

static void open_pair(int *ret_agent, int *ret_worker)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    *ret_agent = fds[0];
    *ret_worker = fds[1];
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct errmsg msg;

    assert_non_null(f);
    open_pair(&f->agent, &f->worker);
    assert_int_equal(control_client_open(f->worker, &f->client, &msg), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    control_client_close(f->client);
    assert_int_equal(close(f->agent), 0);
    free(f);
    return 0;
}

/* --- the agent --- */

static bool tell(int fd, const struct control *m)
{
    struct buf packet;
    bool is_sent;

    buf_init(&packet, CONTROL_MAX);
    is_sent = control_encode(m, &packet) == 0 &&
              send(fd, buf_bytes(&packet), buf_len(&packet), MSG_NOSIGNAL) ==
                  (ssize_t)buf_len(&packet);
    buf_release(&packet);
    return is_sent;
}

static bool hear(int fd, int flags, struct control *ret)
{
    uint8_t packet[CONTROL_MAX];
    ssize_t n = recv(fd, packet, sizeof(packet), flags);

    *ret = (struct control){0};
    return n > 0 && control_decode(packet, (size_t)n, ret) == 0;
}

/* Answers the first message with these, in a thread: the client waits meanwhile. */
struct script {
    int fd;
    struct control asked;
    const struct control *answers;
    size_t n_answers;
    bool is_done;
    pthread_t thread;
};

static void *run_script(void *arg)
{
    struct script *s = arg;

    s->is_done = hear(s->fd, 0, &s->asked);
    for (size_t i = 0; i < s->n_answers && s->is_done; i++) {
        s->is_done = tell(s->fd, &s->answers[i]);
    }
    return NULL;
}

static void start_script(struct script *s, const struct fixture *f,
                         const struct control *answers, size_t n)
{
    *s = (struct script){.fd = f->agent, .answers = answers, .n_answers = n};
    assert_int_equal(pthread_create(&s->thread, NULL, run_script, s), 0);
}

static void end_script(struct script *s)
{
    assert_int_equal(pthread_join(s->thread, NULL), 0);
    assert_true(s->is_done);
}

/* --- what the worker says --- */

static void hello_names_the_log_folder_and_the_largest_world(void **state)
{
    struct fixture *f = *state;
    struct control m;

    control_client_hello(f->client, "/runs/x/log/3", 8);
    assert_true(hear(f->agent, 0, &m));
    assert_int_equal(m.type, CONTROL_HELLO);
    assert_string_equal(m.path, "/runs/x/log/3");
    assert_int_equal(m.max_world, 8);
    assert_string_equal(m.phase, "start");
}

static void progress_tells_step_phase_and_speed(void **state)
{
    struct fixture *f = *state;
    struct control m;

    control_client_progress(f->client, 17, "step", 4096, 2.5);
    assert_true(hear(f->agent, 0, &m));
    assert_int_equal(m.type, CONTROL_PROGRESS);
    assert_int_equal(m.step, 17);
    assert_int_equal(m.tok_s, 4096);
    assert_string_equal(m.phase, "step");
    assert_string_equal(m.loss, "2.5");
    assert_int_equal(m.loss_step, 17);
}

/* The next that is not what was said before. */
static struct control hear_other_than(const struct fixture *f, const char *phase)
{
    struct control m;

    do {
        assert_true(hear(f->agent, 0, &m));
        assert_int_equal(m.type, CONTROL_PROGRESS);
    } while (strcmp(m.phase, phase) == 0);
    return m;
}

static void phases_are_told_of_and_told_again_while_they_last(void **state)
{
    struct fixture *f = *state;
    struct control m;

    control_client_phase(f->client, "load");
    m = hear_other_than(f, "");
    assert_string_equal(m.phase, "load");
    control_client_progress(f->client, 17, "step", 4096, 2.5);
    control_client_phase(f->client, "reduce");
    m = hear_other_than(f, "load");
    assert_string_equal(m.phase, "step");
    m = hear_other_than(f, "step");
    assert_string_equal(m.phase, "reduce");
    assert_int_equal(m.step, 17);
    assert_int_equal(m.waits_for, 0);
    assert_string_equal(m.loss, "2.5");
    atomic_store(control_client_waiting(f->client, 2), 4);
    do {
        assert_true(hear(f->agent, 0, &m)); /* "reduce" again, maybe */
    } while (m.waits_for == 0);
    assert_int_equal(m.waits_for, 4);
    assert_true(hear(f->agent, 0, &m));
    assert_int_equal(m.waits_for, 4);
}

static void a_refusal_has_the_code_and_one_line(void **state)
{
    struct fixture *f = *state;
    char text[2 * CONTROL_TEXT_MAX];
    struct control m;

    control_client_refuse(f->client, EXIT_MISTAKE, 4, "train.steps=0");
    assert_true(hear(f->agent, 0, &m));
    assert_int_equal(m.type, CONTROL_REFUSE);
    assert_int_equal(m.max_world, 4);
    assert_int_equal(m.code, EXIT_MISTAKE);
    assert_string_equal(m.text, "ctrun-worker: train.steps=0");

    memset(text, 'x', sizeof(text) - 1); /* cut, not lost */
    text[sizeof(text) - 1] = '\0';
    control_client_refuse(f->client, EXIT_MISTAKE, 0, text);
    assert_true(hear(f->agent, 0, &m));
    assert_int_equal(strlen(m.text), CONTROL_TEXT_MAX - 1);
}

static void a_full_channel_drops_progress_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    const int small = 4096;
    uint64_t last = 0;
    unsigned n = 0;
    struct control m;

    assert_int_equal(
        setsockopt(f->worker, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    for (uint64_t step = 1; step <= MANY; step++) {
        control_client_progress(f->client, step, "step", 1, NAN); /* does not block */
    }
    while (hear(f->agent, MSG_DONTWAIT, &m)) {
        assert_int_equal(m.type, CONTROL_PROGRESS);
        assert_true(m.step > last);
        last = m.step;
        n++;
    }
    assert_in_range(n, 1, MANY - 1);
    control_client_hello(f->client, "/x", 1);
    assert_true(hear(f->agent, 0, &m));
    assert_int_equal(m.type, CONTROL_HELLO);
}

/* --- what the agent says --- */

static void start_is_waited_for_and_kept(void **state)
{
    static const struct control start = {.type = CONTROL_START,
                                         .run = 4,
                                         .step = 200,
                                         .hash = "0123abcd",
                                         .cluster = UINT64_C(0xfedcba9876543210)};
    struct fixture *f = *state;
    struct script s;
    struct control m;

    start_script(&s, f, &start, 1);
    control_client_progress(f->client, 0, "start", 0,
                            NAN); /* what the script waits for */
    for (int i = 0; i < 2; i++) {
        control_client_start(f->client, &m);
        assert_int_equal(m.type, CONTROL_START);
        assert_int_equal(m.run, 4);
        assert_int_equal(m.step, 200);
        assert_string_equal(m.hash, "0123abcd");
        assert_true(m.cluster == start.cluster);
    }
    end_script(&s);
}

static void what_a_newer_agent_says_is_passed_over(void **state)
{
    static const struct control start = {.type = CONTROL_START, .run = 1};
    static const struct control ours = {.type = CONTROL_COMMIT, .step = 3};
    struct fixture *f = *state;
    struct control m;

    assert_int_equal(send(f->agent, "\xff of the future", 15, 0), 15);
    assert_int_equal(send(f->agent, "\x20", 1, 0), 1);
    assert_true(tell(f->agent, &ours)); /* the wrong way round */
    assert_true(tell(f->agent, &start));
    control_client_start(f->client, &m);
    assert_int_equal(m.run, 1);
    assert_false(control_client_should_leave(f->client));
}

static void leave_is_remembered(void **state)
{
    static const struct control leave = {.type = CONTROL_LEAVE};
    static const struct control start = {.type = CONTROL_START};
    struct fixture *f = *state;
    struct control m;

    assert_false(control_client_should_leave(f->client));
    assert_true(tell(f->agent, &leave));
    assert_true(tell(f->agent, &start));
    control_client_start(f->client, &m); /* read after it */
    assert_true(control_client_should_leave(f->client));
    assert_true(control_client_should_leave(f->client));
}

/* --- decisions --- */

static void resumed_is_accepted(void **state)
{
    static const struct control yes = {
        .type = CONTROL_DECISION, .step = 100, .accepted = true};
    struct fixture *f = *state;
    struct errmsg msg = {""};
    struct script s;

    start_script(&s, f, &yes, 1);
    assert_int_equal(control_client_resumed(f->client, 3, 100, &msg), 0);
    end_script(&s);
    assert_int_equal(s.asked.type, CONTROL_RESUMED);
    assert_int_equal(s.asked.run, 3);
    assert_int_equal(s.asked.step, 100);
}

static void a_refusal_of_resumed_has_the_services_text(void **state)
{
    static const struct control no = {.type = CONTROL_DECISION,
                                      .step = 0, /* fresh weights */
                                      .text = "generation 3 is over"};
    struct fixture *f = *state;
    struct errmsg msg = {""};
    struct script s;

    start_script(&s, f, &no, 1);
    assert_int_equal(control_client_resumed(f->client, 3, 0, &msg), ERR_REFUSED);
    end_script(&s);
    assert_string_equal(msg.text, "generation 3 is over");
}

static void commits_are_accepted_and_refused_one_by_one(void **state)
{
    static const struct control yes = {
        .type = CONTROL_DECISION, .step = 10, .accepted = true, .is_commit = true};
    static const struct control no = {.type = CONTROL_DECISION,
                                      .step = 20,
                                      .is_commit = true,
                                      .text = "a newer generation runs"};
    struct fixture *f = *state;
    struct errmsg msg = {""};
    struct script s;

    start_script(&s, f, &yes, 1);
    assert_int_equal(control_client_commit(f->client, 2, 10, "cafe", &msg), 0);
    end_script(&s);
    assert_int_equal(s.asked.type, CONTROL_COMMIT);
    assert_int_equal(s.asked.run, 2);
    assert_int_equal(s.asked.step, 10);
    assert_string_equal(s.asked.hash, "cafe");

    start_script(&s, f, &no, 1);
    assert_int_equal(control_client_commit(f->client, 2, 20, "beef", &msg),
                     ERR_REFUSED);
    end_script(&s);
    assert_string_equal(msg.text, "a newer generation runs");
}

static void a_decision_about_something_else_is_no_answer(void **state)
{
    static const struct control answers[] = {
        {.type = CONTROL_DECISION, .step = 20}, /* on RESUMED */
        {.type = CONTROL_DECISION, .step = 10, .is_commit = true},
        {.type = CONTROL_DECISION, .step = 20, .is_commit = true, .accepted = true},
    };
    struct fixture *f = *state;
    struct errmsg msg = {""};
    struct script s;

    start_script(&s, f, answers, ARRAY_LEN(answers));
    assert_int_equal(control_client_commit(f->client, 1, 20, "x", &msg), 0);
    end_script(&s);
}

/* --- the end --- */

enum doing { STARTING, COMPUTING, COMMITTING };

static _Noreturn void be_worker(int fd, enum doing doing)
{
    struct control_client *c;
    struct control m;
    struct errmsg msg;

    (void)alarm(LIMIT_S);
    CHECK(control_client_open(fd, &c, &msg) == 0);
    control_client_progress(c, 0, "here", 0, NAN);
    if (doing == STARTING) {
        control_client_start(c, &m);
    } else if (doing == COMMITTING) {
        CHECK(control_client_commit(c, 1, 1, "x", &msg) == 0);
    }
    while (doing == COMPUTING && !control_client_should_leave(c)) {
        (void)sched_yield(); /* nobody asks it to */
    }
    _exit(1); /* an answer that nobody gave */
}

static pid_t start_worker(enum doing doing, int *ret_agent)
{
    struct control m;
    int worker;
    pid_t pid;

    open_pair(ret_agent, &worker);
    pid = fork();
    if (pid == 0) {
        (void)close(*ret_agent);
        be_worker(worker, doing);
    }
    assert_true(pid > 0);
    assert_int_equal(close(worker), 0);
    assert_true(hear(*ret_agent, 0, &m));
    return pid;
}

static int exit_code(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const enum doing all_doings[] = {STARTING, COMPUTING, COMMITTING};

static void an_abort_ends_the_process_whatever_it_does(void **state)
{
    static const struct control abort_now = {.type = CONTROL_ABORT};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all_doings); i++) {
        int agent;
        pid_t pid = start_worker(all_doings[i], &agent);

        assert_true(tell(agent, &abort_now));
        assert_int_equal(exit_code(pid), EXIT_LOST_PEER);
        assert_int_equal(close(agent), 0);
    }
}

static void the_agents_end_ends_the_process_whatever_it_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all_doings); i++) {
        int agent;
        pid_t pid = start_worker(all_doings[i], &agent);

        assert_int_equal(close(agent), 0);
        assert_int_equal(exit_code(pid), EXIT_LOST_PEER);
    }
}

/* --- without a launcher --- */

static struct control_client *open_alone(void)
{
    struct control_client *c = NULL;
    struct errmsg msg;

    (void)alarm(LIMIT_S);
    CHECK(control_client_open(-1, &c, &msg) == 0);
    return c;
}

static void decide_alone(void)
{
    struct control_client *c = open_alone();
    struct control m;
    struct errmsg msg;

    control_client_start(c, &m);
    CHECK(m.type == CONTROL_START && m.hash[0] == '\0' && m.cluster == 0);
    control_client_hello(c, "/x", 1);
    control_client_progress(c, 1, "step", 1, NAN);
    CHECK(control_client_resumed(c, 1, 0, &msg) == 0);
    CHECK(control_client_commit(c, 1, 1, "x", &msg) == 0);
    CHECK(!control_client_should_leave(c));
    control_client_close(c);
    control_client_close(NULL);
}

static void without_a_launcher_everything_is_accepted_at_once(void **state)
{
    (void)state;
    child_run(decide_alone);
}

static void refuse_alone(void)
{
    static const char expected[] = "ctrun-worker: no such file\n";
    struct control_client *c = open_alone();
    char text[64] = "";
    int ends[2];

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
    control_client_refuse(c, EXIT_MISTAKE, 0, "no such file");
    CHECK(read(ends[0], text, sizeof(text)) == (ssize_t)strlen(expected));
    CHECK(strcmp(text, expected) == 0);
    control_client_refuse(NULL, EXIT_MISTAKE, 0, "no such file"); /* not open yet */
    CHECK(read(ends[0], text, sizeof(text)) == (ssize_t)strlen(expected));
    control_client_close(c);
}

static void without_a_launcher_a_refusal_is_printed(void **state)
{
    (void)state;
    child_run(refuse_alone);
}

static void be_told_by_signal(int signal)
{
    struct control_client *c = open_alone();

    CHECK(!control_client_should_leave(c));
    CHECK(kill(getpid(), signal) == 0);
    while (!control_client_should_leave(c)) {
        (void)sched_yield(); /* the alarm ends it */
    }
    control_client_close(c);
}

static void be_terminated(void)
{
    be_told_by_signal(SIGTERM);
}

static void be_interrupted(void)
{
    be_told_by_signal(SIGINT);
}

/* Slurm's warning goes to every process of a step. */
static void be_warned(void)
{
    be_told_by_signal(SIGUSR1);
    be_told_by_signal(SIGUSR2);
}

static void a_signal_asks_to_leave(void **state)
{
    (void)state;
    child_run(be_terminated);
    child_run(be_interrupted);
    child_run(be_warned);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* these fork, and so come before the process has had threads */
        cmocka_unit_test(an_abort_ends_the_process_whatever_it_does),
        cmocka_unit_test(the_agents_end_ends_the_process_whatever_it_does),
        cmocka_unit_test(without_a_launcher_everything_is_accepted_at_once),
        cmocka_unit_test(without_a_launcher_a_refusal_is_printed),
        cmocka_unit_test(a_signal_asks_to_leave),
        CASE(hello_names_the_log_folder_and_the_largest_world),
        CASE(progress_tells_step_phase_and_speed),
        CASE(phases_are_told_of_and_told_again_while_they_last),
        CASE(a_refusal_has_the_code_and_one_line),
        CASE(a_full_channel_drops_progress_and_nothing_else),
        CASE(start_is_waited_for_and_kept),
        CASE(what_a_newer_agent_says_is_passed_over),
        CASE(leave_is_remembered),
        CASE(resumed_is_accepted),
        CASE(a_refusal_of_resumed_has_the_services_text),
        CASE(commits_are_accepted_and_refused_one_by_one),
        CASE(a_decision_about_something_else_is_no_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
