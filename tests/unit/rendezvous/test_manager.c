/* What systemd hears, with a server that is only numbers: they are here, and not the
 * library's. */

#include "rendezvous/manager.h"
#include "rendezvous/server.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

static struct server_counts counts;

void server_count(const struct server *s, struct server_counts *ret)
{
    (void)s;
    *ret = counts;
}

struct rig {
    uv_loop_t loop;
    struct manager *manager;
    int fd; /* systemd's end */
    struct sockaddr_un addr;
    bool is_stopped;
};

static int set_up(void **state)
{
    static struct rig r;

    r = (struct rig){.addr = {.sun_family = AF_UNIX}};
    (void)snprintf(r.addr.sun_path, sizeof(r.addr.sun_path), "/tmp/ctrun-notify-%d",
                   (int)getpid());
    (void)unlink(r.addr.sun_path);
    r.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(r.fd >= 0);
    assert_int_equal(bind(r.fd, (struct sockaddr *)&r.addr, sizeof(r.addr)), 0);
    /* NOLINTBEGIN(concurrency-mt-unsafe): one thread */
    assert_int_equal(setenv("NOTIFY_SOCKET", r.addr.sun_path, 1), 0);
    assert_int_equal(setenv("WATCHDOG_USEC", "20000", 1), 0);
    assert_int_equal(unsetenv("WATCHDOG_PID"), 0);
    /* NOLINTEND(concurrency-mt-unsafe) */
    counts = (struct server_counts){.jobs = 1, .nodes = 2};
    assert_int_equal(uv_loop_init(&r.loop), 0);
    assert_int_equal(manager_new(&r.loop, NULL, &r.manager), 0);
    *state = &r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;

    if (!r->is_stopped) {
        manager_stop(r->manager);
    }
    assert_int_equal(uv_run(&r->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    assert_int_equal(close(r->fd) + unlink(r->addr.sun_path), 0);
    return 0;
}

/* The next word; "" when there is none. */
static const char *hear(const struct rig *r)
{
    static char text[256];
    ssize_t n = recv(r->fd, text, sizeof(text) - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void readiness_and_status_are_told(void **state)
{
    struct rig *r = *state;

    manager_ready(r->manager);
    assert_string_equal(hear(r), "READY=1");
    assert_string_equal(hear(r), "STATUS=1 job, 2 nodes, 0 connections");
    manager_ready(r->manager);
    assert_string_equal(hear(r), "READY=1");
    assert_string_equal(hear(r), ""); /* the same status once */
    manager_reloading(r->manager);
    assert_non_null(strstr(hear(r), "RELOADING=1\nMONOTONIC_USEC="));
    manager_stop(r->manager);
    r->is_stopped = true;
    assert_string_equal(hear(r), "STOPPING=1");
}

static void turns(struct rig *r, int n)
{
    for (int i = 0; i < n; i++) {
        assert_int_not_equal(uv_run(&r->loop, UV_RUN_ONCE), 0);
    }
}

/* The timers of a loop that serves nobody go on all the same. */
static void watchdog_hears_nothing_while_nobody_is_answered(void **state)
{
    struct rig *r = *state;

    while (strcmp(hear(r), "WATCHDOG=1") != 0) {
        turns(r, 1);
    }
    counts.waits_ms = 11; /* more than half of what systemd waits for */
    turns(r, 20);
    while (hear(r)[0] != '\0') { /* from before */
    }
    turns(r, 20);
    assert_string_equal(hear(r), "");
    counts.waits_ms = 10;
    while (strcmp(hear(r), "WATCHDOG=1") != 0) {
        turns(r, 1);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(readiness_and_status_are_told),
        CASE(watchdog_hears_nothing_while_nobody_is_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
