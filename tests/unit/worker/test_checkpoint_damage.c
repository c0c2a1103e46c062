/* Whatever happens to a checkpoint's bytes is seen, and whatever happens while one is
 * written leaves the last good one as it was. */

#include "tests/lib/cmocka.h"
#include "tests/lib/tiny_checkpoint.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/verify.h"

#include "common/fault.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARD_1  "shard-00001-model-00001-of-00001.safetensors"
#define SHARD_2  "shard-00002-model-00001-of-00001.safetensors"
#define MANIFEST "manifest.json"

struct fixture {
    char dir[256];
    char path[CHECKPOINT_PATH_MAX]; /* of a good checkpoint: step 1, generation 1, 2
                                       ranks */
    char hash[CHECKPOINT_HASH_HEX];
    struct tiny tiny;
    struct errmsg msg;
};

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    tiny_make_dir(f->dir, sizeof(f->dir));
    tiny_init(&f->tiny, 0);
    tiny_commit(&f->tiny, f->dir, 1, 1, 2);
    checkpoint_path(f->path, sizeof(f->path), f->dir, 1, 1, false);
    assert_int_equal(checkpoint_state_hash(f->path, f->hash, &f->msg), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    tiny_release(&f->tiny);
    tiny_remove_dir(f->dir);
    mem_free(f);
    return 0;
}

static void file_path(const struct fixture *f, const char *name, char *path)
{
    assert_true(str_format(path, CHECKPOINT_PATH_MAX, "%s/%s", f->path, name));
}

static int open_file(const struct fixture *f, const char *name, off_t *ret_size)
{
    char path[CHECKPOINT_PATH_MAX];
    struct stat st;
    int fd;

    file_path(f, name, path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    *ret_size = st.st_size;
    return fd;
}

/* Exactly one file is wrong, by name. */
static void assert_names(struct fixture *f, const char *name, const char *what)
{
    struct verify_report report;

    verify_checkpoint(f->path, NULL, NULL, &report);
    assert_int_equal(report.n, 1);
    assert_string_equal(report.problem[0].file, name);
    assert_non_null(strstr(report.problem[0].what.text, what));
    verify_report_release(&report);
    assert_int_equal(checkpoint_verify(f->path, NULL, &f->msg), ERR_CORRUPT);
    assert_true(str_starts_with(f->msg.text, name));
}

static void assert_unharmed(struct fixture *f)
{
    char hash[CHECKPOINT_HASH_HEX];

    assert_int_equal(checkpoint_verify(f->path, NULL, &f->msg), 0);
    assert_int_equal(checkpoint_state_hash(f->path, hash, &f->msg), 0);
    assert_string_equal(hash, f->hash);
}

/* --- damage --- */

static void flip_each_byte(struct fixture *f, const char *name)
{
    off_t size;
    int fd = open_file(f, name, &size);

    for (off_t i = 0; i < size; i++) {
        uint8_t byte;
        uint8_t wrong;

        assert_int_equal(pread(fd, &byte, 1, i), 1);
        wrong = (uint8_t)(byte ^ (1U << (i % 8)));
        assert_int_equal(pwrite(fd, &wrong, 1, i), 1);
        assert_names(f, name, "");
        wrong = (uint8_t)(byte ^ 0x20); /* the case of letters */
        assert_int_equal(pwrite(fd, &wrong, 1, i), 1);
        assert_names(f, name, "");
        assert_int_equal(pwrite(fd, &byte, 1, i), 1);
    }
    assert_int_equal(close(fd), 0);
    assert_unharmed(f);
}

static void a_flip_of_any_byte_is_seen(void **state)
{
    flip_each_byte(*state, SHARD_1);
    flip_each_byte(*state, SHARD_2);
    flip_each_byte(*state, MANIFEST);
}

static void cut_everywhere(struct fixture *f, const char *name)
{
    off_t size;
    int fd = open_file(f, name, &size);
    uint8_t *bytes = mem_alloc((size_t)size);

    assert_int_equal(pread(fd, bytes, (size_t)size, 0), size);
    for (off_t i = 0; i < size; i++) {
        assert_int_equal(ftruncate(fd, i), 0);
        assert_names(f, name, "");
        assert_int_equal(pwrite(fd, bytes, (size_t)size, 0), size);
    }
    assert_int_equal(pwrite(fd, "\n", 1, size), 1);
    assert_names(f, name,
                 strcmp(name, MANIFEST) == 0 ? "hash" : "extra bytes at the end");
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(close(fd), 0);
    mem_free(bytes);
    assert_unharmed(f);
}

static void a_cut_at_any_length_and_an_extra_byte_are_seen(void **state)
{
    cut_everywhere(*state, SHARD_1);
    cut_everywhere(*state, SHARD_2);
    cut_everywhere(*state, MANIFEST);
}

static void a_missing_file_is_named(void **state)
{
    static const char *const names[] = {SHARD_1, SHARD_2, MANIFEST};
    struct fixture *f = *state;
    char path[CHECKPOINT_PATH_MAX];
    char away[CHECKPOINT_PATH_MAX];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        file_path(f, names[i], path);
        file_path(f, "away", away);
        assert_int_equal(rename(path, away), 0);
        assert_names(f, names[i], "missing");
        assert_int_equal(mkdir(path, 0777), 0); /* something else by that name */
        assert_names(f, names[i], "");
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(rename(away, path), 0);
    }
    assert_unharmed(f);
}

static void every_wrong_file_is_named(void **state)
{
    struct fixture *f = *state;
    struct verify_report report;
    char path[CHECKPOINT_PATH_MAX];
    off_t size;
    int fd = open_file(f, SHARD_2, &size);

    assert_int_equal(ftruncate(fd, size - 1), 0);
    assert_int_equal(close(fd), 0);
    file_path(f, SHARD_1, path);
    assert_int_equal(unlink(path), 0);
    verify_checkpoint(f->path, NULL, NULL, &report);
    assert_int_equal(report.n, 2);
    verify_report_release(&report);
    assert_int_equal(checkpoint_verify(f->path, NULL, &f->msg), ERR_CORRUPT);
    assert_non_null(strstr(f->msg.text, SHARD_1));
    assert_non_null(strstr(f->msg.text, SHARD_2));
}

static void a_directory_with_anothers_name_is_rejected(void **state)
{
    struct fixture *f = *state;
    char other[CHECKPOINT_PATH_MAX];

    checkpoint_path(other, sizeof(other), f->dir, 2, 1, false);
    assert_int_equal(rename(f->path, other), 0);
    memcpy(f->path, other, sizeof(other));
    assert_names(f, MANIFEST, "directory's name");
}

/* --- tables that do not add up (every hash is right) --- */

/* A checkpoint of two shards with one box of wte.weight each. */
static void commit_two_boxes(struct fixture *f, size_t row, size_t n_rows,
                             size_t height)
{
    struct box box = f->tiny.whole[0];
    struct checkpoint_file files[2];
    char path[CHECKPOINT_PATH_MAX];

    checkpoint_path(path, sizeof(path), f->dir, 2, 1, true);
    box.n_rows = 4;
    assert_int_equal(checkpoint_write_shard(path, 0, &box, 1, &files[0], &f->msg), 0);
    box.row = row;
    box.n_rows = n_rows;
    box.shape[0] = height;
    assert_int_equal(checkpoint_write_shard(path, 1, &box, 1, &files[1], &f->msg), 0);
    assert_int_equal(tiny_manifest(f->dir, 2, 1, files, 2, &f->msg), 0);
    assert_int_equal(checkpoint_commit(f->dir, 2, 1, &f->msg), 0);
    checkpoint_path(f->path, sizeof(f->path), f->dir, 2, 1, false);
}

static void rows_that_are_there_twice_are_seen(void **state)
{
    commit_two_boxes(*state, 3, 4, 7);
    assert_names(*state, SHARD_2, "is there twice from row 3");
}

static void rows_that_are_nowhere_are_seen(void **state)
{
    commit_two_boxes(*state, 5, 2, 7);
    assert_names(*state, SHARD_2, "lacks rows from 4");
}

static void a_missing_last_row_is_seen(void **state)
{
    struct fixture *f = *state;
    struct cut cut = cut_of_box(&f->tiny.whole[0]);

    commit_two_boxes(f, 4, 2, 7);
    assert_names(f, SHARD_2, "lacks rows from 6");
    assert_int_equal(checkpoint_load(f->path, &cut, 1, &f->msg), ERR_CORRUPT);
}

static void shards_that_differ_about_a_shape_are_seen(void **state)
{
    commit_two_boxes(*state, 4, 3, 8);
    assert_names(*state, SHARD_2, "another shape");
}

/* --- a disk that fails while a checkpoint is written --- */

static int write_next(struct fixture *f)
{
    int rv = tiny_write(&f->tiny, f->dir, 2, 1, 2, &f->msg);

    return rv < 0 ? rv : checkpoint_commit(f->dir, 2, 1, &f->msg);
}

#ifdef FAULTS

/* The n-th call of `point` fails, for n = 1, 2, … until the writing passes untouched.
 */
static unsigned fail_each(struct fixture *f, const char *point, int err)
{
    struct checkpoint_entry *entry;
    size_t n_entries;
    unsigned n = 0;
    int rv;

    do {
        n++;
        fault_arm(point, n, err);
        rv = write_next(f);
        fault_disarm_all();
        assert_int_equal(rv, rv < 0 ? err : 0);
        assert_true(rv == 0 || strstr(f->msg.text, f->dir)); /* names the file */
        assert_unharmed(f);
        assert_int_equal(checkpoint_list(f->dir, &entry, &n_entries, &f->msg), 0);
        for (size_t i = 0; i < n_entries; i++) { /* committed means good */
            assert_int_equal(checkpoint_verify(entry[i].path, NULL, &f->msg), 0);
        }
        if (n_entries == 2) { /* failed after the rename, or did not fail */
            tiny_remove_dir(entry[0].path);
        }
        assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 0);
        mem_free(entry);
    } while (rv < 0 && n < 100);
    assert_int_equal(rv, 0);
    return n;
}

static void a_failure_of_any_call_leaves_the_last_good_one(void **state)
{
    assert_true(fail_each(*state, "ckpt.open", -EACCES) > 3);
}

static void a_full_disk_leaves_the_last_good_one(void **state)
{
    assert_true(fail_each(*state, "ckpt.write", -ENOSPC) > 3);
}

static void an_fsync_that_fails_is_not_tried_again(void **state)
{
    assert_true(fail_each(*state, "ckpt.fsync", -EIO) > 2);
    assert_true(fail_each(*state, "storage.fsync", -EIO) > 3);
}

static void a_rename_that_fails_leaves_the_last_good_one(void **state)
{
    assert_int_equal(fail_each(*state, "ckpt.rename", -EIO), 2);
}

static void short_writes_are_continued(void **state)
{
    struct fixture *f = *state;
    char path[CHECKPOINT_PATH_MAX];

    fault_arm("ckpt.short", 1, -EIO);
    fault_arm("ckpt.short", 2, -EIO);
    assert_int_equal(write_next(f), 0);
    fault_disarm_all();
    checkpoint_path(path, sizeof(path), f->dir, 2, 1, false);
    assert_int_equal(checkpoint_verify(path, NULL, &f->msg), 0);
}

/* Five tensors of 3 MiB. The writer's own blocks would take eight writes, or five. */
static void boxes_in_the_order_of_the_file_are_written_from_where_they_lie(void **state)
{
    enum { BOXES = 5, ROWS = 768, COLUMNS = 1024, WRITES = 3 };
    struct fixture *f = *state;
    struct box box[BOXES];
    struct checkpoint_file file;
    size_t n = (size_t)ROWS * COLUMNS;
    void *memory = NULL;
    float *data;

    assert_int_equal(posix_memalign(&memory, 4096, BOXES * n * sizeof(float)), 0);
    data = memory;
    memset(data, 1, BOXES * n * sizeof(float));
    for (size_t i = 0; i < BOXES; i++) {
        box[i] = (struct box){.shape = {ROWS, COLUMNS}, .n_dims = 2, .n_rows = ROWS};
        box[i].data = data + i * n;
        (void)snprintf(box[i].name, sizeof(box[i].name), "h.%zu.weight", i);
    }
    fault_arm("ckpt.write", WRITES + 1, -ENOSPC);
    assert_int_equal(checkpoint_write_shard(f->path, 0, box, BOXES, &file, &f->msg), 0);
    fault_disarm_all();
    free(memory);
}

static _Noreturn void die_writing(struct fixture *f, const char *point, unsigned n)
{
    fault_arm(point, n, FAULT_KILL);
    _exit(write_next(f) == 0 ? 0 : 1);
}

/* True when the child was killed, false when it got through. */
static bool killed_writing(struct fixture *f, const char *point, unsigned n)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        die_writing(f, point, n);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return true;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

/* The n-th passage of `point` kills, for n = 1, 2, … until the writing gets through. */
static void kill_each(struct fixture *f, const char *point)
{
    const struct checkpoint_search search = {.dir = f->dir};
    struct checkpoint_entry newest;
    struct checkpoint_meta meta;
    char next[CHECKPOINT_PATH_MAX];

    checkpoint_path(next, sizeof(next), f->dir, 2, 1, false);
    for (unsigned n = 1; killed_writing(f, point, n); n++) {
        assert_unharmed(f);
        assert_int_equal(checkpoint_newest(&search, &newest, &meta, &f->msg), 0);
        checkpoint_meta_release(&meta);
        assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 0);
        if (newest.step == 2) { /* killed after the rename: committed, so good */
            tiny_remove_dir(next);
        }
    }
    assert_int_equal(checkpoint_verify(next, NULL, &f->msg), 0);
    tiny_remove_dir(next);
}

static void a_kill_at_any_point_leaves_the_last_good_one(void **state)
{
    kill_each(*state, "ckpt.open");
    kill_each(*state, "ckpt.write");
    kill_each(*state, "ckpt.fsync");
    kill_each(*state, "storage.fsync");
    kill_each(*state, "ckpt.rename");
}

#endif

/* The real thing: a file system with hardly any room, in a mount namespace of its own.
 */
static int fill_small_disk(struct fixture *f)
{
    char mount_dir[CHECKPOINT_PATH_MAX];
    struct box box = f->tiny.whole[0];
    struct checkpoint_file file;
    float *data = mem_zalloc((size_t)1 << 20);

    if (unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        !str_format(mount_dir, sizeof(mount_dir), "%s/small", f->dir) ||
        mkdir(mount_dir, 0777) < 0 ||
        mount("small", mount_dir, "tmpfs", 0, "size=128k") < 0) {
        return 77;
    }
    tiny_commit(&f->tiny, mount_dir, 1, 1, 2);
    box.shape[0] = box.n_rows = ((size_t)1 << 20) / sizeof(float) / box.shape[1];
    box.data = data;
    checkpoint_path(f->path, sizeof(f->path), mount_dir, 2, 1, true);
    if (checkpoint_write_shard(f->path, 0, &box, 1, &file, &f->msg) != -ENOSPC ||
        !strstr(f->msg.text, SHARD_1) || !strstr(f->msg.text, "checkpoint.dir")) {
        return 1;
    }
    mem_free(data);
    checkpoint_path(f->path, sizeof(f->path), mount_dir, 1, 1, false);
    return checkpoint_verify(f->path, NULL, &f->msg) == 0 &&
                   checkpoint_sweep(mount_dir, 0, &f->msg) == 0
               ? 0
               : 2;
}

static void a_really_full_file_system_leaves_the_last_good_one(void **state)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(fill_small_disk(*state));
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        skip(); /* no right to mount here */
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A limit that the kernel keeps in the middle of a file, without any privilege. */
static void
a_write_that_the_kernel_cuts_short_is_an_error_with_the_files_name(void **state)
{
    struct fixture *f = *state;
    struct rlimit old;
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){.rlim_cur = 100, .rlim_max = old.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(write_next(f), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    assert_non_null(strstr(f->msg.text, SHARD_1));
    assert_unharmed(f);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_flip_of_any_byte_is_seen),
        CASE(a_cut_at_any_length_and_an_extra_byte_are_seen),
        CASE(a_missing_file_is_named),
        CASE(every_wrong_file_is_named),
        CASE(a_directory_with_anothers_name_is_rejected),
        CASE(rows_that_are_there_twice_are_seen),
        CASE(rows_that_are_nowhere_are_seen),
        CASE(a_missing_last_row_is_seen),
        CASE(shards_that_differ_about_a_shape_are_seen),
#ifdef FAULTS
        CASE(a_failure_of_any_call_leaves_the_last_good_one),
        CASE(a_full_disk_leaves_the_last_good_one),
        CASE(an_fsync_that_fails_is_not_tried_again),
        CASE(a_rename_that_fails_leaves_the_last_good_one),
        CASE(short_writes_are_continued),
        CASE(boxes_in_the_order_of_the_file_are_written_from_where_they_lie),
        CASE(a_kill_at_any_point_leaves_the_last_good_one),
#endif
        CASE(a_really_full_file_system_leaves_the_last_good_one),
        CASE(a_write_that_the_kernel_cuts_short_is_an_error_with_the_files_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
