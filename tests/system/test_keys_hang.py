"""The files of a running node's keys lie on a file system that hangs."""

import fcntl
import os
import shutil
import signal
import subprocess

import pytest


@pytest.fixture
def hang():
    """hang(path): whoever opens the file waits until the test ends (or 45 s: fs.lease-break-time)."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # "somebody waits for it"
    held = []

    def begin(path):
        held.append(os.open(path, os.O_RDWR))
        fcntl.fcntl(held[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)

    yield begin
    for fd in held:
        os.close(fd)
    signal.signal(signal.SIGIO, before)


@pytest.mark.threads
def test_keys_that_cannot_be_read_again_do_not_cost_a_node_its_lease(
    start, start_server, bin_dir, free_port, tmp_path, wait_for, hang
):
    subprocess.run([bin_dir / "ctrun", "keygen", "--ca", tmp_path / "ca"], check=True,
                   stdout=subprocess.DEVNULL)
    home = shutil.copytree(tmp_path / "ca", tmp_path / "home")

    def show(folder, name):
        return [f"--tls-ca={folder}/ca.pem", f"--tls-cert={folder}/{name}.pem",
                f"--tls-key={folder}/{name}.key"]

    def serve():
        return start_server(f"--listen=127.0.0.1:{free_port}", *show(tmp_path / "ca", "service"),
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
