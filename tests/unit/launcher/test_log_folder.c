/* The folder of the workers' output: where it is, and when it goes. */

#include "launcher/output/log_folder.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char tmp[] = "/tmp/ctrun-folder-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(tmp, sizeof(tmp), "/tmp/ctrun-folder-XXXXXX");
    return mkdtemp(tmp) && setenv("TMPDIR", tmp, 1) == 0 ? 0 : -1;
}

static struct launch_options options(void)
{
    return (struct launch_options){.rdzv_id = "a/job"};
}

static struct log_folder choose(const struct launch_options *o, bool is_engine)
{
    struct log_folder f;
    struct errmsg msg;

    assert_int_equal(log_folder_choose(o, is_engine, 0xabcU, &f, &msg), 0);
    return f;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void put_log(const struct log_folder *f)
{
    char *folder = mem_printf("%s/attempt_1", f->path);
    char *file = mem_printf("%s/stdout.log", folder);
    int fd;

    assert_int_equal(mkdir(folder, 0700), 0);
    fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    mem_free(file);
    mem_free(folder);
}

static void without_options_it_is_a_bounded_one_in_tmpdir(void **state)
{
    struct launch_options o = options();
    struct log_folder f = choose(&o, false);
    struct stat st;

    (void)state;
    assert_memory_equal(f.path, tmp, strlen(tmp));
    assert_non_null(strstr(f.path, "/ctrun_a_job_"));
    assert_int_equal(stat(f.path, &st), 0);
    assert_int_equal(st.st_mode & 0777U, 0700);
    assert_int_equal(f.max_size, 8 << 20);
    log_folder_end(&f, false);
    assert_false(is_there(f.path)); /* nothing was in it */
    assert_int_equal(rmdir(tmp), 0);
}

static void it_goes_when_all_ended_well(void **state)
{
    struct launch_options o = options();
    struct log_folder f = choose(&o, false);

    (void)state;
    put_log(&f);
    log_folder_end(&f, false);
    assert_true(is_there(f.path));
    log_folder_end(&f, true);
    assert_false(is_there(f.path));
    assert_int_equal(rmdir(tmp), 0);
}

static void one_that_was_asked_for_stays(void **state)
{
    struct launch_options o = options();
    struct log_folder f;

    (void)state;
    o.redirects.tee = "3";
    f = choose(&o, false);
    assert_int_equal(f.max_size, 0);
    put_log(&f);
    log_folder_end(&f, true);
    assert_true(is_there(f.path));
    f.is_unasked = true; /* to clean up */
    log_folder_end(&f, true);
    assert_int_equal(rmdir(tmp), 0);
}

static void log_dir_names_its_place(void **state)
{
    struct launch_options o = options();
    char expected[128];
    struct log_folder f;

    (void)state;
    o.log_max_size = 4096;
    (void)snprintf(o.log_dir, sizeof(o.log_dir), "%s/logs", tmp);
    f = choose(&o, false);
    (void)snprintf(expected, sizeof(expected), "%s/logs/a_job_00000abc", tmp);
    assert_string_equal(f.path, expected);
    assert_int_equal(f.max_size, 4096);
    log_folder_end(&f, true);
    assert_int_equal(rmdir(expected), 0); /* it was left */
    assert_int_equal(rmdir(o.log_dir), 0);
    assert_int_equal(rmdir(tmp), 0);
}

static void there_is_none_for_the_engine_nor_in_dev_null(void **state)
{
    struct launch_options o = options();
    struct log_folder f = choose(&o, true);

    (void)state;
    assert_string_equal(f.path, "");
    o.redirects.has_no_files = true;
    f = choose(&o, false);
    assert_string_equal(f.path, "");
    log_folder_end(&f, true);
    assert_int_equal(rmdir(tmp), 0);
}

static void one_that_cannot_be_made_is_a_mistake_where_it_was_asked_for(void **state)
{
    struct launch_options o = options();
    struct log_folder f;
    struct errmsg msg;

    (void)state;
    assert_int_equal(rmdir(tmp), 0);
    f = choose(&o, false);
    assert_string_equal(f.path, "");
    o.redirects.redirects = "3";
    assert_true(log_folder_choose(&o, false, 1, &f, &msg) < 0);
    assert_non_null(strstr(msg.text, "name one by --log-dir"));
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(without_options_it_is_a_bounded_one_in_tmpdir),
        CASE(it_goes_when_all_ended_well),
        CASE(one_that_was_asked_for_stays),
        CASE(log_dir_names_its_place),
        CASE(there_is_none_for_the_engine_nor_in_dev_null),
        CASE(one_that_cannot_be_made_is_a_mistake_where_it_was_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
