"""ctrun-rendezvous as a store: hostile clients, and those that are too many."""

import os
import resource
import socket
import struct
import subprocess

import pytest
from agent_client import MAGIC, agent_hello
from store_client import (
    ADD,
    APPEND,
    GET,
    LIST_KEYS,
    MULTI_GET,
    MULTI_SET,
    SET,
    VALIDATE,
    WAIT,
    request,
    string,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("00cef7853d"),  # bad magic
        VALIDATE + VALIDATE,
        VALIDATE + bytes([19]),
        VALIDATE + bytes([255]),
        VALIDATE + bytes([GET]) + struct.pack("<Q", 8193),
        VALIDATE + bytes([GET]) + struct.pack("<Q", 2**64 - 1),
        VALIDATE + bytes([SET]) + string("/k") + struct.pack("<Q", 8 * MIB + 1),
        VALIDATE + bytes([WAIT]) + struct.pack("<Q", 131073),
        VALIDATE + bytes([MULTI_SET]) + struct.pack("<q", -1),
        VALIDATE + request(SET, "/n", "x") + request(ADD, "/n", 1),
        VALIDATE + request(WAIT, ["/a"]) + request(WAIT, ["/b"]),
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"ctrun??\n",
        b"ctrunA1\n" + b"\xff" * 64,
        b"ctrunA1\n" + struct.pack("<IB", 10, 200) + bytes(9),
        bytes(range(255, 20, -1)) * 100,
    ],
)
def test_what_breaks_the_protocol_is_closed_at_once(server, data):
    with server.client(validate=False) as c:
        c.send(data)
        assert c.is_closed()


def test_a_tls_client_where_nobody_has_keys_is_told_so_and_closed(server):
    with server.client(validate=False) as c:
        c.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        said = c.sock.recv(64)
        assert said[:1] == b"\x15" or said == b"", said  # an alert, or nothing
        assert said == b"" or c.is_closed()


def test_an_agent_that_never_says_hello_is_closed(server):
    with server.client(validate=False) as c:
        c.send(b"ctrunA1\n")
        assert c.is_closed()


@pytest.mark.parametrize("data", [VALIDATE[:1], VALIDATE[:4], b"c", b"ctrunA1"])
def test_who_only_begins_to_say_who_it_is_is_closed(server, data):
    with server.client(validate=False) as silent, server.client(validate=False) as half:
        half.send(data)
        assert half.is_closed()
        silent.send(VALIDATE)  # who says nothing has time
        assert silent.ping()


def test_when_there_are_too_many_the_oldest_silent_one_makes_room(start_server):
    server = start_server("--max-connections=10")
    talker = server.client()
    assert talker.ping()
    silent = [server.client(validate=False) for _ in range(9)]
    late = [server.client() for _ in range(3)]
    assert all(c.ping() for c in late)
    assert all(c.is_closed() for c in silent[:3])
    for c in silent[3:]:
        c.send(VALIDATE)
        assert c.ping()
    with server.client(validate=False) as c:  # now none is silent
        assert c.is_closed()
    assert talker.ping()
    for c in [talker, *silent, *late]:
        c.close()


def test_a_refused_agent_that_does_not_close_is_closed(server, wait_for):
    fds = server.n_fds()
    with server.client(validate=False) as c:
        c.send(MAGIC + agent_hello(version=9))
        heard = bytearray()
        while more := c.sock.recv(4096):
            heard += more
        assert b"install the same ctrun everywhere" in heard
        wait_for(lambda: server.n_fds() <= fds)


def test_lengths_that_lie_cost_no_memory(server):
    before = server.rss()
    clients = [server.client() for _ in range(100)]
    for c in clients:
        c.send(bytes([SET]) + string("/k") + struct.pack("<Q", 8 * MIB) + b"x")
    with server.client() as other:
        assert other.ping()
    server.assert_rss_below(before + 64 * MIB)
    for c in clients:
        c.close()


def test_a_slow_reader_is_not_read_any_more(server):
    """It asks for far more than it takes: what is held for it stays one reply."""
    with server.client() as c, server.client() as other:
        c.set("/big", bytes(MIB))
        assert c.ping()
        before = server.rss()
        c.sock.settimeout(2.0)
        asked = request(GET, "/big") * 1000
        sent = 0
        try:
            while sent < 64 * MIB:
                c.send(asked)
                sent += len(asked)
        except (TimeoutError, socket.timeout):
            pass  # the server has stopped reading it
        assert sent < 64 * MIB
        assert other.ping()
        server.assert_rss_below(before + 64 * MIB)
        c.sock.settimeout(300)
        for _ in range(100):
            assert len(c.read_string()) == MIB


def test_those_who_hoard_replies_are_closed_before_memory_is_out(start_server):
    server = start_server("--store-max-mib=64")
    hoarders = []
    with server.client() as other:
        other.set("/big", bytes(8 * MIB))
        for _ in range(5):
            hoarders.append(server.client())
            # 160 MiB each, 800 MiB together: more than the 512 MiB of them all
            hoarders[-1].send(request(MULTI_GET, ["/big"] * 20))
        assert other.ping()
        server.assert_rss_below(1100 * MIB)  # buffers grow by doubling
        closed = 0
        for c in hoarders:
            try:
                c.read(20 * (8 * MIB + 8))
            except (EOFError, ConnectionResetError):
                closed += 1
            c.close()
        assert 0 < closed < len(hoarders)
        assert other.get("/big") == bytes(8 * MIB)


def test_a_full_store_refuses_and_lives(start_server):
    server = start_server("--store-max-mib=16")
    with server.client() as c:
        c.set("/a", bytes(8 * MIB))
        c.send(request(APPEND, "/a", bytes(7 * MIB)))
        c.send(request(SET, "/b", bytes(8 * MIB)))
        assert c.is_closed()
    with server.client() as c:
        assert c.num_keys() == 1
        assert len(c.get("/a")) == 15 * MIB


def test_a_flood_of_requests_leaves_the_others_their_turn(server):
    with server.client() as flood, server.client() as other:
        for i in range(1000):
            other.set(f"/key{i}", "v")
        assert other.ping()
        flood.sock.setblocking(False)
        data = bytes([LIST_KEYS]) * (1 << 16)
        for _ in range(50):
            try:
                flood.sock.send(data)
            except BlockingIOError:
                pass
            assert other.add("/n", 1) > 0


def test_a_port_scan_disturbs_nobody(server):
    fds = server.n_fds()
    for _ in range(200):
        for data in (b"", b"\0", b"\r\n", os.urandom(64)):
            with server.client(validate=False) as c:
                c.send(data)
    with server.client() as c:
        assert c.ping()
    for _ in range(1000):
        if server.n_fds() <= fds:
            break
        with server.client() as c:
            assert c.ping()
    assert server.n_fds() <= fds


def test_a_thousand_connections(server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        clients = [server.client() for _ in range(1000)]
        for c in clients:
            c.send(request(WAIT, ["/go"]))
        clients[0].send(request(ADD, "/n", 1))
        assert clients[0].read_i64() == 1
        with server.client() as other:
            other.set("/go", "v")
        assert all(c.read(1) == b"\0" for c in clients)
        for i, c in enumerate(clients):
            c.send(request(ADD, "/n", 1))
        assert sorted(c.read_i64() for c in clients) == list(range(2, 1002))
        for c in clients:
            c.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_are_bounded(start_server):
    server = start_server("--max-connections=5")
    clients = [server.client() for _ in range(5)]
    assert all(c.ping() for c in clients)
    with server.client(validate=False) as c:
        assert c.is_closed()
    assert all(c.ping() for c in clients)
    clients.pop().close()
    assert all(c.ping() for c in clients)

    def admitted():
        with server.client() as c:
            try:
                return c.ping()
            except (EOFError, OSError):
                return False

    assert any(admitted() for _ in range(1000))
    for c in clients:
        c.close()


def test_too_few_descriptors_to_start_with_are_refused_with_their_number(bin_dir):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))

    done = subprocess.run([bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0"], preexec_fn=limit,
                          text=True, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert "needs 32 open files and one for each connection, and may have 8: raise" in done.stderr


def test_fewer_files_than_connections_let_the_silent_keep_nobody_out(start_server):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    server = start_server(preexec_fn=limit)
    idle = [server.client(validate=False) for _ in range(140)]
    with server.client() as c:
        assert c.ping()
    assert idle[0].is_closed()
    assert "new connections have to wait" not in server.process.err()
    for c in idle:
        c.close()


def test_out_of_descriptors_it_waits_and_goes_on(start_server, wait_for):
    server = start_server()
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (40, 40))
    clients = [server.client() for _ in range(60)]  # the rest waits in the backlog
    wait_for(lambda: "new connections have to wait" in server.process.err())
    assert clients[0].ping()
    for c in clients[:40]:
        c.close()
    assert all(c.ping() for c in clients[40:])
    for c in clients[40:]:
        c.close()
