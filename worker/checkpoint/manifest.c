#include "worker/checkpoint/manifest.h"

#include "worker/checkpoint/digest.h"
#include "worker/checkpoint/file.h"
#include "worker/checkpoint/safetensors.h"

#include "common/mem.h"
#include "common/number.h"
#include "common/str.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reading goes in three steps: the hash over every byte; then jansson, strictly; then
 * the three verbatim texts are taken from their lines, so that they come back as they
 * were. */

static const char head_text[] = "{\n  \"hash\": \"";
static const char zero_digits[] = "00000000000000000000000000000000";

/* A loss scale is at least 1 and has an inverse that is a normal number. */
static const double scale_min = 1, scale_max = 0x1p126;

enum { HASH_AT = sizeof(head_text) - 1, HASH_DIGITS = DIGEST_HEX - 1 };

#define COUNT_MAX (INT64_MAX / 2)

_Static_assert((int)CHECKPOINT_HASH_HEX == (int)DIGEST_HEX, "one length of a hash");
_Static_assert(sizeof(zero_digits) == DIGEST_HEX, "one length of a hash");

void checkpoint_meta_release(struct checkpoint_meta *meta)
{
    mem_free(meta->model_json);
    mem_free(meta->config_json);
    mem_free(meta->data_json);
    *meta = (struct checkpoint_meta){0};
}

void manifest_release(struct manifest *m)
{
    checkpoint_meta_release(&m->meta);
    mem_free(m->files);
    *m = (struct manifest){0};
}

bool manifest_name_ok(const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len >= sizeof(((struct checkpoint_file *)NULL)->name) ||
        name[0] == '.') {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (name[i] <= ' ' || name[i] > '~' || strchr("/\"\\", name[i])) {
            return false;
        }
    }
    return true;
}

/* --- encoding --- */

/* Raw line breaks cannot be inside a JSON string: as spaces they mean the same. */
static int put_json(struct buf *b, const char *name, const char *text,
                    struct errmsg *msg)
{
    json_error_t error;
    json_t *json = text ? json_loads(text, JSON_REJECT_DUPLICATES, &error) : NULL;
    char *line;

    if (!json) {
        return errmsg_set(msg, ERR_INVALID, "the manifest's '%s' is not JSON", name);
    }
    json_decref(json);
    line = mem_strdup(text);
    for (char *c = line; *c; c++) {
        if (*c == '\n' || *c == '\r') {
            *c = ' ';
        }
    }
    (void)buf_printf(b, "  \"%s\": %s,\n", name, line);
    mem_free(line);
    return 0;
}

static int put_files(struct buf *b, const struct checkpoint_file *files, size_t n_files,
                     struct errmsg *msg)
{
    (void)buf_printf(b, "  \"files\": [");
    for (size_t i = 0; i < n_files; i++) {
        const struct checkpoint_file *f = &files[i];

        if (!manifest_name_ok(f->name) || !digest_is_hex(f->hash) ||
            f->bytes > INT64_MAX) {
            return errmsg_set(msg, ERR_INVALID,
                              "file %zu of the manifest is not described "
                              "properly",
                              i);
        }
        (void)buf_printf(b,
                         "%s\n    {\"name\": \"%s\", \"bytes\": %" PRIu64
                         ", \"xxh3_128\": \"%s\"}",
                         i > 0 ? "," : "", f->name, f->bytes, f->hash);
    }
    (void)buf_printf(b, "\n  ]\n}\n");
    return 0;
}

static bool mesh_ok(const struct checkpoint_mesh *m, int world_size)
{
    size_t len = strnlen(m->strategy, sizeof(m->strategy));

    return m->dp_replicate >= 1 && m->dp_shard >= 1 && len > 0 &&
           len < sizeof(m->strategy) && world_size % m->dp_replicate == 0 &&
           world_size / m->dp_replicate % m->dp_shard == 0 &&
           strspn(m->strategy, "abcdefghijklmnopqrstuvwxyz0123456789_") == len;
}

/* Every step was an update or was skipped. */
static bool scaler_ok(const struct checkpoint_scaler *s, uint64_t step)
{
    return (double)s->scale >= scale_min && (double)s->scale <= scale_max &&
           s->growth_tracker >= 0 && s->skipped <= step &&
           s->updates == step - s->skipped && (uint64_t)s->growth_tracker <= s->updates;
}

static int check_meta(const struct checkpoint_meta *meta, size_t n_files,
                      struct errmsg *msg)
{
    if (!mesh_ok(&meta->mesh, meta->world_size)) {
        return errmsg_set(msg, ERR_INVALID, "the manifest's mesh is none of %d ranks",
                          meta->world_size);
    }
    if (meta->step > INT64_MAX || meta->position > INT64_MAX ||
        meta->trained_ms > INT64_MAX || meta->failures > INT64_MAX ||
        (meta->has_val_loss && !isfinite(meta->val_loss)) || meta->run_generation < 1 ||
        (meta->scaler.is_there && !scaler_ok(&meta->scaler, meta->step)) ||
        meta->world_size < 1 || n_files == 0 || n_files > MANIFEST_FILES_MAX) {
        return errmsg_set(msg, ERR_INVALID, "the manifest's numbers are out of range");
    }
    return 0;
}

static void put_scaler(struct buf *b, const struct checkpoint_scaler *s)
{
    char number[NUMBER_TEXT_MAX];

    number_format((double)s->scale, number);
    (void)buf_printf(b,
                     "  \"scaler\": {\"scale\": %s, \"growth_tracker\": %" PRId32 ", ",
                     number, s->growth_tracker);
    (void)buf_printf(b, "\"updates\": %" PRIu64 ", \"skipped\": %" PRIu64 "},\n",
                     s->updates, s->skipped);
}

/* What the training has gone through. */
static void put_history(struct buf *b, const struct checkpoint_meta *meta)
{
    char number[NUMBER_TEXT_MAX];

    if (meta->has_val_loss) {
        number_format(meta->val_loss, number);
        (void)buf_printf(b, "  \"val_loss\": %s,\n", number);
    }
    (void)buf_printf(b,
                     "  \"trained_ms\": %" PRIu64 ",\n  \"failures\": %" PRIu64 ",\n",
                     meta->trained_ms, meta->failures);
    (void)buf_printf(b, "  \"is_end\": %s,\n", meta->is_end ? "true" : "false");
    if (meta->scaler.is_there) {
        put_scaler(b, &meta->scaler);
    }
}

static int put_all(struct buf *b, const struct checkpoint_meta *meta,
                   const struct checkpoint_file *files, size_t n_files,
                   struct errmsg *msg)
{
    int rv;

    (void)buf_printf(b, "%s%s\",\n  \"format\": %d,\n", head_text, zero_digits,
                     MANIFEST_FORMAT);
    (void)buf_printf(b, "  \"step\": %" PRIu64 ",\n  \"run_generation\": %d,\n",
                     meta->step, meta->run_generation);
    (void)buf_printf(b, "  \"position\": %" PRIu64 ",\n  \"seed\": %" PRId64 ",\n",
                     meta->position, (int64_t)meta->seed);
    (void)buf_printf(b, "  \"world_size\": %d,\n", meta->world_size);
    (void)buf_printf(b,
                     "  \"mesh\": {\"dp_replicate\": %d, \"dp_shard\": %d, "
                     "\"strategy\": \"%s\"},\n  \"signature\": ",
                     meta->mesh.dp_replicate, meta->mesh.dp_shard, meta->mesh.strategy);
    safetensors_quote(b, meta->signature);
    (void)buf_printf(b, ",\n");
    put_history(b, meta);
    rv = put_json(b, "model", meta->model_json, msg);
    if (rv == 0) {
        rv = put_json(b, "config", meta->config_json, msg);
    }
    if (rv == 0) {
        rv = put_json(b, "data", meta->data_json, msg);
    }
    return rv == 0 ? put_files(b, files, n_files, msg) : rv;
}

static void hash_bytes(const void *data, size_t size, char hash[CHECKPOINT_HASH_HEX])
{
    struct digest *digest = digest_create();

    digest_add(digest, data, size);
    digest_finish(digest, hash);
    digest_free(digest);
}

int manifest_encode(const struct checkpoint_meta *meta,
                    const struct checkpoint_file *files, size_t n_files,
                    struct buf *ret, char ret_hash[CHECKPOINT_HASH_HEX],
                    struct errmsg *msg)
{
    struct buf b;
    int rv = check_meta(meta, n_files, msg);

    if (rv < 0) {
        return rv;
    }
    buf_init(&b, SIZE_MAX / 2); /* the ceiling is checked once, at the end */
    rv = put_all(&b, meta, files, n_files, msg);
    if (rv == 0 && buf_len(&b) > MANIFEST_BYTES_MAX) {
        rv = errmsg_set(msg, ERR_TOO_LARGE, "the manifest would have %zu bytes",
                        buf_len(&b));
    }
    if (rv == 0) {
        hash_bytes(buf_bytes(&b), buf_len(&b), ret_hash);
        memcpy(b.data + b.start + HASH_AT, ret_hash, HASH_DIGITS);
        rv = buf_append(ret, buf_bytes(&b), buf_len(&b));
    }
    buf_release(&b);
    return rv;
}

/* --- decoding --- */

static int check_hash(char *data, size_t size, char hash[CHECKPOINT_HASH_HEX],
                      struct errmsg *msg)
{
    char actual[CHECKPOINT_HASH_HEX];

    if (size < HASH_AT + HASH_DIGITS || memcmp(data, head_text, HASH_AT) != 0) {
        return errmsg_set(msg, ERR_CORRUPT, "does not begin as a manifest does");
    }
    memcpy(hash, data + HASH_AT, HASH_DIGITS);
    hash[HASH_DIGITS] = '\0';
    memcpy(data + HASH_AT, zero_digits, HASH_DIGITS);
    hash_bytes(data, size, actual);
    if (memcmp(hash, actual, CHECKPOINT_HASH_HEX) != 0) {
        return errmsg_set(msg, ERR_CORRUPT,
                          "its bytes do not have the hash that it names");
    }
    return 0;
}

static int get_int(const json_t *json, const char *name, int64_t min, int64_t max,
                   int64_t *ret)
{
    const json_t *value = json_object_get(json, name);

    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max) {
        return ERR_CORRUPT;
    }
    *ret = json_integer_value(value);
    return 0;
}

static int get_text(const json_t *json, const char *name, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(json, name));

    return value && str_format(text, size, "%s", value) ? 0 : ERR_CORRUPT;
}

/* It is shown on terminals. */
static int get_signature(const json_t *json, struct checkpoint_meta *meta)
{
    int rv = get_text(json, "signature", meta->signature, sizeof(meta->signature));

    for (const char *c = meta->signature; rv == 0 && *c; c++) {
        rv = (unsigned char)*c < ' ' || *c == 0x7f ? ERR_CORRUPT : 0;
    }
    return rv;
}

/* The rest of a member's line, without the comma. */
static char *get_line(const char *data, size_t size, const char *name)
{
    char key[32];
    const char *at;
    const char *end;

    ASSERT(str_format(key, sizeof(key), "\n  \"%s\": ", name));
    at = memmem(data, size, key, strlen(key));
    if (!at) {
        return NULL;
    }
    at += strlen(key);
    end = memchr(at, '\n', size - (size_t)(at - data));
    if (!end || end == at || end[-1] != ',') {
        return NULL;
    }
    return strndup(at, (size_t)(end - at) - 1);
}

/* The text of a member that put_json wrote; NULL when it lies in the file otherwise. */
static char *get_json(const json_t *json, const char *data, size_t size,
                      const char *name)
{
    const json_t *member = json_object_get(json, name);
    char *line = get_line(data, size, name);
    json_error_t error;
    json_t *parsed = line ? json_loads(line, JSON_REJECT_DUPLICATES, &error) : NULL;
    bool same = parsed && json_equal(parsed, member);

    json_decref(parsed);
    if (!same) {
        mem_free(line);
        return NULL;
    }
    return line;
}

static int get_mesh(const json_t *json, struct checkpoint_meta *meta)
{
    const json_t *mesh = json_object_get(json, "mesh");
    int64_t dp_replicate;
    int64_t dp_shard;

    if (!mesh) {
        meta->mesh = (struct checkpoint_mesh){meta->world_size, 1, "ddp"};
        return 0;
    }
    if (get_int(mesh, "dp_replicate", 1, INT32_MAX, &dp_replicate) < 0 ||
        get_int(mesh, "dp_shard", 1, INT32_MAX, &dp_shard) < 0 ||
        get_text(mesh, "strategy", meta->mesh.strategy, sizeof(meta->mesh.strategy)) <
            0) {
        return ERR_CORRUPT;
    }
    meta->mesh.dp_replicate = (int)dp_replicate;
    meta->mesh.dp_shard = (int)dp_shard;
    return mesh_ok(&meta->mesh, meta->world_size) ? 0 : ERR_CORRUPT;
}

/* Older manifests have none of it. What is counted on leaves room for more. */
static int get_history(const json_t *json, struct checkpoint_meta *meta)
{
    const json_t *val_loss = json_object_get(json, "val_loss");
    const json_t *is_end = json_object_get(json, "is_end");
    int64_t trained_ms = 0;
    int64_t failures = 0;

    if ((val_loss && !json_is_real(val_loss)) || (is_end && !json_is_boolean(is_end)) ||
        (json_object_get(json, "trained_ms") &&
         get_int(json, "trained_ms", 0, COUNT_MAX, &trained_ms) < 0) ||
        (json_object_get(json, "failures") &&
         get_int(json, "failures", 0, COUNT_MAX, &failures) < 0)) {
        return ERR_CORRUPT;
    }
    meta->has_val_loss = val_loss != NULL;
    meta->val_loss = json_real_value(val_loss);
    meta->trained_ms = (uint64_t)trained_ms;
    meta->failures = (uint64_t)failures;
    meta->is_end = json_is_true(is_end);
    return 0;
}

/* Of a number that no fp32 has the nearest one would be taken: it is a forgery. */
static int get_scaler(const json_t *json, struct checkpoint_meta *meta)
{
    const json_t *scaler = json_object_get(json, "scaler");
    const json_t *scale = json_object_get(scaler, "scale");
    double value = json_real_value(scale);
    int64_t tracker;
    int64_t updates;
    int64_t skipped;

    if (!scaler) {
        return 0;
    }
    if (!json_is_real(scale) || !(value >= scale_min && value <= scale_max) ||
        get_int(scaler, "growth_tracker", 0, INT32_MAX, &tracker) < 0 ||
        get_int(scaler, "updates", 0, INT64_MAX, &updates) < 0 ||
        get_int(scaler, "skipped", 0, INT64_MAX, &skipped) < 0) {
        return ERR_CORRUPT;
    }
    meta->scaler = (struct checkpoint_scaler){.is_there = true,
                                              .scale = (float)value,
                                              .growth_tracker = (int32_t)tracker,
                                              .updates = (uint64_t)updates,
                                              .skipped = (uint64_t)skipped};
    return (double)meta->scaler.scale == value && scaler_ok(&meta->scaler, meta->step)
               ? 0
               : ERR_CORRUPT;
}

static int get_meta(const json_t *json, struct checkpoint_meta *meta)
{
    int64_t format;
    int64_t step;
    int64_t run_generation;
    int64_t position;
    int64_t seed;
    int64_t world_size;

    if (get_int(json, "format", MANIFEST_FORMAT, MANIFEST_FORMAT, &format) < 0 ||
        get_int(json, "step", 0, INT64_MAX, &step) < 0 ||
        get_int(json, "run_generation", 1, INT32_MAX, &run_generation) < 0 ||
        get_int(json, "position", 0, INT64_MAX, &position) < 0 ||
        get_int(json, "seed", INT64_MIN, INT64_MAX, &seed) < 0 ||
        get_int(json, "world_size", 1, INT32_MAX, &world_size) < 0) {
        return ERR_CORRUPT;
    }
    meta->step = (uint64_t)step;
    meta->run_generation = (int)run_generation;
    meta->position = (uint64_t)position;
    meta->seed = (uint64_t)seed;
    meta->world_size = (int)world_size;
    return get_mesh(json, meta) < 0 || get_history(json, meta) < 0 ||
                   get_scaler(json, meta) < 0
               ? ERR_CORRUPT
               : get_signature(json, meta);
}

static int get_file(const json_t *json, struct checkpoint_file *file)
{
    int64_t bytes;

    if (get_text(json, "name", file->name, sizeof(file->name)) < 0 ||
        !manifest_name_ok(file->name) ||
        get_int(json, "bytes", 0, INT64_MAX, &bytes) < 0 ||
        get_text(json, "xxh3_128", file->hash, sizeof(file->hash)) < 0 ||
        !digest_is_hex(file->hash)) {
        return ERR_CORRUPT;
    }
    file->bytes = (uint64_t)bytes;
    return 0;
}

static int compare_file_names(const void *a, const void *b)
{
    const struct checkpoint_file *x = a;
    const struct checkpoint_file *y = b;

    return strcmp(x->name, y->name);
}

/* Files come back in the order of their names, which is the order of the ranks. */
static int get_files(const json_t *json, struct manifest *m)
{
    const json_t *files = json_object_get(json, "files");
    size_t n = json_array_size(files);

    if (n == 0 || n > MANIFEST_FILES_MAX) {
        return ERR_CORRUPT;
    }
    m->files = mem_array(n, sizeof(*m->files));
    m->n_files = n;
    for (size_t i = 0; i < n; i++) {
        if (get_file(json_array_get(files, i), &m->files[i]) < 0) {
            return ERR_CORRUPT;
        }
    }
    qsort(m->files, n, sizeof(*m->files), compare_file_names);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(m->files[i - 1].name, m->files[i].name) == 0) {
            return ERR_CORRUPT;
        }
    }
    return 0;
}

static int get_all(const json_t *json, const char *data, size_t size,
                   struct manifest *m)
{
    struct checkpoint_meta *meta = &m->meta;

    if (get_meta(json, meta) < 0 || get_files(json, m) < 0) {
        return ERR_CORRUPT;
    }
    meta->model_json = get_json(json, data, size, "model");
    meta->config_json = get_json(json, data, size, "config");
    meta->data_json = get_json(json, data, size, "data");
    return meta->model_json && meta->config_json && meta->data_json ? 0 : ERR_CORRUPT;
}

int manifest_decode(char *data, size_t size, struct manifest *ret, struct errmsg *msg)
{
    struct manifest m = {0};
    json_error_t error;
    json_t *json;
    int rv;

    if (size > MANIFEST_BYTES_MAX) {
        return errmsg_set(msg, ERR_TOO_LARGE, "is larger than any manifest");
    }
    rv = check_hash(data, size, m.hash, msg);
    if (rv < 0) {
        return rv;
    }
    json = json_loadb(data, size, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        return errmsg_set(msg, ERR_CORRUPT, "is not JSON: %s", error.text);
    }
    rv = get_all(json, data, size, &m);
    json_decref(json);
    if (rv < 0) {
        manifest_release(&m);
        return errmsg_set(msg, rv, "lacks a member or has a wrong one");
    }
    *ret = m;
    return 0;
}

static int read_file(int fd, size_t size, struct manifest *ret, struct errmsg *msg)
{
    char *data = mem_alloc(size);
    int rv = file_read_at(fd, data, size, 0);

    if (rv < 0) {
        (void)errmsg_set(msg, rv, "cannot be read: %s", err_text(rv));
    } else {
        rv = manifest_decode(data, size, ret, msg);
    }
    mem_free(data);
    return rv;
}

int manifest_read(const char *dir, struct manifest *ret, struct errmsg *msg)
{
    char path[CHECKPOINT_PATH_MAX];
    uint64_t size = 0;
    int fd = -ENAMETOOLONG;
    int rv;

    if (str_format(path, sizeof(path), "%s/%s", dir, MANIFEST_NAME)) {
        fd = file_open_read(path, &size);
    }
    if (fd == -ENOENT) {
        return errmsg_set(msg, ERR_MISSING, "%s: missing", MANIFEST_NAME);
    }
    if (fd < 0) {
        return errmsg_set(msg, fd, "%s: cannot be opened: %s", MANIFEST_NAME,
                          err_text(fd));
    }
    if (size > MANIFEST_BYTES_MAX) {
        rv = errmsg_set(msg, ERR_TOO_LARGE, "is larger than any manifest");
    } else {
        rv = read_file(fd, (size_t)size, ret, msg);
    }
    (void)close(fd); /* read only */
    return rv < 0 ? errmsg_wrap(msg, rv, "%s", MANIFEST_NAME) : 0;
}
