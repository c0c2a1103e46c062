#include "tests/lib/run_dir_rig.h"

#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int run_dir_rig_set_up(void **state)
{
    struct run_dir_rig *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    scratch_open(&f->scratch);
    (void)snprintf(f->dir, sizeof(f->dir), "%s", scratch_path(&f->scratch, "run"));
    *state = f;
    return 0;
}

int run_dir_rig_tear_down(void **state)
{
    struct run_dir_rig *f = *state;

    scratch_close(&f->scratch);
    free(f);
    return 0;
}

struct run_dir_owner run_dir_rig_owner(const char *name)
{
    return (struct run_dir_owner){.cluster = 7, .job = name};
}

int run_dir_rig_open(struct run_dir_rig *f, const char *name, struct run_dir *ret)
{
    struct run_dir_owner owner = run_dir_rig_owner(name);
    int rv = run_dir_open(f->dir, &owner, ret, &f->msg);

    rv = rv < 0 ? rv : run_dir_claim(ret, 1, &f->msg);
    if (rv < 0) {
        run_dir_close(ret);
    }
    return rv;
}

bool run_dir_rig_is_lock_of(struct run_dir_rig *f, const char *begin, pid_t pid)
{
    char *text = scratch_read(&f->scratch, "run/.lock");
    char own[128];
    bool is_so;

    (void)snprintf(own, sizeof(own), "%s pid %ld on ", begin, (long)pid);
    is_so = text && strncmp(text, own, strlen(own)) == 0 &&
            strchr(text, '\n') == text + strlen(text) - 1;
    free(text);
    return is_so;
}
