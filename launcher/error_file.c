#include "launcher/error_file.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/mem.h"

#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1024 * 1024 };

static bool is_regular(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* The file's bytes; -1: it is no regular file, or too large. */
static ssize_t read_file(int fd, char *data, size_t size)
{
    size_t n = 0;
    ssize_t got = -1;

    while (is_regular(fd) && n < size && (got = read(fd, data + n, size - n)) > 0) {
        n += (size_t)got;
    }
    return got == 0 ? (ssize_t)n : -1;
}

/* NULL where something is missing, or no text. */
static const char *find_text(const json_t *root)
{
    const json_t *message = json_object_get(root, "message");
    const json_t *extra = json_object_get(message, "extraInfo");
    const char *stack = json_string_value(json_object_get(extra, "py_callstack"));
    const char *text = json_string_value(json_object_get(message, "message"));

    text = text ? text : json_string_value(message);
    return stack && text ? stack : text;
}

static void copy_whole_characters(char *text, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);

    while (n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80) {
        n--; /* `from` is UTF-8: not in the middle of a character */
    }
    memcpy(text, from, n);
    text[n] = '\0';
}

static uint64_t age_ms(int fd)
{
    uint64_t now_ms = clock_wall_ms();
    struct stat st;
    uint64_t written_ms;

    if (fstat(fd, &st) < 0 || st.st_mtim.tv_sec < 0) {
        return 0;
    }
    written_ms =
        (uint64_t)st.st_mtim.tv_sec * 1000 + (uint64_t)st.st_mtim.tv_nsec / 1000000;
    return written_ms < now_ms ? now_ms - written_ms : 0;
}

bool error_file_read(const char *path, char *text, size_t size, uint64_t *ret_age_ms)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const char *found;
    json_t *root;
    uint64_t age;
    char *data;
    ssize_t n;

    ASSERT(size > 0);
    if (fd < 0) {
        return false; /* most workers write none */
    }
    data = mem_alloc(FILE_MAX);
    n = read_file(fd, data, FILE_MAX);
    age = age_ms(fd);
    (void)close(fd); /* only read */
    root = n > 0 ? json_loadb(data, (size_t)n, JSON_ALLOW_NUL, NULL) : NULL;
    found = find_text(root);
    if (found) {
        copy_whole_characters(text, size, found);
        *ret_age_ms = age;
    }
    json_decref(root);
    mem_free(data);
    return found != NULL;
}
