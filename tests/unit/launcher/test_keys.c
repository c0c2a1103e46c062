/* Where the keys of this side are found, and that they may change. */

#include "launcher/rdzv/keys.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/check.h"
#include "common/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SECRET_A "aaaaaaaabbbbbbbbccccccccdddddddd"
#define SECRET_B "0123456789abcdef0123456789abcdef"

static int setup(void **state)
{
    static struct scratch scratch;

    scratch_open(&scratch);
    *state = &scratch;
    assert_int_equal(setenv("HOME", scratch_path(&scratch, "home"), 1), 0);
    assert_int_equal(unsetenv("CTRUN_SECRET_FILE"), 0);
    assert_int_equal(unsetenv("CREDENTIALS_DIRECTORY"), 0);
    assert_int_equal(unsetenv("CTRUN_TLS_CA"), 0);
    return 0;
}

static int teardown(void **state)
{
    scratch_close(*state);
    return 0;
}

static const char *write_secret(struct scratch *s, const char *name, const char *text)
{
    const char *path = scratch_text(s, name, text);

    assert_int_equal(chmod(path, 0600), 0);
    return path;
}

static struct keys find(const char *asked)
{
    struct keys_files files = {.secret = ""};
    struct errmsg msg = {""};
    struct keys k;

    (void)snprintf(files.secret, sizeof(files.secret), "%s", asked);
    if (keys_find(&files, &k, &msg) < 0) {
        fail_msg("%s", msg.text);
    }
    return k;
}

static void assert_ends_with(const char *path, const char *end)
{
    assert_true(strlen(path) > strlen(end));
    assert_string_equal(path + strlen(path) - strlen(end), end);
}

static void secret_is_looked_for_in_the_order_that_is_told(void **state)
{
    struct scratch *s = *state;
    struct keys k = find("");

    assert_false(keys_any(&k));
    (void)write_secret(s, "home/.config/ctrun/secret", SECRET_A);
    k = find("");
    assert_ends_with(k.files.secret, "/home/.config/ctrun/secret");
    (void)scratch_text(s, "creds/ctrun-secret", SECRET_A);
    assert_int_equal(setenv("CREDENTIALS_DIRECTORY", scratch_path(s, "creds"), 1), 0);
    k = find("");
    assert_ends_with(k.files.secret, "/creds/ctrun-secret");
    assert_true(k.is_credential);
    assert_int_equal(setenv("CTRUN_SECRET_FILE", write_secret(s, "named", SECRET_A), 1),
                     0);
    k = find("");
    assert_ends_with(k.files.secret, "/named");
    k = find(write_secret(s, "asked", SECRET_A));
    assert_ends_with(k.files.secret, "/asked");
    assert_true(keys_any(&k) && !k.is_credential);
}

static void refuse(const struct keys_files *files, const char *words)
{
    struct errmsg msg = {""};
    struct keys k;

    assert_true(keys_find(files, &k, &msg) < 0);
    if (!strstr(msg.text, words)) {
        fail_msg("'%s' is not in: %s", words, msg.text);
    }
}

static void what_does_not_go_together_or_others_may_read_is_refused(void **state)
{
    struct scratch *s = *state;

    refuse(&(struct keys_files){.ca = "ca"}, "go together");
    refuse(&(struct keys_files){.ca = "a", .cert = "b", .key = "c", .secret = "d"},
           "exclude each other");
    refuse(&(struct keys_files){.ca = "a", .cert = "b", .key = "/absent"}, "/absent");
    assert_int_equal(setenv("CTRUN_SECRET_FILE", "/absent/secret", 1), 0);
    refuse(&(struct keys_files){.secret = ""}, "/absent/secret");
    assert_int_equal(unsetenv("CTRUN_SECRET_FILE"), 0);
    (void)scratch_text(s, "home/.config/ctrun/secret", SECRET_A);
    refuse(&(struct keys_files){.secret = ""}, "chmod 600");
}

static void changed_secret_is_taken_and_a_mistake_leaves_the_old_one(void **state)
{
    struct scratch *s = *state;
    struct keys k = find(write_secret(s, "secret", SECRET_A));
    struct tls_context *first;
    struct tls_context *again;
    struct errmsg msg = {""};
    char before[300];
    char after[300];

    keys_set_agent(&k, 7, "job");
    assert_int_equal(keys_client(&k, &first, &msg), 0);
    keys_describe(&k, before, sizeof(before));
    (void)write_secret(s, "secret", SECRET_B);
    assert_int_equal(keys_client(&k, &again, &msg), 0);
    assert_ptr_equal(first, again); /* connections hold on to it */
    keys_describe(&k, after, sizeof(after));
    assert_string_not_equal(before, after);
    (void)write_secret(s, "secret", "short");
    assert_int_equal(keys_client(&k, &again, &msg), 0);
    keys_describe(&k, before, sizeof(before));
    assert_string_equal(before, after);
    keys_release(&k);
}

static void without_keys_there_is_no_tls(void **state)
{
    struct keys k = find("");
    struct tls_context *client;
    struct tls_context *server;
    struct errmsg msg = {""};

    (void)state;
    assert_int_equal(keys_client(&k, &client, &msg), 0);
    assert_int_equal(keys_server(&k, &server, &msg), 0);
    assert_true(!client && !server);
    keys_release(&k);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(secret_is_looked_for_in_the_order_that_is_told),
        CASE(what_does_not_go_together_or_others_may_read_is_refused),
        CASE(changed_secret_is_taken_and_a_mistake_leaves_the_old_one),
        CASE(without_keys_there_is_no_tls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
