/* What strangers can make the service do. */

#include "rendezvous/event.h"
#include "rendezvous/gate.h"
#include "rendezvous/limits.h"
#include "tests/lib/cmocka.h"

#include "common/log.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { PER_S = 10, BURST = PER_S * LIMIT_ACCEPT_BURST_S };

static char seen[256 * 1024];
static size_t n_seen;

static void sink(const char *line, size_t size)
{
    assert_true(n_seen + size < sizeof(seen));
    memcpy(seen + n_seen, line, size);
    n_seen += size;
    seen[n_seen] = '\0';
}

static int set_up(void **state)
{
    static struct gate g;

    n_seen = 0;
    seen[0] = '\0';
    gate_init(&g, 7, PER_S);
    log_setup("name", "", LOG_LEVEL_INFO);
    log_set_sink(sink);
    *state = &g;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    log_set_sink(NULL);
    return 0;
}

static bool admits(struct gate *g, const char *addr, uint64_t now_ms)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, addr, &v4.sin_addr) == 1) {
        return gate_admits(g, (struct sockaddr *)&v4, now_ms);
    }
    assert_int_equal(inet_pton(AF_INET6, addr, &v6.sin6_addr), 1);
    return gate_admits(g, (struct sockaddr *)&v6, now_ms);
}

static void network_has_so_many_connections_at_once(void **state)
{
    struct gate *g = *state;

    for (int i = 0; i < BURST; i++) {
        assert_true(admits(g, i % 2 ? "10.1.2.3" : "::ffff:10.1.2.200", 5000));
        assert_true(admits(g, i % 2 ? "fd00::1" : "fd00::ff:1", 5000));
    }
    assert_false(admits(g, "10.1.2.77", 5000));
    assert_false(admits(g, "::ffff:10.1.2.3", 5000));
    assert_false(admits(g, "fd00::2", 5000));
    assert_true(admits(g, "10.1.3.3", 5000));
    assert_true(admits(g, "fd00:0:0:1::1", 5000));
    assert_true(admits(g, "10.1.2.3", 5100));
    assert_false(admits(g, "10.1.2.3", 5100));
}

static void this_machines_own_connections_always_come(void **state)
{
    struct gate *g = *state;

    for (int i = 0; i < 2 * BURST; i++) {
        assert_true(admits(g, "127.0.0.1", 5000));
        assert_true(admits(g, "::1", 5000));
    }
}

/* accept() gives the family of such a peer, and nothing else. */
static void who_comes_by_a_unix_socket_always_may(void **state)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct gate *g = *state;

    for (int i = 0; i < 2 * BURST; i++) {
        assert_true(gate_admits(g, (struct sockaddr *)&local, 5000));
    }
}

static void lines_about_peers_are_one_a_second_and_the_rest_is_counted(void **state)
{
    struct gate *g = *state;

    for (int i = 0; i < 1000; i++) {
        gate_log_peer(g, "10.0.0.1", "closed", 5000 + (uint64_t)i);
    }
    gate_log_peer(g, "10.0.0.2", "closed", 6000);
    assert_string_equal(seen, "name: warn: closed peer=10.0.0.1 more=0\n"
                              "name: warn: closed peer=10.0.0.2 more=999\n");
}

static void jobs_that_somebody_makes_up_do_not_fill_the_log(void **state)
{
    const struct job_event e = {.kind = JOB_IS_DONE, .job = "j", .generation = 1};
    const char *last;
    struct gate *g = *state;

    for (int i = 0; i < 10 * LIMIT_EVENTS_BURST; i++) {
        gate_log_event(g, &e, 5000);
    }
    assert_int_equal(n_seen, LIMIT_EVENTS_BURST *
                                 strlen("name: job done job=j generation=1\n"));
    last = seen + n_seen;
    gate_log_event(g, &e, 6000);
    assert_string_equal(last, "name: warn: jobs had more to tell than is written here "
                              "lines=1800\nname: job done job=j generation=1\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(network_has_so_many_connections_at_once),
        CASE(this_machines_own_connections_always_come),
        CASE(who_comes_by_a_unix_socket_always_may),
        CASE(lines_about_peers_are_one_a_second_and_the_rest_is_counted),
        CASE(jobs_that_somebody_makes_up_do_not_fill_the_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
