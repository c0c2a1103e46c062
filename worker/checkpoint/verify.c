/* Verifying: nothing of a checkpoint is believed before every byte of it has been read.
 *
 * Happy path: manifest (its own hash, its step against the directory's name) → size and
 * hash of every file it lists → their tables: every row of every tensor exactly once. A
 * wrong file does not end the search; the tables are compared only when all files are
 * right. A file that could not be read now (EMFILE, EIO, …) is no damaged one. */

#include "worker/checkpoint/verify.h"

#include "worker/checkpoint/digest.h"
#include "worker/checkpoint/file.h"
#include "worker/checkpoint/index.h"
#include "worker/checkpoint/retention.h"

#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROBLEMS_MAX = 10000 };

void verify_report_release(struct verify_report *report)
{
    mem_free(report->problem);
    *report = (struct verify_report){0};
}

/* What the bytes themselves are to blame for: they are not there, or not what was
 * written. Anything else may be gone at the next try. */
static bool is_damage(int err)
{
    switch (err) {
    case ERR_CORRUPT:
    case ERR_INVALID: /* not a regular file */
    case ERR_MISSING:
    case ERR_TOO_LARGE:
    case -ENOENT:
    case -ENOTDIR:
    case -ELOOP: /* a link in a file's place */
        return true;
    default:
        return false;
    }
}

static void add_problem(struct verify_report *report, const char *file, int err,
                        const char *what)
{
    struct verify_problem *p;

    if (report->n == PROBLEMS_MAX) {
        return;
    }
    report->problem =
        mem_grow(report->problem, report->n + 1, sizeof(*report->problem));
    p = &report->problem[report->n++];
    ASSERT(str_format(p->file, sizeof(p->file), "%s", file));
    p->err = is_damage(err) ? ERR_CORRUPT : err;
    (void)errmsg_set(&p->what, p->err, "%s", what);
}

static void on_problem(void *arg, const char *file, const char *what)
{
    add_problem(arg, file, ERR_CORRUPT, what);
}

int verify_outcome(const struct verify_report *report)
{
    for (size_t i = 0; i < report->n; i++) {
        if (report->problem[i].err == ERR_CORRUPT) {
            return ERR_CORRUPT;
        }
    }
    return report->n > 0 ? report->problem[0].err : 0;
}

/* The base name of a path, also of "." and with slashes at its end. */
static void base_name(const char *path, char *name, size_t size)
{
    char *real = realpath(path, NULL);
    const char *slash = real ? strrchr(real, '/') : NULL;

    if (!slash || !str_format(name, size, "%s", slash + 1)) {
        name[0] = '\0';
    }
    free(real);
}

/* A committed name that says something else than its manifest was renamed by hand. */
static void check_name(const char *path, const struct checkpoint_meta *meta,
                       struct verify_report *report)
{
    char name[256];
    struct errmsg what;
    uint64_t step;
    int run_generation;

    base_name(path, name, sizeof(name));
    if (retention_parse(name, false, &step, &run_generation) &&
        (step != meta->step || run_generation != meta->run_generation)) {
        (void)errmsg_set(&what, ERR_CORRUPT,
                         "is of step %" PRIu64 ", run generation %d, "
                         "not what the directory's name says",
                         meta->step, meta->run_generation);
        on_problem(report, MANIFEST_NAME, what.text);
    }
}

/* Gives each block to `sink` as well, so that a load reads a file once. */
static int hash_file(struct file_reader *r, size_t file, const struct verify_sink *sink,
                     char hash[CHECKPOINT_HASH_HEX])
{
    struct digest *digest = digest_create();
    const uint8_t *data;
    uint64_t at = 0;
    size_t n;
    int rv;

    while ((rv = file_reader_next(r, &data, &n)) == 0 && n > 0) {
        digest_add(digest, data, n);
        if (sink) {
            sink->on_bytes(sink->arg, file, at, data, n);
        }
        at += n;
    }
    digest_finish(digest, hash);
    digest_free(digest);
    return rv;
}

static int judge_file(struct file_reader *r, const struct checkpoint_file *f,
                      size_t file, const struct verify_sink *sink, struct errmsg *what)
{
    char hash[CHECKPOINT_HASH_HEX];
    int rv;

    if (r->size != f->bytes) {
        return errmsg_set(what, ERR_CORRUPT,
                          "%s: %" PRIu64 " bytes instead of %" PRIu64,
                          r->size < f->bytes ? "cut short" : "extra bytes at the end",
                          r->size, f->bytes);
    }
    rv = hash_file(r, file, sink, hash);
    if (rv < 0) {
        return errmsg_set(what, rv, "cannot be read: %s", err_text(rv));
    }
    if (strcmp(hash, f->hash) != 0) {
        return errmsg_set(what, ERR_CORRUPT, "damaged: its bytes have another hash");
    }
    return 0;
}

static int check_file(const char *dir, const struct manifest *m, size_t file,
                      const struct verify_sink *sink, struct errmsg *what)
{
    const struct checkpoint_file *f = &m->files[file];
    char path[CHECKPOINT_PATH_MAX];
    struct file_reader r;
    int rv;

    if (!str_format(path, sizeof(path), "%s/%s", dir, f->name)) {
        return errmsg_set(what, -ENAMETOOLONG, "cannot be opened: %s",
                          err_text(-ENAMETOOLONG));
    }
    rv = file_reader_open(&r, path);
    if (rv == -ENOENT) {
        rv = errmsg_set(what, ERR_MISSING, "missing");
    } else if (rv < 0) {
        rv = errmsg_set(what, rv, "cannot be opened: %s", err_text(rv));
    } else {
        rv = judge_file(&r, f, file, sink, what);
    }
    file_reader_release(&r);
    return rv;
}

static void check_tables(const char *dir, const struct manifest *m,
                         struct verify_report *report)
{
    struct index x;
    struct errmsg why;

    index_init(&x, dir, m);
    for (size_t i = 0; i < m->n_files; i++) {
        int rv = index_add_file(&x, i, &why);

        if (rv < 0) {
            add_problem(report, m->files[i].name, rv, why.text);
        }
    }
    if (report->n == 0) {
        (void)index_check(&x, on_problem, report); /* it counts what it reports */
    }
    index_release(&x);
}

static void check_all(const char *path, const struct manifest *m,
                      const struct verify_sink *sink, struct verify_report *report)
{
    struct errmsg what;

    if (sink) {
        sink->on_manifest(sink->arg, path, m);
    }
    check_name(path, &m->meta, report);
    for (size_t i = 0; i < m->n_files; i++) {
        int rv = check_file(path, m, i, sink, &what);

        if (rv < 0) {
            add_problem(report, m->files[i].name, rv, what.text);
        }
    }
    if (report->n == 0) {
        check_tables(path, m, report);
    }
}

void verify_checkpoint(const char *path, const struct verify_sink *sink,
                       struct manifest *ret, struct verify_report *report)
{
    struct manifest m;
    struct errmsg why = {""};
    int rv = manifest_read(path, &m, &why);

    *report = (struct verify_report){0};
    if (rv < 0) {
        const char *skip = MANIFEST_NAME ": ";

        add_problem(report, MANIFEST_NAME, rv,
                    why.text + (str_starts_with(why.text, skip) ? strlen(skip) : 0));
        return;
    }
    check_all(path, &m, sink, report);
    if (report->n == 0 && ret) {
        *ret = m;
    } else {
        manifest_release(&m);
    }
}

/* One line with every wrong file, as many as a message can hold. */
static int join_report(const struct verify_report *report, struct errmsg *msg)
{
    struct buf line;
    int rv;

    buf_init(&line, SIZE_MAX / 2);
    for (size_t i = 0; i < report->n; i++) {
        (void)buf_printf(&line, "%s%s: %s", i > 0 ? "; " : "", report->problem[i].file,
                         report->problem[i].what.text);
    }
    rv = errmsg_set(msg, verify_outcome(report), "%.*s", (int)buf_len(&line),
                    (const char *)buf_bytes(&line));
    buf_release(&line);
    return rv;
}

int verify_and_tell(const char *path, const struct verify_sink *sink,
                    struct checkpoint_meta *ret_meta, struct errmsg *msg)
{
    struct verify_report report;
    struct manifest m;
    int rv = 0;

    verify_checkpoint(path, sink, &m, &report);
    if (report.n > 0) {
        rv = join_report(&report, msg);
    } else {
        if (ret_meta) {
            *ret_meta = m.meta;
            m.meta = (struct checkpoint_meta){0};
        }
        manifest_release(&m);
    }
    verify_report_release(&report);
    return rv;
}

int checkpoint_verify(const char *path, struct checkpoint_meta *ret_meta,
                      struct errmsg *msg)
{
    return verify_and_tell(path, NULL, ret_meta, msg);
}
