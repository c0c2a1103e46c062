"""ctrun-rendezvous as a store: real sockets, well-behaved clients; and the program itself."""

import os
import re
import signal
import socket
import struct
import subprocess

import pytest
from store_client import (
    ADD,
    APPEND,
    BARRIER,
    CANCEL_WAIT,
    Client,
    GET,
    GETNUMKEYS,
    MULTI_GET,
    MULTI_SET,
    PING,
    QUEUE_POP,
    QUEUE_PUSH,
    SET,
    VALIDATE,
    WAIT,
    request,
    string,
)

MIB = 1 << 20


# ---- the protocol ----


def test_recorded_frames_are_answered_as_recorded(server):
    def hexes(text):
        return bytes.fromhex(text)

    with server.client() as c:
        for sent, reply in [
            ("0d 04030201", "04030201"),
            ("04 0500000000000000 696e69742f 0100000000000000", "0100000000000000"),
            ("01 0200000000000000 2f6b 0100000000000000 76", ""),
            ("03 0200000000000000 2f6b", "0100000000000000 76"),
            (
                "02 0200000000000000 2f78 0000000000000000 0100000000000000 78",
                "0100000000000000 78",
            ),
            ("05 0100000000000000 0200000000000000 2f6b", "00"),
            ("06 0100000000000000 0200000000000000 2f6b", "00"),
            ("08 0200000000000000 2f78", "0100000000000000"),
            (
                "0b 0200000000000000 0200000000000000 2f61 0100000000000000 31"
                " 0200000000000000 2f62 0200000000000000 3232",
                "",
            ),
            (
                "0a 0200000000000000 0200000000000000 2f61 0200000000000000 2f62",
                "0100000000000000 31 0200000000000000 3232",
            ),
            ("0c", "01"),
            ("0e 0200000000000000 2f71 0100000000000000 78", ""),
            ("0f 0200000000000000 2f71", "0100000000000000 0100000000000000 78"),
            ("0f 0200000000000000 2f71", "0000000000000000"),
            ("12 0400000000000000 2f626172 0100000000000000", "00"),
        ]:
            c.send(hexes(sent))
            assert c.read(len(hexes(reply))) == hexes(reply), sent
        assert c.num_keys() == 6  # the bystander's, init/, /k, /a, /b, /bar


def test_frames_may_come_byte_by_byte(server):
    frames = (
        VALIDATE
        + request(SET, "/k", "value")
        + request(ADD, "/n", 7)
        + request(MULTI_GET, ["/k", "/n"])
        + bytes([PING, 1, 2, 3, 4])
    )
    with server.client(validate=False) as c:
        for byte in frames:
            c.send(bytes([byte]))
        assert c.read_i64() == 7
        assert c.read_string() == b"value"
        assert c.read_string() == b"7"
        assert c.read(4) == bytes([1, 2, 3, 4])


def test_pipelined_requests_are_answered_in_order(server):
    n = 20000
    with server.client() as c:
        c.send(b"".join(request(ADD, "/n", 1) for _ in range(n)))
        assert [c.read_i64() for _ in range(n)] == list(range(1, n + 1))


def test_a_wait_ends_when_another_client_sets_the_keys(server):
    with server.client() as waiter, server.client() as other:
        waiter.send(request(WAIT, ["/a", "/b"]))
        assert waiter.ping()  # parked, and still served
        other.set("/a", "1")
        assert other.ping() and waiter.ping()
        other.set("/b", "1")
        assert waiter.read(1) == b"\0"


def test_a_cancelled_wait_gives_one_byte(server):
    with server.client() as waiter, server.client() as other:
        waiter.send(request(WAIT, ["/a"]) + bytes([CANCEL_WAIT]))
        assert waiter.read(1) == b"\1"
        other.set("/a", "1")
        assert other.ping()
        assert waiter.get("/a") == b"1"


def test_a_barrier_of_many_connections(server):
    n = 50
    clients = [server.client() for _ in range(n)]
    for c in clients:
        c.send(request(BARRIER, "/bar", n))
    assert [c.read(1) for c in clients] == [b"\0"] * n
    for c in clients:
        c.close()


def test_a_vanished_waiter_does_not_take_a_queue_element(server, wait_for):
    with server.client() as gone, server.client() as stays, server.client() as pusher:
        gone.send(request(WAIT, ["/q"]))
        assert gone.ping()
        stays.send(request(WAIT, ["/q"]))
        assert stays.ping() and pusher.ping()
        fds = server.n_fds()
        gone.close()
        wait_for(lambda: server.n_fds() < fds)  # its end has been noticed
        pusher.send(request(QUEUE_PUSH, "/q", "x"))
        assert stays.read(1) == b"\0"
        stays.send(request(QUEUE_POP, "/q"))
        assert stays.read_i64() == 1 and stays.read_string() == b"x"


def test_values_of_the_largest_size(server):
    value = bytes(range(256)) * (8 * MIB // 256)
    with server.client() as c:
        c.set("/big", value)
        assert c.get("/big") == value
        c.send(request(MULTI_GET, ["/big"] * 8))
        for _ in range(8):
            assert c.read_string() == value


def test_many_keys_in_one_request(server):
    keys = [f"/key{i}" for i in range(131072)]
    with server.client() as waiter, server.client() as c:
        waiter.send(request(WAIT, keys))
        assert waiter.ping()
        body = b"".join(string(k) + string(b"v") for k in keys)
        c.send(bytes([MULTI_SET]) + struct.pack("<q", len(keys)) + body)
        assert waiter.read(1) == b"\0"
        assert c.num_keys() == len(keys) + 1


def test_ipv6_and_dual_stack(start_server):
    server = start_server("--listen=[::]:0", "--insecure")
    with server.client(host="127.0.0.1") as a, server.client(host="::1") as b:
        a.set("/k", "v")
        assert a.ping()
        assert b.get("/k") == b"v"
    line, = [li for li in server.process.err().splitlines() if "may take part" in li]
    assert f"listen=[::]:{server.ports[0]}" in line and "--secrets" in line


def test_addresses_of_this_machine_alone_are_no_reason_to_warn(start_server):
    server = start_server("--insecure")
    with server.client() as c:
        assert c.ping()
    assert "may take part" not in server.process.err()


# ---- legacy clients: bytes as PyTorch 1.13 sends them ----


def legacy(op, *args):
    return request(op - 1, *args)


def test_a_legacy_client_is_served(server):
    with server.client(validate=False) as c, server.client(validate=False) as watch:
        c.send(legacy(SET, "/k", "v")[:1])  # the opcode byte alone, the rest later
        c.send(legacy(SET, "/k", "v")[1:])
        c.send(legacy(ADD, "init/", 1))
        assert c.read_i64() == 1
        c.send(legacy(WAIT, ["/k"]))
        assert c.read(1) == b"\0"
        c.send(legacy(GET, "/k"))
        assert c.read_string() == b"v"
        c.send(legacy(GETNUMKEYS))
        assert c.read_i64() == 3
        c.send(bytes([8]) + string("/k"))  # DELETE_KEY of dialect A
        assert c.read_i64() == 1
        watch.send(legacy(GETNUMKEYS))  # the silent second connection was kept
        assert watch.read_i64() == 2


def test_a_legacy_client_that_gave_up_waiting_gets_no_stray_byte(server):
    with server.client(validate=False) as c, server.client() as other:
        c.send(legacy(WAIT, ["/late"]))
        c.send(legacy(ADD, "/n", 1))
        assert c.read_i64() == 1
        other.set("/late", "v")
        assert other.ping()
        c.send(legacy(GETNUMKEYS))
        assert c.read_i64() == 3


def test_watch_key_is_refused_by_closing(server):
    with server.client(validate=False) as c:
        c.send(bytes([7]) + string("/k"))
        assert c.is_closed()


def test_legacy_b_when_told_so(start_server):
    server = start_server("--legacy-store=b")
    with server.client(validate=False) as c:
        c.send(bytes([8]) + string("/k") + string("po"))  # APPEND
        c.send(bytes([7]) + string("/k"))  # DELETE_KEY
        assert c.read_i64() == 1


# ---- the program ----


def run(bin_dir, *args):
    return subprocess.run(
        [bin_dir / "ctrun-rendezvous", *args], capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(start_server, number):
    server = start_server()
    with server.client() as c:
        c.send(request(WAIT, ["/k"]))
        assert c.ping()
        server.process.signal(number)
        assert server.process.wait() == 0
        assert c.is_closed()


def test_it_says_once_that_it_keeps_everything_in_memory(start_server, wait_for):
    server = start_server("--state-dir=none")
    wait_for(lambda: server.process.err().count("in memory") == 1)


def test_a_taken_port_names_who_has_it(start_server, bin_dir):
    server = start_server()
    result = run(bin_dir, f"--listen=127.0.0.1:{server.port}")
    assert result.returncode == 1
    assert f"pid {server.process.pid} (ctrun-rendezvous)" in result.stderr
    assert str(server.port) in result.stderr and result.stderr.count("\n") == 1


def test_a_port_taken_on_another_address_is_free(start_server):
    server = start_server()
    again = start_server(f"--listen=127.0.0.2:{server.port}")
    assert again.port == server.port


def test_several_addresses(start_server):
    server = start_server("--listen=127.0.0.1:0", "--listen", "127.0.0.2:0", n_listen=2)
    with Client(server.ports[0]) as a, Client(server.ports[1], host="127.0.0.2") as b:
        a.set("/k", "v")
        assert a.ping()
        assert b.get("/k") == b"v"


@pytest.mark.parametrize(
    "args, text",
    [
        (["--listen=0.0.0.0:0"], "--insecure"),
        (["--listen=[::]:0"], "--insecure"),
        (["--listen=localhost:0"], "numeric"),
        (["--listen=127.0.0.1:70000"], "ADDR:PORT"),
        (["--listen=10.99.99.99:0", "--insecure"], "no network interface"),
        (["--state-dir=/nonexistent/state"], "make its parent first"),
        (["--http=0.0.0.0:0"], "--http-open"),
        (["--http=localhost"], "numeric"),
        (["--http-name=a:80"], "without a port"),
        (["--http-name=evil com"], "not 'evil com'"),
        (["--http-name=a/b"], "not 'a/b'"),
        (["--http-name="], "the name of a host"),
        (["--lisen=127.0.0.1:0"], "did you mean --listen"),
        (["--lease-ms=0"], "from 100 to"),
        (["--legacy-store=c"], "expects a"),
        (["extra"], "'extra'"),
        (["--config=/nonexistent.yaml"], "/nonexistent.yaml"),
    ],
)
def test_mistakes_get_one_line_and_status_2(bin_dir, args, text):
    result = run(bin_dir, *args)
    assert result.returncode == 2
    assert text in result.stderr
    assert result.stderr.count("\n") == 1 and result.stdout == ""


def test_help_and_version(bin_dir):
    assert "--listen ADDR:PORT" in run(bin_dir, "--help").stdout
    assert re.fullmatch(r"ctrun-rendezvous \d+\.\d+\.\d+\n", run(bin_dir, "--version").stdout)


def test_the_configuration_file_has_the_flags_names(start_server, tmp_path):
    path = tmp_path / "rendezvous.yaml"
    path.write_text("listen: [127.0.0.1:0, 127.0.0.2:0]\nstate_dir: none\nlease-ms: 500\n")
    server = start_server("--config", path, "--listen=127.0.0.3:0")
    with Client(server.port, host="127.0.0.3") as c:  # the command line goes before it
        assert c.ping()


@pytest.mark.parametrize(
    "text, error",
    [
        ("lisen: 127.0.0.1:0\n", ":1:1: unknown key 'lisen'; did you mean listen?"),
        ("insecure: maybe\n", ":1:11: insecure: expects true or false, not 'maybe'"),
        ("\nlease_ms: [1]\n", ":2:11: lease-ms: expects one value here"),
        ("state_reserve_mib: 0\n", ":1:20: state-reserve-mib: expects a number from 1 to"),
        ("http: [127.0.0.1:80]\n", ":1:7: http: expects one value here"),
        ("listen:\n  - 127.0.0.1:0\n  - nowhere\n", ":3:5: listen: expects a numeric"),
    ],
)
def test_mistakes_in_the_file_are_named_by_their_place(bin_dir, tmp_path, text, error):
    path = tmp_path / "rendezvous.yaml"
    path.write_text(text)
    result = run(bin_dir, "--config", str(path))
    assert result.returncode == 2
    assert f"{path}{error}" in result.stderr
