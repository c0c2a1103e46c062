/* The folder of the state, and what may lie in it instead of our files: each is refused
 * at once, by one line that says what is wrong and what to do. */

#include "rendezvous/state.h"
#include "rendezvous/state_dir.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/exit_code.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const names[] = {"lock", "reserve", "state.db", "state.db-wal",
                                    "state.db-base"};

static int open_dir(struct scratch *s, struct state_dir *d, struct errmsg *msg)
{
    return state_dir_open(d, scratch_path(s, "state"), 4096, 0, msg);
}

static void make_folder(const char *path)
{
    assert_int_equal(mkdir(path, 0700), 0);
}

static void make_pipe(const char *path)
{
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void make_link(const char *path)
{
    assert_int_equal(symlink("/dev/null", path), 0);
}

static void what_is_no_file_is_refused_by_name(void **unused)
{
    static const struct {
        void (*make)(const char *path);
        const char *what;
    } kinds[] = {
        {make_folder, "is a folder"},
        {make_pipe, "is a pipe"},
        {make_link, "is a symbolic link"},
    };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(names) * ARRAY_LEN(kinds); i++) {
        const char *name = names[i % ARRAY_LEN(names)];
        struct errmsg msg = {""};
        struct scratch scratch;
        struct state_dir d;
        char file[64];
        int rv;

        scratch_open(&scratch);
        make_folder(scratch_path(&scratch, "state"));
        (void)snprintf(file, sizeof(file), "state/%s", name);
        kinds[i / ARRAY_LEN(names)].make(scratch_path(&scratch, file));
        rv = open_dir(&scratch, &d, &msg);
        assert_int_equal(rv, ERR_INVALID);
        assert_int_equal(state_exit_code(rv), EXIT_MISTAKE);
        assert_non_null(strstr(msg.text, file));
        assert_non_null(strstr(msg.text, kinds[i / ARRAY_LEN(names)].what));
        assert_non_null(strstr(msg.text, "move it away"));
        scratch_close(&scratch);
    }
}

static void folder_itself_may_be_reached_by_a_link(void **unused)
{
    struct errmsg msg = {""};
    struct scratch scratch;
    struct state_dir d;
    struct stat st;

    (void)unused;
    scratch_open(&scratch);
    make_folder(scratch_path(&scratch, "real"));
    assert_int_equal(symlink("real", scratch_path(&scratch, "state")), 0);
    assert_int_equal(open_dir(&scratch, &d, &msg), 0);
    state_dir_close(&d);
    assert_int_equal(stat(scratch_path(&scratch, "real/reserve"), &st), 0);
    assert_int_equal(st.st_size, 4096);
    scratch_close(&scratch);
}

static off_t size_of_reserve(struct scratch *s)
{
    struct stat st;

    return stat(scratch_path(s, "state/reserve"), &st) < 0 ? -1 : st.st_size;
}

/* 4096 bytes: sixteen parts of 256. */
static void
reserve_is_given_up_bit_by_bit_and_what_is_left_is_there_later(void **unused)
{
    struct errmsg msg = {""};
    struct scratch scratch;
    struct state_dir d;

    (void)unused;
    scratch_open(&scratch);
    assert_int_equal(open_dir(&scratch, &d, &msg), 0);
    assert_int_equal(d.reserve_left, 4096);
    assert_int_equal(state_dir_give_up(&d, 0), 0);
    assert_int_equal(size_of_reserve(&scratch), 4096 - 256);
    assert_int_equal(state_dir_give_up(&d, 1000), 0);
    assert_int_equal(d.reserve_left, 4096 - 256 - 1000);
    assert_int_equal(size_of_reserve(&scratch), 4096 - 256 - 1000);
    assert_int_equal(state_dir_make_reserve(&d), 0);
    assert_int_equal(d.reserve_left, 4096);
    assert_int_equal(state_dir_give_up(&d, 5000), 0);
    assert_int_equal(size_of_reserve(&scratch), -1);
    assert_int_equal(state_dir_give_up(&d, 0), -ENOSPC);
    state_dir_close(&d);
    scratch_close(&scratch);
}

static void full_disk_is_no_mistake_and_says_how_much_is_wanted(void **unused)
{
    const struct state_dir d = {.path = (char *)(uintptr_t) "/state",
                                .reserve_bytes = 16 << 20};
    struct errmsg msg = {""};
    int rv = state_dir_blame_space(&d, &msg);

    (void)unused;
    assert_int_equal(state_exit_code(rv), EXIT_FAILURE); /* a restart may mend it */
    assert_string_equal(msg.text,
                        "the disk of the state /state is full: make room for 17 MiB on "
                        "it, or give a --state-dir on another one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_file_is_refused_by_name),
        cmocka_unit_test(folder_itself_may_be_reached_by_a_link),
        cmocka_unit_test(
            reserve_is_given_up_bit_by_bit_and_what_is_left_is_there_later),
        cmocka_unit_test(full_disk_is_no_mistake_and_says_how_much_is_wanted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
