/* The command line's options about a worker's place: its role, its device, its CPUs. */

#include "launcher/options/options.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static int parse(const char *option, struct launch_options *o, struct errmsg *msg)
{
    char copy[512];
    char program[] = "train.py";
    char name[] = "ctrun";
    char *argv[] = {name, copy, program, NULL};
    char *env[] = {NULL};

    assert_true(strlen(option) < sizeof(copy));
    strcpy(copy, option);
    *msg = (struct errmsg){0};
    return launch_options_parse(3, argv, env, o, msg);
}

static void accept(const char *option, struct launch_options *o)
{
    struct errmsg msg;
    int rv = parse(option, o, &msg);

    if (rv < 0) {
        fail_msg("%s: %s", option, msg.text);
    }
}

static void refuse(const char *option, const char *text)
{
    struct launch_options o;
    struct errmsg msg;

    assert_int_equal(parse(option, &o, &msg), ERR_INVALID);
    assert_string_equal(msg.text, text);
}

static void a_role_is_any_printable_text_and_default_without(void **state)
{
    char option[] = "--role=_______________________________________________________"
                    "_________________________________________________________________"
                    "_______";
    struct launch_options o;

    (void)state;
    accept("--max-restarts=0", &o);
    assert_string_equal(o.role, "default");
    accept("--role=trainer é [x]", &o);
    assert_string_equal(o.role, "trainer é [x]");
    accept("--role=", &o);
    assert_string_equal(o.role, "");
    accept(option, &o);
    assert_int_equal(strlen(o.role), 127);
    refuse("--role=a\nb", "--role: may not have control characters");
    refuse("--role=\x7f", "--role: may not have control characters");
    refuse("--role=________________________________________________________________"
           "________________________________________________________________",
           "--role: is too long: at most 127 bytes");
}

static void a_binding_is_one_of_four_words(void **state)
{
    static const char *const options[] = {
        [NUMA_NODE] = "--numa-binding=node",
        [NUMA_SOCKET] = "--numa-binding=socket",
        [NUMA_EXCLUSIVE] = "--numa_binding=exclusive",
        [NUMA_CORE_COMPLEX] = "--numa-binding=core-complex",
    };
    struct launch_options o;

    (void)state;
    accept("--max-restarts=0", &o);
    assert_int_equal(o.numa_binding, NUMA_NONE);
    for (unsigned i = NUMA_NODE; i <= NUMA_CORE_COMPLEX; i++) {
        accept(options[i], &o);
        assert_int_equal(o.numa_binding, i);
    }
    refuse(
        "--numa-binding=cores",
        "--numa-binding: expects node, socket, exclusive or core-complex, not 'cores'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_binding_is_one_of_four_words),
        cmocka_unit_test(a_role_is_any_printable_text_and_default_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
