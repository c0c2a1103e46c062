#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"
#include "worker/data/dataset.h"

#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct scratch scratch;
static struct text_list paths; /* too large for comfort on a stack */

static const char *own[FILES_OWN_MAX];

static int on_setup(void **state)
{
    (void)state;
    scratch_open(&scratch);
    paths.n = 0;
    own[0] = NULL;
    own[1] = NULL;
    return 0;
}

static int on_teardown(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

static void name(const char *path)
{
    (void)snprintf(paths.item[paths.n++], CONFIG_TEXT_MAX, "%s",
                   scratch_path(&scratch, path));
}

static void write_text(const char *path, const char *text)
{
    (void)scratch_text(&scratch, path, text);
}

static int open_as(const char *format, int64_t seq_len, int64_t vocab,
                   struct dataset **ret, struct errmsg *msg)
{
    struct dataset_config config = {.paths = &paths,
                                    .format = format,
                                    .what = "data.train",
                                    .own = {own[0], own[1]},
                                    .seq_len = seq_len,
                                    .vocab = vocab};

    *msg = (struct errmsg){0};
    return dataset_open(&config, ret, msg);
}

static struct dataset *must_open(const char *format, int64_t seq_len, int64_t vocab)
{
    struct dataset *d = NULL;
    struct errmsg msg;

    if (open_as(format, seq_len, vocab, &d, &msg) != 0) {
        fail_msg("%s", msg.text);
    }
    return d;
}

/* Opening fails; the text ends with `expected`. */
static void assert_refused(const char *format, int64_t vocab, int err,
                           const char *expected)
{
    struct dataset *d = NULL;
    struct errmsg msg;
    size_t len;

    assert_int_equal(open_as(format, 4, vocab, &d, &msg), err);
    assert_null(d);
    len = strlen(msg.text);
    assert_true(len >= strlen(expected));
    assert_string_equal(msg.text + len - strlen(expected), expected);
    assert_int_equal(strncmp(msg.text, "data.train", strlen("data.train")), 0);
}

static void assert_sample(const struct dataset *d, uint64_t sample,
                          const char *expected)
{
    int32_t tokens[16] = {0};
    struct errmsg msg = {0};

    assert_int_equal(dataset_read(d, sample, tokens, &msg), 0);
    for (size_t i = 0; expected[i]; i++) {
        assert_int_equal(tokens[i], (unsigned char)expected[i]);
    }
}

static void samples_overlap_by_the_target_of_the_last_token(void **state)
{
    (void)state;
    struct dataset *d;

    write_text("a.txt", "0123456789abc"); /* 13 tokens: (13 − 1) / 4 = 3 */
    name("a.txt");
    d = must_open("auto", 4, 256);
    assert_int_equal(dataset_samples(d), 3);
    assert_int_equal(dataset_tokens(d), 13);
    assert_sample(d, 0, "01234");
    assert_sample(d, 1, "45678");
    assert_sample(d, 2, "89abc");
    dataset_close(d);
}

static void a_token_short_of_a_sample_is_none(void **state)
{
    (void)state;
    struct dataset *d;

    write_text("a.txt", "0123456789ab"); /* 12 tokens */
    name("a.txt");
    d = must_open("text", 4, 256);
    assert_int_equal(dataset_samples(d), 2);
    dataset_close(d);
}

static void samples_are_numbered_through_and_never_span_files(void **state)
{
    (void)state;
    struct dataset *d;

    write_text("b.txt", "bbbbbBBBB");
    write_text("a.txt", "aaaaaAAAA!");
    name("b.txt"); /* the order given */
    name("a.txt");
    d = must_open("text", 4, 256);
    assert_int_equal(dataset_samples(d), 4);
    assert_sample(d, 1, "bBBBB");
    assert_sample(d, 2, "aaaaa");
    assert_sample(d, 3, "aAAAA");
    dataset_close(d);
}

static void folders_are_read_whole_in_the_order_of_bytes(void **state)
{
    (void)state;
    struct dataset *d;
    char *identity;

    write_text("f/b/2.txt", "22222");
    write_text("f/b.txt", "11111"); /* '.' comes before '/' */
    write_text("f/Z", "00000");
    write_text("f/c/x/y", "33333");
    write_text("f/c/short", "!");
    write_text("f/empty", "");
    write_text("f/.hidden", "-----");
    write_text("f/.git/x", "-----");
    assert_int_equal(symlink("Z", scratch_path(&scratch, "f/link")), 0);
    name("f");
    d = must_open("text", 4, 256);
    assert_int_equal(dataset_samples(d), 5);
    assert_sample(d, 0, "00000");
    assert_sample(d, 1, "11111");
    assert_sample(d, 2, "22222");
    assert_sample(d, 3, "33333");
    assert_sample(d, 4, "00000"); /* f/link */
    identity = dataset_identity(d);
    assert_non_null(strstr(identity, "/f/empty\",\"bytes\":0,"));
    assert_null(strstr(identity, "hidden"));
    mem_free(identity);
    dataset_close(d);
}

static void must_hold(uint64_t n_samples)
{
    struct dataset *d = must_open("text", 4, 256);

    assert_int_equal(dataset_samples(d), n_samples);
    dataset_close(d);
}

/* Also before they are made, and through links. */
static void what_the_run_writes_is_left_out(void **state)
{
    (void)state;
    char run[512];
    char ckpt[512];

    write_text("f/a", "00000");
    assert_int_equal(symlink("f", scratch_path(&scratch, "link")), 0);
    (void)snprintf(run, sizeof(run), "%s/link/./none/../runs/x", scratch.dir);
    (void)snprintf(ckpt, sizeof(ckpt), "%s/f/ckpt/", scratch.dir);
    own[0] = run;
    own[1] = ckpt;
    name("f");
    must_hold(1);
    write_text("f/runs/x/metrics.jsonl", "-----");
    write_text("f/runs/x/log/1/rank0.log", "-----");
    write_text("f/ckpt/step/shard", "-----");
    write_text("f/runs/xy", "11111");
    assert_int_equal(symlink("runs/x/log", scratch_path(&scratch, "f/logs")), 0);
    must_hold(2);
    paths.n = 0;
    name("f/*");
    must_hold(2);
    paths.n = 0;
    name("f/ck*");
    assert_refused("text", 256, ERR_INVALID,
                   "/f/ck*: no file in it: run.dir and checkpoint.dir are left out");
}

static void to_name_what_the_run_writes_is_refused(void **state)
{
    (void)state;
    char run[512];

    write_text("f/runs/x/a", "00000");
    (void)snprintf(run, sizeof(run), "%s/f/runs/x", scratch.dir);
    own[1] = run;
    name("f/runs/x/a");
    assert_refused("text", 256, ERR_INVALID,
                   "/f/runs/x/a is in run.dir or checkpoint.dir, which this run "
                   "writes: keep data elsewhere");
    paths.n = 0;
    name("f/runs/x");
    assert_refused("text", 256, ERR_INVALID,
                   "/f/runs/x is in run.dir or checkpoint.dir, which this run "
                   "writes: keep data elsewhere");
}

static void globs_are_sorted_and_literal_names_win(void **state)
{
    (void)state;
    struct dataset *d;

    write_text("part_2", "22222");
    write_text("part_10", "11111");
    write_text("part_*", "*****");
    write_text("other", "-----");
    name("part_[0-9]*");
    d = must_open("text", 4, 256);
    assert_int_equal(dataset_samples(d), 2);
    assert_sample(d, 0, "11111"); /* by bytes: "10" before "2" */
    assert_sample(d, 1, "22222");
    dataset_close(d);
    paths.n = 0;
    name("part_*");
    d = must_open("text", 4, 256);
    assert_int_equal(dataset_samples(d), 1);
    assert_sample(d, 0, "*****");
    dataset_close(d);
}

static void more_files_than_are_kept_open_read_the_same(void **state)
{
    (void)state;
    struct dataset *d;

    for (int i = 0; i < 100; i++) {
        char path[32];
        char text[16];

        (void)snprintf(path, sizeof(path), "many/%03d", i);
        (void)snprintf(text, sizeof(text), "%05d", i);
        write_text(path, text);
    }
    name("many");
    d = must_open("text", 4, 256);
    assert_int_equal(dataset_samples(d), 100);
    assert_sample(d, 0, "00000");
    assert_sample(d, 77, "00077");
    assert_int_equal(unlink(scratch_path(&scratch, "many/077")), 0);
    assert_int_equal(dataset_read(d, 77, (int32_t[5]){0}, NULL), -ENOENT);
    dataset_close(d);
}

/* An llm.c file of these tokens whose header promises `n_promised`. */
static void write_llmc(const char *path, uint32_t magic, const uint16_t *tokens,
                       size_t n, uint32_t n_promised)
{
    uint8_t bytes[1024 + 64] = {0};
    const uint32_t header[] = {magic, 1, n_promised};

    memcpy(bytes, header, sizeof(header));
    memcpy(bytes + 1024, tokens, 2 * n);
    (void)scratch_write(&scratch, path, bytes, 1024 + 2 * n);
}

static void binary_files_are_recognised(void **state)
{
    (void)state;
    const uint16_t tokens[] = {1, 2, 300, 4, 50000, 6, 7, 8, 9};
    int32_t read[5];
    struct dataset *d;

    write_llmc("a.bin", 20240520, tokens, 9, 9);
    (void)scratch_write(&scratch, "b.bin", tokens, sizeof(tokens));
    name("a.bin");
    name("b.bin");
    d = must_open("auto", 4, 50257);
    assert_int_equal(dataset_samples(d), 4);
    assert_int_equal(dataset_tokens(d), 18);
    for (uint64_t sample = 0; sample < 4; sample++) {
        assert_int_equal(dataset_read(d, sample, read, NULL), 0);
        for (size_t i = 0; i < 5; i++) {
            assert_int_equal(read[i], tokens[sample % 2 * 4 + i]);
        }
    }
    dataset_close(d);
}

static void formats_can_be_forced(void **state)
{
    (void)state;
    struct dataset *d;

    write_text("a.bin", "0123456789");
    name("a.bin");
    d = must_open("text", 4, 256);
    assert_sample(d, 1, "45678");
    dataset_close(d);
    d = must_open("u16", 4, 65536);
    assert_int_equal(dataset_tokens(d), 5);
    dataset_close(d);
    assert_refused("llmc", 65536, ERR_INVALID,
                   "a.bin: not an llm.c token file (header 20240520, version 1)");
    assert_refused(
        "megatron", 65536, ERR_UNSUPPORTED,
        "data.format: \"megatron\" is not supported yet; use auto, text, u16 "
        "or llmc");
}

static void damaged_headers_are_refused(void **state)
{
    (void)state;
    const uint16_t tokens[] = {1, 2, 3, 4, 5};

    write_llmc("a.bin", 20240520, tokens, 5, 6);
    name("a.bin");
    assert_refused(
        "auto", 256, ERR_CORRUPT,
        "a.bin: its header promises 6 tokens, that is 1036 bytes, but the file "
        "has 1034; it was cut or is still being written");
    write_llmc("a.bin", 20240801, tokens, 5, 5);
    assert_refused("auto", 256, ERR_UNSUPPORTED,
                   "a.bin: llm.c tokens of Llama 3 (header 20240801) are not supported "
                   "yet; GPT-2's have 20240520");
    (void)scratch_write(&scratch, "a.bin", "\x88\xd8\x34\x01 cut", 8);
    assert_refused("auto", 65536, ERR_INVALID,
                   "a.bin: not an llm.c token file (header 20240520, version 1)");
    (void)scratch_write(&scratch, "a.bin", "12345", 5);
    assert_refused("auto", 65536, ERR_INVALID,
                   "a.bin: 5 bytes are no whole number of 16-bit tokens; read as u16 "
                   "because its name ends in .bin: data.format=text reads it as bytes");
    assert_refused("u16", 65536, ERR_INVALID,
                   "a.bin: 5 bytes are no whole number of 16-bit tokens");
}

static void a_relative_path_that_is_missing_says_what_it_counts_from(void **state)
{
    (void)state;
    char expected[512];
    char *here = getcwd(NULL, 0);

    assert_non_null(here);
    (void)snprintf(paths.item[paths.n++], CONFIG_TEXT_MAX, "no/such");
    (void)snprintf(expected, sizeof(expected),
                   "data.train: no/such: No such file or directory; a path that does "
                   "not begin with / counts from where the program is started: %s",
                   here);
    assert_refused("auto", 256, -ENOENT, expected);
    free(here);
}

static void what_cannot_be_read_is_named(void **state)
{
    (void)state;
    assert_refused("auto", 256, ERR_INVALID,
                   "data.train is empty: name files, folders or globs, as in "
                   "data.train=[folder]");
    name("none");
    assert_refused("auto", 256, -ENOENT, "/none: No such file or directory");
    paths.n = 0;
    name("none*.bin");
    assert_refused("auto", 256, -ENOENT, "/none*.bin: No such file or directory");
    paths.n = 0;
    assert_int_equal(mkdir(scratch_path(&scratch, "empty"), 0777), 0);
    name("empty");
    assert_refused("auto", 256, ERR_INVALID, "/empty: no file in it");
    write_text("empty/x", "0123");
    assert_refused(
        "auto", 256, ERR_INVALID,
        "data.train: none of its 1 files has the train.seq_len + 1 = 5 tokens "
        "of one sample");
    paths.n = 0;
    name("empty/x");
    assert_refused("auto", 256, ERR_INVALID,
                   "x: 4 tokens are too few for one sample of train.seq_len + 1 = 5");
    paths.n = 0;
    assert_int_equal(mkfifo(scratch_path(&scratch, "fifo"), 0666), 0);
    name("fifo");
    assert_refused("auto", 256, ERR_INVALID, "/fifo: not a file or folder");
}

static void a_token_past_the_vocabulary_is_found_at_the_start(void **state)
{
    (void)state;
    const uint16_t tokens[] = {1, 2, 256, 4, 5};

    write_llmc("a.bin", 20240520, tokens, 5, 5);
    name("a.bin");
    assert_refused("auto", 256, ERR_CORRUPT,
                   "a.bin: token 256 at byte 1028 is not below model.vocab (256)");
    paths.n = 0;
    write_text("a.txt", "abc~d");
    name("a.txt");
    assert_refused("text", 126, ERR_CORRUPT,
                   "a.txt: token 126 at byte 3 is not below model.vocab (126); the "
                   "tokens of text are its bytes: model.vocab=256");
    paths.n = 0;
    write_text("b.bin", "these are bytes.");
    name("b.bin");
    assert_refused("auto", 256, ERR_CORRUPT,
                   "b.bin: token 26740 at byte 0 is not below model.vocab (256); read "
                   "as u16 because its name ends in .bin: data.format=text reads it as "
                   "bytes");
    assert_refused("u16", 256, ERR_CORRUPT,
                   "b.bin: token 26740 at byte 0 is not below model.vocab (256)");
}

static void a_token_past_the_vocabulary_is_found_when_read(void **state)
{
    (void)state;
    enum { N = 70001 }; /* past what is looked at first */
    static char text[N + 1];
    int32_t tokens[5];
    struct errmsg msg = {0};
    struct dataset *d;

    memset(text, 'a', N);
    text[70000] = '~';
    write_text("a.txt", text);
    name("a.txt");
    d = must_open("text", 4, 126);
    assert_int_equal(dataset_read(d, 17498, tokens, &msg), 0);
    assert_int_equal(dataset_read(d, 17499, tokens, &msg), ERR_CORRUPT);
    assert_non_null(strstr(
        msg.text, "a.txt: token 126 at byte 70000 is not below model.vocab (126)"));
    dataset_close(d);
}

static void a_file_cut_or_grown_meanwhile_is_an_error(void **state)
{
    (void)state;
    int32_t tokens[5];
    struct errmsg msg = {0};
    struct dataset *d;

    write_text("a.txt", "0123456789abc");
    name("a.txt");
    d = must_open("text", 4, 256);
    assert_int_equal(truncate(scratch_path(&scratch, "a.txt"), 7), 0);
    assert_int_equal(dataset_read(d, 0, tokens, &msg), ERR_CORRUPT);
    assert_non_null(strstr(msg.text, "a.txt: had 13 bytes at the start and has 7 now"));
    assert_int_equal(truncate(scratch_path(&scratch, "a.txt"), 20), 0);
    assert_int_equal(dataset_read(d, 0, tokens, &msg), ERR_CORRUPT);
    dataset_close(d);
}

static void identities_tell_path_size_and_head(void **state)
{
    (void)state;
    struct dataset *d;
    char expected[512];
    char *identity;

    write_text("a.txt", "hello");
    name("a.txt");
    d = must_open("text", 4, 256);
    identity = dataset_identity(d);
    /* xxhsum -H3 of "hello" */
    (void)snprintf(expected, sizeof(expected),
                   "[{\"path\":\"%s\",\"bytes\":5,\"head\":\"9555e8555c62dcfd\"}]",
                   scratch_path(&scratch, "a.txt"));
    assert_string_equal(identity, expected);
    mem_free(identity);
    dataset_close(d);
}

static void loops_of_links_end(void **state)
{
    (void)state;
    struct dataset *d = NULL;
    struct errmsg msg;

    write_text("f/a", "01234");
    assert_int_equal(symlink(".", scratch_path(&scratch, "f/loop")), 0);
    name("f");
    assert_int_equal(open_as("text", 4, 256, &d, &msg), -ELOOP);
    assert_null(d);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, on_setup, on_teardown)
    const struct CMUnitTest tests[] = {
        CASE(samples_overlap_by_the_target_of_the_last_token),
        CASE(a_token_short_of_a_sample_is_none),
        CASE(samples_are_numbered_through_and_never_span_files),
        CASE(folders_are_read_whole_in_the_order_of_bytes),
        CASE(globs_are_sorted_and_literal_names_win),
        CASE(more_files_than_are_kept_open_read_the_same),
        CASE(what_the_run_writes_is_left_out),
        CASE(to_name_what_the_run_writes_is_refused),
        CASE(binary_files_are_recognised),
        CASE(formats_can_be_forced),
        CASE(damaged_headers_are_refused),
        CASE(a_relative_path_that_is_missing_says_what_it_counts_from),
        CASE(what_cannot_be_read_is_named),
        CASE(a_token_past_the_vocabulary_is_found_at_the_start),
        CASE(a_token_past_the_vocabulary_is_found_when_read),
        CASE(a_file_cut_or_grown_meanwhile_is_an_error),
        CASE(identities_tell_path_size_and_head),
        CASE(loops_of_links_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
