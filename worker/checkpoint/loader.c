/* Reading a checkpoint: choosing, loading by intersection, and the hash of the state.
 *
 * Happy path of a load: manifest → headers of all shards (index) → for every wanted
 * box, the pieces that its rows touch, read straight into the box's memory. */

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/digest.h"
#include "worker/checkpoint/index.h"
#include "worker/checkpoint/retention.h"

#include "common/mem.h"
#include "common/str.h"

#include <inttypes.h>
#include <string.h>

enum { HASH_BLOCK = 1 << 20 };

/* --- loading --- */

static int check_shape(const struct box *b, const struct piece *p, struct errmsg *msg)
{
    if (b->n_dims == p->n_dims && b->shape[0] == p->shape[0] &&
        (b->n_dims == 1 || b->shape[1] == p->shape[1])) {
        return 0;
    }
    return errmsg_set(msg, ERR_INVALID,
                      "tensor '%s' is [%zu, %zu] in the checkpoint and "
                      "[%zu, %zu] in the model",
                      b->name, p->shape[0], p->shape[1], b->shape[0],
                      b->n_dims == 2 ? b->shape[1] : 0);
}

/* The index has every row once, so walking the pieces upwards fills the box whole. */
static int load_box(struct index *x, const struct box *b, struct errmsg *msg)
{
    const struct piece *p = index_find(x, b->name);
    const size_t end = b->row + b->n_rows;
    size_t row = b->row;
    int rv;

    if (!p) {
        return errmsg_set(msg, ERR_MISSING, "the checkpoint has no tensor '%s'",
                          b->name);
    }
    rv = check_shape(b, p, msg);
    ASSERT(rv < 0 || (end <= b->shape[0] && end >= row));
    while (row < end && rv == 0) {
        size_t row_bytes = piece_row_bytes(p);
        size_t stop = MIN(end, p->row + p->n_rows);

        if (stop > row) {
            rv = index_read(x, p, (row - p->row) * row_bytes,
                            (uint8_t *)b->data + (row - b->row) * row_bytes,
                            (stop - row) * row_bytes, msg);
            row = stop;
        }
        p++;
    }
    return rv;
}

int checkpoint_load(const char *path, const struct box *boxes, size_t n_boxes,
                    struct errmsg *msg)
{
    struct manifest m;
    struct index x;
    int rv = manifest_read(path, &m, msg);

    if (rv < 0) {
        return errmsg_wrap(msg, rv, "%s", path);
    }
    rv = index_open(&x, path, &m, msg);
    if (rv == 0) {
        for (size_t i = 0; i < n_boxes && rv == 0; i++) {
            rv = load_box(&x, &boxes[i], msg);
        }
        index_release(&x);
    }
    manifest_release(&m);
    return rv < 0 ? errmsg_wrap(msg, rv, "%s", path) : 0;
}

/* --- the hash of the state --- */

static bool is_optimizer_state(const char *name)
{
    static const char *const endings[] = {".exp_avg", ".exp_avg_sq"};
    size_t len = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        size_t n = strlen(endings[i]);

        if (len > n && strcmp(name + len - n, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int hash_piece(struct index *x, const struct piece *p, struct digest *digest,
                      uint8_t *block, struct errmsg *msg)
{
    uint64_t left = (uint64_t)p->n_rows * piece_row_bytes(p);
    uint64_t at = 0;

    while (left > 0) {
        size_t n = (size_t)MIN(left, (uint64_t)HASH_BLOCK);
        int rv = index_read(x, p, at, block, n, msg);

        if (rv < 0) {
            return rv;
        }
        digest_add(digest, block, n);
        at += n;
        left -= n;
    }
    return 0;
}

/* The index is sorted by name and row: two passes over it are the order of the hash. */
static int hash_pass(struct index *x, bool optimizer, struct digest *digest,
                     uint8_t *block, struct errmsg *msg)
{
    int rv = 0;

    for (size_t i = 0; i < x->n_pieces && rv == 0; i++) {
        if (is_optimizer_state(x->piece[i].name) == optimizer) {
            rv = hash_piece(x, &x->piece[i], digest, block, msg);
        }
    }
    return rv;
}

static int hash_pieces(struct index *x, struct digest *digest, struct errmsg *msg)
{
    uint8_t *block = mem_alloc(HASH_BLOCK);
    int rv = hash_pass(x, false, digest, block, msg);

    if (rv == 0) {
        rv = hash_pass(x, true, digest, block, msg);
    }
    mem_free(block);
    return rv;
}

int checkpoint_state_hash(const char *path, char ret_hash[CHECKPOINT_HASH_HEX],
                          struct errmsg *msg)
{
    struct manifest m;
    struct index x;
    struct digest *digest;
    int rv = manifest_read(path, &m, msg);

    if (rv < 0) {
        return errmsg_wrap(msg, rv, "%s", path);
    }
    rv = index_open(&x, path, &m, msg);
    if (rv == 0) {
        digest = digest_create();
        rv = hash_pieces(&x, digest, msg);
        if (rv == 0) {
            digest_finish(digest, ret_hash);
        }
        digest_free(digest);
        index_release(&x);
    }
    manifest_release(&m);
    return rv < 0 ? errmsg_wrap(msg, rv, "%s", path) : 0;
}

/* --- choosing --- */

static void reject(void (*on_rejected)(void *arg, const char *line), void *arg,
                   const struct checkpoint_entry *entry, const struct errmsg *why)
{
    struct errmsg line;

    if (on_rejected) {
        (void)errmsg_set(&line, ERR_CORRUPT,
                         "checkpoint step-%08" PRIu64 "-g%d rejected: %s", entry->step,
                         entry->run_generation, why->text);
        on_rejected(arg, line.text);
    }
}

int checkpoint_newest(const char *dir, void (*on_rejected)(void *arg, const char *line),
                      void *arg, struct checkpoint_entry *ret,
                      struct checkpoint_meta *ret_meta, struct errmsg *msg)
{
    struct checkpoint_entry *entry = NULL;
    size_t n = 0;
    size_t i;
    int rv = checkpoint_list(dir, &entry, &n, msg);

    if (rv < 0) {
        return rv;
    }
    for (i = 0; i < n; i++) {
        struct errmsg why = {""};

        if (checkpoint_verify(entry[i].path, ret_meta, &why) == 0) {
            *ret = entry[i];
            break;
        }
        reject(on_rejected, arg, &entry[i], &why);
    }
    mem_free(entry);
    return i < n ? 0 : errmsg_set(msg, ERR_MISSING, "no usable checkpoint in %s", dir);
}
