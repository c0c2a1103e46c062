"""Who may speak: secrets and certificates, on both sides or on none, and who is refused."""

import json
import os
import pathlib
import re
import signal
import socket
import ssl
import struct
import subprocess
import threading
import urllib.request

import pytest
import store_client


class Tap:
    """Forwards a port to another, and keeps what passes."""

    def __init__(self, port):
        self.target = port
        self.seen = bytearray()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.pass_on, args=(a, b), daemon=True).start()

    def pass_on(self, source, target):
        try:
            while data := source.recv(65536):
                self.seen += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.listener.close()


@pytest.fixture
def tap():
    taps = []

    def make(port):
        taps.append(Tap(port))
        return taps[-1]

    yield make
    for one in taps:
        one.close()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty one: what lies in the tester's own is no part of a test."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("CTRUN_SOCKET_DIR", str(tmp_path / "run"))
    for name in ("CTRUN_SECRET_FILE", "CREDENTIALS_DIRECTORY", "CTRUN_TLS_CERT"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def keygen(bin_dir, home):
    def make(*args):
        made = subprocess.run([bin_dir / "ctrun", "keygen", *map(str, args)],
                              capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        return made.stdout

    return make


@pytest.fixture
def secret(keygen, tmp_path):
    """secret(name) makes one: its path."""

    def make(name):
        keygen(tmp_path / "secrets" / name)
        return tmp_path / "secrets" / name

    return make


@pytest.fixture
def certificates(keygen, tmp_path):
    """certificates(folder, …) makes some: a function of a name, the options that show it."""

    def make(folder, *options):
        path = tmp_path / folder
        keygen("--ca", path, *options)
        return lambda name: [f"--tls-ca={path}/ca.pem", f"--tls-cert={path}/{name}.pem",
                             f"--tls-key={path}/{name}.key"]

    return make


def expire(folder):
    """Makes agent.pem one of yesterday."""
    sign(folder, "-1", "URI:ctrun://job/*/agent/*")


def sign(folder, days, name):
    """Makes agent.pem another one, by OpenSSL's own tool."""
    (folder / "ext").write_text(f"subjectAltName={name}\n")

    def run(*args):
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)

    run("req", "-new", "-key", folder / "agent.key", "-subj", "/CN=old", "-out", folder / "csr")
    run("x509", "-req", "-in", folder / "csr", "-CA", folder / "ca.pem", "-CAkey",
        folder / "ca.key", "-CAcreateserial", "-days", days, "-extfile", folder / "ext",
        "-out", folder / "agent.pem")


@pytest.fixture
def agent(start, bin_dir):
    """agent(port, *options, rank=0, work=[…]) starts one of two nodes of job 7."""

    def begin(port, *options, rank=0, nodes=2, work=("env",), job="7"):
        return start(bin_dir / "ctrun", f"--nnodes={nodes}", f"--node-rank={rank}",
                     f"--rdzv-id={job}", "--rdzv-backend=c10d",
                     f"--rdzv-endpoint=127.0.0.1:{port}", *options,
                     bin_dir / "fake-worker", *work)

    return begin


def assert_all_well(agents):
    assert [a.wait() for a in agents] == [0] * len(agents), [a.err() for a in agents]


# --- who is let in ---


def test_job_with_a_secret_is_encrypted_and_its_store_is_local(start_server, tap, agent, secret):
    path = secret("team-a")
    server = start_server(f"--secrets={path}")
    wire = tap(server.port)
    agents = [agent(wire.port, f"--rdzv-secret-file={path}", rank=r) for r in range(2)]
    assert_all_well(agents)
    for a in agents:
        assert json.loads(a.out())["MASTER_ADDR"] == "127.0.0.1"
        assert a.err().count("--store-access is local, for the job has keys") == 1
    assert wire.seen[0] == 0x16
    assert b"ctrunA1" not in wire.seen and b"fake-worker" not in wire.seen
    assert "only who has a key may come secrets=1" in server.process.err()


def test_job_with_certificates(start_server, tap, agent, certificates):
    show = certificates("ca")
    server = start_server(*show("service"))
    wire = tap(server.port)
    assert_all_well([agent(wire.port, *show("agent"), rank=r) for r in range(2)])
    assert wire.seen[0] == 0x16 and b"ctrunA1" not in wire.seen


def test_node_serves_for_those_with_its_secret(agent, free_port, keygen, home):
    assert str(home / ".config/ctrun/secret") in keygen()
    assert (home / ".config/ctrun/secret").stat().st_mode & 0o777 == 0o600
    agents = [agent(free_port, rank=r) for r in range(2)]
    assert_all_well(agents)
    assert "may take part in the job" not in agents[0].err()


def test_nodes_serve_for_each_other_by_their_certificates(agent, free_port, certificates):
    show = certificates("ca", "--job=7")
    assert_all_well([agent(free_port, *show("agent-7-any"), rank=r) for r in range(2)])


def test_node_where_others_can_come_says_how_to_close_the_door(two_hosts, bin_dir, start):
    agents = [
        start("ip", "netns", "exec", name, bin_dir / "ctrun", "--nnodes=2",
              f"--rdzv-endpoint={two_hosts[0][1]}:29400", bin_dir / "fake-worker")
        for name, _ in two_hosts
    ]
    assert_all_well(agents)
    said = [a.err().count("run 'ctrun keygen'") for a in agents]
    assert said == [1, 0]


def test_secret_opens_a_service_off_loopback(secret, two_hosts, bin_dir, start, wait_for):
    path = secret("a")
    here, address = two_hosts[0]
    server = start("ip", "netns", "exec", here, bin_dir / "ctrun-rendezvous",
                   f"--listen={address}:29400", f"--secrets={path}")
    wait_for(lambda: "listening on" in server.out())
    agents = [
        start("ip", "netns", "exec", name, bin_dir / "ctrun", "--nnodes=2",
              f"--rdzv-secret-file={path}", f"--rdzv-endpoint={address}:29400",
              bin_dir / "fake-worker")
        for name, _ in two_hosts
    ]
    assert_all_well(agents)
    assert server.popen.poll() is None


# --- who is not ---


@pytest.fixture
def strangers(secret, certificates):
    """Options of a node that shows something else than what is asked for, and the words for it:
    the node's own, and the service's."""
    own = secret("own")
    show = certificates("ca")

    def make(kind):
        if kind == "nothing":
            return [], "lets only those in that have its secret", "it has shown no key"
        if kind == "another secret":
            return ([f"--rdzv-secret-file={secret('other')}"],
                    "not know this side's secret", "a secret that is none of ours")
        if kind == "a foreign certificate":
            return (certificates("foreign")("agent"), "its certificate is not right",
                    "does not know the CA")
        certificates("ca", "--job=8")
        return show("agent-8-any"), "does not allow it", "does not allow it"

    return make, [f"--secrets={own}", *show("service")]


@pytest.mark.parametrize("kind", ["nothing", "another secret", "a foreign certificate",
                                  "the certificate of another job"])
def test_stranger_is_refused_in_words_logged_once_and_counted(start_server, agent, strangers,
                                                              free_port, kind):
    make, keys = strangers
    options, own_words, log_words = make(kind)
    server = start_server(*keys, f"--http=127.0.0.1:{free_port}")
    for _ in range(3):
        stranger = agent(server.port, *options, nodes=1)
        assert stranger.wait() == 94, stranger.err()
        assert own_words in stranger.err()
        assert stranger.out() == ""  # no worker was started
    log = server.process.err()
    assert log.count("refused a connection") == 1 and log_words in log, log
    with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/metrics") as page:
        counts = [int(line.split()[-1]) for line in page.read().decode().splitlines()
                  if line.startswith("ctrun_refusals_total{")
                  and any(f'"{r}"' in line for r in ("no_key", "wrong_key", "role"))]
    assert sum(counts) == 3


def test_expired_certificate_is_refused_by_its_node_and_by_the_service(
        start_server, agent, certificates, tmp_path):
    show = certificates("ca")
    server = start_server(*show("service"))
    expire(tmp_path / "ca")
    node = agent(server.port, *show("agent"), nodes=1)
    assert node.wait() == 2
    assert f"the certificate {tmp_path}/ca/agent.pem has expired on 20" in node.err()
    assert "refused a connection" not in server.process.err()
    subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-cert",
                    tmp_path / "ca/agent.pem", "-key", tmp_path / "ca/agent.key"],
                   stdin=subprocess.DEVNULL, capture_output=True)
    assert "its certificate is not right: certificate has expired" in server.process.err()


def test_expired_certificate_is_made_anew_as_is_said(start_server, agent, keygen, certificates,
                                                     tmp_path):
    show = certificates("ca")
    server = start_server(*show("service"))
    expire(tmp_path / "ca")
    node = agent(server.port, *show("agent"), nodes=1)
    assert node.wait() == 2
    said = re.search(r"certificate (\S+) has .* move it and (\S+) away, and make new ones the same "
                     r"way \(ctrun keygen --ca DIR\)", node.err())
    for path in said.groups():
        os.rename(path, path + ".old")
    keygen("--ca", tmp_path / "ca")
    node = agent(server.port, *show("agent"), nodes=1)
    assert node.wait() == 0, node.err()


def test_service_refuses_a_certificate_of_its_own_that_nobody_would_take(
        start_server, certificates, bin_dir, tmp_path, wait_for):
    show = certificates("ca")
    foreign = certificates("foreign")("service")
    right = show("service")
    expire(tmp_path / "ca")
    for options, words in (
        (show("operator"), "its URI must be ctrun://service"),
        ([right[0], *foreign[1:]], f"nobody who knows the CA {tmp_path}/ca/ca.pem takes"),
        (show("agent"), "/ca/agent.pem has expired on 20"),
    ):
        for more in ([], ["--check-config"]):
            done = subprocess.run(
                [bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0", *options, *more],
                capture_output=True, text=True, timeout=60)
            assert done.returncode == 2, done
            assert words in done.stderr
    sign(tmp_path / "ca", "1", "DNS:service")
    done = subprocess.run([bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0", *show("agent")],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "it needs one URI, ctrun://service" in done.stderr
    expire(tmp_path / "ca")
    server = start_server(*right)
    for end in ("pem", "key"):
        (tmp_path / f"ca/agent.{end}").replace(tmp_path / f"ca/service.{end}")
    server.process.popen.send_signal(signal.SIGHUP)
    wait_for(lambda: "the keys stay as they were" in server.process.err())
    assert "/ca/service.pem has expired on 20" in server.process.err()


def test_running_job_whose_secret_the_service_has_lost_says_so_once_and_goes_on(
        start_server, secret, bin_dir, start, free_port, tmp_path, wait_for):
    old, new = secret("a"), secret("b")

    def serve(secrets):
        return start_server(f"--listen=127.0.0.1:{free_port}", f"--secrets={secrets}",
                            f"--state-dir={tmp_path}/state", "--state-reserve-mib=1").process

    def kill(process):
        process.signal(signal.SIGKILL)
        process.wait()

    service = serve(old)
    job = start(bin_dir / "ctrun", "--rdzv-id=7", f"--rdzv-endpoint=127.0.0.1:{free_port}",
                f"--rdzv-secret-file={old}", bin_dir / "fake-counter", tmp_path, 1000)
    wait_for((tmp_path / "0").exists)
    kill(service)
    service = serve(new)
    wait_for(lambda: "cannot connect to the rendezvous" in job.err())
    assert "does not know this side's secret" in job.err()
    kill(service)
    serve(old.parent)  # both
    wait_for(lambda: "answers again" in job.err())
    (tmp_path / "stop").touch()
    assert job.wait() == 0, job.err()
    assert job.err().count("cannot connect to the rendezvous") == 1


@pytest.mark.parametrize("here, there", [("a", None), (None, "a"), ("a", "b")])
def test_node_that_serves_and_one_that_comes_need_the_same(agent, free_port, secret, wait_for,
                                                           here, there):
    def options(name):
        return [f"--rdzv-secret-file={secret(name)}"] if name else []

    first = agent(free_port, *options(here), rank=0)
    wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", free_port)) == 0)
    second = agent(free_port, *options(there), rank=1)
    assert second.wait() == 94, second.err()
    assert "secret" in second.err()
    wait_for(lambda: "refused a connection" in first.err())
    assert first.popen.poll() is None


def test_job_belongs_to_the_secret_that_began_it(start_server, agent, secret, wait_for):
    a, b, operators = secret("team-a"), secret("team-b"), secret("operator-me")
    server = start_server(f"--secrets={a.parent}")
    first = agent(server.port, f"--rdzv-secret-file={a}", rank=0)
    wait_for(lambda: "waiting for" in first.err())
    thief = agent(server.port, f"--rdzv-secret-file={b}", rank=1)
    assert thief.wait() == 94
    assert "belongs to another secret" in thief.err()
    theirs = agent(server.port, f"--rdzv-secret-file={operators}", rank=1)
    assert theirs.wait() == 94 and "does not allow it" in theirs.err()
    log = server.process.err()  # what happens every day does not hide what should never
    assert "belongs to another secret" in log and "(secret operator-me) does not allow it" in log
    assert_all_well([agent(server.port, f"--rdzv-secret-file={a}", rank=1), first])


class Agent:
    """Says HELLO by hand, over TLS with a certificate (common/msg.h draws the frames)."""

    def __init__(self, server, folder, name):
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        context.check_hostname = False  # its name is a URI
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        self.sock = context.wrap_socket(plain)
        self.sock.sendall(b"ctrunA1\n")
        assert self.read(8) == b"ctrunA1\n"

    def read(self, n):
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            assert more, "the connection has ended"
            data += more
        return data

    def hello(self, host, agent_id, session=0, cluster=0):
        """(type, fields) of the answer: WELCOME is 2, REFUSED 3."""
        def text(value):
            return struct.pack("<I", len(value)) + value

        header = pathlib.Path(__file__).parents[2] / "common/msg.h"
        version = int(re.search(r"MSG_VERSION = (\d+)", header.read_text()).group(1))
        body = (struct.pack("<H", version) + text(b"7")
                + struct.pack("<7QiIIQ", agent_id, session, cluster, 0, 0, 0, 0, -1, 0, 0, 0)
                + text(b"") + text(host) + struct.pack("<IIIIiIB", 2, 2, 1, 0, -1, 1000, 0))
        self.sock.sendall(struct.pack("<IB", len(body) + 1, 1) + body)
        size, kind = struct.unpack("<IB", self.read(5))
        return kind, self.read(size - 1)


def test_replayed_session_is_refused_logged_once_and_counted(start_server, certificates, tmp_path,
                                                             free_port):
    show = certificates("ca")
    for node in ("a", "b"):
        certificates("ca", "--job=7", f"--node={node}")
    server = start_server(*show("service"), f"--http=127.0.0.1:{free_port}", "--lease-ms=60000")
    victim = Agent(server, tmp_path / "ca", "agent-7-a")
    kind, welcome = victim.hello(b"a", 1)
    session, cluster = struct.unpack_from("<QQ", welcome)
    assert kind == 2 and session != 0
    for _ in range(3):
        thief = Agent(server, tmp_path / "ca", "agent-7-b")
        kind, refused = thief.hello(b"b", 1, session, cluster)
        assert kind == 3 and b"is another node's" in refused
    kind, refused = Agent(server, tmp_path / "ca", "agent-7-b").hello(b"a", 1, session, cluster)
    assert kind == 3 and b"does not allow it" in refused  # nor under the other's name
    assert server.process.err().count("is another node's") == 1
    with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/metrics") as page:
        assert 'ctrun_refusals_total{reason="replay"} 3\n' in page.read().decode()


def test_mistakes_with_keys_are_named_before_anything_starts(bin_dir, secret, start, tmp_path):
    path = secret("a")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)  # who opened it would wait for ever
    show = [f"--tls-ca={pipe}", f"--tls-cert={path}", f"--tls-key={path}"]
    cases = [
        ("ctrun-rendezvous", [f"--secrets={path}", "--insecure"], "leave out one or the other"),
        ("ctrun-rendezvous", ["--tls-ca=x"], "go together"),
        ("ctrun-rendezvous", ["--listen=0.0.0.0:0"], "give --secrets"),
        ("ctrun-rendezvous", [f"--secrets={tmp_path}/absent"], "absent"),
        ("ctrun", ["--rdzv-endpoint=127.0.0.1:1", "--tls-cert=x", "true"], "go together"),
        ("ctrun", ["--rdzv-endpoint=127.0.0.1:1", "--rdzv-secret-file=absent", "true"], "absent"),
        ("ctrun", ["--rdzv-endpoint=127.0.0.1:1", f"--rdzv-secret-file={path.parent}", "true"],
         "is a folder, and no file"),
        ("ctrun", ["--rdzv-endpoint=127.0.0.1:1", f"--rdzv-secret-file={pipe}", "true"],
         "is no regular file"),
        ("ctrun", ["--rdzv-endpoint=127.0.0.1:1", *show, "true"], "is no regular file"),
        ("ctrun-rendezvous", [f"--secrets={pipe}"], "is no regular file"),
        ("ctrun-rendezvous", show, "is no regular file"),
    ]
    for program, args, words in cases:
        process = start(bin_dir / program, *args)
        assert process.wait() == 2
        assert words in process.err() and process.err().count("\n") == 1, process.err()
    path.chmod(0o640)
    process = start(bin_dir / "ctrun-rendezvous", f"--secrets={path}")
    assert process.wait() == 2
    assert f"chmod 600 {path}" in process.err()


# --- keys change ---


def test_secret_is_replaced_while_a_job_runs(start_server, agent, secret, tmp_path, wait_for):
    path = secret("team")
    begun, go_on = tmp_path / "begun", tmp_path / "go"
    server = start_server(f"--secrets={path.parent}")

    def hang_up():
        n = server.process.err().count("the keys were read again")
        server.process.signal(signal.SIGHUP)
        wait_for(lambda: server.process.err().count("the keys were read again") == n + 1)

    runs = agent(server.port, f"--rdzv-secret-file={path}", nodes=1, job="runs",
                 work=(f"touch={begun}", f"wait={go_on}"))
    wait_for(begun.exists)
    old = path.rename(path.parent / "team.previous")
    secret("team")
    hang_up()
    for one in (old, path):  # both are good
        assert_all_well([agent(server.port, f"--rdzv-secret-file={one}", nodes=1, job=one.name)])
    kept = old.rename(tmp_path / "kept")
    hang_up()
    late = agent(server.port, f"--rdzv-secret-file={kept}", nodes=1, job="late")
    assert late.wait() == 94
    go_on.touch()
    assert_all_well([runs])


def test_secret_that_was_moved_aside_lets_nobody_in(start_server, agent, secret, bin_dir):
    path = secret("team")
    old = path.rename(path.parent / "team.bak")
    secret("team")
    server = start_server(f"--secrets={path.parent}")
    checked = subprocess.run([bin_dir / "ctrun-rendezvous", f"--secrets={path.parent}",
                              "--listen=127.0.0.1:0", "--check-config"],
                             capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0
    for said in (server.process.err(), checked.stderr):
        assert said.count("left out") == said.count("file=team.bak") == 1, said
    late = agent(server.port, f"--rdzv-secret-file={old}", nodes=1, job="late")
    assert late.wait() == 94
    assert_all_well([agent(server.port, f"--rdzv-secret-file={path}", nodes=1)])


def test_node_that_serves_takes_the_secret_that_replaces_its_own(agent, free_port, secret,
                                                                 wait_for):
    path = secret("team")
    first = agent(free_port, f"--rdzv-secret-file={path}", rank=0)
    wait_for(lambda: "waiting for" in first.err())
    path.rename(path.parent / "team.previous")
    secret("team")
    assert_all_well([agent(free_port, f"--rdzv-secret-file={path}", rank=1), first])


# --- others than agents ---


def tls_store(server, tmp_path, name):
    context = ssl.create_default_context(cafile=tmp_path / "ca/ca.pem")
    context.check_hostname = False  # its name is a URI
    context.load_cert_chain(tmp_path / f"ca/{name}.pem", tmp_path / f"ca/{name}.key")
    client = store_client.Client(server.port, validate=False)
    client.sock = context.wrap_socket(client.sock)
    client.send(store_client.VALIDATE)
    return client


def make_worker(folder):
    """A worker's certificate, by OpenSSL's own tool."""
    (folder / "ext").write_text("subjectAltName=URI:ctrun://job/7/worker/0\n")
    for args in (
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout worker.key -subj /CN=w"
        " -out csr",
        "x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -extfile ext"
        " -out worker.pem",
    ):
        subprocess.run(["openssl", *args.split()], cwd=folder, check=True, capture_output=True)


def test_store_clients_come_by_a_workers_certificate_or_from_this_machine(
        start_server, certificates, tmp_path):
    show = certificates("ca")
    make_worker(tmp_path / "ca")
    server = start_server(*show("service"))
    with tls_store(server, tmp_path, "worker") as client:
        client.set("k", b"v" * 1000000)
        assert client.get("k") == b"v" * 1000000
        with server.client() as plain:
            assert plain.get("k") == b"v" * 1000000
    with tls_store(server, tmp_path, "operator") as client:
        client.send(store_client.request(store_client.GET, "k"))
        assert client.is_closed()


def test_operator_asks_by_a_secret_what_belongs_to_it(start_server, agent, secret, bin_dir,
                                                     tmp_path, wait_for):
    a, b, boss = secret("team-a"), secret("team-b"), secret("operator")
    server = start_server(f"--secrets={a.parent}")
    go_on = tmp_path / "go"
    jobs = [agent(server.port, f"--rdzv-secret-file={path}", nodes=1, job=name,
                  work=(f"touch={tmp_path / name}", f"wait={go_on}"))
            for path, name in ((a, "ja"), (b, "jb"))]
    wait_for(lambda: (tmp_path / "ja").exists() and (tmp_path / "jb").exists())

    def status(path, *args):
        return subprocess.run(
            [bin_dir / "ctrun", "status", f"--endpoint=127.0.0.1:{server.port}", "--json", *args],
            env={**os.environ, "CTRUN_SECRET_FILE": str(path) if path else ""},
            capture_output=True, text=True)

    def names(done):
        return sorted(job["id"] for job in json.loads(done.stdout)["jobs"])

    assert names(status(boss)) == ["ja", "jb"]
    assert names(status(a, "ja")) == ["ja"]
    assert "this server knows no job jb" in status(a, "jb").stderr
    assert names(status(a)) == ["ja"]
    assert status(None).returncode == 94
    thief = agent(server.port, f"--rdzv-secret-file={boss}", nodes=1, job="new")
    assert thief.wait() == 94
    assert "does not allow it" in thief.err()
    go_on.touch()
    assert_all_well(jobs)


def test_keygen_never_replaces_a_file(bin_dir, keygen, home):
    keygen()
    before = (home / ".config/ctrun/secret").read_text()
    again = subprocess.run([bin_dir / "ctrun", "keygen"], capture_output=True, text=True)
    assert again.returncode == 2 and "is there already" in again.stderr
    assert (home / ".config/ctrun/secret").read_text() == before


def test_handshake_that_stops_is_ended(start_server, secret):
    server = start_server(f"--secrets={secret('a')}")
    slow = []
    for begin in (b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)):
        slow.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        slow[-1].sendall(begin)
    assert [one.recv(1) for one in slow] == [b"", b""]
    for one in slow:
        one.close()


@pytest.mark.soak
@pytest.mark.release_only  # sanitizers keep what is freed
def test_a_crowd_that_has_gone_leaves_its_memory(start_server, certificates, tmp_path, wait_for):
    shows = certificates("pki")
    server = start_server("--state-dir=none", *shows("service"))

    def held():
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) / 1024

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(tmp_path / "pki/ca.pem")
    context.load_cert_chain(tmp_path / "pki/agent.pem", tmp_path / "pki/agent.key")
    before, crowds = held(), []
    for _ in range(2):
        crowd = [context.wrap_socket(socket.create_connection(("127.0.0.1", server.ports[0])))
                 for _ in range(1000)]
        crowds.append(held())
        for connection in crowd:
            connection.close()
        wait_for(lambda: held() < before + 10)
    assert crowds[0] > before + 12  # else the test shows nothing
