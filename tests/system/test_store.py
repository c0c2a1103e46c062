"""ctrun-rendezvous as a store: real sockets, well-behaved and hostile clients."""

import os
import re
import resource
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
    LIST_KEYS,
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


class Server:
    def __init__(self, process, ports):
        self.process = process
        self.ports = ports
        self.port = ports[0]

    def client(self, **kwargs):
        return Client(self.port, **kwargs)

    def assert_rss_below(self, limit):
        """Says nothing about sanitizers' builds, which have memory of their own."""
        if self.rss() >= limit:
            with open(f"/proc/{self.process.pid}/exe", "rb") as f:
                text = f.read()
            assert b"__asan_init" in text or b"__tsan_init" in text, self.rss()

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) * 1024

    def n_fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@pytest.fixture
def start_server(start, bin_dir, wait_for):
    def start_one(*args, n_listen=1, **kwargs):
        if not any(str(a).startswith("--listen") for a in args):
            args = ("--listen=127.0.0.1:0", *args)
        process = start(bin_dir / "ctrun-rendezvous", *args, **kwargs)

        def ports():
            assert process.popen.poll() is None, process.err()
            found = re.findall(r"listening on \S+:(\d+)\n", process.out())
            return found if len(found) == n_listen else None

        return Server(process, [int(p) for p in wait_for(ports)])

    return start_one


@pytest.fixture
def server(start_server):
    """A server, and a client that must not notice anything of what the test does."""
    server = start_server()
    with server.client() as bystander:
        bystander.set("/bystander", "here")
        assert bystander.ping()
        yield server
        assert bystander.get("/bystander") == b"here"
    assert server.process.popen.poll() is None, server.process.err()


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


# ---- hostile clients ----


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
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
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


def agent_frame(kind, payload):
    return struct.pack("<IB", 1 + len(payload), kind) + payload


def agent_hello(version):
    def text(t):
        return struct.pack("<I", len(t)) + t.encode()

    return agent_frame(
        1,
        struct.pack("<H", version) + text("job") + struct.pack("<5QiIIQ", 7, 0, 0, 0, 0, -1, 0, 0, 0)
        + text("") + text("host") + struct.pack("<4IiI", 1, 1, 1, 0, -1, 1000),
    )


def test_a_refused_agent_that_does_not_close_is_closed(server, wait_for):
    fds = server.n_fds()
    with server.client(validate=False) as c:
        c.send(b"ctrunA1\n" + agent_hello(version=9))
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
        c.sock.settimeout(60.0)
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


def test_out_of_descriptors_it_waits_and_goes_on(start_server, wait_for):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    server = start_server(preexec_fn=limit)
    clients = [server.client() for _ in range(60)]  # the rest waits in the backlog
    wait_for(lambda: "new connections have to wait" in server.process.err())
    assert clients[0].ping()
    for c in clients[:40]:
        c.close()
    assert all(c.ping() for c in clients[40:])
    for c in clients[40:]:
        c.close()


# ---- the program ----


def run(bin_dir, *args):
    return subprocess.run(
        [bin_dir / "ctrun-rendezvous", *args], capture_output=True, text=True, timeout=60
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
    assert result.returncode == 2
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
        (["--state-dir=/tmp"], "durable state is not there yet"),
        (["--http=127.0.0.1:0"], "--http is not there yet"),
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
        ("state_dir: /var/lib/x\n", ":1:12: state-dir: durable state is not there yet"),
        ("http: 127.0.0.1:80\n", ":1:1: http is not there yet"),
        ("listen:\n  - 127.0.0.1:0\n  - nowhere\n", ":3:5: listen: expects a numeric"),
    ],
)
def test_mistakes_in_the_file_are_named_by_their_place(bin_dir, tmp_path, text, error):
    path = tmp_path / "rendezvous.yaml"
    path.write_text(text)
    result = run(bin_dir, "--config", str(path))
    assert result.returncode == 2
    assert f"{path}{error}" in result.stderr


def test_check_config_says_whether_it_is_fine(bin_dir, request):
    example = request.config.rootpath / "configs/rendezvous.yaml"
    result = run(bin_dir, "--check-config", "--config", str(example))
    assert result.returncode == 0, result.stderr
    assert result.stdout == "ctrun-rendezvous: the options are fine\n"


def test_readiness_and_watchdog_are_notified(start, bin_dir, tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(60)
        env = dict(os.environ, NOTIFY_SOCKET=path, WATCHDOG_USEC="50000")
        process = start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0", env=env)
        assert s.recv(100) == b"READY=1"
        assert s.recv(100) == b"WATCHDOG=1"
        assert s.recv(100) == b"WATCHDOG=1"
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
