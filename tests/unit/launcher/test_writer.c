/* The writer's thread: when there is one, and what is done where there cannot be. */

#include "launcher/output/writer.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { QUEUE_MAX = 64 * 1024, BOUND_S = 60 };

static size_t count_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    size_t n = 0;

    CHECK(dir);
    while (readdir(dir)) { /* NOLINT(concurrency-mt-unsafe): nobody else has this DIR */
        n++;
    }
    CHECK(closedir(dir) == 0);
    return n;
}

static void nothing(void)
{
    size_t before = count_threads();
    struct writer *w = writer_new(QUEUE_MAX, NULL, NULL);
    struct writer_file *file = writer_borrow(w, STDOUT_FILENO);
    uint64_t mark = writer_mark(w);

    CHECK(writer_marked(w) >= mark);
    writer_close(w, file);
    writer_end(w);
    CHECK(writer_is_finished(w));
    CHECK(count_threads() == before);
    writer_free(w);
}

static void who_has_nothing_to_write_needs_no_thread(void **state)
{
    (void)state;
    child_run(nothing);
}

static void woken(void *arg)
{
    CHECK(write(*(int *)arg, "w", 1) == 1);
}

static void one_line(void)
{
    int out[2];
    int wake[2];
    char text[16];
    struct writer *w;
    struct writer_file *file;
    uint64_t mark;

    CHECK(pipe(out) == 0 && pipe(wake) == 0);
    w = writer_new(QUEUE_MAX, woken, &wake[1]);
    file = writer_borrow(w, out[1]);
    writer_append(w, file, "hello\n", 6);
    CHECK(read(out[0], text, sizeof(text)) == 6 && memcmp(text, "hello\n", 6) == 0);
    mark = writer_mark(w);
    while (writer_marked(w) < mark) {
        CHECK(read(wake[0], text, 1) == 1);
    }
    writer_close(w, file);
    writer_end(w);
    while (!writer_is_finished(w)) {
        CHECK(read(wake[0], text, 1) == 1);
    }
    writer_free(w);
}

static void a_line_is_written_by_a_thread_that_tells_of_marks_and_its_end(void **state)
{
    (void)state;
    child_run(one_line);
}

/* No stack of this size can be had: it is all of the address space. */
static void forbid_threads(void)
{
    pthread_attr_t attr;

    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setstacksize(&attr, (size_t)1 << 48) == 0);
    CHECK(pthread_setattr_default_np(&attr) == 0);
    CHECK(pthread_attr_destroy(&attr) == 0);
}

static void without_thread(void)
{
    struct writer *w = writer_new(QUEUE_MAX, NULL, NULL);
    struct writer_file *file;
    struct pollfd end;
    char text[16];
    uint64_t mark;
    int out[2];

    CHECK(pipe(out) == 0);
    forbid_threads();
    file = writer_borrow(w, out[1]);
    writer_append(w, file, "hello\n", 6);
    end = (struct pollfd){out[0], POLLIN, 0};
    CHECK(poll(&end, 1, 0) == 1 && read(out[0], text, sizeof(text)) == 6);
    mark = writer_mark(w);
    CHECK(writer_marked(w) >= mark);
    writer_close(w, file);
    writer_end(w);
    CHECK(writer_is_finished(w));
    writer_free(w);
}

static void where_there_is_no_thread_left_lines_are_written_all_the_same(void **state)
{
    (void)state;
    child_run(without_thread);
}

static bool holds(const char *path, const char *expected)
{
    char text[64] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    (void)unlink(path);
    return n >= 0 && strcmp(text, expected) == 0;
}

/* For as long as the second line is written. */
static void without_descriptors(void)
{
    char path[] = "/tmp/ctrun-writer-XXXXXX";
    char older[sizeof(path) + 2];
    struct rlimit before;
    struct rlimit none;
    struct writer_file *file;
    struct writer *w;
    int fd = mkstemp(path);
    bool older_is_whole;
    bool newer_is_whole;

    CHECK(fd >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    forbid_threads();
    w = writer_new(QUEUE_MAX, NULL, NULL);
    file = writer_open(w, path, 8);
    writer_append(w, file, "first\n", 6);
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    writer_append(w, file, "lost\n", 5);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    writer_append(w, file, "again\n", 6);
    writer_close(w, file);
    writer_end(w);
    writer_free(w);
    (void)snprintf(older, sizeof(older), "%s.1", path);
    older_is_whole = holds(older, "first\n");
    newer_is_whole = holds(path, "again\n");
    CHECK(older_is_whole && newer_is_whole);
}

static void file_that_could_not_be_begun_once_is_begun_later(void **state)
{
    (void)state;
    child_run(without_descriptors);
}

struct hand {
    struct writer *writer;
    struct writer_file *file;
};

static const char last_line[] = "last\n";

/* More than the pipe takes: waits in the write, in the thread's place. */
static void *offer_much(void *arg)
{
    static char much[2 * QUEUE_MAX];
    const struct hand *h = arg;

    memset(much, '\n', sizeof(much));
    CHECK(writer_offer(h->writer, h->file, much, sizeof(much)));
    return NULL;
}

static void start_hand(struct hand *h, pthread_t *ret)
{
    pthread_attr_t attr;

    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setstacksize(&attr, (size_t)1 << 20) == 0);
    CHECK(pthread_create(ret, &attr, offer_much, h) == 0);
    CHECK(pthread_attr_destroy(&attr) == 0);
    while (!writer_is_full(h->writer, h->file, 0)) { /* then it is in the write */
        (void)poll(NULL, 0, 1);
    }
}

/* A second caller while the first one writes, and the end; then all is read. */
static void two_hands(bool is_abandoned)
{
    char text[4096];
    struct hand h;
    pthread_t other;
    size_t size = 0;
    ssize_t n = 1;
    int out[2];

    (void)alarm(BOUND_S); /* a second hand in the write would stay there */
    CHECK(pipe(out) == 0);
    forbid_threads();
    h.writer = writer_new(QUEUE_MAX, NULL, NULL);
    h.file = writer_borrow(h.writer, out[1]);
    start_hand(&h, &other);
    writer_append(h.writer, h.file, last_line, sizeof(last_line) - 1);
    writer_close(h.writer, h.file);
    writer_end(h.writer);
    CHECK(!writer_is_finished(h.writer));
    if (is_abandoned) {
        writer_free(h.writer);
    }
    while (size < 2 * QUEUE_MAX + sizeof(last_line) - 1 && n > 0) {
        n = read(out[0], text, sizeof(text));
        size += n > 0 ? (size_t)n : 0;
    }
    CHECK(n >= (ssize_t)sizeof(last_line) - 1);
    CHECK(memcmp(text + n - (sizeof(last_line) - 1), last_line,
                 sizeof(last_line) - 1) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    if (!is_abandoned) {
        CHECK(writer_is_finished(h.writer));
        writer_free(h.writer);
    }
}

static void second_caller(void)
{
    two_hands(false);
}

static void second_caller_gives_up(void)
{
    two_hands(true);
}

static void who_works_in_the_threads_place_does_it_for_all_and_alone(void **state)
{
    (void)state;
    child_run(second_caller);
    child_run(second_caller_gives_up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_nothing_to_write_needs_no_thread),
        cmocka_unit_test(a_line_is_written_by_a_thread_that_tells_of_marks_and_its_end),
        cmocka_unit_test(where_there_is_no_thread_left_lines_are_written_all_the_same),
        cmocka_unit_test(file_that_could_not_be_begun_once_is_begun_later),
        cmocka_unit_test(who_works_in_the_threads_place_does_it_for_all_and_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
