/* Reads an llm.c model file. See llmc_model.h.
 *
 * Happy path: header → dimensions are model.*'s → size is exact → tensor after tensor,
 * row by row, into its place. Failures name the file and what to do. */

#include "worker/model/llmc_model.h"

#include "common/mem.h"
#include "common/str.h"
#include "common/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    HEADER_BYTES = 1024,
    MAGIC = 20240326,
    VERSION_FP32 = 3,
    VERSION_BF16 = 5,
    BUFFER_BYTES = 1 << 20,
};

struct reader {
    const char *path;
    FILE *file;
    size_t element;  /* bytes: 4 or 2 */
    uint8_t *raw;    /* one row as stored */
    float *row;      /* one row as fp32 */
    uint32_t padded; /* rows of wte */
    const struct layout *layout;
    const struct shard_map *own; /* NULL: the whole flat block */
    float *params;               /* the own block */
};

/* What the rank holds of a tensor: elements [first, end), at out[0 …). */
struct part {
    size_t first, end;
    float *out;
};

/* In file order; every one is there for all layers before the next one begins. */
static const struct llmc_tensor {
    const char *name;
    bool transposed;
} block_tensors[] = {
    {"ln_1.weight", false},       {"ln_1.bias", false},
    {"attn.c_attn.weight", true}, {"attn.c_attn.bias", false},
    {"attn.c_proj.weight", true}, {"attn.c_proj.bias", false},
    {"ln_2.weight", false},       {"ln_2.bias", false},
    {"mlp.c_fc.weight", true},    {"mlp.c_fc.bias", false},
    {"mlp.c_proj.weight", true},  {"mlp.c_proj.bias", false},
};

static int cut_short(const struct reader *r, struct errmsg *msg)
{
    if (ferror(r->file)) {
        return errmsg_set(msg, -EIO, "%s: cannot be read", r->path);
    }
    return errmsg_set(msg, ERR_CORRUPT, "%s: is cut short: copy or export it again",
                      r->path);
}

/* Reads `n` elements into r->row. */
static int read_row(struct reader *r, size_t n, struct errmsg *msg)
{
    if (fread(r->raw, r->element, n, r->file) != n) {
        return cut_short(r, msg);
    }
    struct wire_reader w;
    wire_reader_init(&w, r->raw, n * r->element);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits =
            r->element == 4 ? wire_get_u32(&w) : (uint32_t)wire_get_u16(&w) << 16;
        memcpy(&r->row[i], &bits, sizeof(bits));
    }
    return 0;
}

/* A tensor lies in one group, so the rank holds one run of it. */
static struct part part_of(const struct reader *r, const struct tensor *t, size_t at)
{
    const struct shard_range whole = {.end = r->layout->size};
    int n = r->own ? r->own->n_ranges : 1;
    struct part p = {0};

    for (int i = 0; i < n && p.first == p.end; i++) {
        const struct shard_range *range = r->own ? &r->own->range[i] : &whole;
        size_t begin = MAX(at, range->begin);
        size_t end = MIN(at + t->size, range->end);

        if (begin < end) {
            p = (struct part){.first = begin - at,
                              .end = end - at,
                              .out = r->params + range->at + (begin - range->begin)};
        }
    }
    return p;
}

static int skip(struct reader *r, size_t n, struct errmsg *msg)
{
    if (fseeko(r->file, (off_t)(n * r->element), SEEK_CUR) != 0) {
        return errmsg_set(msg, -errno, "%s: cannot be read", r->path);
    }
    return 0;
}

/* (rows, columns) as they are stored. */
static int read_plain(struct reader *r, const struct part *p, size_t rows,
                      size_t columns, struct errmsg *msg)
{
    for (size_t i = 0; i < rows; i++) {
        int rc = read_row(r, columns, msg);
        if (rc != 0) {
            return rc;
        }
        size_t begin = MAX(p->first, i * columns);
        size_t end = MIN(p->end, (i + 1) * columns);
        if (begin < end) {
            memcpy(p->out + (begin - p->first), r->row + (begin - i * columns),
                   (end - begin) * sizeof(float));
        }
    }
    return 0;
}

/* The first j with j·outputs + i at or after element `at`. */
static size_t first_input(size_t at, size_t i, size_t outputs)
{
    return at <= i ? 0 : (at - i + outputs - 1) / outputs;
}

/* Stored (out, in), wanted [in, out]. */
static int read_transposed(struct reader *r, const struct part *p, size_t inputs,
                           size_t outputs, struct errmsg *msg)
{
    for (size_t i = 0; i < outputs; i++) {
        int rc = read_row(r, inputs, msg);
        if (rc != 0) {
            return rc;
        }
        size_t end = first_input(p->end, i, outputs);
        for (size_t j = first_input(p->first, i, outputs); j < end; j++) {
            p->out[j * outputs + i - p->first] = r->row[j];
        }
    }
    return 0;
}

static int read_named(struct reader *r, const char *name, bool transposed,
                      struct errmsg *msg)
{
    const struct unit *u;
    const struct tensor *t = layout_find(r->layout, name, &u);
    ASSERT(t != NULL);
    struct part p = part_of(r, t, u->offset + t->offset);
    if (p.first == p.end) {
        return skip(r, t->size, msg);
    }
    if (t->n_dims == 1) {
        return read_plain(r, &p, 1, t->size, msg);
    }
    return transposed ? read_transposed(r, &p, t->shape[0], t->shape[1], msg)
                      : read_plain(r, &p, t->shape[0], t->shape[1], msg);
}

static int read_embedding(struct reader *r, const struct model_config *config,
                          struct errmsg *msg)
{
    size_t padding = r->padded - (uint32_t)config->vocab;
    int rc = read_named(r, "wte.weight", false, msg);
    rc = rc != 0 ? rc : skip(r, padding * (size_t)config->dim, msg);
    return rc != 0 ? rc : read_named(r, "wpe.weight", false, msg);
}

static int read_block_tensor(struct reader *r, const struct llmc_tensor *which,
                             const struct model_config *config, struct errmsg *msg)
{
    int rc = 0;
    for (int layer = 0; layer < config->layers && rc == 0; layer++) {
        char name[64];
        bool fits = str_format(name, sizeof(name), "h.%d.%s", layer, which->name);
        ASSERT(fits);
        rc = read_named(r, name, which->transposed, msg);
    }
    return rc;
}

static int read_body(struct reader *r, const struct model_config *config,
                     struct errmsg *msg)
{
    int rc = read_embedding(r, config, msg);
    for (size_t i = 0; i < ARRAY_LEN(block_tensors) && rc == 0; i++) {
        rc = read_block_tensor(r, &block_tensors[i], config, msg);
    }
    rc = rc != 0 ? rc : read_named(r, "ln_f.weight", false, msg);
    return rc != 0 ? rc : read_named(r, "ln_f.bias", false, msg);
}

static int check_dim(const struct reader *r, const char *key, int want, uint32_t got,
                     struct errmsg *msg)
{
    if (got == (uint32_t)want) {
        return 0;
    }
    return errmsg_set(msg, ERR_INVALID, "%s=%d, but %s has %u: set %s=%u", key, want,
                      r->path, got, key, got);
}

static int check_header(struct reader *r, const struct model_config *config,
                        struct errmsg *msg)
{
    uint8_t raw[HEADER_BYTES];
    struct wire_reader w;
    if (fread(raw, sizeof(raw), 1, r->file) != 1) {
        return cut_short(r, msg);
    }
    wire_reader_init(&w, raw, sizeof(raw));
    if (wire_get_u32(&w) != MAGIC) {
        return errmsg_set(msg, ERR_INVALID, "%s: is not an llm.c model file", r->path);
    }
    uint32_t version = wire_get_u32(&w);
    if (version != VERSION_FP32 && version != VERSION_BF16) {
        return errmsg_set(msg, ERR_UNSUPPORTED,
                          "%s: llm.c version %u: only 3 (fp32) and 5 (bf16) are read",
                          r->path, version);
    }
    r->element = version == VERSION_FP32 ? 4 : 2;
    int rc = check_dim(r, "model.context", config->context, wire_get_u32(&w), msg);
    rc = rc != 0 ? rc
                 : check_dim(r, "model.vocab", config->vocab, wire_get_u32(&w), msg);
    rc = rc != 0 ? rc
                 : check_dim(r, "model.layers", config->layers, wire_get_u32(&w), msg);
    rc = rc != 0 ? rc
                 : check_dim(r, "model.heads", config->heads, wire_get_u32(&w), msg);
    rc = rc != 0 ? rc : check_dim(r, "model.dim", config->dim, wire_get_u32(&w), msg);
    r->padded = wire_get_u32(&w);
    if (rc == 0 && (r->padded < (uint32_t)config->vocab || r->padded > INT32_MAX)) {
        rc = errmsg_set(msg, ERR_CORRUPT,
                        "%s: padded vocabulary %u is below vocabulary %d", r->path,
                        r->padded, config->vocab);
    }
    return rc;
}

/* The dimensions are the layout's by now; padded·dim stays below 2^51. */
static int check_size(const struct reader *r, const struct model_config *config,
                      struct errmsg *msg)
{
    struct stat st;
    if (fstat(fileno(r->file), &st) != 0) {
        return errmsg_set(msg, -errno, "%s: %s", r->path, err_text(-errno));
    }
    uint64_t padding =
        (uint64_t)(r->padded - (uint32_t)config->vocab) * (uint64_t)config->dim;
    uint64_t want = HEADER_BYTES + (r->layout->n_params + padding) * r->element;
    if ((uint64_t)st.st_size == want) {
        return 0;
    }
    return errmsg_set(
        msg, ERR_CORRUPT,
        "%s: %llu bytes, but its header says %llu: copy or export it again", r->path,
        (unsigned long long)st.st_size, (unsigned long long)want);
}

static int load(struct reader *r, const struct model_config *config, struct errmsg *msg)
{
    if (setvbuf(r->file, NULL, _IOFBF, BUFFER_BYTES) != 0) {
        return errmsg_set(msg, -ENOMEM, "%s: no memory for a buffer", r->path);
    }
    int rc = check_header(r, config, msg);
    rc = rc != 0 ? rc : check_size(r, config, msg);
    if (rc != 0) {
        return rc;
    }
    /* the longest row is 3C (a bias) or 4C */
    size_t longest = 4 * (size_t)config->dim;
    r->raw = mem_array(longest, r->element);
    r->row = mem_array(longest, sizeof(*r->row));
    rc = read_body(r, config, msg);
    mem_free(r->raw);
    mem_free(r->row);
    return rc;
}

int llmc_model_load(const char *path, const struct model_config *config,
                    const struct layout *layout, const struct shard_map *own,
                    float *params, struct errmsg *msg)
{
    struct reader r = {
        .path = path, .file = fopen(path, "rbe"), .layout = layout, .own = own};
    r.params = params;
    if (r.file == NULL) {
        int rc = -errno;
        return errmsg_set(msg, rc, "%s: %s", path, err_text(rc));
    }
    int rc = load(&r, config, msg);
    (void)fclose(r.file); /* only read: nothing can be lost */
    return rc;
}

int llmc_model_is(const char *path)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
    }
    uint8_t raw[4];
    struct wire_reader w;
    errno = 0;
    bool is_long = fread(raw, sizeof(raw), 1, file) == 1;
    int rc = ferror(file) && errno != EISDIR ? -errno : 0;
    wire_reader_init(&w, raw, sizeof(raw));
    if (is_long && wire_get_u32(&w) == MAGIC) {
        rc = 1;
    }
    (void)fclose(file); /* only read: nothing can be lost */
    return rc;
}
