"""The files of a running node's, or the service's, keys lie on a file system that hangs."""

import fcntl
import shutil
import signal
import subprocess

import pytest


@pytest.fixture
def hang():
    """hang(path): whoever opens the file waits until what it returns, the file, is closed, the
    test ends, or 45 s (fs.lease-break-time) are over."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # "somebody waits for it"
    held = []

    def begin(path):
        held.append(open(path, "r+b", buffering=0))
        fcntl.fcntl(held[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)
        return held[-1]

    yield begin
    for file in held:
        file.close()
    signal.signal(signal.SIGIO, before)


@pytest.fixture
def keygen(bin_dir, tmp_path):
    """keygen(name) makes the folder of a CA: its path."""

    def make(name):
        subprocess.run([bin_dir / "ctrun", "keygen", "--ca", tmp_path / name], check=True,
                       stdout=subprocess.DEVNULL)
        return tmp_path / name

    return make


def show(folder, name, ca=None):
    return [f"--tls-ca={ca or folder / 'ca.pem'}", f"--tls-cert={folder}/{name}.pem",
            f"--tls-key={folder}/{name}.key"]


@pytest.mark.threads
def test_keys_that_cannot_be_read_again_do_not_cost_a_node_its_lease(
    start, start_server, bin_dir, free_port, tmp_path, wait_for, hang, keygen
):
    ca = keygen("ca")
    home = shutil.copytree(ca, tmp_path / "home")

    def serve():
        return start_server(f"--listen=127.0.0.1:{free_port}", *show(ca, "service"),
                            f"--state-dir={tmp_path}/state", "--state-reserve-mib=1").process

    server = serve()
    node = start(bin_dir / "ctrun", "--nnodes=1", "--rdzv-id=7", "--rdzv-backend=c10d",
                 f"--rdzv-endpoint=127.0.0.1:{free_port}", *show(home, "agent"),
                 bin_dir / "fake-worker", f"touch={tmp_path}/begun", f"wait={tmp_path}/go")
    wait_for((tmp_path / "begun").exists)
    hang(home / "ca.pem")
    server.signal(signal.SIGKILL)  # the node comes back, and reads its files again
    server.wait()
    server = serve()
    wait_for(lambda: "answers again" in node.err(), 40)
    assert node.err().count("does their file system hang?") == 1, node.err()
    (tmp_path / "go").touch()
    assert node.wait() == 0, node.err()
    assert "lost" not in server.err(), server.err()
    assert "ends here" not in node.err(), node.err()


@pytest.mark.threads
def test_service_serves_with_its_old_keys_until_the_new_ones_come(
    start_server, bin_dir, tmp_path, wait_for, hang, keygen
):
    own, other = keygen("own"), keygen("other")
    both = tmp_path / "both.pem"
    both.write_bytes((own / "ca.pem").read_bytes() + (other / "ca.pem").read_bytes())
    config = tmp_path / "rendezvous.yaml"
    config.write_text("accept_rate: 100\n")
    server = start_server(f"--config={config}", *show(own, "service"))

    def may_ask(folder):
        done = subprocess.run(
            [bin_dir / "ctrun", "status", f"--endpoint=127.0.0.1:{server.port}", "--json",
             *show(folder, "operator", both)],
            capture_output=True, text=True, timeout=300)
        return done.returncode == 0

    def said(words):
        return server.process.err().count(words)

    assert may_ask(own) and not may_ask(other)
    config.write_text("accept_rate: 200\n")
    held = hang(own / "ca.pem")
    server.process.signal(signal.SIGHUP)
    assert may_ask(own) and not may_ask(other)
    wait_for(lambda: said("does their file system hang?"))
    server.process.signal(signal.SIGHUP)
    assert may_ask(own) and not may_ask(other)
    assert said("was read again") + said("were read again") == 0, server.process.err()
    held.write(both.read_bytes())
    held.close()
    wait_for(lambda: said("the configuration was read again") == 2)
    assert said("was read again changed=accept-rate\n") == 1, server.process.err()
    assert said("the keys were read again") == 2, server.process.err()
    assert said("does their file system hang?") == 1, server.process.err()
    assert may_ask(own) and may_ask(other)


def test_service_ends_while_its_keys_hang(start_server, wait_for, hang, keygen):
    ca = keygen("ca")
    server = start_server(*show(ca, "service"))
    hang(ca / "ca.pem")
    server.process.signal(signal.SIGHUP)
    wait_for(lambda: "does their file system hang?" in server.process.err())
    server.process.signal(signal.SIGTERM)
    assert server.process.wait() == 0
