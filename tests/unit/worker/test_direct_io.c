/* Blocks to and from the disk: every length comes back as it was, whatever the kernel
 * cuts short, refuses or loses. */

#include "tests/lib/cmocka.h"
#include "tests/lib/tiny_checkpoint.h"
#include "worker/checkpoint/file.h"

#include "common/fault.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = DIRECT_IO_BLOCK, SIZE_MAX_TESTED = 7 * BLOCK + 12345 };

struct fixture {
    char dir[256];
    char path[512];
    uint8_t *bytes; /* SIZE_MAX_TESTED of them, no two blocks the same; aligned */
    struct errmsg msg;
};

static void use_dir(struct fixture *f, const char *dir)
{
    assert_true(str_format(f->path, sizeof(f->path), "%s/file", dir));
}

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));
    uint32_t x = 1;
    void *bytes;

    tiny_make_dir(f->dir, sizeof(f->dir));
    use_dir(f, f->dir);
    assert_int_equal(posix_memalign(&bytes, DIRECT_IO_ALIGN, SIZE_MAX_TESTED), 0);
    f->bytes = bytes;
    for (size_t i = 0; i < SIZE_MAX_TESTED; i++) {
        x = x * 1664525 + 1013904223;
        f->bytes[i] = (uint8_t)(x >> 24);
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    free(f->bytes);
    tiny_remove_dir(f->dir);
    mem_free(f);
    return 0;
}

/* In pieces that end nowhere in particular; `expected` is what the writer is told. */
static int write_file(struct fixture *f, size_t size, uint64_t expected,
                      char hash[DIGEST_HEX])
{
    const size_t piece = 700001;
    struct file_writer w;
    uint64_t bytes = 0;
    int rv = file_writer_open(&w, f->path, expected, &f->msg);

    for (size_t at = 0; at < size && rv == 0; at += piece) {
        rv = file_writer_put(&w, f->bytes + at, MIN(piece, size - at), &f->msg);
    }
    if (rv == 0) {
        rv = file_writer_finish(&w, &bytes, hash, &f->msg);
    }
    file_writer_release(&w);
    assert_true(rv < 0 || bytes == size);
    return rv;
}

/* All but the first `head` bytes are lent, in two pieces. */
static int write_lent(struct fixture *f, size_t head, char hash[DIGEST_HEX])
{
    const size_t at = head + 6 * BLOCK + 4096;
    struct file_writer w;
    uint64_t bytes = 0;
    int rv = file_writer_open(&w, f->path, SIZE_MAX_TESTED, &f->msg);

    rv = rv < 0 ? rv : file_writer_put(&w, f->bytes, head, &f->msg);
    rv = rv < 0 ? rv : file_writer_lend(&w, f->bytes + head, at - head, &f->msg);
    rv = rv < 0 ? rv
                : file_writer_lend(&w, f->bytes + at, SIZE_MAX_TESTED - at, &f->msg);
    rv = rv < 0 ? rv : file_writer_finish(&w, &bytes, hash, &f->msg);
    file_writer_release(&w);
    assert_true(rv < 0 || bytes == SIZE_MAX_TESTED);
    return rv;
}

/* Reads the file to its end or the first error, comparing. */
static int read_file(struct fixture *f, uint64_t *ret_size)
{
    struct file_reader r;
    const uint8_t *data;
    size_t at = 0;
    size_t n = 0;
    int rv = file_reader_open(&r, f->path);

    while (rv == 0 && (rv = file_reader_next(&r, &data, &n)) == 0 && n > 0) {
        assert_true(n <= SIZE_MAX_TESTED - at);
        assert_memory_equal(data, f->bytes + at, n);
        at += n;
    }
    file_reader_release(&r);
    *ret_size = at;
    return rv;
}

static void assert_file(struct fixture *f, size_t size, const char *hash)
{
    struct digest *digest = digest_create();
    char wanted[DIGEST_HEX];
    uint64_t n;

    assert_int_equal(read_file(f, &n), 0);
    assert_int_equal(n, size);
    digest_add(digest, f->bytes, size);
    digest_finish(digest, wanted);
    digest_free(digest);
    assert_string_equal(hash, wanted);
}

/* --- */

static void round_trips(struct fixture *f)
{
    static const size_t sizes[] = {
        0,
        1,
        4095,
        4096,
        4097,
        BLOCK - 1,
        BLOCK,
        BLOCK + 1,
        2 * BLOCK + 7,
        4 * BLOCK - 1,
        4 * BLOCK,
        4 * BLOCK + 1,
        5 * BLOCK,
        7 * BLOCK + 512,
        SIZE_MAX_TESTED,
    };
    char hash[DIGEST_HEX];

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        assert_int_equal(write_file(f, sizes[i], sizes[i], hash), 0);
        assert_file(f, sizes[i], hash);
    }
}

static void a_file_of_any_length_comes_back(void **state)
{
    round_trips(*state);
}

static void a_file_in_memory_comes_back(void **state)
{
    struct fixture *f = *state;
    char dir[] = "/dev/shm/ctrun-test-XXXXXX";

    if (!mkdtemp(dir)) {
        skip();
    }
    use_dir(f, dir);
    round_trips(f);
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* Whether or not they lie as the disk wants them. */
static void lent_bytes_come_back(void **state)
{
    static const size_t heads[] = {0, 8, 4096, 5000, 8192, BLOCK - 4096, BLOCK};
    struct fixture *f = *state;
    char hash[DIGEST_HEX];

    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        assert_int_equal(write_lent(f, heads[i], hash), 0);
        assert_file(f, SIZE_MAX_TESTED, hash);
    }
}

static void a_wrong_expectation_of_the_length_does_no_harm(void **state)
{
    static const uint64_t expected[] = {0, 1, 3 * BLOCK, SIZE_MAX_TESTED};
    struct fixture *f = *state;
    char hash[DIGEST_HEX];

    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        assert_int_equal(write_file(f, 4 * BLOCK + 5, expected[i], hash), 0);
        assert_file(f, 4 * BLOCK + 5, hash);
    }
}

static void what_is_not_a_regular_file_is_not_read(void **state)
{
    struct fixture *f = *state;
    uint64_t n;

    assert_int_equal(read_file(f, &n), -ENOENT);
    assert_int_equal(mkdir(f->path, 0777), 0);
    assert_int_equal(read_file(f, &n), ERR_INVALID);
    assert_int_equal(rmdir(f->path), 0);
    assert_int_equal(mkfifo(f->path, 0666), 0);
    assert_int_equal(read_file(f, &n), ERR_INVALID);
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(symlink("/etc/passwd", f->path), 0);
    assert_int_equal(read_file(f, &n), -ELOOP);
}

static void a_file_that_is_cut_while_it_is_read_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct file_reader r;
    const uint8_t *data;
    char hash[DIGEST_HEX];
    size_t n = 0;
    int rv;

    assert_int_equal(write_file(f, 7 * BLOCK, 7 * BLOCK, hash), 0);
    assert_int_equal(file_reader_open(&r, f->path), 0);
    assert_int_equal(truncate(f->path, 6 * BLOCK + 100), 0);
    while ((rv = file_reader_next(&r, &data, &n)) == 0 && n > 0) {
        assert_int_equal(n, BLOCK);
    }
    assert_int_equal(rv, ERR_CORRUPT);
    file_reader_release(&r);
}

#ifdef FAULTS

static void the_nth_write_that_fails_is_told(void **state)
{
    struct fixture *f = *state;
    char hash[DIGEST_HEX];

    for (unsigned n = 1; n <= 8; n++) {
        fault_arm("ckpt.write", n, -ENOSPC);
        assert_int_equal(write_file(f, SIZE_MAX_TESTED, SIZE_MAX_TESTED, hash),
                         -ENOSPC);
        fault_disarm_all();
        assert_non_null(strstr(f->msg.text, f->path));
    }
}

/* In a fraction of the calls that blocks of the writer's own would take. */
static void lent_bytes_are_written_from_where_they_lie(void **state)
{
    enum { CALLS = 5 }; /* the head, two for each piece lent, the last bytes … */
    struct fixture *f = *state;
    char hash[DIGEST_HEX];

    fault_arm("ckpt.write", CALLS + 1, -ENOSPC);
    assert_int_equal(write_lent(f, 4096, hash), 0);
    fault_disarm_all();
    assert_file(f, SIZE_MAX_TESTED, hash);
}

static void what_befalls_a_write_of_lent_bytes_is_the_same(void **state)
{
    struct fixture *f = *state;
    char hash[DIGEST_HEX];

    for (unsigned n = 1; n <= 3; n++) {
        fault_arm("ckpt.write", n, -ENOSPC);
        assert_int_equal(write_lent(f, 4096, hash), -ENOSPC);
        fault_disarm_all();
        fault_arm("ckpt.write", n, -EINVAL); /* a late refusal of direct I/O */
        assert_int_equal(write_lent(f, 4096, hash), 0);
        fault_disarm_all();
        assert_file(f, SIZE_MAX_TESTED, hash);
        fault_arm("ckpt.short", n, -EIO);
        assert_int_equal(write_lent(f, 4096, hash), 0);
        fault_disarm_all();
        assert_file(f, SIZE_MAX_TESTED, hash);
        fault_arm("ckpt.thread", n, -EAGAIN);
        assert_int_equal(write_lent(f, 4096, hash), 0);
        fault_disarm_all();
        assert_file(f, SIZE_MAX_TESTED, hash);
    }
}

static void room_that_cannot_be_reserved_is_told(void **state)
{
    struct fixture *f = *state;
    char hash[DIGEST_HEX];

    fault_arm("ckpt.reserve", 1, -ENOSPC);
    assert_int_equal(write_file(f, BLOCK, BLOCK, hash), -ENOSPC);
    fault_disarm_all();
}

static void the_nth_read_that_fails_is_told(void **state)
{
    struct fixture *f = *state;
    char hash[DIGEST_HEX];
    uint64_t at;

    assert_int_equal(write_file(f, SIZE_MAX_TESTED, SIZE_MAX_TESTED, hash), 0);
    for (unsigned n = 1; n <= 8; n++) {
        fault_arm("ckpt.read", n, -EIO);
        assert_int_equal(read_file(f, &at), -EIO);
        fault_disarm_all();
    }
}

/* The rest of a short transfer is not aligned, and the other blocks are in flight. */
static void short_transfers_are_continued(void **state)
{
    struct fixture *f = *state;
    char hash[DIGEST_HEX];

    for (unsigned n = 1; n <= 8; n++) {
        fault_arm("ckpt.short", n, -EIO);
        assert_int_equal(write_file(f, SIZE_MAX_TESTED, SIZE_MAX_TESTED, hash), 0);
        fault_disarm_all();
        fault_arm("ckpt.short", n, -EIO);
        assert_file(f, SIZE_MAX_TESTED, hash);
        fault_disarm_all();
    }
}

/* As a file system does that takes O_DIRECT at the open and refuses it later. */
static void a_late_refusal_of_direct_io_is_no_error(void **state)
{
    struct fixture *f = *state;
    char hash[DIGEST_HEX];

    for (unsigned n = 1; n <= 8; n++) {
        fault_arm("ckpt.write", n, -EINVAL);
        assert_int_equal(write_file(f, SIZE_MAX_TESTED, SIZE_MAX_TESTED, hash), 0);
        fault_disarm_all();
        fault_arm("ckpt.read", n, -EINVAL);
        assert_file(f, SIZE_MAX_TESTED, hash);
        fault_disarm_all();
    }
}

static void without_room_for_threads_fewer_do(void **state)
{
    struct fixture *f = *state;
    char hash[CHECKPOINT_HASH_HEX];

    for (unsigned n = 1; n <= DIRECT_IO_THREADS; n++) {
        fault_arm("ckpt.thread", n, -EAGAIN);
        assert_int_equal(write_file(f, SIZE_MAX_TESTED, SIZE_MAX_TESTED, hash), 0);
        fault_disarm_all();
        fault_arm("ckpt.thread", n, -EAGAIN);
        assert_file(f, SIZE_MAX_TESTED, hash);
        fault_disarm_all();
    }
}

static void without_memory_for_all_blocks_one_does(void **state)
{
    struct fixture *f = *state;
    char hash[CHECKPOINT_HASH_HEX];

    fault_arm("ckpt.memory", 1, -ENOMEM);
    assert_int_equal(write_file(f, SIZE_MAX_TESTED, SIZE_MAX_TESTED, hash), 0);
    fault_disarm_all();
    fault_arm("ckpt.memory", 1, -ENOMEM);
    assert_file(f, SIZE_MAX_TESTED, hash);
    fault_disarm_all();
    fault_arm("ckpt.memory", 1, -ENOMEM);
    assert_int_equal(write_lent(f, 4096, hash), 0);
    fault_disarm_all();
    assert_file(f, SIZE_MAX_TESTED, hash);
}

#endif

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_file_of_any_length_comes_back),
        CASE(a_file_in_memory_comes_back),
        CASE(lent_bytes_come_back),
        CASE(a_wrong_expectation_of_the_length_does_no_harm),
        CASE(what_is_not_a_regular_file_is_not_read),
        CASE(a_file_that_is_cut_while_it_is_read_is_an_error),
#ifdef FAULTS
        CASE(the_nth_write_that_fails_is_told),
        CASE(lent_bytes_are_written_from_where_they_lie),
        CASE(what_befalls_a_write_of_lent_bytes_is_the_same),
        CASE(room_that_cannot_be_reserved_is_told),
        CASE(the_nth_read_that_fails_is_told),
        CASE(short_transfers_are_continued),
        CASE(without_memory_for_all_blocks_one_does),
        CASE(a_late_refusal_of_direct_io_is_no_error),
        CASE(without_room_for_threads_fewer_do),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
