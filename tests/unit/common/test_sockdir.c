/* The folders with the sockets of this user's servers. */

#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/sockdir.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct scratch scratch;

static int set_up(void **state)
{
    (void)state;
    scratch_open(&scratch);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    return setenv("XDG_RUNTIME_DIR", scratch.dir, 1);
}

static int tear_down(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

static struct sockdir open_ours(void)
{
    struct errmsg msg = {""};
    struct sockdir d;

    assert_int_equal(sockdir_open(&d, 0, true, &msg), 0);
    return d;
}

static void path_in(char *path, size_t size, const char *name)
{
    assert_true(str_format(path, size, "%s/%s", scratch.dir, name));
}

static void folder_is_made_for_its_user_alone(void **state)
{
    struct sockdir d = open_ours();
    char path[PATH_MAX];
    struct stat st;

    (void)state;
    path_in(path, sizeof(path), "ctrun");
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_string_equal(d.path, path);
    sockdir_close(&d);
}

static void folder_that_is_not_there_is_not_made_by_who_only_looks(void **state)
{
    struct errmsg msg = {""};
    struct sockdir d;

    (void)state;
    assert_int_equal(sockdir_open(&d, 0, false, &msg), ERR_MISSING);
    assert_string_equal(msg.text, "");
}

static void expect_refused(const char *word)
{
    struct errmsg msg = {""};
    struct sockdir d;

    assert_int_equal(sockdir_open(&d, 0, true, &msg), ERR_REFUSED);
    assert_non_null(strstr(msg.text, scratch.dir));
    assert_non_null(strstr(msg.text, word));
}

static void folder_that_others_may_look_into_is_refused(void **state)
{
    char path[PATH_MAX];

    (void)state;
    path_in(path, sizeof(path), "ctrun");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0750), 0);
    expect_refused("mode 0750");
}

static void folder_of_somebody_else_is_refused(void **state)
{
    char path[PATH_MAX];

    (void)state;
    path_in(path, sizeof(path), "ctrun");
    assert_int_equal(mkdir(path, 0700), 0);
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(chown(path, 65534, 65534), 0);
    expect_refused("owner 65534");
}

static void link_to_a_folder_is_refused(void **state)
{
    char path[PATH_MAX];

    (void)state;
    path_in(path, sizeof(path), "ctrun");
    assert_int_equal(symlink(scratch.dir, path), 0);
    expect_refused("no folder");
}

static void servers_are_found_by_their_sockets(void **state)
{
    struct sockdir d = open_ours();
    char names[4][SOCKDIR_NAME_MAX];
    char one[SOCKDIR_NAME_MAX];
    char two[SOCKDIR_NAME_MAX];
    int first = sockdir_listen(&d, one);
    int second = sockdir_listen(&d, two);
    int client;

    (void)state;
    assert_true(first >= 0 && second >= 0);
    assert_string_not_equal(one, two);
    assert_int_equal(sockdir_list(&d, names, ARRAY_LEN(names)), 2);
    assert_string_equal(names[0], one);
    client = sockdir_connect(&d, one);
    assert_true(client >= 0);
    assert_true(fcntl(client, F_GETFD) & FD_CLOEXEC);
    (void)close(client);
    (void)close(first);
    (void)close(second);
    sockdir_close(&d);
}

static void socket_whose_server_is_gone_is_removed(void **state)
{
    struct sockdir d = open_ours();
    char names[2][SOCKDIR_NAME_MAX];
    char name[SOCKDIR_NAME_MAX];
    char again[SOCKDIR_NAME_MAX];
    int fd = sockdir_listen(&d, name);

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd); /* as if it had been killed */
    assert_int_equal(sockdir_list(&d, names, ARRAY_LEN(names)), 1);
    assert_int_equal(sockdir_connect(&d, name), -ECONNREFUSED);
    assert_int_equal(sockdir_list(&d, names, ARRAY_LEN(names)), 0);

    fd = sockdir_listen(&d, name);
    (void)close(fd);
    fd = sockdir_listen(&d, again); /* the same process id, as after a restart */
    assert_true(fd >= 0);
    assert_string_equal(again, name);
    sockdir_remove(&d, again);
    assert_int_equal(sockdir_list(&d, names, ARRAY_LEN(names)), 0);
    (void)close(fd);
    sockdir_close(&d);
}

static void sockets_of_killed_processes_are_swept_away(void **state)
{
    struct sockdir d = open_ours();
    char names[4][SOCKDIR_NAME_MAX];
    char name[SOCKDIR_NAME_MAX];
    int fd = sockdir_listen(&d, name);

    (void)state;
    assert_int_equal(renameat(d.fd, name, d.fd, "2147483647-0.sock"), 0); /* no such */
    assert_true(sockdir_list(&d, names, ARRAY_LEN(names)) == 1);
    sockdir_sweep(&d); /* it answers: in another namespace */
    assert_int_equal(sockdir_list(&d, names, ARRAY_LEN(names)), 1);
    (void)close(fd);
    fd = sockdir_listen(&d, name);
    assert_int_equal(sockdir_list(&d, names, ARRAY_LEN(names)), 2);
    sockdir_sweep(&d);
    assert_int_equal(sockdir_list(&d, names, ARRAY_LEN(names)), 1);
    assert_string_equal(names[0], name);
    (void)close(fd);
    sockdir_close(&d);
}

static void long_path_is_no_obstacle(void **state)
{
    char deep[PATH_MAX];
    char name[SOCKDIR_NAME_MAX];
    struct sockdir d;
    int fd;

    (void)state;
    path_in(deep, sizeof(deep),
            "a-folder-whose-name-is-so-long-that-no-socket-address-would-take-it-which-"
            "has-but-108-bytes-for-all-of-it");
    assert_int_equal(mkdir(deep, 0700), 0);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    assert_int_equal(setenv("XDG_RUNTIME_DIR", deep, 1), 0);
    d = open_ours();
    fd = sockdir_listen(&d, name);
    assert_true(fd >= 0);
    (void)close(fd);
    sockdir_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(folder_is_made_for_its_user_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            folder_that_is_not_there_is_not_made_by_who_only_looks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(folder_that_others_may_look_into_is_refused,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(folder_of_somebody_else_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(link_to_a_folder_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(servers_are_found_by_their_sockets, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(socket_whose_server_is_gone_is_removed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(sockets_of_killed_processes_are_swept_away,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_path_is_no_obstacle, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
