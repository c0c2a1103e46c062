#include "launcher/error_file.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/mem.h"

#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_MAX = 1024 * 1024 };

static bool is_regular(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* The file's first `size` bytes; 0 where it is no regular file. */
static size_t read_file(int fd, char *data, size_t size)
{
    size_t n = 0;
    ssize_t got = -1;

    while (is_regular(fd) && n < size && (got = read(fd, data + n, size - n)) > 0) {
        n += (size_t)got;
    }
    return got < 0 ? 0 : n;
}

/* Up to a '\0', and not into the middle of a character of UTF-8. */
static void copy_whole_characters(char *text, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);

    while (n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80) {
        n--;
    }
    memcpy(text, from, n);
    text[n] = '\0';
}

/* One of the two forms. */
static bool take_json(const json_t *root, struct worker_error *ret)
{
    const json_t *message = json_object_get(root, "message");
    const json_t *extra = json_object_get(message, "extraInfo");
    const char *stack = json_string_value(json_object_get(extra, "py_callstack"));
    const char *text = json_string_value(json_object_get(message, "message"));

    text = text ? text : json_string_value(message);
    if (!text && !stack) {
        return false;
    }
    if (text) {
        copy_whole_characters(ret->error, sizeof(ret->error), text);
    }
    copy_whole_characters(ret->message, sizeof(ret->message), stack ? stack : text);
    return true;
}

/* Neither: blanks around it are left out, a '\0' is shown as '?'. */
static bool take_text(char *data, size_t n, struct worker_error *ret)
{
    static const char blanks[] = " \t\r\n";
    char *start;

    for (size_t i = 0; i < n; i++) {
        data[i] = (char)(data[i] == '\0' ? '?' : data[i]);
    }
    data[n] = '\0';
    start = data + strspn(data, blanks);
    for (n = strlen(start); n > 0 && strchr(blanks, start[n - 1]); n--) {
        start[n - 1] = '\0';
    }
    copy_whole_characters(ret->message, sizeof(ret->message), start);
    return n > 0;
}

/* Files are dated by a clock that moves at every tick only: what seems to have been
 * written before a rank's end may have been written up to a tick later. */
static uint64_t tick_ms(void)
{
    struct timespec tick;

    return clock_getres(CLOCK_REALTIME_COARSE, &tick) == 0
               ? (uint64_t)tick.tv_nsec / 1000000 + 1
               : 0;
}

static uint64_t age_ms(int fd)
{
    uint64_t now_ms = clock_wall_ms();
    struct stat st;
    uint64_t written_ms;

    if (fstat(fd, &st) < 0 || st.st_mtim.tv_sec < 0) {
        return 0;
    }
    written_ms = (uint64_t)st.st_mtim.tv_sec * 1000 +
                 (uint64_t)st.st_mtim.tv_nsec / 1000000 + tick_ms();
    return written_ms < now_ms ? now_ms - written_ms : 0;
}

bool error_file_read(const char *path, struct worker_error *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct worker_error found = {0};
    json_t *root;
    char *data;
    bool ok;

    if (fd < 0) {
        return false; /* most workers write none */
    }
    data = mem_alloc(FILE_MAX + 1); /* a text's end, too */
    found.size = read_file(fd, data, FILE_MAX);
    found.age_ms = age_ms(fd);
    (void)close(fd); /* only read */
    root = json_loadb(data, found.size, JSON_ALLOW_NUL, NULL);
    ok = take_json(root, &found);
    json_decref(root);
    if (ok) {
        found.bytes = mem_alloc(found.size);
        memcpy(found.bytes, data, found.size);
    } else {
        ok = take_text(data, found.size, &found);
        found.size = 0;
    }
    mem_free(data);
    if (ok) {
        *ret = found;
    }
    return ok;
}
