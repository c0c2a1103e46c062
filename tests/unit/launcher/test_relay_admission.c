/* Who may come in, on real sockets and as real users. */

#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/privilege.h"
#include "tests/lib/relay_rig.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES_ENOUGH = 64 };

/* A process of another user, from and to this address: it asks for a PING that nobody
 * may answer, and waits for its connection's end. */
static pid_t start_stranger(const struct relay_rig *r, const char *addr)
{
    static const uint8_t ping[] = {TCPSTORE_PING, 7, 0, 0, 0};
    pid_t pid = fork();
    struct pollfd p = {.events = POLLIN};

    CHECK(pid >= 0);
    if (pid > 0) {
        return pid;
    }
    CHECK(setuid(PRIVILEGE_NOBODY) == 0);
    p.fd = relay_rig_enter(r, addr, addr);
    /* it may be turned away before it has said a word */
    CHECK(send(p.fd, ping, sizeof(ping), MSG_NOSIGNAL) == sizeof(ping) ||
          errno == ECONNRESET || errno == EPIPE);
    CHECK(poll(&p, 1, RELAY_BOUND_MS) == 1);
    CHECK(relay_rig_has_ended(p.fd));
    _exit(0);
}

static bool has_exited(pid_t pid, int options)
{
    int status;
    pid_t rv = waitpid(pid, &status, options);

    CHECK(rv == pid || rv == 0);
    CHECK(rv == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return rv == pid;
}

static void turn_stranger_away(struct relay_rig *r, const char *addr)
{
    pid_t pid = start_stranger(r, addr);

    TURN_UNTIL(r, has_exited(pid, WNOHANG));
}

static void stranger(void)
{
    struct relay_rig *r = relay_rig_open();
    pid_t pid = start_stranger(r, "127.0.0.1");
    int fd;

    TURN_UNTIL(r, has_exited(pid, WNOHANG));
    fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    relay_rig_expect_pong(r, fd, 9); /* ours are served all the while */
    CHECK(close(fd) == 0);
    relay_rig_close(r);
}

static void another_user_of_this_host_is_turned_away(void **state)
{
    (void)state;
    privilege_need();
    child_run(stranger);
}

/* Our FIN has come; what closes the socket now leaves it without an owner. */
static void end_sending(int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);
    uint64_t end_ms = clock_ms() + RELAY_BOUND_MS;

    CHECK(shutdown(fd, SHUT_WR) == 0);
    while (info.tcpi_state != TCP_FIN_WAIT2) {
        CHECK(clock_ms() < end_ms);
        CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
        (void)sched_yield();
    }
}

/* The kernel says of a socket without an owner that it is root's. */
static void hasty_stranger(void)
{
    struct relay_rig *r = relay_rig_open();
    struct buf body;
    pid_t pid = fork();
    int fd;

    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(setuid(PRIVILEGE_NOBODY) == 0);
        fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
        body_make(&body, "sb", "k", "evil", (size_t)4);
        relay_rig_ask(NULL, fd, TCPSTORE_SET, &body);
        end_sending(fd);
        _exit(0);
    }
    CHECK(has_exited(pid, 0)); /* before the relay looks */
    fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    relay_rig_expect_pong(r, fd, 9);
    CHECK(r->n_heard == 0 && close(fd) == 0);
    relay_rig_close(r);
}

static void another_user_who_has_gone_already_is_not_heard(void **state)
{
    (void)state;
    privilege_need();
    child_run(hasty_stranger);
}

/* A host of its own with these addresses, besides loopback's. */
static void make_host(const char *const *addrs, unsigned n)
{
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd;

    CHECK(unshare(CLONE_NEWNET) == 0);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &up) == 0);
    for (unsigned i = 0; i < n; i++) {
        struct sockaddr_in addr = relay_rig_v4(addrs[i], 0);
        struct ifreq alias = {0};

        (void)snprintf(alias.ifr_name, sizeof(alias.ifr_name), "lo:%u", i);
        memcpy(&alias.ifr_addr, &addr, sizeof(addr));
        CHECK(ioctl(fd, SIOCSIFADDR, &alias) == 0);
    }
    CHECK(close(fd) == 0);
}

static void several_hosts(void)
{
    static const char *const addrs[] = {"10.9.0.1", "10.9.0.2", "10.9.0.3"};
    struct relay_rig *r;
    int fds[3];
    pid_t pid;

    make_host(addrs, 3);
    r = relay_rig_new(addrs[0]);
    relay_rig_serve(r, addrs, 2);
    fds[0] = relay_rig_enter(r, "10.9.0.2", "10.9.0.1");
    relay_rig_expect_pong(r, fds[0], 1);
    relay_rig_expect_end(r, relay_rig_enter(r, "10.9.0.3", "10.9.0.1"));
    fds[1] = relay_rig_enter(r, "10.9.0.1", "10.9.0.1");
    relay_rig_expect_pong(r, fds[1], 2);
    fds[2] = relay_rig_enter(r, "127.0.0.1", "127.0.0.1"); /* the same port there */
    relay_rig_expect_pong(r, fds[2], 3);
    pid = start_stranger(r, addrs[0]);
    TURN_UNTIL(r, has_exited(pid, WNOHANG));
    relay_rig_expect_pong(r, fds[0], 4); /* as before */
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        CHECK(close(fds[i]) == 0);
    }
    relay_rig_close(r);
}

static void addresses_outside_the_round_are_turned_away(void **state)
{
    (void)state;
    privilege_need();
    child_run(several_hosts);
}

/* So many more descriptors can be had from here on. */
static void limit_files(rlim_t n)
{
    struct rlimit limit;
    int lowest;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    lowest = dup(STDERR_FILENO);
    CHECK(lowest >= 0 && close(lowest) == 0);
    limit.rlim_cur = (rlim_t)lowest + n;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* A question to the kernel needs a descriptor; the accepted connection has the last. */
static void without_descriptors_to_ask_with(void)
{
    static const char *const addrs[] = {"10.9.0.1"};
    struct relay_rig *r;

    make_host(addrs, 1);
    r = relay_rig_new(addrs[0]);
    relay_rig_serve(r, addrs, 1);
    limit_files(1);
    turn_stranger_away(r, "127.0.0.1");
    turn_stranger_away(r, addrs[0]);
    relay_rig_close(r);
}

static void another_user_is_turned_away_where_the_kernel_cannot_be_asked(void **state)
{
    (void)state;
    privilege_need();
    child_run(without_descriptors_to_ask_with);
}

/* Which addresses are this host's is not known when the round begins. */
static void without_descriptors_to_list_with(void)
{
    static const char *const addrs[] = {"10.9.0.1"};
    struct relay_rig *r;
    pid_t pid;
    int fd;

    make_host(addrs, 1);
    r = relay_rig_new(addrs[0]);
    limit_files(0);
    relay_rig_serve(r, addrs, 1);
    limit_files(FILES_ENOUGH);
    pid = start_stranger(r, addrs[0]);
    TURN_UNTIL(r, has_exited(pid, WNOHANG));
    fd = relay_rig_enter(r, addrs[0], addrs[0]);
    relay_rig_expect_pong(r, fd, 9);
    CHECK(close(fd) == 0);
    relay_rig_close(r);
}

static void
another_user_is_turned_away_where_this_hosts_addresses_are_unknown(void **state)
{
    (void)state;
    privilege_need();
    child_run(without_descriptors_to_list_with);
}

/* Another node's worker: whose it is there is nobody's business here. Loopback's
 * interface takes in the whole network of its address, so that packets come back,
 * though this one is no address of this host. */
static pid_t start_remote(const struct relay_rig *r, const char *from, const char *to)
{
    static const uint8_t ping[] = {TCPSTORE_PING, 7, 0, 0, 0};
    pid_t pid = fork();
    struct pollfd p = {.events = POLLIN};
    uint8_t pong[4];

    CHECK(pid >= 0);
    if (pid > 0) {
        return pid;
    }
    CHECK(setuid(PRIVILEGE_NOBODY) == 0);
    p.fd = relay_rig_enter(r, from, to);
    CHECK(send(p.fd, ping, sizeof(ping), MSG_NOSIGNAL) == sizeof(ping));
    CHECK(poll(&p, 1, RELAY_BOUND_MS) == 1);
    CHECK(recv(p.fd, pong, sizeof(pong), MSG_WAITALL) == sizeof(pong));
    CHECK(memcmp(pong, ping + 1, sizeof(pong)) == 0);
    _exit(0);
}

/* The addresses are listed at last when it comes. */
static void remote_after_a_failed_list(void)
{
    static const char *const addrs[] = {"10.9.0.1", "10.9.0.7"};
    struct relay_rig *r;
    pid_t pid;

    make_host(addrs, 1);
    r = relay_rig_new(addrs[0]);
    limit_files(0);
    relay_rig_serve(r, addrs, 2);
    limit_files(FILES_ENOUGH);
    pid = start_remote(r, addrs[1], addrs[0]);
    TURN_UNTIL(r, has_exited(pid, WNOHANG));
    relay_rig_close(r);
}

static void other_nodes_are_served_once_this_hosts_addresses_are_known(void **state)
{
    (void)state;
    privilege_need();
    child_run(remote_after_a_failed_list);
}

static int count_lines(FILE *log, const char *needle)
{
    char line[1024];
    int n = 0;

    rewind(log);
    while (fgets(line, sizeof(line), log)) {
        n += strstr(line, needle) != NULL;
    }
    return n;
}

static void several_strangers(void)
{
    static const char *const addrs[] = {"10.9.0.1"};
    struct relay_rig *r;
    FILE *log = tmpfile();

    make_host(addrs, 1);
    CHECK(log && dup2(fileno(log), STDERR_FILENO) == STDERR_FILENO);
    r = relay_rig_new(addrs[0]);
    relay_rig_serve(r, addrs, 1);
    for (int i = 0; i < 2; i++) {
        turn_stranger_away(r, "127.0.0.1");
        turn_stranger_away(r, addrs[0]);
    }
    relay_rig_close(r);
    CHECK(count_lines(log, "of another user") == 2);
    CHECK(count_lines(log, "from=127.0.0.1") == 1);
    CHECK(count_lines(log, "from=10.9.0.1") == 1);
    CHECK(fclose(log) == 0);
}

static void who_is_turned_away_is_logged_once_for_each_address(void **state)
{
    (void)state;
    privilege_need();
    child_run(several_strangers);
}

enum { N_KNOCKS = 50, N_STRANGERS = 40 };

static void knock(struct relay_rig *r, int host)
{
    char from[32];

    (void)snprintf(from, sizeof(from), "10.9.1.%d", host);
    relay_rig_expect_end(r, relay_rig_enter(r, from, "10.9.0.1"));
}

static void noisy_network(void)
{
    static const char *const addrs[] = {"10.9.0.1"};
    struct relay_rig *r;
    FILE *log = tmpfile();

    make_host(addrs, 1); /* its interface has the others, too */
    CHECK(log && dup2(fileno(log), STDERR_FILENO) == STDERR_FILENO);
    r = relay_rig_new(addrs[0]);
    relay_rig_serve(r, addrs, 1);
    for (int i = 0; i < N_KNOCKS; i++) {
        knock(r, 1);
    }
    for (int i = 1; i <= N_STRANGERS; i++) {
        knock(r, i);
    }
    relay_rig_close(r);
    CHECK(count_lines(log, "from=10.9.1.1\n") == 1);
    CHECK(count_lines(log, "from=10.9.1.2\n") == 1);
    CHECK(count_lines(log, "from=") < N_STRANGERS);
    CHECK(count_lines(log, "connections=90") == 1);
    CHECK(fclose(log) == 0);
}

static void strangers_do_not_fill_the_log(void **state)
{
    (void)state;
    privilege_need();
    child_run(noisy_network);
}

/* Debian's address for the host's own name. */
static void own_name(void)
{
    static const char *const addrs[] = {"127.0.1.1"};
    struct relay_rig *r = relay_rig_new(addrs[0]);
    int a;
    int b;
    int c;

    relay_rig_serve(r, addrs, 1);
    a = relay_rig_enter(r, "127.0.1.1", "127.0.1.1");
    b = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    c = relay_rig_enter(r, "127.0.0.2", "127.0.1.1");
    relay_rig_expect_pong(r, a, 1);
    relay_rig_expect_pong(r, b, 2);
    relay_rig_expect_pong(r, c, 3); /* loopback: the user counts, not the address */
    CHECK(close(a) == 0 && close(b) == 0 && close(c) == 0);
    relay_rig_close(r);
}

static void own_name_on_loopback_is_served_beside_localhost(void **state)
{
    (void)state;
    child_run(own_name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_user_of_this_host_is_turned_away),
        cmocka_unit_test(another_user_who_has_gone_already_is_not_heard),
        cmocka_unit_test(addresses_outside_the_round_are_turned_away),
        cmocka_unit_test(strangers_do_not_fill_the_log),
        cmocka_unit_test(another_user_is_turned_away_where_the_kernel_cannot_be_asked),
        cmocka_unit_test(
            another_user_is_turned_away_where_this_hosts_addresses_are_unknown),
        cmocka_unit_test(other_nodes_are_served_once_this_hosts_addresses_are_known),
        cmocka_unit_test(who_is_turned_away_is_logged_once_for_each_address),
        cmocka_unit_test(own_name_on_loopback_is_served_beside_localhost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
