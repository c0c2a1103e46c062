/* Writing a checkpoint: shard, manifest, commit.
 *
 * Happy path: every rank sorts its boxes by name, writes header and data through a
 * file_writer (hashed on the way, fsynced) into step-N-gR.tmp/, without a copy of the
 * runs of boxes that are back to back in memory, too; rank 0 does the same
 * with the manifest, syncs the directory, and when the commit is accepted renames it
 * and syncs its parent. Failures: the error names the file; whatever lies in the .tmp
 * is the sweep's; committed directories are never opened for writing. */

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/file.h"
#include "worker/checkpoint/index.h"
#include "worker/checkpoint/safetensors.h"

#include "common/fault.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void checkpoint_path(char *path, size_t size, const char *dir, uint64_t step,
                     int run_generation, bool tmp)
{
    ASSERT(str_format(path, size, "%s/step-%08" PRIu64 "-g%d%s", dir, step,
                      run_generation, tmp ? ".tmp" : ""));
}

/* --- shard --- */

/* The boxes that have rows, by name: the order of the file, as all are F32. */
struct shard {
    const struct box **box; /* owned; the boxes are borrowed */
    size_t n;
};

static int compare_boxes(const void *a, const void *b)
{
    const struct box *const *x = a;
    const struct box *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int check_box(const struct box *b, struct errmsg *msg)
{
    if (b->n_dims < 1 || b->n_dims > 2 || b->row > b->shape[0] ||
        b->n_rows > b->shape[0] - b->row || (b->n_dims == 2 && b->shape[1] == 0)) {
        return errmsg_set(msg, ERR_INVALID, "the box of '%s' is not within its tensor",
                          b->name);
    }
    return 0;
}

static int collect_boxes(const struct box *boxes, size_t n_boxes, struct shard *s,
                         struct errmsg *msg)
{
    for (size_t i = 0; i < n_boxes; i++) {
        int rv = check_box(&boxes[i], msg);

        if (rv < 0) {
            return rv;
        }
        if (boxes[i].n_rows > 0) {
            s->box[s->n++] = &boxes[i];
        }
    }
    qsort(s->box, s->n, sizeof(const struct box *), compare_boxes);
    for (size_t i = 1; i < s->n; i++) {
        if (strcmp(s->box[i - 1]->name, s->box[i]->name) == 0) {
            return errmsg_set(msg, ERR_INVALID, "two boxes of '%s' for one shard",
                              s->box[i]->name);
        }
    }
    return 0;
}

static void put_sizes(struct buf *b, int n_dims, size_t size0, size_t size1)
{
    if (n_dims == 2) {
        (void)buf_printf(b, "[%zu,%zu]", size0, size1);
    } else {
        (void)buf_printf(b, "[%zu]", size0);
    }
}

/* The two JSON tables of a shard's metadata, as texts. */
static void put_tables(const struct shard *s, struct buf *offsets, struct buf *shapes)
{
    (void)buf_printf(offsets, "{");
    (void)buf_printf(shapes, "{");
    for (size_t i = 0; i < s->n; i++) {
        const struct box *b = s->box[i];

        (void)buf_printf(offsets, "%s", i > 0 ? "," : "");
        safetensors_quote(offsets, b->name);
        (void)buf_printf(offsets, ":{\"saved_offsets\":");
        put_sizes(offsets, b->n_dims, b->row, 0);
        (void)buf_printf(offsets, "}");

        (void)buf_printf(shapes, "%s", i > 0 ? "," : "");
        safetensors_quote(shapes, b->name);
        (void)buf_printf(shapes, ":");
        put_sizes(shapes, b->n_dims, b->shape[0], b->shape[1]);
    }
    (void)buf_printf(offsets, "}%c", '\0');
    (void)buf_printf(shapes, "}%c", '\0');
}

static int make_header(const struct shard *s, struct buf *ret)
{
    struct st_entry *entry = mem_array(s->n, sizeof(*entry));
    struct buf offsets;
    struct buf shapes;
    int rv;

    buf_init(&offsets, SIZE_MAX / 2); /* the header's own limit holds for both */
    buf_init(&shapes, SIZE_MAX / 2);
    put_tables(s, &offsets, &shapes);
    for (size_t i = 0; i < s->n; i++) {
        const struct box *b = s->box[i];

        entry[i] = (struct st_entry){.name = b->name,
                                     .dtype = ST_F32,
                                     .n_dims = b->n_dims,
                                     .shape = {b->n_rows, b->shape[1]}};
    }
    const struct st_metadata metadata[] = {
        {INDEX_SHAPES_KEY, (const char *)buf_bytes(&shapes)},
        {INDEX_OFFSETS_KEY, (const char *)buf_bytes(&offsets)},
        {"DCP_VERSION", "1.0"},
        {"format", "pt"},
    };
    rv = safetensors_header(metadata, ARRAY_LEN(metadata), entry, s->n, DIRECT_IO_ALIGN,
                            ret);
    buf_release(&offsets);
    buf_release(&shapes);
    mem_free(entry);
    return rv;
}

size_t checkpoint_box_bytes(const struct box *b)
{
    return b->n_rows * (b->n_dims == 2 ? b->shape[1] : 1) * sizeof(float);
}

static size_t tail_bytes(const struct box *b)
{
    return b->n_tail * sizeof(float);
}

/* The bytes of box `*i` and of those behind it in memory, too, up to a tail; *i is then
 * the next one. */
static size_t take_run(const struct shard *s, size_t *i)
{
    const char *begin = (const char *)s->box[*i]->data;
    size_t bytes = 0, tail;

    do {
        tail = tail_bytes(s->box[*i]);
        bytes += checkpoint_box_bytes(s->box[(*i)++]) - tail;
    } while (tail == 0 && *i < s->n && (const char *)s->box[*i]->data == begin + bytes);
    return bytes;
}

static int put_shard(struct file_writer *w, const struct shard *s,
                     const struct buf *header, struct errmsg *msg)
{
    int rv = file_writer_put(w, buf_bytes(header), buf_len(header), msg);

    for (size_t i = 0; i < s->n && rv == 0;) {
        const float *data = s->box[i]->data;

        rv = file_writer_lend(w, data, take_run(s, &i), msg);
        if (rv == 0 && s->box[i - 1]->n_tail > 0) {
            rv =
                file_writer_put(w, s->box[i - 1]->tail, tail_bytes(s->box[i - 1]), msg);
        }
    }
    return rv;
}

static int write_file(const char *path, const struct shard *s, const struct buf *header,
                      struct checkpoint_file *ret, struct errmsg *msg)
{
    uint64_t size = buf_len(header);
    struct file_writer w;
    int rv;

    for (size_t i = 0; i < s->n; i++) {
        size += checkpoint_box_bytes(s->box[i]);
    }
    rv = file_writer_open(&w, path, size, msg);
    if (rv == 0) {
        rv = put_shard(&w, s, header, msg);
    }
    if (rv == 0) {
        rv = file_writer_finish(&w, &ret->bytes, ret->hash, msg);
    }
    file_writer_release(&w);
    return rv;
}

static int write_shard(const char *path, const struct shard *s,
                       struct checkpoint_file *ret, struct errmsg *msg)
{
    struct buf header;
    int rv;

    buf_init(&header, SIZE_MAX / 2);
    rv = make_header(s, &header);
    rv = rv < 0 ? errmsg_set(msg, rv, "the table of %zu tensors is too long", s->n)
                : write_file(path, s, &header, ret, msg);
    buf_release(&header);
    return rv;
}

int checkpoint_write_shard(const char *tmp_dir, int rank, const struct box *boxes,
                           size_t n_boxes, struct checkpoint_file *ret,
                           struct errmsg *msg)
{
    struct checkpoint_file file = {0};
    struct shard s = {0};
    char path[CHECKPOINT_PATH_MAX];
    int rv = file_make_dirs(tmp_dir, msg);

    if (rv < 0) {
        return rv;
    }
    ASSERT(rank >= 0);
    ASSERT(str_format(file.name, sizeof(file.name),
                      "shard-%05d-model-00001-of-00001.safetensors", rank + 1));
    if (!str_format(path, sizeof(path), "%s/%s", tmp_dir, file.name)) {
        return file_error(msg, -ENAMETOOLONG, "write", tmp_dir);
    }
    s.box = mem_array(n_boxes, sizeof(const struct box *));
    rv = collect_boxes(boxes, n_boxes, &s, msg);
    if (rv == 0) {
        rv = write_shard(path, &s, &file, msg);
    }
    mem_free(s.box);
    if (rv == 0) {
        *ret = file;
    }
    return rv;
}

/* --- manifest --- */

int checkpoint_write_manifest(const char *tmp_dir, const struct checkpoint_meta *meta,
                              const struct checkpoint_file *files, size_t n_files,
                              char ret_hash[CHECKPOINT_HASH_HEX], struct errmsg *msg)
{
    char path[CHECKPOINT_PATH_MAX];
    char file_hash[CHECKPOINT_HASH_HEX];
    struct file_writer w;
    struct buf text;
    uint64_t bytes;
    int rv;

    if (!str_format(path, sizeof(path), "%s/%s", tmp_dir, MANIFEST_NAME)) {
        return file_error(msg, -ENAMETOOLONG, "write", tmp_dir);
    }
    buf_init(&text, MANIFEST_BYTES_MAX);
    rv = manifest_encode(meta, files, n_files, &text, ret_hash, msg);
    if (rv == 0) {
        rv = file_writer_open(&w, path, buf_len(&text), msg);
        if (rv == 0) {
            rv = file_writer_put(&w, buf_bytes(&text), buf_len(&text), msg);
        }
        if (rv == 0) {
            rv = file_writer_finish(&w, &bytes, file_hash, msg);
        }
        file_writer_release(&w);
    }
    buf_release(&text);
    return rv == 0 ? file_sync_dir(tmp_dir, msg) : rv;
}

/* --- commit --- */

static bool is_dir(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* -errno; success too when the name is already the final one. */
static int rename_dir(const char *from, const char *to)
{
    int rv = fault_at("ckpt.rename");

    if (rv < 0) {
        return rv;
    }
    if (rename(from, to) == 0) {
        return 0;
    }
    rv = -errno;
    return rv == -ENOENT && is_dir(to) ? 0 : rv;
}

int checkpoint_commit(const char *dir, uint64_t step, int run_generation,
                      struct errmsg *msg)
{
    char from[CHECKPOINT_PATH_MAX];
    char to[CHECKPOINT_PATH_MAX];
    int rv;

    checkpoint_path(from, sizeof(from), dir, step, run_generation, true);
    checkpoint_path(to, sizeof(to), dir, step, run_generation, false);
    rv = rename_dir(from, to);
    if (rv < 0) {
        return file_error(msg, rv, "commit", from);
    }
    return file_sync_dir(dir, msg);
}
