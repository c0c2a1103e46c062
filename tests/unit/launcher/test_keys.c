/* Where the keys of this side are found, and that they may change. */

#include "launcher/rdzv/keys.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/tls.h"
#include "common/tls_ca.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- files that do not come ---- */

/* Of a new CA, in the folder `ca`. */
static struct keys_files make_certificate(struct scratch *s)
{
    const struct identity who = {.kind = IDENTITY_CERTIFICATE, .role = IDENTITY_AGENT};
    struct keys_files files = {.secret = ""};
    const char *folder = scratch_path(s, "ca");
    struct errmsg msg = {""};

    (void)snprintf(files.ca, sizeof(files.ca), "%s/ca.pem", folder);
    (void)snprintf(files.cert, sizeof(files.cert), "%s/a.pem", folder);
    (void)snprintf(files.key, sizeof(files.key), "%s/a.key", folder);
    folder = scratch_path(s, "ca");
    assert_int_equal(tls_ca_make(folder, 1, &msg), 0);
    assert_int_equal(tls_ca_issue(folder, "a", &who, 1, &msg), 0);
    return files;
}

static void
files_that_do_not_come_cost_a_moment_once_and_what_was_read_holds(void **state)
{
    struct keys_files files = make_certificate(*state);
    struct tls_context *first;
    struct tls_context *again;
    struct errmsg msg = {""};
    uint64_t begun_ms;
    struct keys k;
    int fd;

    assert_int_equal(keys_find(&files, &k, &msg), 0);
    assert_int_equal(keys_server(&k, &first, &msg), 0);
    assert_int_equal(keys_client(&k, &first, &msg), 0);
    fd = scratch_hang(files.ca);
    begun_ms = clock_ms();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(keys_client(&k, &again, &msg), 0);
        assert_ptr_equal(again, first);
        assert_int_equal(keys_server(&k, &again, &msg), 0);
        assert_true(again && k.is_slow);
    }
    assert_in_range(clock_ms() - begun_ms, KEYS_WAIT_MS, 50 * KEYS_WAIT_MS);
    assert_int_equal(close(fd), 0);
    while (k.is_slow) { /* what was slow is collected, and then waited for again */
        assert_int_equal(keys_client(&k, &again, &msg), 0);
    }
    assert_ptr_equal(again, first);
    keys_release(&k);
}

static void files_that_never_come_are_left_alone_at_the_end(void **state)
{
    struct keys_files files = make_certificate(*state);
    struct tls_context *context;
    struct errmsg msg = {""};
    struct keys k;
    int fd;

    assert_int_equal(keys_find(&files, &k, &msg), 0);
    assert_int_equal(keys_client(&k, &context, &msg), 0);
    fd = scratch_hang(files.cert);
    assert_int_equal(keys_client(&k, &context, &msg), 0);
    assert_non_null(k.errand);
    keys_release(&k);
    assert_int_equal(close(fd), 0);
}

static void what_is_no_file_is_named_at_once(void **state)
{
    struct scratch *s = *state;
    struct keys_files files = make_certificate(s);
    struct keys_files secret = {.secret = ""};

    (void)snprintf(secret.secret, sizeof(secret.secret), "%s",
                   scratch_path(s, "home/fifo"));
    (void)scratch_text(s, "home/x", ""); /* makes the folder */
    assert_int_equal(mkfifo(secret.secret, 0600), 0);
    refuse(&secret, "home/fifo is no regular file");
    (void)snprintf(secret.secret, sizeof(secret.secret), "%s", scratch_path(s, "home"));
    refuse(&secret, "home is a folder, and no file");
    assert_int_equal(unlink(files.ca), 0);
    assert_int_equal(mkfifo(files.ca, 0600), 0);
    refuse(&files, "ca.pem is no regular file");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(secret_is_looked_for_in_the_order_that_is_told),
        CASE(what_does_not_go_together_or_others_may_read_is_refused),
        CASE(changed_secret_is_taken_and_a_mistake_leaves_the_old_one),
        CASE(without_keys_there_is_no_tls),
        CASE(files_that_do_not_come_cost_a_moment_once_and_what_was_read_holds),
        CASE(files_that_never_come_are_left_alone_at_the_end),
        CASE(what_is_no_file_is_named_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
