/* Happy path: 1. a line is copied into the ring; 2. the thread takes it out; 3. it waits
 * for whoever reads, and nobody else does. Full → lines are counted until half of the
 * ring is free; then a line says how many they were. */

#include "rendezvous/log_queue.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    QUEUE_MAX = 1024 * 1024,
    LINE_MAX_SIZE = 4096, /* more than a line of the log has */
    STILL_MS = 1000,      /* a reader that stands still so long takes nothing more */
    SLOW_MS = 5000,       /* … nor is a slow one waited for any longer */
    LAST_WORDS_MS = 1000,
    PAUSE_MS = 2,
};

static struct {
    pthread_t thread;
    bool is_running;
    _Atomic size_t n_pending; /* lines queued, or being written */
    _Atomic uint64_t n_done;
    _Atomic bool is_finished;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t has_work;
    char ring[QUEUE_MAX]; /* lines, each with its end */
    size_t first, used;
    bool is_full;
    size_t n_lost;
    bool is_ending;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .has_work = PTHREAD_COND_INITIALIZER};

/* So many missing lines are told of by the one that this thread puts in; 0: none. */
static _Thread_local size_t n_told;

/* By any thread. */
static void put(const char *line, size_t size)
{
    ASSERT(size <= LINE_MAX_SIZE && line[size - 1] == '\n');
    (void)pthread_mutex_lock(&queue.lock);
    queue.is_full = queue.is_full || size > QUEUE_MAX - queue.used;
    if (queue.is_full) {
        queue.n_lost += MAX(n_told, 1);
    } else {
        for (size_t i = 0; i < size; i++) {
            queue.ring[(queue.first + queue.used++) % QUEUE_MAX] = line[i];
        }
        (void)atomic_fetch_add(&queue.n_pending, 1);
        (void)pthread_cond_signal(&queue.has_work);
    }
    (void)pthread_mutex_unlock(&queue.lock);
}

static void drop(const char *line, size_t size)
{
    (void)line;
    (void)size;
}

/* ---- the thread ---- */

/* With the lock. The size of the next line; 0: the end. */
static size_t take(char line[LINE_MAX_SIZE])
{
    size_t n = 0;

    while (queue.used == 0 && !queue.is_ending) {
        (void)pthread_cond_wait(&queue.has_work, &queue.lock);
    }
    while (queue.used > 0 && (n == 0 || line[n - 1] != '\n')) {
        line[n++] = queue.ring[queue.first];
        queue.first = (queue.first + 1) % QUEUE_MAX;
        queue.used--;
    }
    return n;
}

/* Somebody else may have made the descriptor non-blocking: it is not ours alone. */
static bool write_line(const char *line, size_t size)
{
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    size_t at = 0;

    while (at < size) {
        ssize_t n = write(STDERR_FILENO, line + at, size - at);

        if (n < 0 && errno == EAGAIN) {
            (void)poll(&room, 1, -1); /* the next write finds out for itself */
        } else if (n < 0 && errno != EINTR) {
            return false;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* With the lock, which it gives away meanwhile. An error, for such may be among what is
 * missing: who wants no other lines is to see this one. */
static void say_lost(void)
{
    n_told = queue.n_lost;
    queue.n_lost = 0;
    (void)pthread_mutex_unlock(&queue.lock);
    log_error("lines are missing here: whoever reads this log did not, or it could not "
              "be written",
              "lines=%zu", n_told);
    n_told = 0;
    (void)pthread_mutex_lock(&queue.lock);
}

static void *run(void *arg)
{
    char line[LINE_MAX_SIZE];
    bool is_written;
    size_t n;

    (void)arg;
    (void)pthread_mutex_lock(&queue.lock);
    while ((n = take(line)) > 0) {
        (void)pthread_mutex_unlock(&queue.lock);
        is_written = write_line(line, n);
        (void)pthread_mutex_lock(&queue.lock);
        queue.n_lost += is_written ? 0 : 1;
        queue.is_full = queue.is_full && queue.used > QUEUE_MAX / 2;
        if (queue.n_lost > 0 && is_written && !queue.is_full) {
            say_lost();
        }
        (void)atomic_fetch_add(&queue.n_done, 1);
        (void)atomic_fetch_sub(&queue.n_pending, 1);
    }
    (void)pthread_mutex_unlock(&queue.lock);
    atomic_store(&queue.is_finished, true);
    return NULL;
}

/* ---- the program ---- */

/* Whatever the last words were, they are in the queue. Takes no lock: it may be held.
 * The signal may come from outside, as the watchdog's does: then, too, it is to kill. */
static void on_abort(int number)
{
    for (int i = 0; i < LAST_WORDS_MS / PAUSE_MS && atomic_load(&queue.n_pending) > 0;
         i++) {
        (void)poll(NULL, 0, PAUSE_MS);
    }
    (void)raise(number); /* by itself again: SA_RESETHAND */
}

void log_queue_start(void)
{
    const struct sigaction action = {.sa_handler = on_abort,
                                     .sa_flags = (int)SA_RESETHAND};
    struct stat st;
    int rv;

    ASSERT(!queue.is_running);
    if (fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode)) {
        return;
    }
    rv = thread_start(0, run, NULL, &queue.thread);
    if (rv < 0) {
        log_warn("no thread for the log: whoever does not read it holds this service",
                 "cause=\"%s\"", err_text(rv));
        return;
    }
    queue.is_running = true;
    (void)sigaction(SIGABRT, &action, NULL); /* fails for bad numbers only */
    log_set_sink(put);
}

static bool wait_for_thread(void)
{
    uint64_t n_done = atomic_load(&queue.n_done);
    uint64_t start_ms = clock_ms();
    uint64_t since_ms = start_ms;

    while (!atomic_load(&queue.is_finished) && clock_ms() - since_ms < STILL_MS &&
           clock_ms() - start_ms < SLOW_MS) {
        (void)poll(NULL, 0, PAUSE_MS);
        if (atomic_load(&queue.n_done) != n_done) {
            n_done = atomic_load(&queue.n_done);
            since_ms = clock_ms();
        }
    }
    return atomic_load(&queue.is_finished);
}

/* Lines that came after the thread had seen the end, and how many never will. */
static void write_rest(void)
{
    char line[LINE_MAX_SIZE];
    size_t n;

    (void)pthread_mutex_lock(&queue.lock);
    while ((n = take(line)) > 0) {
        queue.n_lost += write_line(line, n) ? 0 : 1;
    }
    if (queue.n_lost > 0) {
        say_lost();
    }
    (void)pthread_mutex_unlock(&queue.lock);
}

bool log_queue_stop(void)
{
    if (!queue.is_running) {
        return true;
    }
    queue.is_running = false;
    (void)pthread_mutex_lock(&queue.lock);
    queue.is_ending = true;
    (void)pthread_cond_signal(&queue.has_work);
    (void)pthread_mutex_unlock(&queue.lock);
    if (!wait_for_thread()) {
        (void)pthread_detach(queue.thread);
        log_set_sink(drop);
        return false;
    }
    (void)pthread_join(queue.thread, NULL);
    log_set_sink(NULL);
    write_rest();
    return true;
}
