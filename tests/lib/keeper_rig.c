#include "tests/lib/keeper_rig.h"

#include "tests/lib/child.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char keeper_rig_fake[PATH_MAX];
char keeper_rig_folder[PATH_MAX];

static void pause_briefly(void)
{
    (void)poll(NULL, 0, 2);
}

struct keeper keeper_rig_start(void)
{
    struct keeper k;

    CHECK(keeper_start(&k, NULL, NULL) == 0);
    return k;
}

/* `args`: the keeper_rig_fake worker's, NULL at the end. */
void keeper_rig_spawn_fds(struct keeper *k, uint32_t id, const char *const *args,
                          int out, int err)
{
    const char *argv[16] = {keeper_rig_fake};
    struct keeper_spawn spawn = {
        .id = id, .env = environ, .fds = {-1, out, err, -1, -1}};
    struct errmsg msg = {""};

    for (size_t i = 0; args[i]; i++) {
        CHECK(i + 2 < ARRAY_LEN(argv));
        argv[i + 1] = args[i];
    }
    memcpy(&spawn.argv, &(const char *const *){argv}, sizeof(spawn.argv));
    CHECK(keeper_spawn(k, &spawn, &msg) == 0);
}

struct keeper_event keeper_rig_receive(struct keeper *k)
{
    struct pollfd poll_fd = {k->fd, POLLIN, 0};
    struct keeper_event e;

    CHECK(poll(&poll_fd, 1, KEEPER_RIG_BOUND_MS) == 1);
    CHECK(keeper_receive(k, &e) == 0);
    return e;
}

pid_t keeper_rig_receive_spawned(struct keeper *k, uint32_t id)
{
    struct keeper_event e = keeper_rig_receive(k);

    CHECK(e.type == KEEPER_SPAWNED);
    CHECK(e.id == id);
    return e.pid;
}

int keeper_rig_receive_exited(struct keeper *k, uint32_t id)
{
    struct keeper_event e = keeper_rig_receive(k);

    CHECK(e.type == KEEPER_EXITED);
    CHECK(e.ended_ms > 0 && e.ended_ms <= clock_ms());
    CHECK(e.id == id);
    return e.status;
}

bool keeper_rig_is_alive(pid_t pid)
{
    return kill(pid, 0) == 0;
}

void keeper_rig_wait_until_gone(pid_t pid)
{
    uint64_t deadline_ms = clock_ms() + KEEPER_RIG_BOUND_MS;

    while (keeper_rig_is_alive(pid)) {
        CHECK(clock_ms() < deadline_ms);
        pause_briefly();
    }
}

/* By the letter behind the name in /proc/<pid>/stat. */
static bool is_dead(pid_t pid)
{
    char path[64];
    char text[256];
    const char *end;
    bool fits = str_format(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fits ? fopen(path, "re") : NULL;
    char *line = f ? fgets(text, sizeof(text), f) : NULL;

    if (f) {
        (void)fclose(f);
    }
    end = line ? strrchr(line, ')') : NULL;
    return !end || strncmp(end, ") Z", 3) == 0 || strncmp(end, ") X", 3) == 0;
}

void keeper_rig_wait_until_dead(pid_t pid)
{
    uint64_t deadline_ms = clock_ms() + KEEPER_RIG_BOUND_MS;

    while (!is_dead(pid)) {
        CHECK(clock_ms() < deadline_ms);
        pause_briefly();
    }
}

const char *keeper_rig_path_of(const char *name)
{
    static char path[PATH_MAX];
    bool fits = str_format(path, sizeof(path), "%s/%s", keeper_rig_folder, name);

    CHECK(fits);
    return path;
}

/* "pid=<keeper_rig_folder>/<name>" for the keeper_rig_fake worker. */
const char *keeper_rig_pid_action(const char *name)
{
    static char text[4][PATH_MAX + 8];
    static unsigned n;
    char *out = text[n++ % 4];
    bool fits = str_format(out, sizeof(text[0]), "pid=%s", keeper_rig_path_of(name));

    CHECK(fits);
    return out;
}

size_t keeper_rig_read_pids(const char *path, pid_t *pids)
{
    FILE *f = fopen(path, "re");
    size_t n = 0;
    int pid;

    while (f && n < KEEPER_RIG_PIDS && fscanf(f, "%d", &pid) == 1) {
        pids[n++] = pid;
    }
    if (f) {
        (void)fclose(f);
    }
    return n;
}

/* Waits until the file names n processes. */
void keeper_rig_wait_for_pids(const char *name, size_t n, pid_t *pids)
{
    uint64_t deadline_ms = clock_ms() + KEEPER_RIG_BOUND_MS;

    while (keeper_rig_read_pids(keeper_rig_path_of(name), pids) < n) {
        CHECK(clock_ms() < deadline_ms);
        pause_briefly();
    }
}

size_t keeper_rig_read_end(int fd, char *text, size_t size)
{
    size_t n = 0;
    ssize_t got;

    while ((got = read(fd, text + n, size - 1 - n)) > 0) {
        n += (size_t)got;
    }
    CHECK(got == 0);
    text[n] = '\0';
    return n;
}

/* Runs the keeper_rig_fake worker with stdout in a pipe, to its end; its text. */
void keeper_rig_capture(struct keeper *k, const char *const *args, char *text,
                        size_t size)
{
    int ends[2];

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    keeper_rig_spawn_fds(k, 9, args, ends[1], -1);
    CHECK(close(ends[1]) == 0);
    (void)keeper_rig_read_end(ends[0], text, size);
    CHECK(close(ends[0]) == 0);
    (void)keeper_rig_receive_spawned(k, 9);
    CHECK(keeper_rig_receive_exited(k, 9) == 0);
}

int keeper_rig_set_up(void **state)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *tests;

    (void)state;
    if (n < 0) {
        return -1;
    }
    self[n] = '\0';
    tests = strstr(self, "/tests/unit/");
    if (!tests) {
        return -1;
    }
    *tests = '\0';
    (void)snprintf(keeper_rig_folder, sizeof(keeper_rig_folder),
                   "/tmp/ctrun-test-XXXXXX");
    return str_format(keeper_rig_fake, sizeof(keeper_rig_fake), "%s/bin/fake-worker",
                      self) &&
                   access(keeper_rig_fake, X_OK) == 0 && mkdtemp(keeper_rig_folder)
               ? 0
               : -1;
}

int keeper_rig_tear_down(void **state)
{
    static const char *const names[] = {"ends",  "kill", "term",   "agent", "signals",
                                        "alone", "both", "origin", "oom",   "stopped"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (void)unlink(keeper_rig_path_of(names[i]));
    }
    return rmdir(keeper_rig_folder);
}
