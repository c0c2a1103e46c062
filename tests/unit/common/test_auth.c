#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/auth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_A "aaaaaaaabbbbbbbbccccccccdddddddd"
#define SECRET_B "0123456789abcdef0123456789abcdef0123456789abcdef"

static int setup(void **state)
{
    static struct scratch scratch;

    scratch_open(&scratch);
    *state = &scratch;
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

static void assert_secret(const struct secret *s, const char *name, const char *text)
{
    assert_string_equal(s->name, name);
    assert_int_equal(s->size, strlen(text));
    assert_memory_equal(s->bytes, text, s->size);
}

static const struct secret *find(const struct secrets *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->list[i].name, name) == 0) {
            return &s->list[i];
        }
    }
    fail_msg("no secret %s", name);
    return NULL;
}

static void file_is_a_secret_without_its_line_end(void **state)
{
    struct secrets s;
    struct errmsg msg = {""};

    assert_int_equal(
        secrets_read(write_secret(*state, "secret", SECRET_A "\r\n"), &s, &msg), 0);
    assert_int_equal(s.n, 1);
    assert_secret(&s.list[0], "secret", SECRET_A);
    assert_false(s.list[0].is_operator);
    secrets_release(&s);
}

static void previous_secret_is_read_beside_the_one_in_its_place(void **state)
{
    struct secrets s;
    struct errmsg msg = {""};

    (void)write_secret(*state, "secret.previous", SECRET_B);
    assert_int_equal(secrets_read(write_secret(*state, "secret", SECRET_A), &s, &msg),
                     0);
    assert_int_equal(s.n, 2);
    assert_secret(&s.list[0], "secret", SECRET_A);
    assert_secret(&s.list[1], "secret", SECRET_B);
    secrets_release(&s);
}

static void folder_holds_a_secret_for_each_owner(void **state)
{
    struct scratch *scratch = *state;
    struct secrets s;
    struct errmsg msg = {""};

    (void)write_secret(scratch, "d/team-a", SECRET_A);
    (void)write_secret(scratch, "d/operator-anna", SECRET_B);
    (void)write_secret(scratch, "d/.hidden", "short");
    assert_int_equal(chmod(scratch_path(scratch, "d"), 0700), 0);
    assert_int_equal(secrets_read(scratch_path(scratch, "d"), &s, &msg), 0);
    assert_int_equal(s.n, 2);
    assert_secret(find(&s, "team-a"), "team-a", SECRET_A);
    assert_false(find(&s, "team-a")->is_operator);
    assert_true(find(&s, "operator-anna")->is_operator);
    secrets_release(&s);
}

static void read_folder(struct scratch *scratch, struct secrets *ret)
{
    struct errmsg msg = {""};

    assert_int_equal(chmod(scratch_path(scratch, "d"), 0700), 0);
    if (secrets_read(scratch_path(scratch, "d"), ret, &msg) < 0) {
        fail_msg("%s", msg.text);
    }
}

static void names_of_owners_are_taken(void **state)
{
    static const char *const names[] = {"a",           "Team_A.2",   "me@host-1",
                                        "old",         "bak",        "alice.bakery",
                                        "alice.old.x", "alice.2026", "-"};
    struct secrets s;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char file[64];

        (void)snprintf(file, sizeof(file), "d/%s", names[i]);
        (void)write_secret(*state, file, SECRET_A);
    }
    (void)write_secret(*state, "d/a.previous", SECRET_B);
    read_folder(*state, &s);
    assert_int_equal(s.n, ARRAY_LEN(names) + 1);
    assert_int_equal(s.n_others, 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (void)find(&s, names[i]);
    }
    secrets_release(&s);
}

static const struct other_case {
    const char *file;
    const char *why; /* in it */
} other_cases[] = {
    {".alice.swp", "begins with a dot"},
    {".previous", "begins with a dot"},
    {"alice~", "a backup's"},
    {"alice.~1~", "a backup's"},
    {"alice.previous~", "a backup's"},
    {"alice.bak", "a backup's"},
    {"alice.OLD", "a backup's"},
    {"alice.bak.previous", "a backup's"},
    {"alice.previous.previous", "a backup's"},
    {"alice.orig", "a backup's"},
    {"alice.swp", "a backup's"},
    {"alice.tmp", "a backup's"},
    {"alice.save", "a backup's"},
    {"alice.rpmsave", "a backup's"},
    {"alice.dpkg-old", "a backup's"},
    {"#alice#", "other characters"},
    {"x y", "other characters"},
    {"a\nb", "other characters"},
    {"alice (1)", "other characters"},
    {"\u00e9", "other characters"},
};

static const char *why_left_out(const struct secrets *s, const char *file)
{
    for (size_t i = 0; i < s->n_others; i++) {
        if (strcmp(s->others[i].file, file) == 0) {
            return s->others[i].why;
        }
    }
    fail_msg("%s is taken", file);
    return NULL;
}

static void what_was_moved_aside_is_nobodys_secret(void **state)
{
    struct secrets s;

    (void)write_secret(*state, "d/alice", SECRET_A);
    (void)write_secret(*state, "d/..data",
                       SECRET_B); /* of which nobody needs to hear */
    for (size_t i = 0; i < ARRAY_LEN(other_cases); i++) {
        char file[64];

        (void)snprintf(file, sizeof(file), "d/%s", other_cases[i].file);
        (void)write_secret(*state, file, SECRET_B);
    }
    read_folder(*state, &s);
    for (size_t i = 0; i < ARRAY_LEN(other_cases); i++) {
        const char *why = why_left_out(&s, other_cases[i].file);

        if (!strstr(why, other_cases[i].why)) {
            fail_msg("%s: %s", other_cases[i].file, why);
        }
    }
    assert_int_equal(s.n, 1);
    assert_int_equal(s.n_others, ARRAY_LEN(other_cases));
    assert_secret(&s.list[0], "alice", SECRET_A);
    secrets_release(&s);
}

static void folder_of_nothing_but_others_says_why_it_holds_none(void **state)
{
    struct scratch *scratch = *state;
    struct secrets s;
    struct errmsg msg = {""};

    (void)write_secret(scratch, "d/alice.bak", SECRET_A);
    assert_int_equal(chmod(scratch_path(scratch, "d"), 0700), 0);
    assert_int_equal(secrets_read(scratch_path(scratch, "d"), &s, &msg), ERR_MISSING);
    assert_non_null(strstr(msg.text, "(alice.bak is none: its name is a backup's)"));
}

static void what_others_may_read_or_change_is_refused(void **state)
{
    struct scratch *scratch = *state;
    struct secrets s;
    struct errmsg msg = {""};
    const char *path = write_secret(scratch, "secret", SECRET_A);

    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(secrets_read(path, &s, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "chmod 600"));
    assert_int_equal(auth_check_private(path, &msg), ERR_INVALID);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(auth_check_private(path, &msg), 0);

    (void)write_secret(scratch, "d/one", SECRET_A);
    path = scratch_path(scratch, "d");
    assert_int_equal(chmod(path, 0770), 0);
    assert_int_equal(secrets_read(path, &s, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "chmod 700"));
}

static void what_is_no_secret_is_refused_by_its_name(void **state)
{
    struct scratch *scratch = *state;
    struct secrets s;
    struct errmsg msg = {""};
    char large[SECRET_MAX + 2];

    assert_int_equal(secrets_read(write_secret(scratch, "short", "hunter2"), &s, &msg),
                     ERR_INVALID);
    assert_non_null(strstr(msg.text, "/short is too short"));
    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    assert_int_equal(secrets_read(write_secret(scratch, "large", large), &s, &msg),
                     ERR_INVALID);
    assert_int_equal(secrets_read(scratch_path(scratch, "absent"), &s, &msg), -ENOENT);
    assert_int_equal(mkdir(scratch_path(scratch, "empty"), 0700), 0);
    assert_int_equal(secrets_read(scratch_path(scratch, "empty"), &s, &msg),
                     ERR_MISSING);
    assert_non_null(strstr(msg.text, "ctrun keygen"));
}

/* Root could read it; its owner could change it. */
static void another_users_secret_is_refused(void **state)
{
    struct secrets s;
    struct errmsg msg = {""};
    const char *path = write_secret(*state, "secret", SECRET_A);

    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_int_equal(secrets_read(path, &s, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "belongs to another user"));
}

static void credentials_are_read_whatever_their_rights(void **state)
{
    struct scratch *scratch = *state;
    struct secrets s;
    struct errmsg msg = {""};

    (void)scratch_text(scratch, "c/other", "not ours");
    assert_int_equal(secrets_read_credentials(scratch_path(scratch, "c"), &s, &msg),
                     ERR_MISSING);
    (void)scratch_text(scratch, "c/ctrun-secret", SECRET_A);
    (void)scratch_text(scratch, "c/ctrun-secret_team-b", SECRET_B);
    assert_int_equal(secrets_read_credentials(scratch_path(scratch, "c"), &s, &msg), 0);
    assert_int_equal(s.n, 2);
    assert_secret(find(&s, "secret"), "secret", SECRET_A);
    assert_secret(find(&s, "team-b"), "team-b", SECRET_B);
    secrets_release(&s);
}

static void credential_that_replaces_another_has_its_owner(void **state)
{
    struct scratch *scratch = *state;
    struct secrets s;
    struct errmsg msg = {""};

    (void)scratch_text(scratch, "c/ctrun-secret", SECRET_A);
    (void)scratch_text(scratch, "c/ctrun-secret.previous", SECRET_B);
    (void)scratch_text(scratch, "c/ctrun-secret_alice~", SECRET_B);
    assert_int_equal(secrets_read_credentials(scratch_path(scratch, "c"), &s, &msg), 0);
    assert_int_equal(s.n, 2);
    assert_string_equal(s.list[0].name, "secret");
    assert_string_equal(s.list[1].name, "secret");
    assert_int_equal(s.n_others, 1);
    assert_string_equal(s.others[0].file, "ctrun-secret_alice~");
    secrets_release(&s);
}

/* Else a service whose only one it is would let everybody in. */
static void credential_that_is_left_out_alone_is_a_mistake(void **state)
{
    struct scratch *scratch = *state;
    struct secrets s;
    struct errmsg msg = {""};

    (void)scratch_text(scratch, "c/ctrun-secret_alice~", SECRET_A);
    assert_int_equal(secrets_read_credentials(scratch_path(scratch, "c"), &s, &msg),
                     ERR_INVALID);
    assert_string_equal(msg.text,
                        "the credential ctrun-secret_alice~ is no secret: its "
                        "name is a backup's");
}

static void private_file_is_made_once_for_us_alone(void **state)
{
    struct scratch *scratch = *state;
    struct errmsg msg = {""};
    struct stat st;
    char *path = strdup(scratch_path(scratch, "new/folder/file"));
    char *text;

    assert_int_equal(auth_write_private(path, "hello", 5, &msg), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(scratch_path(scratch, "new"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(auth_write_private(path, "other", 5, &msg), -EEXIST);
    text = scratch_read(scratch, "new/folder/file");
    assert_string_equal(text, "hello");
    free(text);
    free(path);
}

static void made_secrets_are_good_and_differ(void **state)
{
    char one[65];
    char other[65];

    (void)state;
    auth_make_secret(one);
    auth_make_secret(other);
    assert_int_equal(strspn(one, "0123456789abcdef"), 64);
    assert_string_not_equal(one, other);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(file_is_a_secret_without_its_line_end),
        CASE(previous_secret_is_read_beside_the_one_in_its_place),
        CASE(folder_holds_a_secret_for_each_owner),
        CASE(names_of_owners_are_taken),
        CASE(what_was_moved_aside_is_nobodys_secret),
        CASE(folder_of_nothing_but_others_says_why_it_holds_none),
        CASE(what_others_may_read_or_change_is_refused),
        CASE(what_is_no_secret_is_refused_by_its_name),
        CASE(another_users_secret_is_refused),
        CASE(credentials_are_read_whatever_their_rights),
        CASE(credential_that_replaces_another_has_its_owner),
        CASE(credential_that_is_left_out_alone_is_a_mistake),
        CASE(private_file_is_made_once_for_us_alone),
        cmocka_unit_test(made_secrets_are_good_and_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
