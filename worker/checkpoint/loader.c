/* Reading a checkpoint: choosing, loading by intersection, and the hash of the state.
 *
 * Happy path of a load: manifest → headers of all shards (index) → for every wanted
 * cut, the pieces that its elements touch, as a list of runs of bytes in the order of the
 * files. checkpoint_load reads just these; where the checkpoint is verified as well,
 * every byte is read once, hashed, and copied to where the list wants it. */

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/digest.h"
#include "worker/checkpoint/index.h"
#include "worker/checkpoint/verify.h"

#include "common/mem.h"
#include "common/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HASH_BLOCK = 1 << 20 };

/* --- loading --- */

struct cut cut_of_box(const struct box *box)
{
    size_t width = box->n_dims == 2 ? box->shape[1] : 1;
    struct cut c = {.n_dims = box->n_dims,
                    .first = box->row * width,
                    .n = box->n_rows * width,
                    .data = box->data};

    memcpy(c.name, box->name, sizeof(c.name));
    memcpy(c.shape, box->shape, sizeof(c.shape));
    return c;
}

static int check_shape(const struct cut *c, const struct piece *p, struct errmsg *msg)
{
    if (c->n_dims == p->n_dims && c->shape[0] == p->shape[0] &&
        (c->n_dims == 1 || c->shape[1] == p->shape[1])) {
        return 0;
    }
    return errmsg_set(msg, ERR_INVALID,
                      "tensor '%s' is [%zu, %zu] in the checkpoint and "
                      "[%zu, %zu] in the model",
                      c->name, p->shape[0], p->shape[1], c->shape[0],
                      c->n_dims == 2 ? c->shape[1] : 0);
}

/* A run of bytes of a file and where it goes. */
struct segment {
    size_t file;
    uint64_t offset;
    size_t size;
    uint8_t *to;
};

struct load_plan {
    struct segment *segment; /* owned; in the order of the files */
    size_t n;
};

static void add_segment(struct load_plan *l, const struct segment *segment)
{
    l->segment = mem_grow(l->segment, l->n + 1, sizeof(*l->segment));
    l->segment[l->n++] = *segment;
}

/* The index has every row once, so walking the pieces upwards fills the cut whole. */
static int plan_cut(struct load_plan *l, const struct index *x, const struct cut *c,
                    struct errmsg *msg)
{
    const struct piece *p = index_find(x, c->name);
    const size_t end = c->first + c->n;
    size_t at = c->first;
    int rv;

    if (!p) {
        return errmsg_set(msg, ERR_MISSING, "the checkpoint has no tensor '%s'",
                          c->name);
    }
    rv = check_shape(c, p, msg);
    for (; at < end && rv == 0; p++) {
        size_t width = piece_row_bytes(p) / sizeof(float);
        size_t begin = p->row * width;
        size_t stop = MIN(end, begin + p->n_rows * width);

        ASSERT(end <= p->shape[0] * width);
        if (stop > at) {
            const struct segment segment = {
                .file = p->file,
                .offset = p->offset + (at - begin) * sizeof(float),
                .size = (stop - at) * sizeof(float),
                .to = (uint8_t *)(c->data + (at - c->first)),
            };

            add_segment(l, &segment);
            at = stop;
        }
    }
    return rv;
}

static int compare_segments(const void *a, const void *b)
{
    const struct segment *x = a;
    const struct segment *y = b;

    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int plan_cuts(struct load_plan *l, const struct index *x, const struct cut *cuts,
                     size_t n_cuts, struct errmsg *msg)
{
    int rv = 0;

    for (size_t i = 0; i < n_cuts && rv == 0; i++) {
        rv = plan_cut(l, x, &cuts[i], msg);
    }
    if (l->n > 0) {
        qsort(l->segment, l->n, sizeof(*l->segment), compare_segments);
    }
    return rv;
}

static int load_cuts(struct index *x, const struct cut *cuts, size_t n_cuts,
                     struct errmsg *msg)
{
    struct load_plan l = {0};
    int rv = plan_cuts(&l, x, cuts, n_cuts, msg);

    for (size_t i = 0; i < l.n && rv == 0; i++) {
        const struct segment *s = &l.segment[i];

        rv = index_read(x, s->file, s->offset, s->to, s->size, msg);
    }
    mem_free(l.segment);
    return rv;
}

int checkpoint_load(const char *path, const struct cut *cuts, size_t n_cuts,
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
        rv = load_cuts(&x, cuts, n_cuts, msg);
        index_release(&x);
    }
    manifest_release(&m);
    return rv < 0 ? errmsg_wrap(msg, rv, "%s", path) : 0;
}

/* --- loading while verifying --- */

struct load {
    const struct cut *cuts;
    size_t n_cuts;
    struct load_plan plan;
    size_t next; /* the first segment that ends past the bytes so far */
    int outcome; /* of the planning */
    struct errmsg msg;
};

/* Where the tables of the files are wrong nothing is planned: the files are wrong too,
 * and the verification will find that; unless they could not be read only here. */
static void on_manifest(void *arg, const char *path, const struct manifest *m)
{
    struct load *l = arg;
    struct index x;

    l->outcome = index_open(&x, path, m, &l->msg);
    if (l->outcome == 0) {
        l->outcome = plan_cuts(&l->plan, &x, l->cuts, l->n_cuts, &l->msg);
        index_release(&x);
    }
    if (l->outcome < 0) {
        l->plan.n = 0;
    }
}

static void on_bytes(void *arg, size_t file, uint64_t offset, const uint8_t *data,
                     size_t size)
{
    struct load *l = arg;
    const struct segment *s = l->plan.segment + l->next;
    const struct segment *end = l->plan.segment + l->plan.n;

    while (s < end &&
           (s->file < file || (s->file == file && s->offset + s->size <= offset))) {
        s++;
    }
    l->next = (size_t)(s - l->plan.segment);
    for (; s < end && s->file == file && s->offset < offset + size; s++) {
        uint64_t from = MAX(s->offset, offset);
        uint64_t to = MIN(s->offset + s->size, offset + size);

        if (from < to) {
            memcpy(s->to + (from - s->offset), data + (from - offset),
                   (size_t)(to - from));
        }
    }
}

int checkpoint_load_verified(const char *path, const struct cut *cuts, size_t n_cuts,
                             struct checkpoint_meta *ret_meta, struct errmsg *msg)
{
    struct load l = {.cuts = cuts, .n_cuts = n_cuts};
    const struct verify_sink sink = {on_manifest, on_bytes, &l};
    int rv = verify_and_tell(path, &sink, ret_meta, msg);

    if (rv == 0 && l.outcome < 0) {
        rv = errmsg_set(msg, l.outcome == ERR_MISSING ? ERR_INVALID : l.outcome,
                        "%s: %s", path, l.msg.text);
        if (rv != ERR_INVALID && ret_meta) {
            checkpoint_meta_release(ret_meta);
        }
    }
    mem_free(l.plan.segment);
    return rv;
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
        int rv = index_read(x, p->file, p->offset + at, block, n, msg);

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

static void reject(const struct checkpoint_search *search,
                   const struct checkpoint_entry *entry, const struct errmsg *why)
{
    struct errmsg line;

    if (search->on_rejected) {
        (void)errmsg_set(&line, ERR_CORRUPT,
                         "checkpoint step-%08" PRIu64 "-g%d rejected: %s", entry->step,
                         entry->run_generation, why->text);
        search->on_rejected(search->arg, line.text);
    }
}

int checkpoint_newest(const struct checkpoint_search *search,
                      struct checkpoint_entry *ret, struct checkpoint_meta *ret_meta,
                      struct errmsg *msg)
{
    struct checkpoint_entry *entry = NULL;
    size_t n = 0;
    int rv = checkpoint_list(search->dir, &entry, &n, msg);

    if (rv < 0) {
        return rv;
    }
    rv = ERR_MISSING;
    for (size_t i = 0; i < n && rv == ERR_MISSING; i++) {
        struct errmsg why = {""};
        int outcome;

        if (entry[i].run_generation < search->lowest_run_generation) {
            break; /* newest first */
        }
        outcome = checkpoint_load_verified(entry[i].path, search->cuts, search->n_cuts,
                                           ret_meta, &why);
        if (outcome == ERR_CORRUPT) {
            reject(search, &entry[i], &why);
            continue;
        }
        rv = outcome;
        *ret = entry[i];
        if (rv == ERR_INVALID) { /* it names the path */
            *msg = why;
        } else if (rv < 0) {
            (void)errmsg_set(msg, rv, "checkpoint step-%08" PRIu64 "-g%d: %s",
                             entry[i].step, entry[i].run_generation, why.text);
        }
    }
    mem_free(entry);
    return rv == ERR_MISSING
               ? errmsg_set(msg, rv, "no usable checkpoint in %s", search->dir)
               : rv;
}
