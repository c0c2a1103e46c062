/* Happy path: 1. a question is queued; 2. the thread reads a piece and queues it for the
 * loop, which an async handle wakes; 3. on_piece. Two owners share what is under the
 * lock, the loop and the thread: who leaves last frees it, so that a thread that hangs
 * is left alone. */

#include "launcher/log_reader.h"

#include "launcher/log_file.h"

#include "common/mem.h"
#include "common/thread.h"

#include <pthread.h>
#include <string.h>
#include <uv.h>

enum {
    MAX_FILES = 64,
    /* Bytes, of what a rank has said since it was asked last … */
    MAX_LAST = 1024 * 1024,
    /* … if no more comes meanwhile. */
    MAX_LAST_PIECES = 4 * MAX_LAST / LOG_READER_PIECE,
};

struct question {
    struct question *next;
    struct log_question q;
};

struct piece {
    struct piece *next;
    struct log_question q;
    struct log_piece piece;
    char data[];
};

/* The thread's. */
struct opened {
    uint64_t used; /* a count; 0: free */
    struct log_file file;
};

struct shared {
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    struct question *first, *last;
    struct piece *first_piece, *last_piece;
    bool is_ending;   /* the loop's side is gone */
    uv_async_t *wake; /* the loop's; not touched once is_ending */

    /* the thread's */
    struct opened opened[MAX_FILES];
    uint64_t n_uses;
};

struct log_reader {
    struct shared *shared;
    uv_async_t wake;
    log_piece_cb on_piece;
    void *arg;
    size_t n_asked; /* not answered */
    bool has_thread;
};

/* ---- the thread ---- */

static void destroy(struct shared *s)
{
    while (s->first) {
        struct question *next = s->first->next;

        mem_free(s->first);
        s->first = next;
    }
    while (s->first_piece) {
        struct piece *next = s->first_piece->next;

        mem_free(s->first_piece);
        s->first_piece = next;
    }
    for (size_t i = 0; i < MAX_FILES; i++) {
        if (s->opened[i].used != 0) {
            log_file_close(&s->opened[i].file);
        }
    }
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_cond_destroy(&s->has_work);
    mem_free(s);
}

/* That file, in the place of the one that was not used for longest if need be. NULL: its
 * path is too long. */
static struct log_file *choose(struct shared *s, const char *path)
{
    struct opened *oldest = &s->opened[0];

    for (size_t i = 0; i < MAX_FILES; i++) {
        struct opened *o = &s->opened[i];

        if (o->used != 0 && strcmp(o->file.path, path) == 0) {
            o->used = ++s->n_uses;
            return &o->file;
        }
        oldest = o->used < oldest->used ? o : oldest;
    }
    if (oldest->used != 0) {
        log_file_close(&oldest->file);
    }
    oldest->used = log_file_open(&oldest->file, path) ? ++s->n_uses : 0;
    return oldest->used != 0 ? &oldest->file : NULL;
}

static struct piece *read_piece(struct shared *s, const struct log_question *q,
                                uint64_t at)
{
    struct piece *p = mem_zalloc(sizeof(*p) + LOG_READER_PIECE);
    struct log_file *file = choose(s, q->path);

    p->q = *q;
    if (file) {
        p->piece.size =
            log_file_read(file, &at, q->is_final, p->data, LOG_READER_PIECE);
        p->piece.offset = at;
    }
    p->piece.is_at_end = p->piece.size == 0;
    return p;
}

static void hand_over(struct shared *s, struct piece *p)
{
    (void)pthread_mutex_lock(&s->lock);
    *(s->last_piece ? &s->last_piece->next : &s->first_piece) = p;
    s->last_piece = p;
    if (!s->is_ending) {
        (void)uv_async_send(s->wake); /* the handle is open */
    }
    (void)pthread_mutex_unlock(&s->lock);
}

/* Of the last words the last are told, with what has become of a rank. */
static uint64_t skip_what_is_too_much(struct shared *s, const struct log_question *q)
{
    struct log_file *file = choose(s, q->path);

    return file ? log_file_skip(file, q->from, MAX_LAST) : q->from;
}

static void answer(struct shared *s, const struct log_question *q)
{
    uint64_t at = q->is_last ? skip_what_is_too_much(s, q) : q->from;
    bool is_more = true;

    for (int i = 1; is_more; i++) {
        struct piece *p = read_piece(s, q, at);

        at = p->piece.offset + p->piece.size;
        is_more = q->is_last && !p->piece.is_at_end && i < MAX_LAST_PIECES;
        p->piece.is_more = is_more;
        hand_over(s, p);
    }
}

static void *run(void *arg)
{
    struct shared *s = arg;

    (void)pthread_mutex_lock(&s->lock);
    while (!s->is_ending) {
        struct question *q = s->first;

        if (!q) {
            (void)pthread_cond_wait(&s->has_work, &s->lock);
            continue;
        }
        s->first = q->next;
        s->last = s->first ? s->last : NULL;
        (void)pthread_mutex_unlock(&s->lock);
        answer(s, &q->q);
        mem_free(q);
        (void)pthread_mutex_lock(&s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
    destroy(s); /* the loop's side has left it to us */
    return NULL;
}

/* ---- the loop ---- */

static bool start_thread(struct log_reader *r)
{
    pthread_t thread;

    r->has_thread = thread_start(0, run, r->shared, &thread) == 0;
    if (r->has_thread) {
        (void)pthread_detach(thread); /* nobody waits for it */
    }
    return r->has_thread;
}

static void on_wake(uv_async_t *wake)
{
    struct log_reader *r = wake->data;
    struct piece *list;

    (void)pthread_mutex_lock(&r->shared->lock);
    list = r->shared->first_piece;
    r->shared->first_piece = NULL;
    r->shared->last_piece = NULL;
    (void)pthread_mutex_unlock(&r->shared->lock);
    while (list) {
        struct piece *p = list;

        list = p->next;
        p->piece.question = &p->q;
        p->piece.data = p->data;
        r->n_asked -= !p->piece.is_more;
        if (!uv_is_closing((uv_handle_t *)wake)) {
            r->on_piece(r->arg, &p->piece);
        }
        mem_free(p);
    }
}

int log_reader_new(struct uv_loop_s *loop, log_piece_cb on_piece, void *arg,
                   struct log_reader **ret)
{
    struct log_reader *r = mem_zalloc(sizeof(*r));
    int rv = uv_async_init(loop, &r->wake, on_wake);

    if (rv < 0) {
        mem_free(r);
        return rv;
    }
    r->wake.data = r;
    r->on_piece = on_piece;
    r->arg = arg;
    r->shared = mem_zalloc(sizeof(*r->shared));
    r->shared->wake = &r->wake;
    (void)pthread_mutex_init(&r->shared->lock, NULL);
    (void)pthread_cond_init(&r->shared->has_work, NULL);
    *ret = r;
    return 0;
}

bool log_reader_ask(struct log_reader *r, const struct log_question *q)
{
    struct question *item;

    if (r->n_asked >= LOG_READER_MAX_ASKED || (!r->has_thread && !start_thread(r))) {
        return false;
    }
    item = mem_zalloc(sizeof(*item));
    item->q = *q;
    (void)pthread_mutex_lock(&r->shared->lock);
    *(r->shared->last ? &r->shared->last->next : &r->shared->first) = item;
    r->shared->last = item;
    (void)pthread_cond_signal(&r->shared->has_work);
    (void)pthread_mutex_unlock(&r->shared->lock);
    r->n_asked++;
    return true;
}

static void on_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

void log_reader_stop(struct log_reader *r)
{
    (void)pthread_mutex_lock(&r->shared->lock);
    r->shared->is_ending = true;
    (void)pthread_cond_signal(&r->shared->has_work);
    (void)pthread_mutex_unlock(&r->shared->lock); /* the last touch, with a thread */
    if (!r->has_thread) {
        destroy(r->shared);
    }
    uv_close((uv_handle_t *)&r->wake, on_closed);
}
