"""The disk of the service's state is full: clear refusals, and what runs goes on."""

import http.client
import os
import re
import subprocess

import pytest

MIB = 1 << 20
PATIENCE = 120

# a worker that stores so many values of a MiB in one request, and says how that went
STORES = """
import os, sys
sys.path.insert(0, {tests!r})
from store_client import Client, MULTI_SET, request
with Client(int(os.environ["MASTER_PORT"]), host=os.environ["MASTER_ADDR"]) as c:
    words = []
    for i in range({n}):
        words += [f"/large/{{i}}", b"x" * (1 << 20)]
    c.send(bytes([MULTI_SET]) + __import__("struct").pack("<Q", len(words) // 2) + b"".join(
        __import__("store_client").string(w) for w in words))
    sys.exit(0 if c.num_keys() >= {n} else 7)  # the agent itself would answer a ping
"""


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 32 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m,mode=700", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def leave_free(disk, n_bytes):
    """Fills the disk with ballast until about so much is left."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    st = os.statvfs(disk)
    with open(ballast, "wb") as f:
        f.write(b"b" * max(st.f_bavail * st.f_frsize - n_bytes, 0))


@pytest.fixture
def service(start_server, small_disk):
    return start_server(f"--state-dir={small_disk / 'state'}", "--state-reserve-mib=4",
                        "--lease-ms=3000", "--http=127.0.0.1:0")


def readiness(service):
    port = re.search(r"status at http://\S+:(\d+)/\n", service.process.out())[1]
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)
    connection.request("GET", "/readyz")
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.fixture
def job(start, bin_dir, service):
    def run(name, *command, nodes=1, options=()):
        return [start(bin_dir / "ctrun", f"--nnodes={nodes}", "--nproc-per-node=1",
                      f"--rdzv-id={name}", f"--rdzv-endpoint=127.0.0.1:{service.port}",
                      *options, *command) for _ in range(nodes)]
    return run


def test_little_space_refuses_what_is_new_and_lets_run_what_runs(
        service, job, bin_dir, small_disk, tmp_path, wait_for):
    go, here = tmp_path / "go", tmp_path / "here%r"
    running = job("runs", bin_dir / "fake-worker", f"touch={here}", f"wait={go}", nodes=2)
    wait_for(lambda: all((tmp_path / f"here{r}").exists() for r in range(2)), PATIENCE)
    assert readiness(service) == 200
    leave_free(small_disk, MIB)
    wait_for(lambda: "nearly full" in service.process.err(), PATIENCE)
    assert readiness(service) == 503
    new, = job("new", bin_dir / "fake-worker", "exit=0")
    assert new.wait(PATIENCE) == 94
    assert "the disk on which this service keeps its state is full" in new.err()
    (small_disk / "ballast").unlink()
    wait_for(lambda: "there is space for the service's state again" in service.process.err(), PATIENCE)
    assert readiness(service) == 200
    later, = job("later", bin_dir / "fake-worker", "exit=0")
    assert later.wait(PATIENCE) == 0, later.err()
    go.touch()
    for agent in running:
        assert agent.wait(PATIENCE) == 0, agent.err()


def test_full_disk_in_the_middle_of_a_commit_takes_the_reserve_and_loses_nothing(
        service, job, bin_dir, small_disk, tmp_path, wait_for):
    go, here = tmp_path / "go", tmp_path / "here"
    running, = job("runs", bin_dir / "fake-worker", f"touch={here}", f"wait={go}")
    wait_for(here.exists, PATIENCE)
    script = tmp_path / "stores.py"
    script.write_text(STORES.format(tests=os.path.dirname(__file__), n=6))
    leave_free(small_disk, 5 * MIB)  # more than the reserve, less than the values
    stores, = job("stores", script)
    assert stores.wait(PATIENCE) == 0, stores.err()
    wait_for(lambda: "the reserve is used" in service.process.err(), PATIENCE)
    assert not (small_disk / "state/reserve").exists()
    script.write_text(STORES.format(tests=os.path.dirname(__file__), n=1))
    (small_disk / "ballast").unlink()
    wait_for(lambda: "there is space for the service's state again" in service.process.err(), PATIENCE)
    assert (small_disk / "state/reserve").stat().st_size == 4 * MIB
    again, = job("again", script)
    assert again.wait(PATIENCE) == 0, again.err()
    go.touch()
    assert running.wait(PATIENCE) == 0, running.err()
    assert service.process.popen.poll() is None


def test_disk_that_is_full_at_the_start_is_no_reason_not_to_start(
        service, start_server, job, bin_dir, small_disk, wait_for):
    service.process.popen.kill()
    service.process.wait()
    leave_free(small_disk, 0)
    again = start_server(f"--listen=127.0.0.1:{service.port}",
                         f"--state-dir={small_disk / 'state'}", "--state-reserve-mib=4")
    wait_for(lambda: "is full" in again.process.err() or "nearly full" in again.process.err(), PATIENCE)
    (small_disk / "ballast").unlink()
    wait_for(lambda: "there is space for the service's state again" in again.process.err(), PATIENCE)
    later, = job("later", bin_dir / "fake-worker", "exit=0")
    assert later.wait(PATIENCE) == 0, later.err()


def test_first_start_on_a_full_disk_says_what_to_do(start, start_server, bin_dir, small_disk):
    options = f"--state-dir={small_disk / 'state'}", "--state-reserve-mib=4"
    (small_disk / "state").mkdir(mode=0o700)
    leave_free(small_disk, 0)
    first = start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0", *options)
    assert first.wait(PATIENCE) == 1, first.err()
    assert first.err().count("\n") == 1
    assert f"the disk of the state {small_disk / 'state'} is full: make room for 5 MiB" in first.err()
    (small_disk / "ballast").unlink()
    again = start_server(*options)
    assert again.process.popen.poll() is None
