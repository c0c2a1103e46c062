"""ctrun-rendezvous among hostile clients: its memory stays under the cap, honest ones are served.

What single broken requests do is in test_store_hostile.py."""

import os
import resource
import struct
import sys
import threading
import time

import pytest
import training
from agent_client import MAGIC, agent_hello
from store_client import ADD, GET, SET, VALIDATE, request, string

SOAK = training.SOAK
SLOW = 5000 if SOAK else 300
MIB = 1 << 20
# how long an honest client's request may take: in a soak the promise, else a sign of life
P99_S = 0.05 if SOAK else 30


@pytest.fixture(autouse=True)
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 2 * SLOW + 1000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Honest:
    """A client that goes on asking, as heartbeats do: every 5 ms, in a thread."""

    def __init__(self, server):
        self.client = server.client()
        self.took = []
        self.error = None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        try:
            while not self.is_over.wait(0.005):
                began = time.monotonic()
                self.client.add("/honest", 1)
                self.took.append(time.monotonic() - began)
        except (EOFError, OSError) as e:
            self.error = e

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.is_over.set()
        self.thread.join()
        self.client.close()

    def assert_was_served(self):
        assert self.error is None
        took = sorted(self.took)
        p99 = took[int(len(took) * 0.99) - 1]
        print(f"{len(took)} requests, p99 {1000 * p99:.1f} ms, at most {1000 * took[-1]:.1f} ms")
        assert p99 <= P99_S


def scan(server):
    """As nmap does: connects, says what this or that protocol begins with, and goes."""
    hellos = (b"", b"\0", b"\r\n", b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\0\xa5\x01", os.urandom(64),
              b"HELP\r\n", VALIDATE[:3], b"ctrunA1\n\xff\xff\xff\xff")
    for _ in range(200 if SOAK else 20):
        for data in hellos:
            with server.client(validate=False) as c:
                try:
                    c.send(data)
                except OSError:
                    pass  # closed already


def stay_slow(server, held):
    """Clients that begin something and then say a byte now and then, or nothing."""
    beginnings = (b"", VALIDATE[:2], VALIDATE, VALIDATE + bytes([SET]) + string("/k")[:4],
                  VALIDATE + bytes([SET]) + string("/k") + struct.pack("<Q", 8 * MIB) + b"x",
                  b"ctru", b"ctrunA1\n\x10")
    for i in range(SLOW):
        c = server.client(validate=False)
        held.append(c)
        c.send(beginnings[i % len(beginnings)])


def oversize(server):
    """Frames and values that say that they are larger than anything may be."""
    for data in (b"ctrunA1\n" + struct.pack("<IB", 2**31, 1) + bytes(100),
                 b"ctrunA1\n" + struct.pack("<IB", 512 * 1024 + 1, 1) + bytes(100),
                 VALIDATE + bytes([SET]) + string("/k") + struct.pack("<Q", 2**40),
                 VALIDATE + bytes([SET]) + struct.pack("<Q", 2**63 - 1)):
        with server.client(validate=False) as c:
            c.send(data)
            assert c.is_closed()


def never_read(server, held, n=20):
    """Asks for far more than it ever takes."""
    with server.client() as c:
        c.set("/big", bytes(MIB))
        assert c.ping()
    asked = request(GET, "/big") * 200
    for _ in range(n):
        c = server.client()
        held.append(c)
        c.sock.setblocking(False)
        try:
            c.sock.send(asked)
        except BlockingIOError:
            pass


def test_all_of_them_at_once_disturb_no_honest_client(start_server, wait_for):
    server = start_server("--store-max-mib=64")
    before = server.rss()
    held = []
    with Honest(server) as honest:
        stay_slow(server, held)
        never_read(server, held)
        for _ in range(10 if SOAK else 1):
            scan(server)
            oversize(server)
            for c in held[:SLOW]:  # still there, still slow
                try:
                    c.send(b"\0")
                except OSError:
                    pass  # its greeting has taken too long
        n = len(honest.took)
        wait_for(lambda: honest.error or len(honest.took) >= n + 100)
    honest.assert_was_served()
    assert server.process.popen.poll() is None
    # 20 replies of a MiB, twice while they grow, the slow ones' beginnings, and the tables
    server.assert_rss_below(before + (SLOW * 16 * 1024) + 128 * MIB)
    for c in held:
        c.close()
    with server.client() as c:
        assert c.add("/honest", 0) == len(honest.took)


def test_who_stops_in_the_middle_of_a_greeting_makes_room(start_server):
    server = start_server("--max-connections=32")
    stopped = []
    for _ in range(32):
        stopped.append(server.client(validate=False))
        stopped[-1].send(b"c")
    with server.client() as c:
        assert c.ping()
        assert stopped[0].is_closed()
    for c in stopped:
        c.close()


def test_last_connections_are_kept_for_agents(start_server):
    server = start_server("--max-connections=32")
    clients = [server.client() for _ in range(30)]
    assert all(c.ping() for c in clients)
    with server.client() as c:
        assert c.is_closed()
    with server.client(validate=False) as agent:
        agent.send(MAGIC + agent_hello(version=9))
        assert b"install the same ctrun everywhere" in agent.sock.recv(4096)
    assert "the last connections are for agents" in server.process.err()
    clients.pop().close()
    for c in clients:
        c.close()


@pytest.mark.soak
def test_client_that_stops_in_the_middle_of_a_request_is_closed(server):
    with server.client() as half, server.client() as silent:
        assert half.ping() and silent.ping()
        half.send(request(ADD, "/n", 1)[:-1])
        began = time.monotonic()
        assert half.is_closed()
        assert 9 < time.monotonic() - began < 30
        assert silent.ping()


CALLER = """
import socket, sys
n = 0
for _ in range(40):
    with socket.create_connection((sys.argv[1], 29400), timeout=300) as s:
        s.sendall(bytes.fromhex("00cef7853c0d01020304"))
        try:
            n += s.recv(4) == bytes([1, 2, 3, 4])
        except ConnectionResetError:
            pass
print(n)
"""


def test_network_that_calls_without_end_is_turned_away(two_hosts, start, bin_dir, wait_for):
    """Eight seconds' worth of calls may come at once. This machine's own are not counted."""
    (name, address), (other, _) = two_hosts
    service = start("ip", "netns", "exec", name, bin_dir / "ctrun-rendezvous", "--insecure",
                    f"--listen={address}:29400", "--accept-rate=1")
    wait_for(lambda: "listening" in service.out())
    caller = start("ip", "netns", "exec", other, sys.executable, "-c", CALLER, address)
    assert caller.wait() == 0, caller.err()
    assert 8 <= int(caller.out()) < 30
    assert "turned a connection away: too many of one network at once" in service.err()
