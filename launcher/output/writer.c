#include "launcher/output/writer.h"

#include "launcher/output/writer_file.h"

#include "common/check.h"
#include "common/mem.h"
#include "common/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum op_kind { OP_OPEN, OP_APPEND, OP_CLOSE, OP_MARK };

struct op {
    struct op *next;
    enum op_kind kind;
    struct writer_file *file;
    uint64_t mark;
    size_t size;
    char data[];
};

struct writer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    size_t limit;

    /* under the lock */
    bool has_thread; /* from the first piece of work on */
    bool is_working; /* without one: somebody works in its place */
    struct op *first, *last;
    size_t queued; /* bytes, in the queue or being written */
    bool was_full; /* somebody waits for it to empty */
    bool is_ending;
    bool is_finished;
    bool is_abandoned; /* the thread frees the writer itself, if it ever comes back */
    uint64_t marked;
    void (*wake)(void *arg);
    void *arg;

    bool is_lost[WRITER_BORROWED_MAX]; /* the thread's: borrowed descriptors */
    uint64_t last_mark;                /* owner's */
    _Atomic uint64_t progress;         /* pieces written */
};

/* ---- the thread ---- */

static void do_op(struct writer *w, const struct op *op)
{
    switch (op->kind) {
    case OP_OPEN:
        writer_file_open(op->file);
        break;
    case OP_APPEND:
        writer_file_append(op->file, op->data, op->size, &w->progress);
        break;
    case OP_CLOSE:
        writer_file_close(op->file);
        break;
    case OP_MARK:
        break;
    }
}

static size_t cost(const struct op *op)
{
    return sizeof(*op) + op->size;
}

/* Takes the next piece of work, or NULL at the end. */
static struct op *take(struct writer *w)
{
    struct op *op;

    while (!w->first && !w->is_ending) {
        (void)pthread_cond_wait(&w->has_work, &w->lock);
    }
    op = w->first;
    if (op) {
        w->first = op->next;
        w->last = w->first ? w->last : NULL;
    }
    return op;
}

static void on_done(struct writer *w, const struct op *op)
{
    bool wakes = op->kind == OP_MARK;

    w->queued -= cost(op);
    if (op->kind == OP_APPEND) { /* a file that is closed is gone */
        op->file->queued -= op->size;
    }
    if (op->kind == OP_MARK) {
        w->marked = op->mark;
    }
    if (w->was_full && w->queued <= w->limit / 2) {
        w->was_full = false;
        wakes = true;
    }
    if (wakes && w->wake) {
        w->wake(w->arg);
    }
}

/* With the lock, which it gives away while it works. */
static void do_next(struct writer *w, struct op *op)
{
    (void)pthread_mutex_unlock(&w->lock);
    do_op(w, op);
    (void)pthread_mutex_lock(&w->lock);
    on_done(w, op);
    mem_free(op);
}

static void destroy(struct writer *w)
{
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_cond_destroy(&w->has_work);
    mem_free(w);
}

/* With the lock, which it gives back: the last touch, for the writer may be gone. */
static void finish(struct writer *w)
{
    bool is_abandoned = w->is_abandoned;

    w->is_finished = true;
    if (w->wake) {
        w->wake(w->arg);
    }
    (void)pthread_mutex_unlock(&w->lock);
    if (is_abandoned) {
        destroy(w);
    }
}

static void *run(void *arg)
{
    struct writer *w = arg;
    struct op *op;

    (void)pthread_mutex_lock(&w->lock);
    while ((op = take(w))) {
        do_next(w, op);
    }
    finish(w);
    return NULL;
}

/* ---- the owner ---- */

struct writer *writer_new(size_t limit, void (*wake)(void *arg), void *arg)
{
    struct writer *w = mem_zalloc(sizeof(*w));

    w->limit = limit;
    w->wake = wake;
    w->arg = arg;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->has_work, NULL);
    return w;
}

/* With the lock, which it gives back. Where the system has no thread left, a line that
 * may have to wait is better than none, and than no job. One caller at a time: who
 * comes meanwhile leaves his piece to the one at work. */
static void work_in_its_place(struct writer *w)
{
    w->is_working = true;
    while (w->first) {
        do_next(w, take(w));
    }
    w->is_working = false;
    if (w->is_ending && !w->is_finished) {
        finish(w);
    } else {
        (void)pthread_mutex_unlock(&w->lock);
    }
}

/* With the lock, which it gives back. */
static void make_somebody_work(struct writer *w)
{
    if (!w->has_thread && !w->is_working) {
        w->has_thread = thread_start(0, run, w, &w->thread) == 0;
    }
    if (!w->has_thread && !w->is_working) {
        work_in_its_place(w);
        return;
    }
    (void)pthread_cond_signal(&w->has_work);
    (void)pthread_mutex_unlock(&w->lock);
}

static void push(struct writer *w, enum op_kind kind, struct writer_file *file,
                 const void *data, size_t size)
{
    struct op *op = mem_alloc(sizeof(*op) + size);

    *op = (struct op){.kind = kind, .file = file, .size = size};
    if (kind == OP_MARK) {
        op->mark = w->last_mark; /* the owner's */
    }
    if (size > 0) {
        memcpy(op->data, data, size);
    }
    (void)pthread_mutex_lock(&w->lock);
    if (w->last) {
        w->last->next = op;
    } else {
        w->first = op;
    }
    w->last = op;
    w->queued += cost(op);
    if (kind == OP_APPEND) {
        file->queued += size;
    }
    make_somebody_work(w);
}

static bool is_idle(struct writer *w)
{
    bool is_idle;

    (void)pthread_mutex_lock(&w->lock);
    is_idle = w->queued == 0;
    (void)pthread_mutex_unlock(&w->lock);
    return is_idle;
}

struct writer_file *writer_open(struct writer *w, const char *path, uint64_t max_size)
{
    struct writer_file *file = mem_zalloc(sizeof(*file));

    file->path = mem_strdup(path);
    file->fd = -1;
    file->max_size = max_size;
    push(w, OP_OPEN, file, NULL, 0);
    return file;
}

struct writer_file *writer_borrow(struct writer *w, int fd)
{
    struct writer_file *file = mem_zalloc(sizeof(*file));

    file->fd = fd;
    file->is_lost = fd < WRITER_BORROWED_MAX ? &w->is_lost[fd] : &file->has_failed;
    return file;
}

void writer_append(struct writer *w, struct writer_file *file, const void *data,
                   size_t size)
{
    if (size > 0) {
        push(w, OP_APPEND, file, data, size);
    }
}

bool writer_offer(struct writer *w, struct writer_file *file, const void *data,
                  size_t size)
{
    bool fits;

    (void)pthread_mutex_lock(&w->lock);
    fits = w->queued < 2 * w->limit;
    (void)pthread_mutex_unlock(&w->lock);
    if (fits) {
        writer_append(w, file, data, size);
    }
    return fits;
}

void writer_close(struct writer *w, struct writer_file *file)
{
    if (file && !file->path && is_idle(w)) {
        writer_file_close(file); /* which does not wait for anything */
    } else if (file) {
        push(w, OP_CLOSE, file, NULL, 0);
    }
}

bool writer_is_full(struct writer *w, const struct writer_file *file, size_t share)
{
    bool is_full;

    (void)pthread_mutex_lock(&w->lock);
    is_full = w->queued > w->limit && file->queued >= share;
    w->was_full = w->was_full || is_full;
    (void)pthread_mutex_unlock(&w->lock);
    return is_full;
}

uint64_t writer_mark(struct writer *w)
{
    bool is_there;

    w->last_mark++;
    (void)pthread_mutex_lock(&w->lock);
    is_there = w->queued == 0;
    w->marked = is_there ? w->last_mark : w->marked;
    (void)pthread_mutex_unlock(&w->lock);
    if (!is_there) {
        push(w, OP_MARK, NULL, NULL, 0);
    }
    return w->last_mark;
}

uint64_t writer_marked(struct writer *w)
{
    uint64_t marked;

    (void)pthread_mutex_lock(&w->lock);
    marked = w->marked;
    (void)pthread_mutex_unlock(&w->lock);
    return marked;
}

uint64_t writer_progress(struct writer *w)
{
    return atomic_load(&w->progress);
}

void writer_end(struct writer *w)
{
    (void)pthread_mutex_lock(&w->lock);
    w->is_ending = true;
    w->is_finished = !w->has_thread && !w->is_working;
    (void)pthread_cond_signal(&w->has_work);
    (void)pthread_mutex_unlock(&w->lock);
}

bool writer_is_finished(struct writer *w)
{
    bool is_finished;

    (void)pthread_mutex_lock(&w->lock);
    is_finished = w->is_finished;
    (void)pthread_mutex_unlock(&w->lock);
    return is_finished;
}

void writer_free(struct writer *w)
{
    bool is_finished;
    bool has_thread;

    (void)pthread_mutex_lock(&w->lock);
    has_thread = w->has_thread;
    is_finished = w->is_finished;
    w->wake = NULL;
    w->is_abandoned = !is_finished;
    if (!is_finished && has_thread) {
        (void)pthread_detach(w->thread);
    }
    (void)pthread_mutex_unlock(&w->lock);
    if (is_finished && has_thread) {
        (void)pthread_join(w->thread, NULL);
    }
    if (is_finished) {
        destroy(w);
    }
}
