/* Happy path: 1. records gather in `next`; 2. commit hands them to the thread as
 * `writing`; 3. the thread writes them and tells the loop, which sleeps in await or is
 * woken; 4. the user goes on. */

#include "rendezvous/state.h"

#include "rendezvous/space.h"
#include "rendezvous/state_batch.h"
#include "rendezvous/state_check.h"
#include "rendezvous/state_db.h"
#include "rendezvous/state_dir.h"
#include "rendezvous/state_room.h"

#include "common/clock.h"
#include "common/exit_code.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/str.h"
#include "common/table.h"
#include "common/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <uv.h>

enum {
    TIDY_MS = 1000,       /* between looks at what is to be tidied */
    KEEP_BYTES = 1 << 20, /* of the memory of a batch, when it is written */
};

struct state {
    struct state_config config; /* `dir` is not kept */
    struct state_dir dir;
    struct state_db *db; /* the thread's, once it runs */
    struct durable durable;
    struct durable_user user;
    uv_async_t *wake; /* owned; freed by its closing */
    struct buf next;
    bool is_writing;         /* on_committed is owed */
    enum durable_space told; /* to the user */
    uint64_t kept;           /* as the thread has told */

    pthread_t thread;
    bool is_running;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t work, done;
    struct buf writing;
    bool has_work, is_written, is_ending;
    bool is_awaited; /* the loop sleeps, and needs no waking */
    enum durable_space space;
    uint64_t n_kept; /* transactions on the disk */
};

/* ---- the thread ---- */

/* The last words: the disk knows what is true, and the next start reads it, unless
 * somebody has taken it away. */
static _Noreturn void end_process(const struct state *s, int err, const char *text)
{
    const char *what =
        err == -ESTALE
            ? "the service's state was removed, so this process ends: what was "
              "acknowledged is gone with it, and where nothing is left the next start "
              "begins a new cluster, which the agents of running jobs refuse"
            : "the service's state cannot be written, so this process ends: what was "
              "acknowledged is on the disk, and the next start goes on from there";

    log_error(what, "dir=%s err=%s cause=\"%s\"", s->dir.path, err_name(err), text);
    abort();
}

static uint64_t now_of(const struct state *s)
{
    return clock_ms() + s->durable.clock_offset_ms;
}

/* True: the disk was full, and what failed is worth another try at once. */
static bool has_made_room(struct state *s, int *rv, uint64_t bytes, struct errmsg *msg)
{
    struct errmsg why = {""};
    int made;

    if (*rv != -ENOSPC) {
        return false;
    }
    made = state_room_make(&s->dir, s->db, bytes, &why);
    if (made < 0 && made != -ENOSPC) {
        *rv = made; /* the end, as it is nowhere else */
        *msg = why;
    }
    return made == 0;
}

static void write_batch(struct state *s, struct bytes batch)
{
    struct errmsg msg = {""};
    int rv = fault_at("state.commit");

    if (rv < 0) {
        (void)errmsg_set(&msg, rv, "committing: %s", err_text(rv));
        end_process(s, rv, msg.text);
    }
    do {
        rv = state_db_commit(s->db, batch, now_of(s), &msg);
    } while (has_made_room(s, &rv, batch.size, &msg));
    if (rv < 0) {
        end_process(s, rv, msg.text);
    }
}

static enum durable_space look_at_space(struct state *s, enum durable_space before)
{
    enum durable_space space;
    int rv = state_room_look(&s->dir, s->db, before, &space);

    if (rv == 0 && state_dir_is_new(&s->dir)) {
        rv = -ESTALE; /* without its database the rest is none */
    }
    if (rv < 0) {
        end_process(s, rv,
                    rv == -ESTALE ? "its files were removed"
                                  : "the folder cannot be looked at");
    }
    return space;
}

static int tidy_once(struct state *s, struct errmsg *msg)
{
    uint64_t free_bytes = 0;
    int rv = state_dir_free(&s->dir, &free_bytes);

    return rv < 0 ? errmsg_set(msg, rv,
                               "the folder cannot be looked at, or its files were "
                               "removed")
                  : state_db_tidy(s->db, now_of(s), free_bytes, msg);
}

/* Returns when it is to be called again. */
static uint64_t tidy(struct state *s)
{
    struct errmsg msg = {""};
    int rv;

    do {
        rv = tidy_once(s, &msg);
    } while (has_made_room(s, &rv, 0, &msg));
    if (rv < 0 && rv != -ENOSPC) { /* of a full disk the next commit says more */
        end_process(s, rv, msg.text);
    }
    return clock_ms() + (rv == 1 ? 0 : s->config.tidy_ms);
}

static int wait_until(struct state *s, pthread_cond_t *cond, uint64_t until_ms)
{
    struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
                             .tv_nsec = (long)(until_ms % 1000) * 1000000};
    int rv = pthread_cond_timedwait(cond, &s->mutex, &until);

    ASSERT(rv == 0 || rv == ETIMEDOUT);
    return rv;
}

/* Until there is work, or the end has come, or till then. */
static void wait_for_work(struct state *s, uint64_t until_ms)
{
    int rv = 0;

    while (!s->has_work && !s->is_ending && rv == 0) {
        rv = wait_until(s, &s->work, until_ms);
    }
}

static void lock(struct state *s)
{
    int rv = pthread_mutex_lock(&s->mutex);

    ASSERT(rv == 0);
}

static void unlock(struct state *s)
{
    int rv = pthread_mutex_unlock(&s->mutex);

    ASSERT(rv == 0);
}

static void wake_loop(const struct state *s)
{
    int rv = uv_async_send(s->wake);

    ASSERT(rv == 0); /* it is not closed before the thread has ended */
}

/* Tells the loop, wherever it waits. */
static void tell(struct state *s, bool is_written, enum durable_space space)
{
    bool is_changed;
    bool is_awaited;

    lock(s);
    is_changed = space != s->space;
    is_awaited = s->is_awaited;
    s->space = space;
    s->n_kept = state_db_kept(s->db);
    s->is_written = s->is_written || is_written;
    unlock(s);
    if (is_written && is_awaited) {
        (void)pthread_cond_signal(&s->done); /* returns 0 always */
    }
    if ((is_written && !is_awaited) || is_changed) {
        wake_loop(s);
    }
}

/* What the thread does with its lock given back. What is written is told first: the
 * loop goes on while it tidies. */
static void work(struct state *s, bool has_work, uint64_t *tidy_ms)
{
    enum durable_space space = s->space; /* written by this thread alone */

    if (has_work) {
        write_batch(s, (struct bytes){buf_bytes(&s->writing), buf_len(&s->writing)});
    }
    tell(s, has_work, look_at_space(s, space));
    if (!has_work || clock_ms() >= *tidy_ms || state_db_is_untidy(s->db)) {
        *tidy_ms = tidy(s);
    }
}

static void *run(void *arg)
{
    struct state *s = arg;
    uint64_t tidy_ms = clock_ms() + s->config.tidy_ms;
    bool is_over = false;

    while (!is_over) {
        bool has_work;

        lock(s);
        wait_for_work(s, tidy_ms); /* or until it is time to tidy */
        has_work = s->has_work;
        s->has_work = false; /* what comes from now on is another piece */
        is_over = s->is_ending && !has_work;
        unlock(s);
        if (!is_over) {
            work(s, has_work, &tidy_ms);
        }
    }
    return NULL;
}

/* ---- the loop's side ---- */

static void log_space(const struct state *s, enum durable_space space)
{
    unsigned long long mib =
        (space_wanted(s->dir.reserve_bytes, s->dir.reserve_left) >> 20) + 1;

    switch (space) {
    case SPACE_FINE:
        log_info("there is space for the service's state again", "dir=%s", s->dir.path);
        break;
    case SPACE_LOW:
        log_error(
            "the disk of the service's state is nearly full: new jobs are refused "
            "until there is space; those that run go on",
            "dir=%s needs_mib=%llu", s->dir.path, mib);
        break;
    case SPACE_SCARCE:
        log_error("the disk of the service's state is full, and half of the reserve is "
                  "used: what jobs want to store is refused, too, until there is space",
                  "dir=%s needs_mib=%llu", s->dir.path, mib);
        break;
    case SPACE_SPENT:
        log_error("the disk of the service's state is full, and the reserve is used: "
                  "only what must be kept is written until there is space",
                  "dir=%s needs_mib=%llu", s->dir.path, mib);
        break;
    }
}

/* Takes what the thread has told. */
static void listen_to_thread(struct state *s)
{
    enum durable_space space;
    bool is_written;

    lock(s);
    is_written = s->is_written;
    s->is_written = false;
    space = s->space;
    s->kept = s->n_kept;
    unlock(s);
    if (space != s->told) {
        s->told = space;
        log_space(s, space);
        s->user.on_space(s->user.arg, space);
    }
    if (is_written) {
        s->is_writing = false;
        uv_unref((uv_handle_t *)s->wake);
        buf_clear(&s->writing);
        if (s->writing.capacity > KEEP_BYTES) {
            buf_release(&s->writing);
        }
        s->user.on_committed(s->user.arg);
    }
}

static void on_wake(uv_async_t *wake)
{
    listen_to_thread(wake->data);
}

static void await(void *arg, uint64_t limit_ms)
{
    struct state *s = arg;
    uint64_t until_ms = clock_ms() + limit_ms;
    int rv = 0;

    lock(s);
    s->is_awaited = true;
    while (s->is_writing && !s->is_written && rv == 0) {
        rv = wait_until(s, &s->done, until_ms);
    }
    s->is_awaited = false;
    unlock(s);
    listen_to_thread(s);
}

static void use(void *arg, const struct durable_user *user)
{
    struct state *s = arg;

    s->user = *user;
}

static void save(void *arg, const struct record *r)
{
    struct state *s = arg;

    state_batch_add(&s->next, r);
}

static bool has_saved(void *arg)
{
    const struct state *s = arg;

    return buf_len(&s->next) > 0;
}

/* What waits is one more. */
static uint64_t kept(void *arg)
{
    const struct state *s = arg;

    return s->kept + (buf_len(&s->next) > 0);
}

static bool commit(void *arg)
{
    struct state *s = arg;
    struct buf batch = s->next;

    if (s->is_writing || buf_len(&batch) == 0) {
        return s->is_writing;
    }
    s->next = s->writing; /* empty */
    lock(s);
    s->writing = batch;
    s->has_work = true;
    unlock(s);
    (void)pthread_cond_signal(&s->work); /* returns 0 always */
    s->is_writing = true;
    uv_ref((uv_handle_t *)s->wake); /* the loop waits for it */
    return true;
}

static int start_thread(struct state *s, struct errmsg *msg)
{
    int rv = thread_start(0, run, s, &s->thread);

    s->is_running = rv == 0;
    return rv < 0 ? errmsg_thread(msg, rv, "cannot write the state") : 0;
}

static int load(void *arg, durable_take take, void *taker, struct errmsg *msg)
{
    struct state *s = arg;
    int rv = state_db_load(s->db, take, taker, msg);

    if (rv == 0) {
        do {
            rv = state_db_begin(s->db, msg);
        } while (has_made_room(s, &rv, 0, msg));
    }
    if (rv < 0) {
        return state_blame(&s->dir, rv, msg);
    }
    s->space = look_at_space(s, SPACE_FINE);
    s->kept = s->n_kept = state_db_kept(s->db);
    wake_loop(s); /* it tells */
    return start_thread(s, msg);
}

/* ---- life ---- */

/* Which clock this is: the kernel gives each start of the machine a name. 0: it cannot
 * be read. */
static uint64_t clock_name(void)
{
    char text[64];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    size_t n = file ? fread(text, 1, sizeof(text), file) : 0;

    if (file) {
        (void)fclose(file); /* it was only read */
    }
    return n > 0 ? table_hash(text, n, 1) | 1 : 0;
}

/* `seed` and `start` of one that is opened. */
static int draw_numbers(struct state_db_config *config, struct errmsg *msg)
{
    uint64_t number[2];

    if (getrandom(number, sizeof(number), 0) != sizeof(number)) {
        return errmsg_set(msg, -errno, "no random numbers: %s", err_text(-errno));
    }
    config->seed = number[0];
    config->start = MAX(number[1], 1);
    return 0;
}

static int open_db(struct state *s, struct errmsg *msg)
{
    char *path = mem_printf("%s/state.db", s->dir.path);
    struct state_db_config config = {
        .path = path,
        .clock_ms = clock_ms(),
        .clock_name = clock_name(),
        .history_ms = s->config.history_ms,
        .history_bytes = s->config.history_bytes,
        .reserve_bytes = s->config.reserve_bytes,
    };
    int rv;

    if (state_dir_is_torn(&s->dir)) {
        mem_free(path);
        return state_blame_torn(&s->dir, msg);
    }
    rv = draw_numbers(&config, msg);
    if (rv == 0) {
        do {
            rv = state_open_db(&s->dir, &config, &s->db, msg);
        } while (has_made_room(s, &rv, 0, msg));
    }
    mem_free(path);
    return rv < 0 ? state_blame(&s->dir, rv, msg) : 0;
}

static void init_thread(struct state *s)
{
    pthread_condattr_t attr;
    int rv = pthread_mutex_init(&s->mutex, NULL);

    rv |= pthread_condattr_init(&attr);
    rv |= pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rv |= pthread_cond_init(&s->work, &attr);
    rv |= pthread_cond_init(&s->done, &attr);
    rv |= pthread_condattr_destroy(&attr);
    ASSERT(rv == 0);
}

static int init_wake(struct state *s, struct errmsg *msg)
{
    int rv;

    s->wake = mem_zalloc(sizeof(*s->wake));
    rv = uv_async_init(s->config.loop, s->wake, on_wake);
    if (rv < 0) {
        mem_free(s->wake);
        s->wake = NULL;
        return errmsg_set(msg, rv, "cannot wake the loop: %s", err_text(rv));
    }
    s->wake->data = s;
    uv_unref((uv_handle_t *)s->wake); /* alone it is no reason to go on */
    return 0;
}

int state_open(const struct state_config *config, struct state **ret,
               struct errmsg *msg)
{
    struct state *s = mem_zalloc(sizeof(*s));
    const struct state_identity *identity;
    int rv;

    s->config = *config;
    s->config.tidy_ms = config->tidy_ms ? config->tidy_ms : TIDY_MS;
    buf_init(&s->next, SIZE_MAX);
    buf_init(&s->writing, SIZE_MAX);
    init_thread(s);
    rv = state_dir_open(&s->dir, config->dir, config->reserve_bytes,
                        config->patience_ms, msg);
    rv = rv == 0 ? open_db(s, msg) : rv;
    rv = rv == 0 ? init_wake(s, msg) : rv;
    if (rv < 0) {
        state_close(s);
        return rv;
    }
    identity = state_db_identity(s->db);
    s->durable = (struct durable){.arg = s,
                                  .cluster = identity->cluster,
                                  .boot = identity->boot,
                                  .start = identity->start,
                                  .found = identity->found,
                                  .clock_offset_ms = identity->clock_offset_ms,
                                  .load = load,
                                  .use = use,
                                  .save = save,
                                  .has_saved = has_saved,
                                  .kept = kept,
                                  .commit = commit,
                                  .await = await};
    *ret = s;
    return 0;
}

const struct durable *state_durable(const struct state *s)
{
    return &s->durable;
}

static void end_thread(struct state *s)
{
    int rv;

    lock(s);
    s->is_ending = true;
    (void)pthread_cond_signal(&s->work); /* returns 0 always */
    unlock(s);
    rv = pthread_join(s->thread, NULL);
    ASSERT(rv == 0);
    if (buf_len(&s->next) > 0) {
        write_batch(s, (struct bytes){buf_bytes(&s->next), buf_len(&s->next)});
    }
}

static void on_wake_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

void state_close(struct state *s)
{
    if (s->is_running) {
        end_thread(s);
    }
    if (s->wake) {
        uv_close((uv_handle_t *)s->wake, on_wake_closed);
    }
    state_db_close(s->db);
    state_dir_close(&s->dir);
    (void)pthread_cond_destroy(&s->work); /* nobody waits */
    (void)pthread_cond_destroy(&s->done);
    (void)pthread_mutex_destroy(&s->mutex); /* nobody holds it */
    buf_release(&s->next);
    buf_release(&s->writing);
    mem_free(s);
}

int state_exit_code(int err)
{
    switch (err) {
    case ERR_INVALID:
        return EXIT_MISTAKE;
    case ERR_CORRUPT:
    case ERR_UNSUPPORTED:
        return EXIT_STATE;
    default:
        return EXIT_FAILURE; /* which a restart may mend */
    }
}
