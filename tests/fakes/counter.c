/* A worker that counts in the job's store, and notices when anything is lost, done twice
 * or broken off:
 *
 *   fake-counter FOLDER PACE_US
 *
 * Again and again it adds 1 to a counter of its own and appends a byte to a text of its
 * own, and the replies must be what it counts itself; how far it is stands in
 * FOLDER/RANK, "PID COUNT". Once FOLDER/stop is there it compares both with what the
 * store has, and ends: 0 all is right, 3 it is not, 4 its connection broke. */

#include "common/str.h"
#include "common/tcpstore.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* NOLINTBEGIN(concurrency-mt-unsafe): one thread */

enum { MISTAKE = 99, WRONG = 3, BROKEN = 4, APPEND_EVERY = 4, REQUEST_MAX = 256 };

struct request {
    uint8_t bytes[REQUEST_MAX];
    size_t size;
};

static const char *rank_text;

static _Noreturn void stop(int code, const char *what)
{
    (void)fprintf(stderr, "fake-counter: rank %s: %s\n", rank_text, what);
    exit(code);
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    if (!value) {
        stop(MISTAKE, name);
    }
    return value;
}

/* ---- the store ---- */

static void put(struct request *r, const void *data, size_t size)
{
    if (size > sizeof(r->bytes) - r->size) {
        stop(MISTAKE, "too long");
    }
    memcpy(r->bytes + r->size, data, size);
    r->size += size;
}

static void put_u64(struct request *r, uint64_t value)
{
    value = htole64(value);
    put(r, &value, sizeof(value));
}

static void put_text(struct request *r, const char *text)
{
    put_u64(r, strlen(text));
    put(r, text, strlen(text));
}

static struct request begin(enum tcpstore_op op, const char *what)
{
    struct request r = {.size = 0};
    uint8_t code = (uint8_t)op;
    char key[64];

    put(&r, &code, sizeof(code));
    (void)snprintf(key, sizeof(key), "%s/%s", what, rank_text);
    put_text(&r, key);
    return r;
}

static void say(int fd, const struct request *r)
{
    if (send(fd, r->bytes, r->size, MSG_NOSIGNAL) != (ssize_t)r->size) {
        stop(BROKEN, "cannot send");
    }
}

static void hear(int fd, void *data, size_t size)
{
    if (recv(fd, data, size, MSG_WAITALL) != (ssize_t)size) {
        stop(BROKEN, "the connection ended");
    }
}

static uint64_t hear_u64(int fd)
{
    uint64_t value;

    hear(fd, &value, sizeof(value));
    return le64toh(value);
}

static int connect_store(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    struct request hello = {.size = 0};
    const uint8_t validate[] = {TCPSTORE_VALIDATE, 0xce, 0xf7, 0x85, 0x3c};
    uint64_t port;
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || str_parse_u64(variable("MASTER_PORT"), &port) < 0 ||
        inet_pton(AF_INET, variable("MASTER_ADDR"), &addr.sin_addr) != 1) {
        stop(MISTAKE, "no address");
    }
    addr.sin_port = htons((uint16_t)port);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0) {
        stop(BROKEN, "cannot connect");
    }
    put(&hello, validate, sizeof(validate));
    say(fd, &hello);
    return fd;
}

/* ---- counting ---- */

static uint64_t add(int fd, uint64_t n)
{
    struct request r = begin(TCPSTORE_ADD, "counter");

    put_u64(&r, n);
    say(fd, &r);
    return hear_u64(fd);
}

static void append(int fd)
{
    struct request r = begin(TCPSTORE_APPEND, "text");

    put_text(&r, "x");
    say(fd, &r);
}

static uint64_t size_of_text(int fd)
{
    struct request r = begin(TCPSTORE_GET, "text");
    uint64_t size;
    char byte;

    say(fd, &r);
    size = hear_u64(fd);
    for (uint64_t i = 0; i < size; i++) {
        hear(fd, &byte, 1);
    }
    return size;
}

static void tell(const char *folder, uint64_t count)
{
    static int fd = -1;
    char text[64];

    if (fd < 0) {
        char path[512];

        (void)snprintf(path, sizeof(path), "%s/%s", folder, rank_text);
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    }
    (void)snprintf(text, sizeof(text), "%10d %20" PRIu64 "\n", (int)getpid(), count);
    if (fd < 0 || pwrite(fd, text, strlen(text), 0) != (ssize_t)strlen(text)) {
        stop(MISTAKE, "cannot tell");
    }
}

static bool is_over(const char *folder)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/stop", folder);
    return access(path, F_OK) == 0;
}

static void compare(uint64_t is, uint64_t should, const char *what)
{
    char text[128];

    if (is != should) {
        (void)snprintf(text, sizeof(text), "%s is %" PRIu64 ", should be %" PRIu64,
                       what, is, should);
        stop(WRONG, text);
    }
}

int main(int argc, char **argv)
{
    struct timespec pace = {0};
    uint64_t us = 0;
    uint64_t n = 0;
    uint64_t n_appended = 0;
    int fd;

    rank_text = variable("RANK");
    if (argc != 3 || str_parse_u64(argv[2], &us) < 0) {
        stop(MISTAKE, "expects FOLDER PACE_US");
    }
    pace.tv_nsec = (long)(us % 1000000) * 1000;
    fd = connect_store();
    while (!is_over(argv[1])) {
        compare(add(fd, 1), ++n, "the counter");
        if (n % APPEND_EVERY == 0) {
            append(fd);
            n_appended++;
        }
        tell(argv[1], n);
        (void)nanosleep(&pace, NULL); /* a pause cut short does no harm */
    }
    compare(add(fd, 0), n, "the counter at the end");
    if (n_appended > 0) {
        compare(size_of_text(fd), n_appended, "the text's length");
    }
    return 0;
}

/* NOLINTEND(concurrency-mt-unsafe) */
