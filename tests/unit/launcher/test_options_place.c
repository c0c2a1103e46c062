/* The command line's options about a worker's place: its role, its device, its CPUs. */

#include "tests/lib/cmocka.h"
#include "tests/lib/options_rig.h"

#include <string.h>

static void a_role_is_any_printable_text_and_default_without(void **state)
{
    char option[] = "--role=_______________________________________________________"
                    "_________________________________________________________________"
                    "_______";
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "--max-restarts=0", "train.py");
    assert_string_equal(o.role, "default");
    ACCEPT(&o, "--role=trainer é [x]", "train.py");
    assert_string_equal(o.role, "trainer é [x]");
    ACCEPT(&o, "--role=", "train.py");
    assert_string_equal(o.role, "");
    ACCEPT(&o, option, "train.py");
    assert_int_equal(strlen(o.role), 127);
    REFUSE(
        "--role: must be UTF-8, without control characters and what cannot be seen or "
        "turns the text's direction: others see it",
        "--role=a\nb", "train.py");
    REFUSE(
        "--role: must be UTF-8, without control characters and what cannot be seen or "
        "turns the text's direction: others see it",
        "--role=\u2066", "train.py");
    REFUSE("--role: is too long: at most 127 bytes",
           "--role=________________________________________________________________"
           "________________________________________________________________",
           "train.py");
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
    ACCEPT(&o, "--max-restarts=0", "train.py");
    assert_int_equal(o.numa_binding, NUMA_NONE);
    for (unsigned i = NUMA_NODE; i <= NUMA_CORE_COMPLEX; i++) {
        ACCEPT(&o, options[i], "train.py");
        assert_int_equal(o.numa_binding, i);
    }
    REFUSE(
        "--numa-binding: expects node, socket, exclusive or core-complex, not 'cores'",
        "--numa-binding=cores", "train.py");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_binding_is_one_of_four_words),
        cmocka_unit_test(a_role_is_any_printable_text_and_default_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
