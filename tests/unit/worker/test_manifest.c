/* manifest.json against people and attackers who can compute its hash. */

#include "tests/lib/cmocka.h"
#include "worker/checkpoint/digest.h"
#include "worker/checkpoint/manifest.h"

#include "common/mem.h"
#include "common/str.h"

#include <math.h>
#include <string.h>

#define HASH "0123456789abcdef0123456789abcdef"

enum { DIGITS_AT = 13, DIGITS = 32 };

static struct checkpoint_file files[] = {
    {.name = "shard-b.safetensors", .bytes = 10, .hash = HASH},
    {.name = "shard-a.safetensors", .bytes = 0, .hash = HASH},
};

static void encode(struct buf *b)
{
    char model[] = "{\"dim\":\n3}";
    char config[] = "{\"a.b\":\"c\"}";
    char data[] = "[]";
    const struct checkpoint_meta meta = {.step = 7,
                                         .run_generation = 2,
                                         .position = 9,
                                         .seed = 1337,
                                         .world_size = 2,
                                         .mesh = {1, 2, "zero_2"},
                                         .signature = "a \"b\" \\ \xc3\xa9",
                                         .has_val_loss = true,
                                         .val_loss = 1.0 / 3,
                                         .trained_ms = 61500,
                                         .failures = 3,
                                         .is_end = true,
                                         .scaler = {true, 1000.1F, 3, 5, 2},
                                         .model_json = model,
                                         .config_json = config,
                                         .data_json = data};
    char hash[CHECKPOINT_HASH_HEX];
    struct errmsg msg;

    buf_init(b, 1 << 20);
    assert_int_equal(manifest_encode(&meta, files, ARRAY_LEN(files), b, hash, &msg), 0);
    assert_memory_equal(b->data + DIGITS_AT, hash, DIGITS);
}

/* Makes the hash right again. */
static void sign(char *text, size_t size)
{
    char hash[DIGEST_HEX];
    struct digest *digest = digest_create();

    memset(text + DIGITS_AT, '0', DIGITS);
    digest_add(digest, text, size);
    digest_finish(digest, hash);
    digest_free(digest);
    memcpy(text + DIGITS_AT, hash, DIGITS);
}

/* Replaces `from` by `to` in a good manifest, signs it and decodes it. */
static int decode_forged(const char *from, const char *to, struct manifest *ret)
{
    struct errmsg msg = {""};
    struct buf good;
    struct buf b;
    const char *text;
    const char *at;
    int rv;

    encode(&good);
    buf_init(&b, 1 << 20);
    text = (const char *)buf_bytes(&good);
    at = memmem(text, buf_len(&good), from, strlen(from));
    assert_non_null(at);
    (void)buf_printf(&b, "%.*s%s%.*s", (int)(at - text), text, to,
                     (int)(buf_len(&good) - (size_t)(at - text) - strlen(from)),
                     at + strlen(from));
    sign((char *)b.data, buf_len(&b));
    rv = manifest_decode((char *)b.data, buf_len(&b), ret, &msg);
    assert_true((rv < 0) == (msg.text[0] != '\0'));
    buf_release(&good);
    buf_release(&b);
    return rv;
}

static void what_is_written_comes_back(void **state)
{
    struct manifest m;

    (void)state;
    assert_int_equal(decode_forged("step", "step", &m), 0);
    assert_int_equal(m.meta.step, 7);
    assert_int_equal(m.meta.seed, 1337);
    assert_string_equal(m.meta.signature, "a \"b\" \\ \xc3\xa9");
    assert_int_equal(m.meta.mesh.dp_replicate, 1);
    assert_int_equal(m.meta.mesh.dp_shard, 2);
    assert_string_equal(m.meta.mesh.strategy, "zero_2");
    assert_string_equal(m.meta.model_json, "{\"dim\": 3}");
    assert_string_equal(m.meta.config_json, "{\"a.b\":\"c\"}");
    assert_string_equal(m.meta.data_json, "[]");
    assert_true(m.meta.has_val_loss && m.meta.val_loss == 1.0 / 3); /* every bit */
    assert_int_equal(m.meta.trained_ms, 61500);
    assert_int_equal(m.meta.failures, 3);
    assert_true(m.meta.is_end);
    assert_true(m.meta.scaler.is_there && m.meta.scaler.scale == 1000.1F);
    assert_int_equal(m.meta.scaler.growth_tracker, 3);
    assert_int_equal(m.meta.scaler.updates, 5);
    assert_int_equal(m.meta.scaler.skipped, 2);
    assert_int_equal(m.n_files, 2);
    assert_string_equal(m.files[0].name, "shard-a.safetensors"); /* by name */
    assert_int_equal(m.files[1].bytes, 10);
    manifest_release(&m);
}

#define MESH \
    "\"mesh\": {\"dp_replicate\": 1, \"dp_shard\": 2, \"strategy\": \"zero_2\"}"

static void
an_old_manifest_without_a_mesh_is_of_ranks_that_held_everything(void **state)
{
    struct manifest m;

    (void)state;
    assert_int_equal(decode_forged("  " MESH ",\n", "", &m), 0);
    assert_int_equal(m.meta.mesh.dp_replicate, 2);
    assert_int_equal(m.meta.mesh.dp_shard, 1);
    assert_string_equal(m.meta.mesh.strategy, "ddp");
    manifest_release(&m);
}

#define SCALER(scale, tracker, updates, skipped)                      \
    "\"scaler\": {\"scale\": " scale ", \"growth_tracker\": " tracker \
    ", \"updates\": " updates ", \"skipped\": " skipped "}"
#define OWN_SCALE "1000.0999755859375" /* the fp32 number that 1000.1 becomes */

static void a_manifest_without_a_scaler_has_scaled_nothing(void **state)
{
    struct manifest m;

    (void)state;
    assert_int_equal(decode_forged("  " SCALER(OWN_SCALE, "3", "5", "2") ",\n", "", &m),
                     0);
    assert_false(m.meta.scaler.is_there);
    assert_int_equal(m.meta.scaler.skipped, 0);
    manifest_release(&m);
}

static void a_scaler_that_no_training_has_is_refused(void **state)
{
    static const char *const bad[] = {
        SCALER("0.0", "3", "5", "2"),
        SCALER("-2.0", "3", "5", "2"),
        SCALER("0.5", "3", "5", "2"),     /* below the floor */
        SCALER("1.8e38", "3", "5", "2"),  /* its inverse counts as 0 */
        SCALER("1e39", "3", "5", "2"),    /* no fp32 number */
        SCALER("1000.1", "3", "5", "2"),  /* between two */
        SCALER("1000", "3", "5", "2"),    /* written otherwise */
        SCALER("\"8.0\"", "3", "5", "2"), /* a text */
        SCALER("8.0", "-1", "5", "2"),
        SCALER("8.0", "6", "5", "2"), /* more than updates */
        SCALER("8.0", "2147483648", "5", "2"),
        SCALER("8.0", "3", "5", "3"), /* of 7 steps */
        SCALER("8.0", "0", "0", "8"),
        SCALER("8.0", "0", "-1", "8"),
        SCALER("8.0", "0", "9223372036854775807", "9223372036854775807"),
        SCALER("8.0", "3.0", "5", "2"),
        "\"scaler\": {\"scale\": 8.0, \"growth_tracker\": 3, \"updates\": 5}",
        "\"scaler\": {}",
        "\"scaler\": null",
        "\"scaler\": [8.0, 3, 5, 2]",
        "\"scaler\": 8.0",
    };
    struct manifest m;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(decode_forged(SCALER(OWN_SCALE, "3", "5", "2"), bad[i], &m),
                         ERR_CORRUPT);
    }
}

/* Those that were written before there was any of it. */
static void a_manifest_without_history_is_read(void **state)
{
    struct manifest m;

    (void)state;
    assert_int_equal(decode_forged("  \"val_loss\": 0.3333333333333333,\n"
                                   "  \"trained_ms\": 61500,\n"
                                   "  \"failures\": 3,\n"
                                   "  \"is_end\": true,\n",
                                   "", &m),
                     0);
    assert_false(m.meta.has_val_loss);
    assert_int_equal(m.meta.trained_ms, 0);
    assert_int_equal(m.meta.failures, 0);
    assert_false(m.meta.is_end);
    manifest_release(&m);
}

/* What is replaced in a good manifest, and by what. */
static const char *const forged[][2] = {
    {"\"format\": 1", "\"format\": 2"},
    {"\"step\": 7", "\"step\": -7"},
    {"\"step\": 7", "\"step\": 7.0"},
    {"\"step\": 7", "\"step\": \"7\""},
    {"\"step\": 7,", "\"step\": 7, \"step\": 8,"},
    {"\"step\": 7,", ""},
    {"\"run_generation\": 2", "\"run_generation\": 0"},
    {"\"run_generation\": 2", "\"run_generation\": 2147483648"},
    {"\"world_size\": 2", "\"world_size\": 0"},
    {"\"world_size\": 2", "\"world_size\": 3"}, /* not of this mesh */
    {MESH, "\"mesh\": 1"},
    {MESH, "\"mesh\": {}"},
    {"\"dp_replicate\": 1", "\"dp_replicate\": 0"},
    {"\"dp_shard\": 2", "\"dp_shard\": 4294967297"},
    {"\"dp_shard\": 2", "\"dp_shard\": 2, \"dp_shard\": 1"},
    {"zero_2", ""},
    {"zero_2", "zero 2"},
    {"zero_2", "zero_222222222222"},
    {"\"position\": 9,", ""},
    {"\"seed\": 1337", "\"seed\": 18446744073709551615"},
    {"\"val_loss\": 0.3333333333333333", "\"val_loss\": \"0.3\""},
    {"\"val_loss\": 0.3333333333333333", "\"val_loss\": 1e999"},
    {"\"trained_ms\": 61500", "\"trained_ms\": -1"},
    {"\"trained_ms\": 61500", "\"trained_ms\": 9223372036854775807"}, /* no room */
    {"\"failures\": 3", "\"failures\": 0.5"},
    {"\"failures\": 3", "\"failures\": 9223372036854775807"},
    {"\"is_end\": true", "\"is_end\": 1"},
    {"\"signature\": \"a", "\"signature\": \"\\u0000a"},
    {"\"signature\": \"a", "\"signature\": \"\\u001b[31ma"}, /* to a terminal */
    {"\"model\": {", "\"model\":  \n {"},
    {"\"config\": {\"a.b\":\"c\"},", ""},
    {"\"data\": []", "\"data\": 1"},
    {"{\"a.b\":\"c\"}", "{\"a.b\":\n  \"model\": {}}"},
    {"[]", "[\n  ]"},
    {"shard-a.safetensors", "../shard-a.safetensors"},
    {"shard-a.safetensors", ".hidden"},
    {"shard-a.safetensors", ""},
    {"shard-a.safetensors", "shard-b.safetensors"},
    {"\"bytes\": 10", "\"bytes\": -1"},
    {HASH, "0123456789ABCDEF0123456789ABCDEF"},
    {HASH, "0123456789abcdef"},
    {"]\n}\n", "]\n}\n}"},
    {"{\n  \"hash\"", "{\n\t\"hash\""},
};

static void forged_members_are_rejected(void **state)
{
    struct manifest m;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(forged); i++) {
        print_message("%s\n", forged[i][1]);
        assert_int_equal(decode_forged(forged[i][0], forged[i][1], &m), ERR_CORRUPT);
    }
}

static void short_texts_are_rejected(void **state)
{
    struct manifest m;
    struct errmsg msg;
    struct buf b;

    (void)state;
    encode(&b);
    for (size_t n = 0; n < buf_len(&b); n++) {
        char *copy = mem_dup(buf_bytes(&b), n);

        assert_int_equal(manifest_decode(copy, n, &m, &msg), ERR_CORRUPT);
        mem_free(copy);
    }
    buf_release(&b);
}

static void what_cannot_be_said_is_refused(void **state)
{
    char json[] = "{}";
    char broken[] = "{";
    struct checkpoint_meta meta = {.run_generation = 1,
                                   .world_size = 1,
                                   .mesh = {1, 1, "ddp"},
                                   .model_json = json,
                                   .config_json = json,
                                   .data_json = json};
    struct checkpoint_file bad = files[0];
    char hash[CHECKPOINT_HASH_HEX];
    struct errmsg msg;
    struct buf b;

    (void)state;
    buf_init(&b, 1 << 20);
    assert_int_equal(manifest_encode(&meta, files, 1, &b, hash, &msg), 0);
    assert_int_equal(manifest_encode(&meta, files, 0, &b, hash, &msg), ERR_INVALID);
    meta.data_json = broken;
    assert_int_equal(manifest_encode(&meta, files, 1, &b, hash, &msg), ERR_INVALID);
    meta.data_json = NULL;
    assert_int_equal(manifest_encode(&meta, files, 1, &b, hash, &msg), ERR_INVALID);
    meta.data_json = json;
    bad.hash[0] = 'G';
    assert_int_equal(manifest_encode(&meta, &bad, 1, &b, hash, &msg), ERR_INVALID);
    bad = files[0];
    assert_true(str_format(bad.name, sizeof(bad.name), "a/b"));
    assert_int_equal(manifest_encode(&meta, &bad, 1, &b, hash, &msg), ERR_INVALID);
    meta.mesh.dp_shard = 0;
    assert_int_equal(manifest_encode(&meta, files, 1, &b, hash, &msg), ERR_INVALID);
    meta.mesh = (struct checkpoint_mesh){1, 1, "\n"};
    assert_int_equal(manifest_encode(&meta, files, 1, &b, hash, &msg), ERR_INVALID);
    meta.mesh = (struct checkpoint_mesh){1, 1, "ddp"};
    meta.has_val_loss = true;
    meta.val_loss = (double)NAN;
    assert_int_equal(manifest_encode(&meta, files, 1, &b, hash, &msg), ERR_INVALID);
    meta.has_val_loss = false;
    meta.run_generation = 0;
    assert_int_equal(manifest_encode(&meta, files, 1, &b, hash, &msg), ERR_INVALID);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_comes_back),
        cmocka_unit_test(a_manifest_without_a_scaler_has_scaled_nothing),
        cmocka_unit_test(a_scaler_that_no_training_has_is_refused),
        cmocka_unit_test(
            an_old_manifest_without_a_mesh_is_of_ranks_that_held_everything),
        cmocka_unit_test(a_manifest_without_history_is_read),
        cmocka_unit_test(forged_members_are_rejected),
        cmocka_unit_test(short_texts_are_rejected),
        cmocka_unit_test(what_cannot_be_said_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
