#include "worker/report/metrics.h"

#include "common/buf.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/number.h"
#include "common/storage.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The new file is opened before it is renamed into place, so that a writer always
 * appends to the file that it took over itself: when a younger generation renames its
 * own over it, what the older one still writes goes with the old file. */

enum { METRICS_PATH_MAX = 4096, KEEP_TRIES = 1000 };

struct metrics {
    int fd;
    char path[METRICS_PATH_MAX];
};

static int blame(struct errmsg *msg, const char *path, int err)
{
    return errmsg_set(msg, err, "%s: %s", path, err_text(err));
}

static int path_in(const char *dir, const char *name, char *path, struct errmsg *msg)
{
    if (!str_format(path, METRICS_PATH_MAX, "%s/%s", dir, name)) {
        return blame(msg, dir, -ENAMETOOLONG);
    }
    return 0;
}

static int tmp_path(const char *dir, int run_generation, char *path, struct errmsg *msg)
{
    char name[64];

    ASSERT(str_format(name, sizeof(name), "metrics.jsonl.g%d.tmp", run_generation));
    return path_in(dir, name, path, msg);
}

static int sync_folder(const char *dir, struct errmsg *msg)
{
    int rv = storage_sync_dir(dir);

    return rv < 0 ? blame(msg, dir, rv) : 0;
}

/* Whether the name is "metrics.jsonl.g<R>.tmp". */
static bool is_temporary(const char *name, int *ret_generation)
{
    static const char begin[] = "metrics.jsonl.g";
    char digits[16];
    int64_t generation;
    size_t n;

    if (!str_starts_with(name, begin)) {
        return false;
    }
    name += sizeof(begin) - 1;
    n = strspn(name, "0123456789");
    if (n >= sizeof(digits) || strcmp(name + n, ".tmp") != 0) {
        return false;
    }
    memcpy(digits, name, n);
    digits[n] = '\0';
    if (str_parse_i64(digits, &generation) < 0 || generation > INT32_MAX) {
        return false;
    }
    *ret_generation = (int)generation;
    return true;
}

/* Renamed first: from then on its writer meets ENOENT, also where deleting fails. */
static int trash(const char *dir, const char *name, struct errmsg *msg)
{
    char trash_name[NAME_MAX + 8];
    char from[METRICS_PATH_MAX];
    char to[METRICS_PATH_MAX];
    int rv;

    ASSERT(str_format(trash_name, sizeof(trash_name), "trash-%s", name));
    rv = path_in(dir, name, from, msg);
    rv = rv < 0 ? rv : path_in(dir, trash_name, to, msg);
    if (rv < 0) {
        return rv;
    }
    if (rename(from, to) < 0 || unlink(to) < 0) {
        return errno == ENOENT ? 0 : blame(msg, from, -errno); /* another was faster */
    }
    return 0;
}

static int trash_if_temporary(const char *run_dir, const char *name, int run_generation,
                              struct errmsg *msg)
{
    int generation;

    if (!is_temporary(name, &generation)) {
        return 0;
    }
    if (generation > run_generation) {
        return errmsg_set(msg, ERR_STALE,
                          "%s: run generation %d has taken over from %d", run_dir,
                          generation, run_generation);
    }
    return trash(run_dir, name, msg);
}

static int trash_temporaries(const char *run_dir, int run_generation,
                             struct errmsg *msg)
{
    DIR *dir = opendir(run_dir);
    const struct dirent *entry = NULL;
    int rv = 0;

    if (!dir) {
        return blame(msg, run_dir, -errno);
    }
    do {
        errno = 0;
        entry =
            readdir(dir); /* NOLINT(concurrency-mt-unsafe): the stream is ours alone */
        if (!entry && errno) {
            rv = blame(msg, run_dir, -errno);
        } else if (entry) {
            rv = trash_if_temporary(run_dir, entry->d_name, run_generation, msg);
        }
    } while (rv == 0 && entry);
    (void)closedir(dir); /* only read from */
    return rv;
}

/* The step of a whole line "{"step":N,…}\n"; false for anything else, such as the torn
 * last line of a crash. */
static bool line_step(const char *line, uint64_t *ret)
{
    static const char begin[] = "{\"step\":";
    size_t len = strlen(line);
    char digits[24];
    size_t n;

    if (!str_starts_with(line, begin) || len < 2 ||
        strcmp(line + len - 2, "}\n") != 0) {
        return false;
    }
    line += sizeof(begin) - 1;
    n = strspn(line, "0123456789");
    if (n == 0 || n >= sizeof(digits) || line[n] != ',') {
        return false;
    }
    memcpy(digits, line, n);
    digits[n] = '\0';
    return str_parse_u64(digits, ret) == 0;
}

struct copying {
    uint64_t keep_step;
    uint64_t last;                     /* step that was copied */
    uint64_t last_found;               /* … that the old file has */
    char missing[METRICS_MISSING_MAX]; /* as in struct metrics_found */
};

/* No line for the steps after the last one and before `next`. */
static void add_missing(struct copying *c, uint64_t next)
{
    static const char more[] = " …";
    size_t len = strlen(c->missing);
    char range[64];

    if (next <= c->last + 1 || (len > 0 && strstr(c->missing, more))) {
        return;
    }
    if (next == c->last + 2) {
        ASSERT(str_format(range, sizeof(range), "%s%llu", len > 0 ? ", " : "",
                          (unsigned long long)next - 1));
    } else {
        ASSERT(str_format(range, sizeof(range), "%s%llu-%llu", len > 0 ? ", " : "",
                          (unsigned long long)c->last + 1,
                          (unsigned long long)next - 1));
    }
    ASSERT(str_format(c->missing + len, sizeof(c->missing) - len, "%s",
                      len + strlen(range) + sizeof(more) <= sizeof(c->missing) ? range
                                                                               : more));
}

/* Copies the lines of steps 1 … keep_step, each step once and in order. */
static int copy_lines(FILE *from, int to, struct copying *c)
{
    char line[METRICS_LINE_MAX];

    while (fgets(line, sizeof(line), from)) {
        uint64_t step;
        int rv;

        if (!line_step(line, &step)) {
            continue;
        }
        c->last_found = MAX(c->last_found, step);
        if (step <= c->last || step > c->keep_step) {
            continue;
        }
        add_missing(c, step);
        c->last = step;
        rv = storage_write_all(to, line, strlen(line));
        if (rv < 0) {
            return rv;
        }
    }
    return ferror(from) ? -EIO : 0;
}

static int copy_kept(const char *path, int to, struct copying *c, struct errmsg *msg)
{
    int fd =
        open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO must not hold us */
    struct stat st;
    FILE *from;
    int rv;

    if (fd < 0) {
        return errno == ENOENT ? 0 : blame(msg, path, -errno); /* a new run */
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return errmsg_set(msg, ERR_INVALID, "%s is not a file: move it away", path);
    }
    from = fdopen(fd, "r");
    ASSERT(from); /* out of memory */
    rv = copy_lines(from, to, c);
    (void)fclose(from); /* only read from */
    return rv < 0 ? blame(msg, path, rv) : 0;
}

/* A reader is left nothing of a copy that failed. */
static int copy_file(int from, const char *to)
{
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int rv = fd < 0 ? -errno : fault_at("metrics.copy");
    char bytes[8192];
    ssize_t n = 1;

    if (fd < 0) {
        return rv;
    }
    while (rv == 0 && n > 0) {
        n = read(from, bytes, sizeof(bytes));
        rv = n < 0 ? -errno : storage_write_all(fd, bytes, (size_t)n);
    }
    rv = rv < 0 ? rv : storage_sync(fd);
    if (close(fd) < 0 && rv == 0) {
        rv = -errno;
    }
    if (rv < 0) {
        (void)unlink(to); /* half a file under that name is the worst that stays */
    }
    return rv;
}

static bool is_no_hard_links(int err)
{
    return err == -EPERM || err == -EOPNOTSUPP || err == -ENOSYS || err == -EMLINK;
}

/* A second name, not another one: a rank 0 that was replaced without knowing it must
 * not take the name from its successor's file. Where the storage has no second names
 * (FUSE, SMB), a copy. */
static int link_or_copy(const char *path, const char *to, bool *ret_is_copy)
{
    int rv = fault_at("metrics.link");
    int from;

    if (rv == 0 && link(path, to) < 0) {
        rv = -errno;
    }
    *ret_is_copy = is_no_hard_links(rv);
    if (!*ret_is_copy) {
        return rv;
    }
    from = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (from < 0) {
        return -errno;
    }
    rv = copy_file(from, to);
    (void)close(from); /* only read from */
    return rv;
}

/* log/ may have been cleaned up, so that R was there before. What can be kept in
 * neither way is given up with a warning: the training counts for more. */
static int keep_aside(const char *run_dir, int run_generation, const char *path,
                      char name[METRICS_NAME_MAX], struct errmsg *msg)
{
    char to[METRICS_PATH_MAX];
    bool is_copy = false;
    int rv = -EEXIST;

    for (int i = 0; i < KEEP_TRIES && rv == -EEXIST; i++) {
        ASSERT(i == 0 ? str_format(name, METRICS_NAME_MAX, "metrics.before-g%d.jsonl",
                                   run_generation)
                      : str_format(name, METRICS_NAME_MAX,
                                   "metrics.before-g%d.%d.jsonl", run_generation, i));
        rv = path_in(run_dir, name, to, msg);
        if (rv < 0) {
            return rv;
        }
        rv = link_or_copy(path, to, &is_copy);
    }
    if (rv < 0 && is_copy) {
        log_warn("the metrics of the training before are lost: the storage has no hard "
                 "links, and copying failed",
                 "file=%s error=\"%s\"", path, err_text(rv));
        name[0] = '\0';
        return 0;
    }
    return rv < 0 ? errmsg_set(msg, rv, "%s cannot be kept as %s: %s; move it away",
                               path, name, err_text(rv))
                  : 0;
}

int metrics_prepare(const char *run_dir, int run_generation, uint64_t keep_step,
                    uint64_t worth, struct metrics_found *ret, struct errmsg *msg)
{
    struct copying copying = {.keep_step = keep_step};
    struct metrics_found found = {0};
    char tmp[METRICS_PATH_MAX];
    char path[METRICS_PATH_MAX];
    int fd;
    int rv;

    rv = trash_temporaries(run_dir, run_generation, msg);
    rv = rv < 0 ? rv : tmp_path(run_dir, run_generation, tmp, msg);
    rv = rv < 0 ? rv : path_in(run_dir, "metrics.jsonl", path, msg);
    if (rv < 0) {
        return rv;
    }
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        return blame(msg, tmp, -errno);
    }
    rv = copy_kept(path, fd, &copying, msg);
    if (rv == 0) {
        rv = storage_sync(fd);
        rv = rv < 0 ? blame(msg, tmp, rv) : 0;
    }
    if (close(fd) < 0 && rv == 0) {
        rv = blame(msg, tmp, -errno);
    }
    add_missing(&copying, keep_step + 1);
    if (rv == 0 && keep_step == 0 && copying.last_found >= MAX(worth, 1)) {
        rv = keep_aside(run_dir, run_generation, path, found.kept, msg);
    }
    rv = rv < 0 ? rv : sync_folder(run_dir, msg);
    if (rv == 0 && ret) {
        memcpy(found.missing, copying.missing, sizeof(found.missing));
        *ret = found;
    }
    return rv;
}

int metrics_take_over(const char *run_dir, int run_generation, struct metrics **ret,
                      struct errmsg *msg)
{
    struct metrics *m = mem_zalloc(sizeof(*m));
    char tmp[METRICS_PATH_MAX];
    int rv;

    m->fd = -1;
    rv = tmp_path(run_dir, run_generation, tmp, msg);
    rv = rv < 0 ? rv : path_in(run_dir, "metrics.jsonl", m->path, msg);
    if (rv == 0) {
        m->fd = open(tmp, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (m->fd < 0 || rename(tmp, m->path) < 0) {
            rv = blame(msg, tmp, -errno);
        }
    }
    rv = rv < 0 ? rv : sync_folder(run_dir, msg);
    if (rv < 0) {
        metrics_close(m);
        return rv;
    }
    *ret = m;
    return 0;
}

void metrics_close(struct metrics *m)
{
    if (m && m->fd >= 0) {
        (void)close(m->fd); /* metrics_sync is what makes lines durable */
    }
    mem_free(m);
}

/* JSON has no NaN and no infinity: null. */
static int put_number(struct buf *b, const char *key, double value)
{
    char text[NUMBER_TEXT_MAX] = "null";

    if (isfinite(value)) {
        number_format(value, text);
    }
    return buf_printf(b, ",\"%s\":%s", key, text);
}

/* 0: unknown, which is null. */
static int put_bytes(struct buf *b, const char *key, uint64_t bytes)
{
    return bytes == 0 ? buf_printf(b, ",\"%s\":null", key)
                      : buf_printf(b, ",\"%s\":%llu", key, (unsigned long long)bytes);
}

/* What the step took of the machine. */
static bool put_resources(struct buf *b, const struct metrics_line *l)
{
    static const char *const queues[METRICS_QUEUES] = {"compute_s", "gather_s",
                                                       "reduce_s", "copy_s"};
    bool fits = put_number(b, "gemm_flop_s",
                           l->gemm_flop_s > 0 ? l->gemm_flop_s : (double)NAN) == 0 &&
                put_bytes(b, "mem_bytes", l->mem_bytes) == 0 &&
                put_bytes(b, "mem_peak_bytes", l->mem_peak_bytes) == 0 &&
                put_bytes(b, "mem_peak_max_bytes", l->mem_peak_max_bytes) == 0 &&
                buf_printf(b, ",\"mem_peak_max_rank\":%d", l->mem_peak_max_rank) == 0;

    for (size_t i = 0; i < METRICS_QUEUES && fits; i++) {
        fits = put_number(b, queues[i], l->queue_s[i]) == 0;
    }
    return fits;
}

static bool put_scaler(struct buf *b, const struct metrics_line *l)
{
    return l->loss_scale <= 0 ||
           (put_number(b, "loss_scale", l->loss_scale) == 0 &&
            buf_printf(b, ",\"skipped\":%llu", (unsigned long long)l->skipped) == 0);
}

static int put_line(struct buf *b, const struct metrics_line *l)
{
    bool fits;

    fits =
        buf_printf(b, "{\"step\":%llu", (unsigned long long)l->step) == 0 &&
        put_number(b, "loss", l->loss) == 0 &&
        put_number(b, "grad_norm", l->grad_norm) == 0 &&
        put_number(b, "lr", l->lr) == 0 &&
        buf_printf(b, ",\"tokens\":%llu", (unsigned long long)l->tokens) == 0 &&
        put_number(b, "tok_s", l->tok_s) == 0 &&
        put_number(b, "step_s", l->step_s) == 0 &&
        put_number(b, "mfu", l->mfu < 0 ? (double)NAN : l->mfu) == 0 &&
        buf_printf(b, ",\"generation\":%d,\"world_size\":%d", l->generation,
                   l->world_size) == 0 &&
        put_scaler(b, l) && put_resources(b, l) &&
        (l->ckpt_every_s <= 0 || put_number(b, "ckpt_every_s", l->ckpt_every_s) == 0) &&
        (l->ckpt_cost_s <= 0 || put_number(b, "ckpt_cost_s", l->ckpt_cost_s) == 0) &&
        (isnan(l->val_loss) || put_number(b, "val_loss", l->val_loss) == 0) &&
        buf_printf(b, "}\n") == 0;
    return fits ? 0 : ERR_TOO_LARGE;
}

int metrics_append(struct metrics *m, const struct metrics_line *line,
                   struct errmsg *msg)
{
    struct buf b;
    off_t begin;
    ssize_t n;
    int rv = 0;

    buf_init(&b, METRICS_LINE_MAX - 1);
    rv = put_line(&b, line);
    ASSERT(rv == 0); /* every number is shorter than NUMBER_TEXT_MAX */
    begin = lseek(m->fd, 0, SEEK_END);
    do {
        n = write(m->fd, buf_bytes(&b), buf_len(&b));
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        rv = blame(msg, m->path, -errno);
    } else if ((size_t)n < buf_len(&b)) {
        rv = blame(msg, m->path, -ENOSPC);
        if (begin < 0 ||
            ftruncate(m->fd, begin) < 0) { /* or metrics_prepare drops it */
            rv = blame(msg, m->path, -errno);
        }
    }
    buf_release(&b);
    return rv;
}

int metrics_sync(struct metrics *m, struct errmsg *msg)
{
    return fdatasync(m->fd) < 0 ? blame(msg, m->path, -errno) : 0;
}
