"""A service that stands still, clocks that are set, a network that loses packets, in one direction
or both: no healthy node is evicted, and under none of it is a checkpoint committed twice."""

import os
import re
import signal
import subprocess
import time

import pytest
import training

SOAK = training.SOAK
PORT = 29400


class Network:
    """What goes wrong at the second host's end, by nftables; to the service's port alone, or all."""

    def __init__(self, name):
        self.name = name
        self.nft("add table inet bad; "
                 "add chain inet bad in { type filter hook input priority 0; }; "
                 "add chain inet bad out { type filter hook output priority 0; }")

    def nft(self, words):
        subprocess.run(["ip", "netns", "exec", self.name, "nft", words], check=True,
                       capture_output=True, timeout=60)

    def lose(self, percent, chains=("in", "out"), port=PORT):
        for chain in chains:
            which = f"tcp {'sport' if chain == 'in' else 'dport'} {port} " if port else ""
            often = f"numgen random mod 100 < {percent} " if percent < 100 else ""
            self.nft(f"add rule inet bad {chain} {which}{often}drop")

    def heal(self):
        self.nft("flush chain inet bad in; flush chain inet bad out")


@pytest.fixture
def network(two_hosts):
    return Network(two_hosts[1][0])


@pytest.fixture
def service(two_hosts, start, bin_dir, wait_for):
    """service(*args) runs on the first host; on loopback too, for whoever asks from there."""

    def begin(*args, **kwargs):
        name, address = two_hosts[0]
        process = start("ip", "netns", "exec", name, bin_dir / "ctrun-rendezvous", "--insecure",
                        f"--listen={address}:{PORT}", *args, **kwargs)
        wait_for(lambda: "listening" in process.out())
        return process

    return begin


def options_of(two_hosts, i):
    return ["--nnodes=1:2", "--max-restarts=0", "--rdzv-id=b", "--rdzv-backend=c10d",
            f"--node-rank={i}", f"--rdzv-endpoint={two_hosts[0][1]}:{PORT}"]


@pytest.fixture
def pair(two_hosts, start, bin_dir, wait_for):
    """pair() starts a node on each host; their workers say the generation and wait."""

    def begin(**kwargs):
        agents = [start("ip", "netns", "exec", two_hosts[i][0], bin_dir / "ctrun",
                        *options_of(two_hosts, i), bin_dir / "fake-worker", "print=gen %g", "hang",
                        **kwargs) for i in range(2)]
        wait_for(lambda: all("gen 1" in a.out() for a in agents))
        return agents

    return begin


@pytest.fixture
def training_pair(two_hosts, train, tmp_path, wait_for):
    """training_pair() starts ctrun-worker on both, which save every other step."""

    def begin():
        agents = [train(tmp_path / "run", "checkpoint.every=2", "checkpoint.keep=0", nproc=1,
                        options=options_of(two_hosts, i),
                        prefix=("ip", "netns", "exec", two_hosts[i][0])) for i in range(2)]
        wait_for(lambda: training.last_step(tmp_path / "run") >= 4)
        return agents

    return begin


def hear(server, agents, s):
    """Lets time pass. Nobody may have been sent into another generation by then."""
    end = time.monotonic() + s
    while time.monotonic() < end:
        assert all(a.popen.poll() is None for a in [server, *agents])
        time.sleep(0.05)
    assert_nobody_is_evicted(server, agents)


def assert_nobody_is_evicted(server, agents):
    assert "restarting" not in server.err() and "lost" not in server.err()
    assert all(re.findall(r"gen (\d+)\n", a.out()) == ["1"] for a in agents)


def end_well(agents):
    for a in agents:
        a.signal(signal.SIGTERM)
    assert [a.wait() for a in agents] == [128 + signal.SIGTERM] * 2


def assert_committed_once(bin_dir, run_dir, golden):
    """Every step once, every checkpoint once, and the answer of the undisturbed run."""
    steps = [training.step_of(c) for c in training.checkpoints(run_dir)]
    assert sorted(set(steps)) == sorted(steps)
    training.assert_same_answer(bin_dir, run_dir, golden)


def test_service_that_stands_still_evicts_nobody_when_it_goes_on(service, pair):
    server = service(*([] if SOAK else ["--lease-ms=500"]))
    agents = pair()
    server.signal(signal.SIGSTOP)
    time.sleep(10 if SOAK else 1.5)  # more than three leases
    server.signal(signal.SIGCONT)
    hear(server, agents, 6 if SOAK else 1)
    line, = [li for li in server.err().splitlines() if "this service stood still" in li]
    assert int(re.search(r"for_ms=(\d+)", line)[1]) > 1000
    end_well(agents)


# Lies about the wall clock, as whoever sets it does: by so many seconds as the file says.
LIAR = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long offset(void)
{
    FILE *f = fopen(getenv("WALL_OFFSET"), "re");
    long v = 0;

    if (f) {
        if (fscanf(f, "%ld", &v) != 1) {
            v = 0;
        }
        fclose(f);
    }
    return v;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
    static int (*real)(clockid_t, struct timespec *);

    if (!real) {
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int rv = real(id, ts);
    if (rv == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        ts->tv_sec += offset();
    }
    return rv;
}

int gettimeofday(struct timeval *tv, void *zone)
{
    struct timespec ts;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &ts);
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    if (t) {
        *t = ts.tv_sec;
    }
    return ts.tv_sec;
}
"""


@pytest.fixture(scope="session")
def liar(tmp_path_factory):
    folder = tmp_path_factory.mktemp("liar")
    (folder / "liar.c").write_text(LIAR)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", folder / "liar.so", folder / "liar.c",
                    "-ldl"], check=True, timeout=300)
    return folder / "liar.so"


@pytest.mark.release_only  # a sanitizer wants to be the first library
def test_wall_clock_that_is_set_evicts_nobody(service, pair, liar, tmp_path):
    offset = tmp_path / "offset"
    offset.write_text("0")
    env = {**os.environ, "LD_PRELOAD": str(liar), "WALL_OFFSET": str(offset)}
    server = service("--lease-ms=500", env=env)
    agents = pair(env=env)
    for hours in (1, -1, 0):
        offset.write_text(str(hours * 3600))
        hear(server, agents, 3 if SOAK else 0.6)
    end_well(agents)


@pytest.mark.parametrize("chains", [("out",), pytest.param(("in",), marks=pytest.mark.soak)],
                         ids=["to the service", "from the service"])
def test_partition_in_one_direction_that_ends_in_time_evicts_nobody(
    service, pair, network, chains
):
    server = service()
    agents = pair()
    for _ in range(5 if SOAK else 1):
        network.lose(100, chains)
        hear(server, agents, 1.2)  # of the lease's three seconds
        network.heal()
        hear(server, agents, 3 if SOAK else 0.5)  # TCP has to notice
    end_well(agents)


def test_no_kernel_gives_a_connection_up_within_the_lease(service, pair, network):
    server = service("--lease-ms=60000")
    agents = pair()
    network.lose(100)
    hear(server, agents, 18)
    network.heal()
    hear(server, agents, 1)
    end_well(agents)


@pytest.mark.soak
@pytest.mark.parametrize("percent, lease_ms, s", [(5, 3000, 120), (30, 60000, 180)])
def test_lost_packets_evict_nobody(service, pair, network, percent, lease_ms, s):
    server = service(f"--lease-ms={lease_ms}")
    agents = pair()
    network.lose(percent)
    hear(server, agents, s)
    network.heal()
    end_well(agents)


@pytest.mark.parametrize("what", [
    "stop", pytest.param("loss", marks=pytest.mark.soak), pytest.param("cut", marks=pytest.mark.soak),
    pytest.param("long cut", marks=pytest.mark.soak), pytest.param("long stop", marks=pytest.mark.soak),
])
def test_nothing_is_committed_twice(
    bin_dir, service, training_pair, network, golden, tmp_path, what, wait_for
):
    """A service that stops, packets that are lost, and partitions longer than the lease, too."""
    server = service("--lease-ms=1000")
    agents = training_pair()
    if what.endswith("stop"):
        server.signal(signal.SIGSTOP)
        time.sleep(10 if "long" in what else 0.5)
        server.signal(signal.SIGCONT)
    elif what == "loss":
        network.lose(30)
    else:
        network.lose(100, ("out",))
        time.sleep(8 if "long" in what else 0.7)
        network.heal()
    assert agents[0].wait() == 0, agents[0].err()
    assert agents[1].wait() == 0, agents[1].err()
    assert_committed_once(bin_dir, tmp_path / "run", golden())
