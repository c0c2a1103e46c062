/* What a node is: its devices, its addresses, who is at the other end of a connection.
 */

#include "launcher/place/devices.h"
#include "launcher/rdzv/netaddr.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/privilege.h"

#include "common/clock.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BOUND_MS = 60000 };

static void visible_devices_count_up_to_the_first_bad_one(void **state)
{
    static const struct {
        const char *text;
        uint32_t n;
    } cases[] = {
        {"", 0},
        {"0", 1},
        {"0,1,2", 3},
        {"-1", 0},
        {"0,-1,2", 1},
        {"0,,2", 1},
        {"GPU-8932f937,GPU-4", 2},
        {"MIG-a/1/0", 1},
        {"NoDevFiles", 0}, /* Slurm's, for a step without GPUs */
        {" ", 0},
        {"0, -1", 1},
        {" 0 ,\t1", 2},
        {"0,0", 0}, /* as CUDA has it, and PyTorch */
        {"3,1,03", 0},
        {"GPU-1,GPU-2,GPU-1", 0},
        {"GPU-1,GPU-10", 2},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(devices_count_visible(cases[i].text), cases[i].n);
    }
}

static const struct device_list unset = {"CUDA_VISIBLE_DEVICES", NULL};

static int count(const struct launch_options *o, const char *visible, uint32_t *ret,
                 struct errmsg *msg)
{
    const struct device_list list = {"HIP_VISIBLE_DEVICES", visible};

    return devices_count(o, &list, ret, msg);
}

/* The affinity mask counts, not the machine. */
static void one_cpu_is_allowed(void)
{
    struct launch_options o = {.nproc_kind = NPROC_CPU};
    uint32_t n = 0;
    cpu_set_t set;
    int last = CPU_SETSIZE - 1;

    CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
    while (!CPU_ISSET((size_t)last, &set)) {
        last--;
    }
    CPU_ZERO(&set);
    CPU_SET((size_t)last, &set);
    CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
    CHECK(devices_count(&o, &unset, &n, NULL) == 0);
    CHECK(n == 1);
}

static void nproc_words_become_numbers(void **state)
{
    struct launch_options o = {.nproc_kind = NPROC_NUMBER, .nproc = 5};
    struct errmsg msg = {0};
    uint32_t n = 0;

    (void)state;
    assert_int_equal(devices_count(&o, &unset, &n, &msg), 0);
    assert_int_equal(n, 5);
    o.nproc_kind = NPROC_GPU;
    assert_int_equal(count(&o, "0,1", &n, &msg), 0);
    assert_int_equal(n, 2);
    assert_int_equal(count(&o, "", &n, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "HIP_VISIBLE_DEVICES= hides them all"));
    o.nproc_kind = NPROC_AUTO;
    assert_int_equal(count(&o, "", &n, &msg), 0);
    assert_true(n >= 1); /* its CPUs */
    o.nproc_kind = NPROC_CPU;
    assert_int_equal(count(&o, "0", &n, &msg), 0);
    assert_true(n >= 1);
    child_run(one_cpu_is_allowed);
}

static struct sockaddr_in v4(const char *text, uint16_t port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};

    assert_int_equal(inet_pton(AF_INET, text, &addr.sin_addr), 1);
    return addr;
}

static struct sockaddr_in6 v6(const char *text, uint16_t port)
{
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

    assert_int_equal(inet_pton(AF_INET6, text, &addr.sin6_addr), 1);
    return addr;
}

static bool is_this_host(const struct sockaddr *addr)
{
    bool found = false;

    assert_int_equal(netaddr_is_this_host(addr, &found), 0);
    return found;
}

static void addresses_of_this_host_are_known(void **state)
{
    struct sockaddr_in here = v4("127.0.1.1", 0);
    struct sockaddr_in there = v4("192.0.2.1", 0);
    struct sockaddr_in6 here6 = v6("::1", 0);
    struct sockaddr_in6 mapped = v6("::ffff:127.0.0.1", 0);
    struct sockaddr_in6 there6 = v6("2001:db8::1", 0);
    char text[INET6_ADDRSTRLEN];

    (void)state;
    assert_true(is_this_host((struct sockaddr *)&here));
    assert_true(is_this_host((struct sockaddr *)&here6));
    assert_true(netaddr_is_loopback((struct sockaddr *)&mapped));
    assert_false(is_this_host((struct sockaddr *)&there));
    assert_false(is_this_host((struct sockaddr *)&there6));
    netaddr_format((struct sockaddr *)&mapped, text, sizeof(text));
    assert_string_equal(text, "127.0.0.1");
    netaddr_format((struct sockaddr *)&there6, text, sizeof(text));
    assert_string_equal(text, "2001:db8::1");
}

/* A host without a default route: addresses on loopback, on an interface that is down,
 * on one without a carrier, and on one that others reach. */
static const char network[] =
    "ip link set lo up && ip addr add 10.9.0.1/24 dev lo &&"
    "ip link add off type veth peer name x && ip addr add 10.9.1.1/24 dev off &&"
    "ip link add cut type veth peer name y && ip addr add 10.9.2.1/24 dev cut &&"
    "ip link set cut up &&"
    "ip link add good type veth peer name z && ip addr add 10.9.3.1/24 dev good &&"
    "ip link set good up && ip link set z up";

static bool is_running(const char *name)
{
    struct ifreq ifr = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
    CHECK(fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &ifr) == 0 && close(fd) == 0);
    return ifr.ifr_flags & IFF_RUNNING;
}

static void several_interfaces(void)
{
    uint64_t end_ms = clock_ms() + BOUND_MS;
    char text[INET6_ADDRSTRLEN];

    CHECK(unshare(CLONE_NEWNET) == 0);
    CHECK(system(network) == 0); /* NOLINT(*-env33-c): in a process of its own */
    while (is_running("cut") || !is_running("good")) {
        CHECK(clock_ms() < end_ms);
        (void)sched_yield();
    }
    netaddr_public(text, sizeof(text));
    CHECK(strcmp(text, "10.9.3.1") == 0);
}

static void address_for_others_is_of_an_interface_that_they_reach(void **state)
{
    (void)state;
    privilege_need();
    child_run(several_interfaces);
}

/* A connection over loopback, seen from its server. */
static void check_peer(const struct sockaddr *to, socklen_t size, int listener)
{
    struct sockaddr_storage peer = {0};
    struct sockaddr_storage local = {0};
    socklen_t peer_size = sizeof(peer);
    socklen_t local_size = sizeof(local);
    uid_t uid = 77;
    int client = socket(to->sa_family, SOCK_STREAM, 0);
    int server;
    int rv;

    assert_int_equal(connect(client, to, size), 0);
    server = accept(listener, (struct sockaddr *)&peer, &peer_size);
    assert_true(server >= 0);
    assert_int_equal(getsockname(server, (struct sockaddr *)&local, &local_size), 0);
    rv = netaddr_peer_uid((struct sockaddr *)&peer, (struct sockaddr *)&local, &uid);
    if (rv == ERR_UNSUPPORTED) {
        skip(); /* this kernel cannot tell */
    }
    assert_int_equal(rv, 0);
    assert_int_equal(uid, geteuid());
    ((struct sockaddr_in *)&peer)->sin_port = htons(1); /* nobody connects from there */
    rv = netaddr_peer_uid((struct sockaddr *)&peer, (struct sockaddr *)&local, &uid);
    assert_int_equal(rv, ERR_MISSING);
    (void)close(client);
    (void)close(server);
}

static void user_at_the_other_end_is_known(void **state)
{
    struct sockaddr_in addr = v4("127.0.0.1", 0);
    struct sockaddr_in6 mapped = v6("::ffff:127.0.0.1", 0);
    socklen_t size = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, size), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &size), 0);
    mapped.sin6_port = addr.sin_port;
    check_peer((struct sockaddr *)&addr, sizeof(addr), listener);
    check_peer((struct sockaddr *)&mapped, sizeof(mapped), listener);
    (void)close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(visible_devices_count_up_to_the_first_bad_one),
        cmocka_unit_test(nproc_words_become_numbers),
        cmocka_unit_test(addresses_of_this_host_are_known),
        cmocka_unit_test(address_for_others_is_of_an_interface_that_they_reach),
        cmocka_unit_test(user_at_the_other_end_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
