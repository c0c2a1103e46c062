/* `ckpt list`, `ckpt verify` and `ckpt prune`. */

#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/verbs_internal.h"
#include "worker/checkpoint/verify.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- list --- */

static uint64_t total_bytes(const struct manifest *m)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < m->n_files; i++) {
        bytes += m->files[i].bytes;
    }
    return bytes;
}

static json_t *entry_json(const struct checkpoint_entry *e, const struct manifest *m,
                          const struct errmsg *why)
{
    char name[256];
    json_t *json;

    ckpt_name(e->path, name, sizeof(name));
    json = json_pack("{s:o, s:o, s:I, s:i}", "name", ckpt_json_text(name), "path",
                     ckpt_json_text(e->path), "step", (json_int_t)e->step,
                     "run_generation", e->run_generation);
    if (!m) {
        (void)json_object_set_new(json, "error", ckpt_json_text(why->text));
        return json;
    }
    (void)json_object_set_new(json, "position",
                              json_integer((json_int_t)m->meta.position));
    (void)json_object_set_new(json, "world_size", json_integer(m->meta.world_size));
    (void)json_object_set_new(json, "files", json_integer((json_int_t)m->n_files));
    (void)json_object_set_new(json, "bytes", json_integer((json_int_t)total_bytes(m)));
    if (m->meta.has_val_loss) {
        (void)json_object_set_new(json, "val_loss", json_real(m->meta.val_loss));
    }
    return json;
}

static void print_entry(const struct checkpoint_entry *e, const struct manifest *m,
                        const struct errmsg *why)
{
    char name[256];
    char size[32];
    char val_loss[32] = "-";

    ckpt_name(e->path, name, sizeof(name));
    (void)printf("%9" PRIu64 "  %4d", e->step, e->run_generation);
    if (m) {
        if (m->meta.has_val_loss) {
            (void)snprintf(val_loss, sizeof(val_loss), "%.4f", m->meta.val_loss);
        }
        ckpt_format_size(size, sizeof(size), total_bytes(m));
        (void)printf("  %5d  %12" PRIu64 "  %5zu  %9s  %8s  %s\n", m->meta.world_size,
                     m->meta.position, m->n_files, size, val_loss, name);
    } else {
        (void)printf("  %5s  %12s  %5s  %9s  %8s  %s: %s\n", "-", "-", "-", "-",
                     val_loss, name, why->text);
    }
}

/* One row or object for each; a manifest that cannot be read makes the exit code 1. */
static int list_targets(const struct ckpt_targets *t, json_t *array)
{
    int rv = CKPT_OK;

    for (size_t i = 0; i < t->n; i++) {
        const struct checkpoint_entry *e = &t->entry[i];
        struct errmsg why = {""};
        struct manifest m = {0};
        bool good = manifest_read(e->path, &m, &why) == 0;

        if (array) {
            (void)json_array_append_new(array, entry_json(e, good ? &m : NULL, &why));
        } else {
            print_entry(e, good ? &m : NULL, &why);
        }
        manifest_release(&m);
        rv = good ? rv : CKPT_BAD;
    }
    return rv;
}

int ckpt_list(const struct ckpt_args *args)
{
    struct ckpt_targets t;
    json_t *array;
    int rv = ckpt_find_targets(args->path, &t);

    if (rv != 0) {
        return rv;
    }
    if (t.dir[0] == '\0') {
        rv = ckpt_fail(CKPT_USAGE,
                       "%s is a checkpoint: list wants the folder that holds it",
                       args->path);
    } else if (args->json) {
        array = json_array();
        rv = list_targets(&t, array);
        ckpt_print_json(array);
    } else if (t.n == 0) {
        (void)printf("no checkpoint in %s\n", t.dir);
    } else {
        (void)printf("%9s  %4s  %5s  %12s  %5s  %9s  %8s  %s\n", "STEP", "GEN", "RANKS",
                     "SAMPLES", "FILES", "SIZE", "VAL_LOSS", "CHECKPOINT");
        rv = list_targets(&t, NULL);
    }
    ckpt_targets_release(&t);
    return rv;
}

/* --- verify --- */

static json_t *report_json(const char *path, const char *name, const struct manifest *m,
                           const struct verify_report *report)
{
    json_t *problems = json_array();
    json_t *json = json_pack("{s:o, s:o, s:b}", "name", ckpt_json_text(name), "path",
                             ckpt_json_text(path), "ok", report->n == 0);

    if (report->n == 0) {
        (void)json_object_set_new(json, "step", json_integer((json_int_t)m->meta.step));
        (void)json_object_set_new(json, "run_generation",
                                  json_integer(m->meta.run_generation));
    }
    for (size_t i = 0; i < report->n; i++) {
        const struct verify_problem *p = &report->problem[i];

        (void)json_array_append_new(problems,
                                    json_pack("{s:s, s:o}", "file", p->file, "what",
                                              ckpt_json_text(p->what.text)));
    }
    (void)json_object_set_new(json, "problems", problems);
    return json;
}

static void print_report(const char *name, const struct manifest *m,
                         const struct verify_report *report)
{
    char size[32];

    for (size_t i = 0; i < report->n; i++) {
        (void)printf("%s: %s: %s\n", name, report->problem[i].file,
                     report->problem[i].what.text);
    }
    if (report->n == 0) {
        ckpt_format_size(size, sizeof(size), total_bytes(m));
        (void)printf("%s: ok, step %" PRIu64 ", %s in %zu file%s\n", name, m->meta.step,
                     size, m->n_files, m->n_files == 1 ? "" : "s");
    }
}

/* Verifies one; true when it is good. */
static bool verify_target(const char *path, json_t *array)
{
    struct verify_report report;
    struct manifest m = {0};
    char name[256];
    bool good;

    ckpt_name(path, name, sizeof(name));
    verify_checkpoint(path, NULL, &m, &report);
    good = report.n == 0;
    if (array) {
        (void)json_array_append_new(array, report_json(path, name, &m, &report));
    } else {
        print_report(name, &m, &report);
    }
    verify_report_release(&report);
    manifest_release(&m);
    return good;
}

int ckpt_verify(const struct ckpt_args *args)
{
    struct ckpt_targets t;
    json_t *array = args->json ? json_array() : NULL;
    bool good = true;
    int rv = ckpt_find_targets(args->path, &t);

    if (rv == 0 && t.n == 0) {
        rv = ckpt_fail(CKPT_BAD, "no checkpoint in %s", t.dir);
    }
    for (size_t i = 0; i < t.n && rv == 0; i++) {
        good = verify_target(t.entry[i].path, array) && good;
    }
    ckpt_targets_release(&t);
    if (array && rv == 0) {
        ckpt_print_json(json_pack("{s:b, s:O}", "ok", good, "checkpoints", array));
    }
    json_decref(array);
    if (rv != 0) {
        return rv;
    }
    return good ? CKPT_OK : CKPT_BAD;
}

/* --- prune --- */

static void on_deleted(void *arg, const char *name)
{
    json_t *deleted = arg;

    if (deleted) {
        (void)json_array_append_new(deleted, ckpt_json_text(name));
    } else {
        (void)printf("deleted %s\n", name);
    }
}

static json_t *kept_names(const struct retained *all, size_t n)
{
    json_t *kept = json_array();
    char name[256];

    for (size_t i = 0; i < n; i++) {
        if (all[i].is_kept) {
            ckpt_name(all[i].entry.path, name, sizeof(name));
            (void)json_array_append_new(kept, ckpt_json_text(name));
        }
    }
    return kept;
}

static size_t count_kept(const struct retained *all, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        kept += all[i].is_kept;
    }
    return kept;
}

/* Damage may sit in the newest: then the older ones are all there is, and nobody
 * deletes them by a number. Most often one checkpoint is read here, the newest. */
static int check_kept(const char *dir, const struct retained *all, size_t n,
                      size_t keep)
{
    struct errmsg msg;

    for (size_t i = 0; i < n && i < keep; i++) {
        if (checkpoint_verify(all[i].entry.path, NULL, &msg) == 0) {
            return 0;
        }
    }
    if (count_kept(all, n) == n) {
        return 0; /* nothing would be deleted */
    }
    return ckpt_fail(
        CKPT_BAD,
        "nothing deleted: the newest that would be kept are damaged or cannot "
        "be read (ctrun ckpt "
        "verify %s)",
        dir);
}

static int prune_folder(const char *dir, const struct ckpt_args *args)
{
    json_t *deleted = NULL;
    struct retained *all = NULL;
    struct errmsg msg;
    size_t n = 0;
    int rv;

    if (retention_list(dir, &args->retention, &all, &n, &msg) < 0) {
        return ckpt_fail(CKPT_BAD, "%s", msg.text);
    }
    rv = check_kept(dir, all, n, args->retention.keep);
    if (rv == CKPT_OK) {
        deleted = args->json ? json_array() : NULL;
        if (retention_delete(dir, all, n, on_deleted, deleted, &msg) < 0) {
            rv = ckpt_fail(CKPT_BAD, "%s", msg.text);
        }
        if (args->json) {
            ckpt_print_json(json_pack("{s:o, s:o}", "deleted", deleted, "kept",
                                      kept_names(all, n)));
        } else {
            (void)printf("kept %zu of %zu\n", count_kept(all, n), n);
        }
    }
    mem_free(all);
    return rv;
}

int ckpt_prune(const struct ckpt_args *args)
{
    struct ckpt_targets t;
    int rv = ckpt_find_targets(args->path, &t);

    if (rv == 0 && t.dir[0] == '\0') {
        rv = ckpt_fail(CKPT_USAGE,
                       "%s is a checkpoint: prune wants the folder that holds it",
                       args->path);
    }
    if (rv == 0) {
        rv = prune_folder(t.dir, args);
    }
    ckpt_targets_release(&t);
    return rv;
}
