#include "tests/lib/cmocka.h"
#include "worker/trainer.h"

#include <errno.h>

static void the_exit_code_tells_the_launcher_whose_fault_it_was(void **state)
{
    static const struct {
        int err;
        int before, after; /* the first step */
    } cases[] = {
        {ERR_INVALID, EXIT_MISTAKE, EXIT_MISTAKE},
        {ERR_UNSUPPORTED, EXIT_MISTAKE, EXIT_MISTAKE},
        {ERR_MISSING, EXIT_MISTAKE, EXIT_MISTAKE},
        {ERR_CORRUPT, EXIT_MISTAKE, EXIT_MISTAKE},
        {ERR_BUSY, EXIT_MISTAKE, EXIT_MISTAKE},
        {ERR_PEER_LOST, EXIT_LOST_PEER, EXIT_LOST_PEER},
        {ERR_ABORTED, EXIT_LOST_PEER, EXIT_LOST_PEER},
        {ERR_REFUSED, EXIT_LOST_PEER, EXIT_LOST_PEER},
        {ERR_TIMEOUT, EXIT_COMM_TIMEOUT, EXIT_COMM_TIMEOUT},
        {-EIO, EXIT_STORAGE, EXIT_STORAGE},
        {-ENOSPC, EXIT_STORAGE, EXIT_STORAGE},
        {-EDQUOT, EXIT_STORAGE, EXIT_STORAGE},
        {-EFBIG, EXIT_STORAGE, EXIT_STORAGE},
        {-ENOENT, EXIT_MISTAKE, 1},
        {-ENOMEM, EXIT_MISTAKE, 1},
        {ERR_PROTOCOL, EXIT_MISTAKE, 1},
        {ERR_NOT_FINITE, EXIT_MISTAKE, 1},
    };
    struct trainer t = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        t.has_begun = false;
        assert_int_equal(trainer_exit_code(&t, cases[i].err), cases[i].before);
        t.has_begun = true;
        assert_int_equal(trainer_exit_code(&t, cases[i].err), cases[i].after);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_exit_code_tells_the_launcher_whose_fault_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
