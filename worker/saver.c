#include "worker/saver.h"

#include "worker/snapshot.h"
#include "worker/store_client.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/thread.h"
#include "common/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD_MAX = 1024,
    SNAPSHOT_TIMEOUT_MS = 600000,
};

struct saver {
    struct saver_config config;
    struct store_client *store; /* owned; NULL for one rank */
    int n_writers;
    struct snapshot *snapshot; /* owned */
    struct ticket taken;

    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    atomic_bool is_fenced; /* a commit was refused: read without the lock */
    bool has_work;
    bool holds_state; /* the shard is written from it */
    bool is_closing;
    struct checkpoint_meta meta; /* of the work in hand */
    int outcome;
    struct errmsg outcome_msg;
};

static bool writes(const struct saver *s)
{
    return s->config.launch->rank < s->n_writers;
}

/* --- what ranks tell each other --- */

static void format_key(char *key, size_t size, uint64_t step, const char *what,
                       int rank)
{
    (void)snprintf(key, size, "ckpt/%llu/%s/%d", (unsigned long long)step, what, rank);
}

/* An outcome: i32 error, then the text or the file's record. */
static int publish(struct saver *s, const char *key, int outcome,
                   const struct checkpoint_file *file, const struct errmsg *text,
                   struct errmsg *msg)
{
    struct buf record;
    int rv;

    buf_init(&record, RECORD_MAX);
    rv = wire_put_u32(&record, (uint32_t)outcome);
    rv = rv < 0 ? rv : wire_put_text(&record, file ? file->name : "");
    rv = rv < 0 ? rv : wire_put_u64(&record, file ? file->bytes : 0);
    rv = rv < 0 ? rv : wire_put_text(&record, file ? file->hash : "");
    rv = rv < 0 ? rv : wire_put_text(&record, outcome < 0 ? text->text : "");
    rv = rv < 0 ? errmsg_set(msg, rv, "checkpoint record")
                : store_client_set(s->store, key, buf_bytes(&record), buf_len(&record),
                                   msg);
    buf_release(&record);
    return rv;
}

/* What another rank has published: its outcome, with the text. */
static int collect(struct saver *s, const char *key, struct checkpoint_file *file,
                   struct errmsg *msg)
{
    uint8_t record[RECORD_MAX];
    char text[sizeof(msg->text)];
    struct wire_reader r;
    size_t size;
    int outcome;
    int rv;

    rv = store_client_get(s->store, key, record, sizeof(record), &size, msg);
    if (rv < 0) {
        return rv;
    }
    wire_reader_init(&r, record, size);
    outcome = (int)wire_get_u32(&r);
    wire_get_text(&r, file->name, sizeof(file->name));
    file->bytes = wire_get_u64(&r);
    wire_get_text(&r, file->hash, sizeof(file->hash));
    wire_get_text(&r, text, sizeof(text));
    if (!wire_reader_done(&r)) {
        return errmsg_set(msg, ERR_PROTOCOL, "a damaged checkpoint record at %s", key);
    }
    return outcome < 0 ? errmsg_set(msg, outcome, "%s", text) : 0;
}

/* --- the work --- */

static void release_state(struct saver *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->holds_state = false;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

static int write_shard(struct saver *s, const char *tmp, struct checkpoint_file *ret,
                       struct errmsg *msg)
{
    int rv = device_finish(s->config.device, s->taken, SNAPSHOT_TIMEOUT_MS, msg);
    size_t n;
    const struct box *box = snapshot_boxes(s->snapshot, &n);

    rv = rv < 0 ? rv
                : checkpoint_write_shard(tmp, s->config.launch->rank, box, n, ret, msg);
    release_state(s);
    return rv;
}

/* The store's disk may be full: the others would not hear of a checkpoint, and take it
 * for none. That shows before it is one. */
static int try_store(struct saver *s, struct errmsg *msg)
{
    static const char key[] = "ckpt/tried";
    uint64_t step = s->meta.step;
    size_t size;
    int rv = store_client_set(s->store, key, &step, sizeof(step), msg);

    return rv < 0 ? rv
                  : store_client_get(s->store, key, &step, sizeof(step), &size, msg);
}

/* All writers' files, in rank order. Waits for each, also after an error: those
 * that still write would make the folder anew. The first error of any. */
static int collect_files(struct saver *s, struct checkpoint_file *files,
                         struct errmsg *msg)
{
    struct errmsg why = {""};
    char key[64];
    int first = 0;

    for (int rank = 1; rank < s->n_writers; rank++) {
        int rv;

        format_key(key, sizeof(key), s->meta.step, "shard", rank);
        rv = collect(s, key, &files[rank], &why);
        if (rv < 0 && first == 0) {
            first = errmsg_set(msg, rv, "rank %d: %s", rank, why.text);
        }
        if (rv == ERR_TIMEOUT || rv == ERR_CLOSED) {
            break; /* the store does not answer: nor will it for the others */
        }
    }
    return first;
}

/* The manifest, then the question; *ret_accepted once the service has said yes. */
static int commit(struct saver *s, const char *tmp, const struct checkpoint_file *files,
                  bool *ret_accepted, struct errmsg *msg)
{
    uint32_t run = (uint32_t)s->meta.run_generation;
    char hash[CHECKPOINT_HASH_HEX];
    int rv;

    rv = run_dir_hold(s->config.run_dir, msg);
    if (rv < 0) {
        return rv;
    }
    rv = checkpoint_write_manifest(tmp, &s->meta, files, (size_t)s->n_writers, hash,
                                   msg);
    rv = rv < 0 ? rv : metrics_sync(s->config.metrics, msg);
    rv = rv < 0
             ? rv
             : control_client_commit(s->config.control, run, s->meta.step, hash, msg);
    *ret_accepted = rv == 0;
    return rv < 0 ? rv
                  : checkpoint_commit(s->config.dir, s->meta.step,
                                      s->meta.run_generation, msg);
}

/* What is kept too long harms nobody. */
static void prune(const struct saver *s)
{
    struct errmsg msg;

    if (checkpoint_prune(s->config.dir, &s->config.retention, &msg) < 0) {
        log_warn("an old checkpoint was not deleted", "why=\"%s\"", msg.text);
    }
}

/* Rank 0: everything after its own shard, whose outcome is `rv`. */
static int lead(struct saver *s, const char *tmp, const struct checkpoint_file *own,
                int rv, struct errmsg *msg)
{
    struct checkpoint_file *files = mem_array((size_t)s->n_writers, sizeof(*files));
    struct errmsg other = {""};
    bool is_accepted = false;
    int others;

    files[0] = *own;
    others = s->store ? try_store(s, &other) : 0;
    if (others == 0) { /* after an own failure, too: they write yet */
        others = collect_files(s, files, &other);
    }
    if (rv == 0 && others < 0) {
        *msg = other;
        rv = others;
    }
    rv = rv < 0 ? rv : commit(s, tmp, files, &is_accepted, msg);
    mem_free(files);
    if (rv == 0) {
        prune(s);
    }
    /* an accepted commit is the next generation's to finish */
    if (rv < 0 && !is_accepted &&
        checkpoint_discard(s->config.dir, s->meta.step, s->meta.run_generation,
                           &other) < 0) {
        log_debug("the next start sweeps it", "why=\"%s\"", other.text);
    }
    return rv;
}

/* Every other rank after its own shard, whose outcome is `rv`. Waits for rank 0 also
 * after an own failure: it cleans up, and must not be stopped while it does. */
static int follow(struct saver *s, int rv, struct checkpoint_file *file,
                  struct errmsg *msg)
{
    struct errmsg other = {""};
    char key[64];
    int outcome;

    format_key(key, sizeof(key), s->meta.step, "shard", s->config.launch->rank);
    if (writes(s) && publish(s, key, rv, file, msg, &other) < 0) {
        return errmsg_set(msg, ERR_PEER_LOST, "%s", other.text);
    }
    format_key(key, sizeof(key), s->meta.step, "done", 0);
    outcome = collect(s, key, file, &other);
    if (rv == 0 && outcome < 0) {
        *msg = other;
    }
    return rv < 0 ? rv : outcome;
}

static int save(struct saver *s, struct errmsg *msg)
{
    int rank = s->config.launch->rank;
    struct checkpoint_file file = {0};
    struct errmsg other = {""};
    char tmp[CHECKPOINT_PATH_MAX];
    char key[64];
    int rv;

    checkpoint_path(tmp, sizeof(tmp), s->config.dir, s->meta.step,
                    s->meta.run_generation, true);
    rv = writes(s) ? write_shard(s, tmp, &file, msg) : 0;
    if (rank != 0) {
        return follow(s, rv, &file, msg);
    }
    rv = lead(s, tmp, &file, rv, msg);
    if (s->store) {
        format_key(key, sizeof(key), s->meta.step, "done", 0);
        if (publish(s, key, rv, NULL, msg, &other) < 0 && rv == 0) {
            rv = errmsg_set(msg, ERR_PEER_LOST, "%s", other.text);
        }
    }
    return rv;
}

static void *run_thread(void *arg)
{
    struct saver *s = arg;
    struct errmsg msg;
    int rv;

    (void)pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->has_work && !s->is_closing) {
            (void)pthread_cond_wait(&s->changed, &s->lock);
        }
        if (!s->has_work) {
            break;
        }
        (void)pthread_mutex_unlock(&s->lock);
        msg.text[0] = '\0';
        rv = save(s, &msg);
        (void)pthread_mutex_lock(&s->lock);
        s->outcome = rv;
        if (rv == ERR_REFUSED) {
            atomic_store(&s->is_fenced, true);
        }
        s->outcome_msg = msg;
        s->has_work = false;
        (void)pthread_cond_broadcast(&s->changed);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- the training thread's side --- */

static int open_parts(struct saver *s, struct errmsg *msg)
{
    const struct launch *launch = s->config.launch;
    struct snapshot_config snapshot = {
        .layout = s->config.layout,
        .device = s->config.device,
        .holder = s->config.holder,
        .comm = s->config.comm,
        .comm_queue = s->config.comm_queue,
        .in_place = s->config.in_place,
    };
    int rv = 0;

    ASSERT(s->config.holder.rank == launch->rank &&
           s->config.holder.world_size == launch->world_size);
    s->n_writers = holder_writers(&s->config.holder);
    if (launch->world_size > 1) {
        rv = store_client_open(launch->master_addr, launch->master_port,
                               s->config.timeout_ms, &s->store, msg);
    }
    return rv < 0 ? rv : snapshot_new(&snapshot, &s->snapshot, msg);
}

static void release_parts(struct saver *s)
{
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    store_client_close(s->store);
    snapshot_free(s->snapshot);
    checkpoint_meta_release(&s->meta);
    mem_free(s);
}

int saver_open(const struct saver_config *config, struct saver **ret,
               struct errmsg *msg)
{
    struct saver *s = mem_zalloc(sizeof(*s));
    int rv;

    s->config = *config;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    rv = open_parts(s, msg);
    if (rv == 0) {
        rv = thread_start(0, run_thread, s, &s->thread);
        if (rv < 0) {
            (void)errmsg_thread(msg, rv, "saving checkpoints");
        }
    }
    if (rv < 0) {
        release_parts(s);
        return rv;
    }
    *ret = s;
    return 0;
}

void saver_close(struct saver *s)
{
    if (!s) {
        return;
    }
    (void)pthread_mutex_lock(&s->lock);
    s->is_closing = true;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    release_parts(s);
}

int saver_wait(struct saver *s, struct errmsg *msg)
{
    int rv;

    (void)pthread_mutex_lock(&s->lock);
    while (s->has_work) {
        (void)pthread_cond_wait(&s->changed, &s->lock);
    }
    rv = s->outcome;
    if (rv < 0) {
        *msg = s->outcome_msg;
    }
    s->outcome = 0;
    (void)pthread_mutex_unlock(&s->lock);
    return rv;
}

static void copy_meta(struct checkpoint_meta *to, const struct checkpoint_meta *from)
{
    checkpoint_meta_release(to);
    *to = *from;
    to->model_json = mem_strdup(from->model_json);
    to->config_json = mem_strdup(from->config_json);
    to->data_json = mem_strdup(from->data_json);
}

int saver_begin(struct saver *s, const float *const state[3],
                const struct checkpoint_meta *meta, struct errmsg *msg)
{
    int rv = saver_wait(s, msg);

    if (rv == ERR_REFUSED) {
        return rv;
    }
    s->taken = snapshot_take(s->snapshot, state);
    (void)pthread_mutex_lock(&s->lock);
    copy_meta(&s->meta, meta);
    s->has_work = true;
    s->holds_state = s->config.in_place && writes(s);
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    return rv;
}

struct ticket saver_snapshot_ticket(const struct saver *s)
{
    return s->taken;
}

void saver_wait_state(struct saver *s)
{
    (void)pthread_mutex_lock(&s->lock);
    while (s->holds_state) {
        (void)pthread_cond_wait(&s->changed, &s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

bool saver_is_busy(struct saver *s)
{
    bool is_busy;

    (void)pthread_mutex_lock(&s->lock);
    is_busy = s->has_work;
    (void)pthread_mutex_unlock(&s->lock);
    return is_busy;
}

bool saver_is_fenced(const struct saver *s)
{
    return atomic_load(&s->is_fenced);
}
