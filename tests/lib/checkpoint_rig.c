#include "tests/lib/checkpoint_rig.h"

#include "tests/lib/cmocka.h"

#include "common/mem.h"
#include "common/str.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int checkpoint_rig_setup(void **state)
{
    struct checkpoint_rig *f = mem_zalloc(sizeof(*f));

    tiny_make_dir(f->dir, sizeof(f->dir));
    tiny_init(&f->tiny, 0);
    *state = f;
    return 0;
}

int checkpoint_rig_teardown(void **state)
{
    struct checkpoint_rig *f = *state;

    tiny_release(&f->tiny);
    tiny_remove_dir(f->dir);
    mem_free(f);
    return 0;
}

const char *checkpoint_rig_path(const struct checkpoint_rig *f, uint64_t step,
                                int run_generation)
{
    static char path[CHECKPOINT_PATH_MAX];

    checkpoint_path(path, sizeof(path), f->dir, step, run_generation, false);
    return path;
}

bool checkpoint_rig_has(const struct checkpoint_rig *f, const char *name)
{
    char path[CHECKPOINT_PATH_MAX];

    assert_true(str_format(path, sizeof(path), "%s/%s", f->dir, name));
    return access(path, F_OK) == 0;
}

void checkpoint_rig_touch(const struct checkpoint_rig *f, const char *name)
{
    char path[CHECKPOINT_PATH_MAX];
    int fd;

    assert_true(str_format(path, sizeof(path), "%s/%s", f->dir, name));
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

void checkpoint_rig_make_dir(const struct checkpoint_rig *f, const char *name)
{
    char path[CHECKPOINT_PATH_MAX];

    assert_true(str_format(path, sizeof(path), "%s/%s", f->dir, name));
    assert_int_equal(mkdir(path, 0777), 0);
}

void checkpoint_rig_damage(const char *dir, const char *name)
{
    char path[CHECKPOINT_PATH_MAX];
    int fd;

    assert_true(str_format(path, sizeof(path), "%s/%s", dir, name));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\xa5\x5a", 2, 40), 2);
    assert_int_equal(close(fd), 0);
}

int checkpoint_rig_load(const char *path, const struct box *boxes, size_t n,
                        bool verified, struct errmsg *msg)
{
    struct cut *cuts = mem_array(n, sizeof(*cuts));
    int rv;

    for (size_t i = 0; i < n; i++) {
        cuts[i] = cut_of_box(&boxes[i]);
    }
    rv = verified ? checkpoint_load_verified(path, cuts, n, NULL, msg)
                  : checkpoint_load(path, cuts, n, msg);
    mem_free(cuts);
    return rv;
}
