#include "worker/config.h"

#include "common/mem.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file and a command line: the input up to the first zero byte is x.yaml, what
 * follows are overrides, each up to a zero byte. Either one clear line, or a
 * configuration that prints as a file which reads back the same. The file is a memfd,
 * so that no disk is touched. */

enum { MAX_ARGS = 16, ARG_MAX_BYTES = 512 };

/* libFuzzer's name: NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct worker_options options;
static struct worker_options again;

static char dir[] = "/tmp/ctrun-fuzz-XXXXXX";
static char link_path[64];

static void on_exit_remove(void)
{
    (void)unlink(link_path); /* nothing can be done about it here */
    (void)rmdir(dir);
}

/* A link in a private folder that leads to the memfd: files must be called *.yaml. */
static void set_file(const void *data, size_t size)
{
    static int fd = -1;
    char target[64];

    if (fd < 0) {
        fd = memfd_create("x.yaml", MFD_CLOEXEC);
        ASSERT(fd >= 0 && mkdtemp(dir));
        (void)snprintf(link_path, sizeof(link_path), "%s/x.yaml", dir);
        (void)snprintf(target, sizeof(target), "/proc/self/fd/%d", fd);
        ASSERT(symlink(target, link_path) == 0 && atexit(on_exit_remove) == 0);
    }
    ASSERT(ftruncate(fd, 0) == 0);
    ASSERT(pwrite(fd, data, size, 0) == (ssize_t)size);
}

static int parse(char *const *override, int n, struct worker_options *ret)
{
    char name[128];
    char program[] = "ctrun-worker";
    char *argv[MAX_ARGS + 3] = {program, name};
    struct errmsg msg = {0};
    int rv;

    (void)snprintf(name, sizeof(name), "--config-name=%s", link_path);
    for (int i = 0; i < n; i++) {
        argv[2 + i] = override[i];
    }
    rv = config_parse(2 + n, argv, ret, &msg);
    ASSERT(rv == 0 || (rv == ERR_INVALID && msg.text[0]));
    return rv;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    size_t file_size = end ? (size_t)(end - data) : size;
    static char text[MAX_ARGS][ARG_MAX_BYTES];
    char *override[MAX_ARGS];
    char *yaml;
    int n = 0;

    if (size == 0) {
        return 0;
    }
    set_file(data, file_size);
    for (size_t at = file_size + 1; at < size && n < MAX_ARGS; n++) {
        size_t len = strnlen((const char *)data + at, size - at);

        (void)snprintf(text[n], sizeof(text[n]), "%.*s", (int)len,
                       (const char *)data + at);
        override[n] = text[n];
        at += len + 1;
    }
    if (parse(override, n, &options) < 0 || options.help || options.version) {
        return 0;
    }
    yaml = config_to_yaml(&options.config);
    set_file(yaml, strlen(yaml));
    ASSERT(parse(NULL, 0, &again) == 0);
    /* both were cleared first: NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
    ASSERT(memcmp(&options.config, &again.config, sizeof(again.config)) == 0);
    mem_free(yaml);
    mem_free(config_to_json(&options.config));
    return config_check(&options.config, NULL) > 0; /* never */
}
