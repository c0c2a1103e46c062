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

/* (rows, columns) as they are stored. */
static int read_plain(struct reader *r, float *out, size_t rows, size_t columns,
                      struct errmsg *msg)
{
    for (size_t i = 0; i < rows; i++) {
        int rc = read_row(r, columns, msg);
        if (rc != 0) {
            return rc;
        }
        memcpy(out + i * columns, r->row, columns * sizeof(float));
    }
    return 0;
}

/* Stored (out, in), wanted [in, out]. */
static int read_transposed(struct reader *r, const struct tensor *t, float *out,
                           struct errmsg *msg)
{
    size_t inputs = t->shape[0];
    size_t outputs = t->shape[1];
    for (size_t i = 0; i < outputs; i++) {
        int rc = read_row(r, inputs, msg);
        if (rc != 0) {
            return rc;
        }
        for (size_t j = 0; j < inputs; j++) {
            out[j * outputs + i] = r->row[j];
        }
    }
    return 0;
}

static const struct tensor *find(const struct layout *layout, const char *name,
                                 size_t *ret_offset)
{
    const struct unit *u;
    const struct tensor *t = layout_find(layout, name, &u);
    ASSERT(t != NULL);
    *ret_offset = u->offset + t->offset;
    return t;
}

static int read_named(struct reader *r, const struct layout *layout, const char *name,
                      float *params, struct errmsg *msg)
{
    size_t offset;
    const struct tensor *t = find(layout, name, &offset);
    if (t->n_dims == 1) {
        return read_plain(r, params + offset, 1, t->size, msg);
    }
    return read_plain(r, params + offset, t->shape[0], t->shape[1], msg);
}

static int read_embedding(struct reader *r, const struct model_config *config,
                          const struct layout *layout, float *params,
                          struct errmsg *msg)
{
    int rc = read_named(r, layout, "wte.weight", params, msg);
    for (uint32_t i = (uint32_t)config->vocab; i < r->padded && rc == 0; i++) {
        rc = read_row(r, (size_t)config->dim, msg);
    }
    return rc != 0 ? rc : read_named(r, layout, "wpe.weight", params, msg);
}

static int read_block_tensor(struct reader *r, const struct llmc_tensor *which,
                             const struct model_config *config,
                             const struct layout *layout, float *params,
                             struct errmsg *msg)
{
    int rc = 0;
    for (int layer = 0; layer < config->layers && rc == 0; layer++) {
        char name[64];
        bool fits = str_format(name, sizeof(name), "h.%d.%s", layer, which->name);
        ASSERT(fits);
        size_t offset;
        const struct tensor *t = find(layout, name, &offset);
        rc = which->transposed ? read_transposed(r, t, params + offset, msg)
                               : read_named(r, layout, name, params, msg);
    }
    return rc;
}

static int read_body(struct reader *r, const struct model_config *config,
                     const struct layout *layout, float *params, struct errmsg *msg)
{
    int rc = read_embedding(r, config, layout, params, msg);
    for (size_t i = 0; i < ARRAY_LEN(block_tensors) && rc == 0; i++) {
        rc = read_block_tensor(r, &block_tensors[i], config, layout, params, msg);
    }
    rc = rc != 0 ? rc : read_named(r, layout, "ln_f.weight", params, msg);
    return rc != 0 ? rc : read_named(r, layout, "ln_f.bias", params, msg);
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
                      const struct layout *layout, struct errmsg *msg)
{
    struct stat st;
    if (fstat(fileno(r->file), &st) != 0) {
        return errmsg_set(msg, -errno, "%s: %s", r->path, err_text(-errno));
    }
    uint64_t padding =
        (uint64_t)(r->padded - (uint32_t)config->vocab) * (uint64_t)config->dim;
    uint64_t want = HEADER_BYTES + (layout->n_params + padding) * r->element;
    if ((uint64_t)st.st_size == want) {
        return 0;
    }
    return errmsg_set(
        msg, ERR_CORRUPT,
        "%s: %llu bytes, but its header says %llu: copy or export it again", r->path,
        (unsigned long long)st.st_size, (unsigned long long)want);
}

static int load(struct reader *r, const struct model_config *config,
                const struct layout *layout, float *params, struct errmsg *msg)
{
    if (setvbuf(r->file, NULL, _IOFBF, BUFFER_BYTES) != 0) {
        return errmsg_set(msg, -ENOMEM, "%s: no memory for a buffer", r->path);
    }
    int rc = check_header(r, config, msg);
    rc = rc != 0 ? rc : check_size(r, config, layout, msg);
    if (rc != 0) {
        return rc;
    }
    /* the longest row is 3C (a bias) or 4C */
    size_t longest = 4 * (size_t)config->dim;
    r->raw = mem_array(longest, r->element);
    r->row = mem_array(longest, sizeof(*r->row));
    rc = read_body(r, config, layout, params, msg);
    mem_free(r->raw);
    mem_free(r->row);
    return rc;
}

int llmc_model_load(const char *path, const struct model_config *config,
                    const struct layout *layout, float *params, struct errmsg *msg)
{
    struct reader r = {.path = path, .file = fopen(path, "rbe")};
    if (r.file == NULL) {
        int rc = -errno;
        return errmsg_set(msg, rc, "%s: %s", path, err_text(rc));
    }
    int rc = load(&r, config, layout, params, msg);
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
