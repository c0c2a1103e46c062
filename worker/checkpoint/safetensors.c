#include "worker/checkpoint/safetensors.h"

#include "worker/checkpoint/file.h"

#include "common/mem.h"
#include "common/wire.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A JSON value costs some 60 bytes of memory but may be one byte of text: so the number
 * of values is bounded too, before anything is parsed. */
enum { VALUES_MAX = 4000000, LENGTH_SIZE = 8 };

static const char metadata_key[] = "__metadata__";

struct dtype_info {
    const char *name;
    uint64_t bits;
};

#define ST_DTYPE_INFO(name, bits) {#name, bits},
static const struct dtype_info dtypes[] = {ST_DTYPE_MAP(ST_DTYPE_INFO)};
#undef ST_DTYPE_INFO

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data are used as they lie");

const char *st_dtype_name(enum st_dtype dtype)
{
    return dtypes[dtype].name;
}

/* --- reading --- */

static int get_dtype(const json_t *entry, enum st_dtype *ret)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));

    for (size_t i = 0; name && i < ARRAY_LEN(dtypes); i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *ret = (enum st_dtype)i;
            return 0;
        }
    }
    return ERR_CORRUPT;
}

static int get_u64(const json_t *value, uint64_t *ret)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return ERR_CORRUPT;
    }
    *ret = (uint64_t)json_integer_value(value);
    return 0;
}

static int get_shape(const json_t *entry, struct st_tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");

    if (!json_is_array(shape)) {
        return ERR_CORRUPT;
    }
    t->n_dims = json_array_size(shape);
    t->shape = t->n_dims > 0 ? mem_array(t->n_dims, sizeof(*t->shape)) : NULL;
    for (size_t i = 0; i < t->n_dims; i++) {
        if (get_u64(json_array_get(shape, i), &t->shape[i]) < 0) {
            return ERR_CORRUPT;
        }
    }
    return 0;
}

static int get_offsets(const json_t *entry, struct st_tensor *t, struct errmsg *msg)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t end;

    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        get_u64(json_array_get(offsets, 0), &t->offset) < 0 ||
        get_u64(json_array_get(offsets, 1), &end) < 0) {
        return errmsg_set(msg, ERR_CORRUPT, "tensor '%.80s' has no proper data_offsets",
                          t->name);
    }
    if (end < t->offset) {
        return errmsg_set(msg, ERR_CORRUPT,
                          "invalid offset: tensor '%.80s' ends before "
                          "it begins",
                          t->name);
    }
    t->bytes = end - t->offset;
    return 0;
}

/* The product of the dimensions is folded from the left, as the format's own reader
 * does. */
static int check_size(const struct st_tensor *t, struct errmsg *msg)
{
    uint64_t bits = 1;
    bool overflow = false;

    for (size_t i = 0; i < t->n_dims && !overflow; i++) {
        overflow = __builtin_mul_overflow(bits, t->shape[i], &bits);
    }
    if (overflow || __builtin_mul_overflow(bits, dtypes[t->dtype].bits, &bits)) {
        return errmsg_set(msg, ERR_CORRUPT,
                          "overflow: the shape of '%.80s' is too large", t->name);
    }
    if (bits % 8 != 0) {
        return errmsg_set(msg, ERR_CORRUPT,
                          "misaligned: '%.80s' is no whole number of "
                          "bytes",
                          t->name);
    }
    if (bits / 8 != t->bytes) {
        return errmsg_set(msg, ERR_CORRUPT,
                          "invalid info: the shape of '%.80s' does not "
                          "fit its data_offsets",
                          t->name);
    }
    return 0;
}

static int get_tensor(const char *name, const json_t *entry, struct st_tensor *t,
                      struct errmsg *msg)
{
    t->name = name;
    if (get_dtype(entry, &t->dtype) < 0) {
        return errmsg_set(msg, ERR_CORRUPT, "tensor '%.80s' has no known dtype", name);
    }
    if (get_shape(entry, t) < 0) {
        return errmsg_set(msg, ERR_CORRUPT, "tensor '%.80s' has no proper shape", name);
    }
    return get_offsets(entry, t, msg);
}

static int check_metadata(json_t *metadata, struct errmsg *msg)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata)) {
        return errmsg_set(msg, ERR_CORRUPT, "%s is not an object", metadata_key);
    }
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value)) {
            return errmsg_set(msg, ERR_CORRUPT, "%s holds something else than texts",
                              metadata_key);
        }
    }
    return 0;
}

static int get_tensors(struct safetensors *s, struct errmsg *msg)
{
    const char *key;
    json_t *value;
    int rv = 0;

    s->tensor = mem_array(json_object_size(s->json), sizeof(*s->tensor));
    json_object_foreach(s->json, key, value)
    {
        if (strcmp(key, metadata_key) == 0) {
            rv = check_metadata(value, msg);
        } else {
            rv = get_tensor(key, value, &s->tensor[s->n_tensors++], msg);
        }
        if (rv < 0) {
            return rv;
        }
    }
    return 0;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct st_tensor *x = a;
    const struct st_tensor *y = b;

    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int compare_names(const void *a, const void *b)
{
    const struct st_tensor *const *x = a;
    const struct st_tensor *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* No hole, no overlap, nothing after the end; offsets become those of the file. */
static int check_offsets(struct safetensors *s, uint64_t begin, uint64_t file_size,
                         struct errmsg *msg)
{
    uint64_t end = 0;

    qsort(s->tensor, s->n_tensors, sizeof(*s->tensor), compare_offsets);
    for (size_t i = 0; i < s->n_tensors; i++) {
        struct st_tensor *t = &s->tensor[i];
        int rv;

        if (t->offset != end) {
            return errmsg_set(msg, ERR_CORRUPT,
                              "invalid offset: '%.80s' leaves a hole or "
                              "overlaps another tensor",
                              t->name);
        }
        rv = check_size(t, msg);
        if (rv < 0) {
            return rv;
        }
        end = t->offset + t->bytes; /* both came from one JSON integer: no overflow */
        t->offset += begin;
    }
    if (end != file_size - begin) {
        return errmsg_set(msg, ERR_CORRUPT,
                          "incomplete: the table wants %llu bytes of data "
                          "and the file has %llu",
                          (unsigned long long)end,
                          (unsigned long long)(file_size - begin));
    }
    return 0;
}

static int parse_json(const uint8_t *header, size_t size, json_t **ret,
                      struct errmsg *msg)
{
    json_error_t error;
    size_t values = 0;

    for (size_t i = 0; i < size; i++) {
        values += header[i] == ',' || header[i] == '[' || header[i] == '{' ||
                  header[i] == ':';
    }
    if (values > VALUES_MAX) {
        return errmsg_set(msg, ERR_TOO_LARGE, "the header holds too many values");
    }
    *ret = json_loadb((const char *)header, size, JSON_REJECT_DUPLICATES, &error);
    if (!*ret) {
        return errmsg_set(msg, ERR_CORRUPT, "invalid header: %s", error.text);
    }
    if (!json_is_object(*ret)) {
        json_decref(*ret);
        return errmsg_set(msg, ERR_CORRUPT, "invalid header: not an object");
    }
    return 0;
}

static void index_names(struct safetensors *s)
{
    s->by_name = mem_array(s->n_tensors, sizeof(const struct st_tensor *));
    for (size_t i = 0; i < s->n_tensors; i++) {
        s->by_name[i] = &s->tensor[i];
    }
    qsort(s->by_name, s->n_tensors, sizeof(const struct st_tensor *), compare_names);
}

int safetensors_header_size(const uint8_t *data, uint64_t file_size, size_t *ret_size,
                            struct errmsg *msg)
{
    struct wire_reader r;
    uint64_t size;

    if (file_size < LENGTH_SIZE) {
        return errmsg_set(msg, ERR_CORRUPT, "header too small: the file has %u bytes",
                          (unsigned)file_size);
    }
    wire_reader_init(&r, data, LENGTH_SIZE);
    size = wire_get_u64(&r);
    if (size > SAFETENSORS_HEADER_MAX) {
        return errmsg_set(msg, ERR_TOO_LARGE, "header too large");
    }
    if (size > file_size - LENGTH_SIZE) {
        return errmsg_set(msg, ERR_CORRUPT,
                          "invalid header length: past the file's end");
    }
    *ret_size = (size_t)size;
    return 0;
}

int safetensors_parse(const uint8_t *header, size_t size, uint64_t file_size,
                      struct safetensors *ret, struct errmsg *msg)
{
    struct safetensors s = {.fd = -1};
    int rv;

    ASSERT(file_size >= LENGTH_SIZE && size <= file_size - LENGTH_SIZE);
    rv = parse_json(header, size, &s.json, msg);
    if (rv < 0) {
        return rv;
    }
    rv = get_tensors(&s, msg);
    if (rv == 0) {
        rv = check_offsets(&s, LENGTH_SIZE + size, file_size, msg);
    }
    if (rv < 0) {
        safetensors_close(&s);
        return rv;
    }
    index_names(&s);
    *ret = s;
    return 0;
}

static int open_fd(int fd, uint64_t file_size, struct safetensors *ret,
                   struct errmsg *msg)
{
    uint8_t length[LENGTH_SIZE] = {0};
    uint8_t *header;
    size_t size = 0;
    int rv;

    rv = file_read_at(fd, length, MIN(file_size, LENGTH_SIZE), 0);
    if (rv < 0) {
        return errmsg_set(msg, rv, "cannot be read: %s", err_text(rv));
    }
    rv = safetensors_header_size(length, file_size, &size, msg);
    if (rv < 0) {
        return rv;
    }
    header = mem_alloc(size);
    rv = file_read_at(fd, header, size, LENGTH_SIZE);
    if (rv < 0) {
        (void)errmsg_set(msg, rv, "cannot be read: %s", err_text(rv));
    } else {
        rv = safetensors_parse(header, size, file_size, ret, msg);
    }
    mem_free(header);
    return rv;
}

int safetensors_open(const char *path, struct safetensors *ret, struct errmsg *msg)
{
    uint64_t size = 0;
    int fd = file_open_read(path, &size);
    int rv;

    if (fd < 0) {
        return errmsg_set(msg, fd, "cannot be opened: %s", err_text(fd));
    }
    rv = open_fd(fd, size, ret, msg);
    if (rv < 0) {
        (void)close(fd); /* read only */
        return rv;
    }
    ret->fd = fd;
    return 0;
}

void safetensors_close(struct safetensors *s)
{
    if (s->fd >= 0) {
        (void)close(s->fd); /* read only */
    }
    for (size_t i = 0; i < s->n_tensors; i++) {
        mem_free(s->tensor[i].shape);
    }
    mem_free(s->tensor);
    mem_free(s->by_name);
    json_decref(s->json);
    *s = (struct safetensors){.fd = -1};
}

const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    const struct st_tensor key = {.name = name};
    const struct st_tensor *key_ptr = &key;
    const struct st_tensor *const *found;

    found = bsearch(&key_ptr, s->by_name, s->n_tensors,
                    sizeof(const struct st_tensor *), compare_names);
    return found ? *found : NULL;
}

const char *safetensors_metadata(const struct safetensors *s, const char *key)
{
    return json_string_value(
        json_object_get(json_object_get(s->json, metadata_key), key));
}

int safetensors_read(const struct safetensors *s, const struct st_tensor *t,
                     uint64_t begin, void *data, size_t size)
{
    ASSERT(s->fd >= 0 && begin <= t->bytes && size <= t->bytes - begin);
    return file_read_at(s->fd, data, size, t->offset + begin);
}

/* --- writing --- */

uint64_t st_entry_bytes(const struct st_entry *entry)
{
    uint64_t bits = dtypes[entry->dtype].bits;

    for (int i = 0; i < entry->n_dims; i++) {
        ASSERT(!__builtin_mul_overflow(bits, entry->shape[i], &bits));
    }
    ASSERT(bits % 8 == 0);
    return bits / 8;
}

static int compare_entries(const void *a, const void *b)
{
    const struct st_entry *x = a;
    const struct st_entry *y = b;

    if (x->dtype != y->dtype) {
        return x->dtype > y->dtype ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

void safetensors_sort(struct st_entry *entry, size_t n)
{
    if (n > 0) {
        qsort(entry, n, sizeof(*entry), compare_entries);
    }
}

void safetensors_quote(struct buf *b, const char *text)
{
    static const char plain[] = "\b\f\n\r\t\"\\";
    static const char letters[] = "bfnrt\"\\";

    (void)buf_printf(b, "\"");
    for (; *text; text++) {
        const char *found = strchr(plain, *text);

        if (found) {
            (void)buf_printf(b, "\\%c", letters[found - plain]);
        } else if ((unsigned char)*text < 0x20) {
            (void)buf_printf(b, "\\u%04x", (unsigned)(unsigned char)*text);
        } else {
            (void)buf_printf(b, "%c", *text);
        }
    }
    (void)buf_printf(b, "\"");
}

static void put_metadata(struct buf *b, const struct st_metadata *metadata, size_t n)
{
    (void)buf_printf(b, "\"%s\":{", metadata_key);
    for (size_t i = 0; i < n; i++) {
        (void)buf_printf(b, "%s", i > 0 ? "," : "");
        safetensors_quote(b, metadata[i].key);
        (void)buf_printf(b, ":");
        safetensors_quote(b, metadata[i].value);
    }
    (void)buf_printf(b, "}");
}

static void put_entry(struct buf *b, const struct st_entry *entry, uint64_t begin)
{
    const uint64_t end = begin + st_entry_bytes(entry);

    safetensors_quote(b, entry->name);
    (void)buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_name(entry->dtype));
    for (int i = 0; i < entry->n_dims; i++) {
        (void)buf_printf(b, "%s%" PRIu64, i > 0 ? "," : "", entry->shape[i]);
    }
    (void)buf_printf(b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

int safetensors_header(const struct st_metadata *metadata, size_t n_metadata,
                       const struct st_entry *entry, size_t n_entries, size_t align,
                       struct buf *ret)
{
    struct buf b;
    uint64_t begin = 0;
    int rv = 0;

    buf_init(&b, SIZE_MAX / 2); /* the ceiling is checked once, at the end */
    (void)buf_printf(&b, "{");
    if (n_metadata > 0) {
        put_metadata(&b, metadata, n_metadata);
    }
    for (size_t i = 0; i < n_entries; i++) {
        (void)buf_printf(&b, "%s", i > 0 || n_metadata > 0 ? "," : "");
        put_entry(&b, &entry[i], begin);
        begin += st_entry_bytes(&entry[i]);
    }
    (void)buf_printf(&b, "}");
    while ((LENGTH_SIZE + buf_len(&b)) % align != 0) {
        (void)buf_printf(&b, " ");
    }
    if (buf_len(&b) > SAFETENSORS_HEADER_MAX) {
        rv = ERR_TOO_LARGE;
    }
    if (rv == 0) {
        rv = wire_put_u64(ret, buf_len(&b));
    }
    if (rv == 0) {
        rv = buf_append(ret, buf_bytes(&b), buf_len(&b));
    }
    buf_release(&b);
    return rv;
}
