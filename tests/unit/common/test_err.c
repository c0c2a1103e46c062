/* Names and texts of errors: the system's, libuv's, ours. */

#include "tests/lib/cmocka.h"

#include "common/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

/* Where the system has the code too, its own words hold. */
static void libuvs_own_codes_have_its_names_and_texts(void **state)
{
    static const int codes[] = {
#define CODE(name, text) UV_##name,
        UV_ERRNO_MAP(CODE)
#undef CODE
    };
    size_t n_own = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        if (!strerrordesc_np(-codes[i])) {
            assert_string_equal(err_name(codes[i]), uv_err_name(codes[i]));
            assert_string_equal(err_text(codes[i]), uv_strerror(codes[i]));
            n_own++;
        }
    }
    assert_true(n_own >= 17);
}

static void the_systems_errors_have_its_texts(void **state)
{
    (void)state;
    assert_string_equal(err_name(-ENOENT), "ENOENT");
    assert_string_equal(err_text(-ENOENT), "No such file or directory");
}

static void our_errors_have_names_and_texts(void **state)
{
    (void)state;
#define CHECK(code, value, words)               \
    assert_int_equal(code, value);              \
    assert_string_equal(err_name(code), #code); \
    assert_string_equal(err_text(code), words);
    ERR_MAP(CHECK)
#undef CHECK
}

static void codes_of_nobody_are_unknown(void **state)
{
    (void)state;
    assert_string_equal(err_name(-2999), "unknown error");
    assert_string_equal(err_text(-4999), "unknown error");
    assert_string_equal(err_text(-5999), "unknown error");
}

static void text_is_one_line_whatever_it_quotes(void **state)
{
    struct errmsg msg;

    (void)state;
    assert_int_equal(errmsg_set(&msg, -EINVAL, "not '%s'", "a\nb\x1b[2J\x7f é"),
                     -EINVAL);
    assert_string_equal(msg.text, "not 'a b [2J  é'");
    assert_int_equal(errmsg_wrap(&msg, -EINVAL, "%s", "x\r\ny"), -EINVAL);
    assert_string_equal(msg.text, "x  y: not 'a b [2J  é'");
}

static void context_comes_before_the_text(void **state)
{
    struct errmsg msg = {""};

    (void)state;
    assert_int_equal(errmsg_set(&msg, -EIO, "disk %d", 3), -EIO);
    assert_int_equal(errmsg_wrap(&msg, ERR_CORRUPT, "reading %s", "x"), ERR_CORRUPT);
    assert_string_equal(msg.text, "reading x: disk 3");
    assert_int_equal(errmsg_wrap(NULL, -EIO, "nobody asks"), -EIO);
}

static void a_thread_that_does_not_start_names_the_limits(void **state)
{
    struct errmsg msg = {""};

    (void)state;
    assert_int_equal(errmsg_thread(&msg, -EAGAIN, "device"), -EAGAIN);
    assert_non_null(strstr(msg.text, "device: no thread: Resource temporarily"));
    assert_non_null(strstr(msg.text, "ulimit -d, -v"));
    assert_int_equal(errmsg_thread(&msg, -EPERM, "device"), -EPERM);
    assert_string_equal(msg.text, "device: no thread: Operation not permitted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libuvs_own_codes_have_its_names_and_texts),
        cmocka_unit_test(the_systems_errors_have_its_texts),
        cmocka_unit_test(our_errors_have_names_and_texts),
        cmocka_unit_test(codes_of_nobody_are_unknown),
        cmocka_unit_test(text_is_one_line_whatever_it_quotes),
        cmocka_unit_test(context_comes_before_the_text),
        cmocka_unit_test(a_thread_that_does_not_start_names_the_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
