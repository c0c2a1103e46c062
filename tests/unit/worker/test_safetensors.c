#include "tests/lib/cmocka.h"
#include "tests/lib/tiny_checkpoint.h"
#include "worker/checkpoint/safetensors.h"

#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The bytes of a file: length, JSON, and `n_data` bytes of data. */
static void make_file(struct buf *b, const char *json, size_t n_json, size_t n_data)
{
    uint64_t n = n_json;
    uint8_t zero[64] = {0};

    buf_init(b, (size_t)1 << 30);
    assert_int_equal(buf_append(b, &n, sizeof(n)), 0);
    assert_int_equal(buf_append(b, json, n_json), 0);
    assert_int_equal(buf_append(b, zero, n_data), 0);
}

/* What safetensors_open does, on bytes. */
static int parse_bytes(const uint8_t *data, size_t size, struct safetensors *ret,
                       struct errmsg *msg)
{
    size_t n = 0;
    int rv = safetensors_header_size(data, size, &n, msg);

    return rv < 0 ? rv : safetensors_parse(data + 8, n, size, ret, msg);
}

static int parse_text(const char *json, size_t n_data, struct safetensors *ret,
                      struct errmsg *msg)
{
    struct buf b;
    int rv;

    make_file(&b, json, strlen(json), n_data);
    rv = parse_bytes(buf_bytes(&b), buf_len(&b), ret, msg);
    buf_release(&b);
    return rv;
}

static void assert_rejected(const char *json, size_t n_data, const char *why)
{
    struct safetensors s = {.fd = -1};
    struct errmsg msg = {""};

    assert_int_equal(parse_text(json, n_data, &s, &msg), ERR_CORRUPT);
    if (!strstr(msg.text, why)) {
        fail_msg("%s: '%s' lacks '%s'", json, msg.text, why);
    }
}

static void assert_accepted(const char *json, size_t n_data, size_t n_tensors)
{
    struct safetensors s = {.fd = -1};
    struct errmsg msg = {""};

    if (parse_text(json, n_data, &s, &msg) < 0) {
        fail_msg("%s: %s", json, msg.text);
    }
    assert_int_equal(s.n_tensors, n_tensors);
    safetensors_close(&s);
}

/* --- the writer --- */

static void assert_header(const struct st_entry *entry, size_t n, const char *wanted,
                          size_t wanted_n)
{
    struct buf b;

    buf_init(&b, 1 << 20);
    assert_int_equal(safetensors_header(NULL, 0, entry, n, 8, &b), 0);
    assert_int_equal(buf_len(&b), 8 + wanted_n);
    assert_int_equal(buf_bytes(&b)[0], wanted_n);
    assert_memory_equal(buf_bytes(&b) + 1, "\0\0\0\0\0\0\0", 7);
    assert_memory_equal(buf_bytes(&b) + 8, wanted, wanted_n);
    buf_release(&b);
}

static void the_published_vectors_are_written_byte_for_byte(void **state)
{
    const struct st_entry attn_dot = {
        .name = "attn.0", .dtype = ST_F32, .n_dims = 3, .shape = {1, 2, 3}};
    const struct st_entry attn = {
        .name = "attn0", .dtype = ST_F32, .n_dims = 4, .shape = {1, 1, 2, 3}};

    (void)state;
    assert_header(NULL, 0, "{}      ", 8);
    assert_header(
        &attn_dot, 1,
        "{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}",
        64);
    assert_header(
        &attn, 1,
        "{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,1,2,3],\"data_offsets\":[0,24]}}"
        "       ",
        72);
}

static void the_data_begin_where_they_are_wanted(void **state)
{
    static const size_t aligns[] = {8, 64, 4096};
    const struct st_entry entry = {
        .name = "a", .dtype = ST_U8, .n_dims = 1, .shape = {1}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(aligns); i++) {
        struct safetensors s = {.fd = -1};
        struct errmsg msg = {""};
        struct buf b;

        buf_init(&b, 1 << 20);
        assert_int_equal(safetensors_header(NULL, 0, &entry, 1, aligns[i], &b), 0);
        assert_int_equal(buf_len(&b) % aligns[i], 0);
        assert_int_equal(buf_append(&b, "x", 1), 0);
        assert_int_equal(parse_bytes(buf_bytes(&b), buf_len(&b), &s, &msg), 0);
        assert_int_equal(s.tensor[0].offset, buf_len(&b) - 1);
        safetensors_close(&s);
        buf_release(&b);
    }
}

static void tensors_are_sorted_by_alignment_then_name(void **state)
{
    struct st_entry entry[] = {
        {.name = "test2", .dtype = ST_F16, .n_dims = 2, .shape = {2, 2}},
        {.name = "test1", .dtype = ST_I32, .n_dims = 2, .shape = {2, 2}},
    };
    struct st_entry more[] = {
        {.name = "b", .dtype = ST_F32, .n_dims = 0},
        {.name = "z", .dtype = ST_U64, .n_dims = 0},
        {.name = "a", .dtype = ST_F32, .n_dims = 0},
        {.name = "a", .dtype = ST_BOOL, .n_dims = 0},
    };

    (void)state;
    safetensors_sort(entry, ARRAY_LEN(entry));
    assert_header(
        entry, 2,
        "{\"test1\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
        "\"test2\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[16,24]}}"
        "       ",
        128);
    safetensors_sort(more, ARRAY_LEN(more));
    assert_int_equal(more[0].dtype, ST_U64);
    assert_string_equal(more[1].name, "a");
    assert_string_equal(more[2].name, "b");
    assert_int_equal(more[3].dtype, ST_BOOL);
}

static void names_and_metadata_come_back_whatever_they_hold(void **state)
{
    const char *name = "a\"\\/\b\f\n\r\t\x01\x1f\x7f \xc3\xa9 \xf0\x9f\x98\x80";
    const struct st_entry entry = {.name = name, .dtype = ST_U8, .n_dims = 0};
    const struct st_metadata metadata[] = {{"format", "pt"}, {"k\n", "{\"v\":1}"}};
    struct safetensors s = {.fd = -1};
    struct errmsg msg = {""};
    struct buf b;

    (void)state;
    buf_init(&b, 1 << 20);
    assert_int_equal(safetensors_header(metadata, 2, &entry, 1, 8, &b), 0);
    assert_int_equal(buf_append(&b, "x", 1), 0);
    assert_int_equal(parse_bytes(buf_bytes(&b), buf_len(&b), &s, &msg), 0);
    ASSERT(s.tensor);
    assert_string_equal(s.tensor[0].name, name);
    assert_ptr_equal(safetensors_find(&s, name), &s.tensor[0]);
    assert_null(safetensors_find(&s, "a"));
    assert_string_equal(safetensors_metadata(&s, "format"), "pt");
    assert_string_equal(safetensors_metadata(&s, "k\n"), "{\"v\":1}");
    assert_null(safetensors_metadata(&s, "none"));
    safetensors_close(&s);
    buf_release(&b);
}

/* --- what must be accepted --- */

static void odd_but_legal_files_are_accepted(void **state)
{
    (void)state;
    assert_accepted("{}", 0, 0);
    assert_accepted("{}      ", 0, 0);
    assert_accepted(" \t\r\n{}\n ", 0, 0);
    assert_accepted("{\"__metadata__\":{}}", 0, 0);
    assert_accepted("{\"__metadata__\":{\"a\":\"b\"}}", 0, 0);
    assert_accepted("{\"t\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
                    4, 1);
    assert_accepted(
        "{\"t\":{\"dtype\":\"F32\",\"shape\":[2,0],\"data_offsets\":[0,0]}}", 0, 1);
    assert_accepted("{\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                    "\"z\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[4,4]},"
                    "\"a\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                    4, 3);
    assert_accepted("{\"t\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}",
                    1, 1);
    assert_accepted(
        "{\"t\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, 1);
    assert_accepted("{\"\\u00e9\\ud83d\\ude00\":{\"dtype\":\"U8\",\"shape\":[1],"
                    "\"data_offsets\":[0,1]}}",
                    1, 1);
}

static void escapes_in_names_are_decoded(void **state)
{
    struct safetensors s = {.fd = -1};
    struct errmsg msg = {""};

    (void)state;
    assert_int_equal(
        parse_text("{\"\\u00e9\\ud83d\\ude00\\/\":{\"dtype\":\"U8\",\"shape\":"
                   "[1],\"data_offsets\":[0,1]}}",
                   1, &s, &msg),
        0);
    ASSERT(s.tensor);
    assert_string_equal(s.tensor[0].name, "\xc3\xa9\xf0\x9f\x98\x80/");
    safetensors_close(&s);
}

/* --- what must be rejected --- */

static void short_files_and_bad_lengths_are_rejected(void **state)
{
    uint8_t huge[8] = {0x01, 0xe1, 0xf5, 0x05, 0, 0, 0, 0}; /* 100,000,001 */
    uint8_t limit[8] = {0x00, 0xe1, 0xf5, 0x05, 0, 0, 0, 0};
    uint8_t all[8];
    uint8_t one[8] = {1, 0, 0, 0, 0, 0, 0, 0};
    struct errmsg msg = {""};
    size_t n;

    (void)state;
    memset(all, 0xff, sizeof(all));
    assert_int_equal(safetensors_header_size(one, 0, &n, &msg), ERR_CORRUPT);
    assert_int_equal(safetensors_header_size(one, 7, &n, &msg), ERR_CORRUPT);
    assert_int_equal(safetensors_header_size(one, 8, &n, &msg), ERR_CORRUPT);
    assert_int_equal(safetensors_header_size(one, 9, &n, &msg), 0);
    assert_int_equal(n, 1);
    assert_int_equal(safetensors_header_size(huge, UINT64_MAX, &n, &msg),
                     ERR_TOO_LARGE);
    assert_int_equal(safetensors_header_size(all, UINT64_MAX, &n, &msg), ERR_TOO_LARGE);
    assert_int_equal(safetensors_header_size(limit, UINT64_MAX, &n, &msg), 0);
    assert_int_equal(n, SAFETENSORS_HEADER_MAX);
}

static void headers_that_are_no_json_object_are_rejected(void **state)
{
    (void)state;
    assert_rejected("", 0, "invalid header");
    assert_rejected("{", 0, "invalid header");
    assert_rejected("[]", 0, "not an object");
    assert_rejected("{} x", 0, "invalid header");
    assert_rejected("{}{}", 0, "invalid header");
    assert_rejected("\xef\xbb\xbf{}", 0, "invalid header");
    assert_rejected("{\"a\xff\":1}", 0, "invalid header");
    assert_rejected("{\"\\ud83d\":1}", 0, "invalid header");
    assert_rejected("{'a':1}", 0, "invalid header");
}

static void duplicate_names_are_rejected(void **state)
{
    (void)state;
    assert_rejected("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                    "\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                    2, "invalid header");
    assert_rejected("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],"
                    "\"data_offsets\":[0,1]}}",
                    1, "invalid header");
    assert_rejected("{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0,
                    "invalid header");
}

static void metadata_other_than_texts_is_rejected(void **state)
{
    (void)state;
    assert_rejected("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__");
    assert_rejected("{\"__metadata__\":{\"a\":null}}", 0, "__metadata__");
    assert_rejected("{\"__metadata__\":[]}", 0, "__metadata__");
    assert_rejected("{\"__metadata__\":null}", 0, "__metadata__");
}

static void entries_without_their_members_are_rejected(void **state)
{
    (void)state;
    assert_rejected("{\"t\":1}", 0, "dtype");
    assert_rejected("{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype");
    assert_rejected("{\"t\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                    4, "dtype");
    assert_rejected("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape");
    assert_rejected("{\"t\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
                    4, "shape");
    assert_rejected(
        "{\"t\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4,
        "shape");
    assert_rejected("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets");
    assert_rejected("{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
                    "data_offsets");
    assert_rejected(
        "{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
        "data_offsets");
    assert_rejected("{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}",
                    4, "data_offsets");
}

static void holes_overlaps_and_reversed_offsets_are_rejected(void **state)
{
    (void)state;
    assert_rejected("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                    2, "invalid offset");
    assert_rejected("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                    "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
                    3, "invalid offset");
    assert_rejected("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
                    6, "invalid offset");
    assert_rejected("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                    4, "invalid offset");
    assert_rejected("{\"t\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,0]}}",
                    0, "invalid offset");
}

static void shapes_that_do_not_fit_are_rejected(void **state)
{
    (void)state;
    assert_rejected("{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
                    4, "invalid info");
    assert_rejected("{\"t\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                    1, "misaligned");
    assert_rejected(
        "{\"t\":{\"dtype\":\"F6_E3M2\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1,
        "misaligned");
    assert_rejected("{\"t\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],"
                    "\"data_offsets\":[0,0]}}",
                    0, "overflow");
    assert_rejected("{\"t\":{\"dtype\":\"F32\",\"shape\":[2305843009213693952],"
                    "\"data_offsets\":[0,0]}}",
                    0, "overflow");
    assert_rejected("{\"t\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],"
                    "\"data_offsets\":[0,0]}}",
                    0, "invalid header");
}

static void missing_and_trailing_bytes_are_rejected(void **state)
{
    const char *json =
        "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";

    (void)state;
    assert_accepted(json, 8, 1);
    assert_rejected(json, 7, "incomplete");
    assert_rejected(json, 9, "incomplete");
    assert_rejected(json, 0, "incomplete");
    assert_rejected("{}", 1, "incomplete");
}

/* --- attacks --- */

static void a_length_past_the_file_is_rejected(void **state)
{
    uint8_t file[24] = {0xe8, 0x03, 0, 0, 0, 0, 0, 0, '{', '}'};
    struct safetensors s = {.fd = -1};
    struct errmsg msg = {""};

    (void)state;
    assert_int_equal(parse_bytes(file, sizeof(file), &s, &msg), ERR_CORRUPT);
}

static void make_attack(struct buf *b, size_t n, unsigned long long bytes)
{
    buf_init(b, (size_t)1 << 30);
    (void)buf_printf(b, "{");
    for (size_t i = 0; i < n; i++) {
        (void)buf_printf(b,
                         "%s\"w%zu\":{\"dtype\":\"F32\",\"shape\":[%llu],"
                         "\"data_offsets\":[0,%llu]}",
                         i > 0 ? "," : "", i, bytes / 4, bytes);
    }
    (void)buf_printf(b, "}");
}

static void many_tensors_on_the_same_bytes_are_rejected(void **state)
{
    struct safetensors s = {.fd = -1};
    struct errmsg msg = {""};
    struct buf b;

    (void)state;
    make_attack(&b, 100000, 160000);
    assert_int_equal(safetensors_parse(buf_bytes(&b), buf_len(&b),
                                       8 + buf_len(&b) + 160000, &s, &msg),
                     ERR_CORRUPT);
    buf_release(&b);
}

static void more_values_than_the_limit_are_refused_before_parsing(void **state)
{
    struct safetensors s = {.fd = -1};
    struct errmsg msg = {""};
    struct buf b;

    (void)state;
    make_attack(&b, 600000, 16);
    assert_int_equal(
        safetensors_parse(buf_bytes(&b), buf_len(&b), 8 + buf_len(&b) + 16, &s, &msg),
        ERR_TOO_LARGE);
    buf_release(&b);
}

static void deep_nesting_is_rejected(void **state)
{
    struct safetensors s = {.fd = -1};
    struct errmsg msg = {""};
    char *json = mem_alloc(200001);

    (void)state;
    memset(json, '[', 200000);
    json[200000] = '\0';
    assert_int_equal(parse_text(json, 0, &s, &msg), ERR_CORRUPT);
    mem_free(json);
}

/* --- files --- */

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void ranges_of_a_tensor_are_read_from_a_file(void **state)
{
    const char *json = "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]},"
                       "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    char dir[256];
    char path[512];
    uint8_t data[3] = {0};
    struct safetensors s = {.fd = -1};
    struct errmsg msg = {""};
    struct buf b;

    (void)state;
    tiny_make_dir(dir, sizeof(dir));
    assert_true(str_format(path, sizeof(path), "%s/f.safetensors", dir));
    make_file(&b, json, strlen(json), 0);
    assert_int_equal(buf_append(&b, "abcdef", 6), 0);
    write_file(path, buf_bytes(&b), buf_len(&b));
    assert_int_equal(safetensors_open(path, &s, &msg), 0);
    assert_string_equal(s.tensor[0].name, "a");
    assert_int_equal(safetensors_read(&s, safetensors_find(&s, "b"), 1, data, 3), 0);
    assert_memory_equal(data, "def", 3);
    safetensors_close(&s);

    write_file(path, buf_bytes(&b), 5);
    assert_int_equal(safetensors_open(path, &s, &msg), ERR_CORRUPT);
    write_file(path, buf_bytes(&b), 0);
    assert_int_equal(safetensors_open(path, &s, &msg), ERR_CORRUPT);
    assert_int_equal(safetensors_open(dir, &s, &msg), ERR_INVALID);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(safetensors_open(path, &s, &msg), -ENOENT);
    buf_release(&b);
    tiny_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_vectors_are_written_byte_for_byte),
        cmocka_unit_test(the_data_begin_where_they_are_wanted),
        cmocka_unit_test(tensors_are_sorted_by_alignment_then_name),
        cmocka_unit_test(names_and_metadata_come_back_whatever_they_hold),
        cmocka_unit_test(odd_but_legal_files_are_accepted),
        cmocka_unit_test(escapes_in_names_are_decoded),
        cmocka_unit_test(short_files_and_bad_lengths_are_rejected),
        cmocka_unit_test(headers_that_are_no_json_object_are_rejected),
        cmocka_unit_test(duplicate_names_are_rejected),
        cmocka_unit_test(metadata_other_than_texts_is_rejected),
        cmocka_unit_test(entries_without_their_members_are_rejected),
        cmocka_unit_test(holes_overlaps_and_reversed_offsets_are_rejected),
        cmocka_unit_test(shapes_that_do_not_fit_are_rejected),
        cmocka_unit_test(missing_and_trailing_bytes_are_rejected),
        cmocka_unit_test(a_length_past_the_file_is_rejected),
        cmocka_unit_test(many_tensors_on_the_same_bytes_are_rejected),
        cmocka_unit_test(more_values_than_the_limit_are_refused_before_parsing),
        cmocka_unit_test(deep_nesting_is_rejected),
        cmocka_unit_test(ranges_of_a_tensor_are_read_from_a_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
