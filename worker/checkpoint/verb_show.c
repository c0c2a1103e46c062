/* `ckpt show`: everything a checkpoint says of itself, and its state_hash. It is
 * verified first: a hash over damaged bytes would be worth nothing. */

#include "worker/checkpoint/index.h"
#include "worker/checkpoint/verbs_internal.h"
#include "worker/checkpoint/verify.h"

#include "common/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct ckpt_view {
    const char *path;
    char name[256];
    char state_hash[CHECKPOINT_HASH_HEX];
    const struct manifest *manifest;
    const struct index *index;
};

/* The pieces of a tensor follow each other; the number of those from `i` on. */
static size_t count_boxes(const struct index *x, size_t i)
{
    size_t n = 1;

    while (i + n < x->n_pieces && strcmp(x->piece[i].name, x->piece[i + n].name) == 0) {
        n++;
    }
    return n;
}

/* --- JSON --- */

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);

    ASSERT(json); /* the manifest's reader parsed it before */
    return json;
}

static json_t *files_json(const struct manifest *m)
{
    json_t *array = json_array();

    for (size_t i = 0; i < m->n_files; i++) {
        const struct checkpoint_file *f = &m->files[i];

        (void)json_array_append_new(array, json_pack("{s:s, s:I, s:s}", "name", f->name,
                                                     "bytes", (json_int_t)f->bytes,
                                                     "xxh3_128", f->hash));
    }
    return array;
}

static json_t *tensors_json(const struct index *x)
{
    json_t *array = json_array();

    for (size_t i = 0; i < x->n_pieces; i += count_boxes(x, i)) {
        const struct piece *p = &x->piece[i];
        json_t *shape = json_array();

        for (int d = 0; d < p->n_dims; d++) {
            (void)json_array_append_new(shape, json_integer((json_int_t)p->shape[d]));
        }
        (void)json_array_append_new(
            array, json_pack("{s:s, s:s, s:o, s:I}", "name", p->name, "dtype", "F32",
                             "shape", shape, "boxes", (json_int_t)count_boxes(x, i)));
    }
    return array;
}

static json_t *scaler_json(const struct checkpoint_scaler *s)
{
    return json_pack("{s:f, s:i, s:I, s:I}", "scale", (double)s->scale,
                     "growth_tracker", (int)s->growth_tracker, "updates",
                     (json_int_t)s->updates, "skipped", (json_int_t)s->skipped);
}

static void print_json(const struct ckpt_view *v)
{
    const struct checkpoint_meta *meta = &v->manifest->meta;
    json_t *json =
        json_pack("{s:o, s:o, s:I, s:i, s:s, s:i, s:I, s:I, s:s}", "name",
                  ckpt_json_text(v->name), "path", ckpt_json_text(v->path), "step",
                  (json_int_t)meta->step, "run_generation", meta->run_generation,
                  "state_hash", v->state_hash, "world_size", meta->world_size,
                  "position", (json_int_t)meta->position, "seed",
                  (json_int_t)meta->seed, "signature", meta->signature);

    (void)json_object_set_new(
        json, "mesh",
        json_pack("{s:i, s:i, s:s}", "dp_replicate", meta->mesh.dp_replicate,
                  "dp_shard", meta->mesh.dp_shard, "strategy", meta->mesh.strategy));
    if (meta->has_val_loss) {
        (void)json_object_set_new(json, "val_loss", json_real(meta->val_loss));
    }
    (void)json_object_set_new(json, "trained_ms",
                              json_integer((json_int_t)meta->trained_ms));
    (void)json_object_set_new(json, "failures",
                              json_integer((json_int_t)meta->failures));
    (void)json_object_set_new(json, "is_end", json_boolean(meta->is_end));
    if (meta->scaler.is_there) {
        (void)json_object_set_new(json, "scaler", scaler_json(&meta->scaler));
    }
    (void)json_object_set_new(json, "model", parse(meta->model_json));
    (void)json_object_set_new(json, "config", parse(meta->config_json));
    (void)json_object_set_new(json, "data", parse(meta->data_json));
    (void)json_object_set_new(json, "files", files_json(v->manifest));
    (void)json_object_set_new(json, "tensors", tensors_json(v->index));
    ckpt_print_json(json);
}

/* --- a table --- */

static void print_files(const struct manifest *m)
{
    char size[32];

    (void)printf("%-44s  %9s  %s\n", "FILE", "SIZE", "XXH3-128");
    for (size_t i = 0; i < m->n_files; i++) {
        ckpt_format_size(size, sizeof(size), m->files[i].bytes);
        (void)printf("%-44s  %9s  %s\n", m->files[i].name, size, m->files[i].hash);
    }
    (void)printf("\n");
}

static void print_tensors(const struct index *x)
{
    char shape[64];

    (void)printf("%-44s  %16s  %s\n", "TENSOR", "SHAPE", "BOXES");
    for (size_t i = 0; i < x->n_pieces; i += count_boxes(x, i)) {
        const struct piece *p = &x->piece[i];

        if (p->n_dims == 2) {
            ASSERT(str_format(shape, sizeof(shape), "[%zu, %zu]", p->shape[0],
                              p->shape[1]));
        } else {
            ASSERT(str_format(shape, sizeof(shape), "[%zu]", p->shape[0]));
        }
        (void)printf("%-44s  %16s  %5zu\n", p->name, shape, count_boxes(x, i));
    }
    (void)printf("\n");
}

static size_t count_tensors(const struct index *x)
{
    size_t n = 0;

    for (size_t i = 0; i < x->n_pieces; i += count_boxes(x, i)) {
        n++;
    }
    return n;
}

/* The summary comes last, where a terminal stands when all is printed: the lists above
 * it may be long. */
static void print_table(const struct ckpt_view *v, bool with_tensors)
{
    const struct checkpoint_meta *meta = &v->manifest->meta;

    print_files(v->manifest);
    if (with_tensors) {
        print_tensors(v->index);
    }
    (void)printf("%s\n", v->name);
    (void)printf("  %-15s %" PRIu64 "\n", "step", meta->step);
    (void)printf("  %-15s %d\n", "run generation", meta->run_generation);
    (void)printf("  %-15s %s, dp_replicate=%d dp_shard=%d tp=1 pp=1\n", "mesh",
                 meta->mesh.strategy, meta->mesh.dp_replicate, meta->mesh.dp_shard);
    (void)printf("  %-15s %" PRIu64 "\n", "samples", meta->position);
    (void)printf("  %-15s %" PRId64 "\n", "seed", (int64_t)meta->seed);
    if (meta->has_val_loss) {
        (void)printf("  %-15s %.4f\n", "val_loss", meta->val_loss);
    }
    (void)printf("  %-15s %.1f s, %" PRIu64 " failure%s\n", "trained",
                 (double)meta->trained_ms / 1e3, meta->failures,
                 meta->failures == 1 ? "" : "s");
    if (meta->scaler.is_there) {
        (void)printf("  %-15s scale %.9g, growth tracker %" PRId32 ", %" PRIu64
                     " update%s, %" PRIu64 " skipped\n",
                     "grad scaler", (double)meta->scaler.scale,
                     meta->scaler.growth_tracker, meta->scaler.updates,
                     meta->scaler.updates == 1 ? "" : "s", meta->scaler.skipped);
    }
    (void)printf("  %-15s %s\n", "signature", meta->signature);
    (void)printf("  %-15s %zu%s\n", "tensors", count_tensors(v->index),
                 with_tensors ? "" : " (--tensors lists them)");
    (void)printf("  %-15s %s\n", "state_hash", v->state_hash);
}

/* --- the verb --- */

static int show_good(struct ckpt_view *v, const struct ckpt_args *args)
{
    struct errmsg msg;
    struct index x;

    if (checkpoint_state_hash(v->path, v->state_hash, &msg) < 0 ||
        index_open(&x, v->path, v->manifest, &msg) < 0) {
        return ckpt_fail(CKPT_BAD, "%s", msg.text);
    }
    v->index = &x;
    if (args->json) {
        print_json(v);
    } else {
        print_table(v, args->tensors);
    }
    index_release(&x);
    return CKPT_OK;
}

static int show_path(const char *path, const struct ckpt_args *args)
{
    struct verify_report report;
    struct manifest m = {0};
    struct ckpt_view v = {.path = path, .manifest = &m};
    int rv = CKPT_BAD;

    ckpt_name(path, v.name, sizeof(v.name));
    verify_checkpoint(path, NULL, &m, &report);
    for (size_t i = 0; i < report.n; i++) {
        rv = ckpt_fail(CKPT_BAD, "%s: %s: %s", v.name, report.problem[i].file,
                       report.problem[i].what.text);
    }
    if (report.n == 0) {
        rv = show_good(&v, args);
    }
    verify_report_release(&report);
    manifest_release(&m);
    return rv;
}

int ckpt_show(const struct ckpt_args *args)
{
    struct ckpt_targets t;
    int rv = ckpt_find_targets(args->path, &t);

    if (rv == 0 && t.n == 0) {
        rv = ckpt_fail(CKPT_BAD, "no checkpoint in %s", t.dir);
    }
    if (rv == 0) {
        rv = show_path(t.entry[0].path, args);
    }
    ckpt_targets_release(&t);
    return rv;
}
