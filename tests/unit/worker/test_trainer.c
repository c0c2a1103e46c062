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
        {-ENOTDIR, EXIT_MISTAKE, 1},
        {-EISDIR, EXIT_MISTAKE, 1},
        {-EACCES, EXIT_MISTAKE, 1},
        {-EPERM, EXIT_MISTAKE, 1},
        {-EROFS, EXIT_MISTAKE, 1},
        {-ELOOP, EXIT_MISTAKE, 1},
        {-ENAMETOOLONG, EXIT_MISTAKE, 1},
        {ERR_TOO_LARGE, EXIT_MISTAKE, 1},
        {ERR_STALE, EXIT_MISTAKE, 1},
        {-ENOMEM, 1, 1},
        {-EAGAIN, 1, 1},
        {-EMFILE, 1, 1},
        {-ENFILE, 1, 1},
        {-ESTALE, 1, 1},
        {-EINTR, 1, 1},
        {-ECONNRESET, 1, 1},
        {-EADDRINUSE, 1, 1},
        {ERR_CLOSED, 1, 1},
        {ERR_PROTOCOL, 1, 1},
        {ERR_NOT_FINITE, 1, 1},
        {ERR_DIVERGED, 1, 1},
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
