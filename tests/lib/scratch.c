#include "tests/lib/scratch.h"

#include "tests/lib/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void scratch_open(struct scratch *s)
{
    (void)snprintf(s->dir, sizeof(s->dir), "/tmp/ctrun-test-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
}

static int on_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    return type == FTW_DP ? rmdir(path) : unlink(path);
}

void scratch_close(struct scratch *s)
{
    /* nobody changes the folder meanwhile: NOLINTNEXTLINE(concurrency-mt-unsafe) */
    assert_int_equal(nftw(s->dir, on_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

const char *scratch_path(struct scratch *s, const char *name)
{
    int n = snprintf(s->path, sizeof(s->path), "%s/%s", s->dir, name);

    assert_in_range(n, 1, sizeof(s->path) - 1);
    return s->path;
}

const char *scratch_write(struct scratch *s, const char *name, const void *data,
                          size_t size)
{
    char *path = s->path;
    FILE *file;

    (void)scratch_path(s, name);
    for (char *c = path + strlen(s->dir) + 1; *c; c++) {
        if (*c == '/') {
            *c = '\0';
            assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
            *c = '/';
        }
    }
    file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

const char *scratch_text(struct scratch *s, const char *name, const char *text)
{
    return scratch_write(s, name, text, strlen(text));
}

char *scratch_read(struct scratch *s, const char *name)
{
    FILE *file = fopen(scratch_path(s, name), "re");
    struct stat st;
    char *text;

    if (!file) {
        return NULL;
    }
    assert_int_equal(fstat(fileno(file), &st), 0);
    text = calloc((size_t)st.st_size + 1, 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)st.st_size, file), st.st_size);
    assert_int_equal(fclose(file), 0);
    return text;
}

int scratch_hang(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    assert_true(signal(SIGIO, SIG_IGN) != SIG_ERR); /* "somebody waits for it" */
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
    return fd;
}
