#ifndef WORKER_CHECKPOINT_SAFETENSORS_H
#define WORKER_CHECKPOINT_SAFETENSORS_H

/* The safetensors format, byte for byte.
 *
 *   u64 little-endian N | N bytes of JSON, padded with spaces | tensors, back to back
 *
 *   {"__metadata__":{"k":"v"},
 *    "name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},…}     (in one line)
 *
 * Offsets count from the end of the JSON; the end is exclusive. The tensors fill the
 * rest of the file exactly: no hole, no overlap, nothing after the last. Files are
 * hostile input: the reader takes nothing on trust and holds at most some hundred MB
 * for a table. */

#include "common/buf.h"
#include "common/err.h"

#include <stdint.h>

/* In the order of alignment, name and bits of an element; the writer sorts by it,
 * descending. */
/* clang-format off */
#define ST_DTYPE_MAP(X)                                                               \
    X(BOOL, 8) X(F4, 4) X(F6_E2M3, 6) X(F6_E3M2, 6) X(U8, 8) X(I8, 8) X(F8_E5M2, 8)   \
    X(F8_E4M3, 8) X(F8_E8M0, 8) X(F8_E4M3FNUZ, 8) X(F8_E5M2FNUZ, 8) X(I16, 16)        \
    X(U16, 16) X(F16, 16) X(BF16, 16) X(I32, 32) X(U32, 32) X(F32, 32) X(C64, 64)     \
    X(F64, 64) X(I64, 64) X(U64, 64)
/* clang-format on */

#define ST_DTYPE_ENUM(name, bits) ST_##name,
enum st_dtype { ST_DTYPE_MAP(ST_DTYPE_ENUM) ST_DTYPES };
#undef ST_DTYPE_ENUM

enum { SAFETENSORS_HEADER_MAX = 100000000, ST_ENTRY_DIMS = 4 };

const char *st_dtype_name(enum st_dtype dtype);

/* --- reading --- */

struct st_tensor {
    const char *name; /* UTF-8; owned by the table */
    enum st_dtype dtype;
    size_t n_dims;
    uint64_t *shape; /* owned; NULL without dimensions */
    uint64_t offset; /* of the first byte, from the begin of the file */
    uint64_t bytes;
};

struct safetensors {
    int fd;                   /* -1 when parsed from memory */
    struct json_t *json;      /* owned: holds the names and the metadata */
    struct st_tensor *tensor; /* owned; in the order of the file */
    size_t n_tensors;
    const struct st_tensor **by_name; /* owned; sorted by strcmp */
};

/* ERR_CORRUPT for a file that breaks the format, ERR_TOO_LARGE for a header past the
 * limits; `msg` says what, without the file's name. On errors nothing is to be closed.
 */
int safetensors_open(const char *path, struct safetensors *ret,
                     struct errmsg *msg) MUST_CHECK;
void safetensors_close(struct safetensors *s);

/* The bytes of the JSON, from the first 8 bytes of a file of `file_size`. */
int safetensors_header_size(const uint8_t *data, uint64_t file_size, size_t *ret_size,
                            struct errmsg *msg) MUST_CHECK;

/* The table of a JSON header of `size` bytes in a file of `file_size`; fd is -1. */
int safetensors_parse(const uint8_t *header, size_t size, uint64_t file_size,
                      struct safetensors *ret, struct errmsg *msg) MUST_CHECK;

/* NULL when there is none. */
const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name);
const char *safetensors_metadata(const struct safetensors *s, const char *key);

/* Bytes [begin, begin + size) of a tensor's data. */
int safetensors_read(const struct safetensors *s, const struct st_tensor *t,
                     uint64_t begin, void *data, size_t size) MUST_CHECK;

/* --- writing --- */

struct st_entry {
    const char *name; /* UTF-8, no two the same */
    enum st_dtype dtype;
    int n_dims;
    uint64_t shape[ST_ENTRY_DIMS];
    const void *data; /* st_entry_bytes of it; the writer of the header ignores it */
};

struct st_metadata {
    const char *key;
    const char *value;
};

uint64_t st_entry_bytes(const struct st_entry *entry);

/* Puts entries into the order of the file: dtype descending, then name. */
void safetensors_sort(struct st_entry *entry, size_t n);

/* Appends length and JSON of sorted entries; their data follow in the same order, at a
 * multiple of `align` ≥ 8 (8 is what everybody's writer takes). */
int safetensors_header(const struct st_metadata *metadata, size_t n_metadata,
                       const struct st_entry *entry, size_t n_entries, size_t align,
                       struct buf *ret) MUST_CHECK;

/* Appends a JSON string with quotes, escaped as serde_json does it. */
void safetensors_quote(struct buf *b, const char *text);

#endif
