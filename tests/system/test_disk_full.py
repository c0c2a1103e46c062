"""The disk of the service's state is full: clear refusals, and what runs goes on."""

import http.client
import json
import os
import re
import subprocess
import threading
import time

import pytest
import training

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


# a worker that stores values of 32 KiB until its connection is closed, and goes on
STORES_ON = """
import os, sys, time
sys.path.insert(0, {tests!r})
from store_client import Client
with Client(int(os.environ["MASTER_PORT"]), host=os.environ["MASTER_ADDR"]) as c:
    try:
        for i in range(1000):
            c.set(f"/large/{{i}}", b"x" * (1 << 15))
            c.get(f"/large/{{i}}")
    except (OSError, EOFError):
        open({refused!r}, "w").close()
        time.sleep(3600)
    sys.exit(7)
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


def fill(disk):
    """Takes what is left of the disk, as others do that write to it."""
    with open(disk / "ballast", "ab", buffering=0) as f, pytest.raises(OSError):
        while True:
            f.write(b"b" * 4096)


@pytest.fixture
def service(start_server, small_disk):
    return start_server(f"--state-dir={small_disk / 'state'}", "--state-reserve-mib=4",
                        "--lease-ms=3000", "--http=127.0.0.1:0")


def get(service, path):
    """The status, and the text."""
    port = re.search(r"status at http://\S+:(\d+)/\n", service.process.out())[1]
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def readiness(service):
    return get(service, "/readyz")[0]


def turned_away(service):
    """Nodes, as Prometheus sees it."""
    return int(re.search(r'ctrun_refusals_total\{reason="node"\} (\d+)',
                         get(service, "/metrics")[1])[1])


@pytest.fixture
def job(start, bin_dir, service):
    def run(name, *command, nodes=1, options=()):
        return [start(bin_dir / "ctrun", f"--nnodes={nodes}", "--nproc-per-node=1",
                      f"--rdzv-id={name}", f"--rdzv-endpoint=127.0.0.1:{service.port}",
                      *options, *command) for _ in range(nodes)]
    return run


@pytest.fixture
def restart(service, start_server, small_disk):
    """Kills the service, and begins it again on the same port; `between` before that."""
    def run(between=lambda: None):
        service.process.popen.kill()
        service.process.wait()
        between()
        service.process = start_server(f"--listen=127.0.0.1:{service.port}",
                                       f"--state-dir={small_disk / 'state'}",
                                       "--state-reserve-mib=4", "--lease-ms=3000").process
    return run


@pytest.fixture
def ask(bin_dir, service):
    """A verb, to its end."""
    def run(*args):
        return subprocess.run([bin_dir / "ctrun", *args, f"--endpoint=127.0.0.1:{service.port}"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE)
    return run


@pytest.fixture
def how_it_ended(ask):
    def run(name):
        past = [j for j in json.loads(ask("history", "--json").stdout)["jobs"]
                if j["id"] == name]
        return [(j["state"], j["exit_code"]) for j in past]
    return run


@pytest.fixture
def trains(job, bin_dir, corpus, tmp_path, wait_for):
    """Two nodes that train, far from their end; the first checkpoint is there."""
    run_dir = tmp_path / "run"
    agents = job("trains", bin_dir / "ctrun-worker",
                 *training.overrides(corpus, run_dir, "train.steps=1000000", "checkpoint.every=20",
                                     "eval.every=0"),
                 nodes=2, options=("--max-restarts=1",))
    agents[0].run_dir = run_dir
    wait_for(lambda: training.checkpoints(run_dir), PATIENCE)
    return agents


def await_checkpoint(run_dir, wait_for):
    """A checkpoint of a step that is not there yet."""
    step = training.last_step(run_dir)
    wait_for(lambda: [c for c in training.checkpoints(run_dir) if training.step_of(c) > step],
             PATIENCE)


PROMPT_S = 10  # of a job's end; a worker that waits would be killed after 30 s


def test_jobs_save_restart_and_end_on_a_full_disk(
        service, trains, restart, ask, how_it_ended, small_disk, wait_for):
    run_dir = trains[0].run_dir
    fill(small_disk)
    wait_for(lambda: "nearly full" in service.process.err(), PATIENCE)
    await_checkpoint(run_dir, wait_for)
    os.kill(training.workers(trains[0].pid)[0], 9)
    wait_for(lambda: "restarting (1 of 1)" in trains[0].err(), PATIENCE)
    await_checkpoint(run_dir, wait_for)
    fill(small_disk)  # what the service has given up is taken by others
    began = time.monotonic()
    assert ask("cancel", "trains").returncode == 0
    for agent in trains:
        agent.wait(PATIENCE)
        assert "job trains was cancelled by" in agent.err()
    assert time.monotonic() - began < PROMPT_S
    assert how_it_ended("trains") == [("cancelled", 143)]
    restart()
    assert how_it_ended("trains") == [("cancelled", 143)]


@pytest.fixture
def use_half(service, job, small_disk, tmp_path, wait_for):
    """Fills the disk; a job stores until half of the reserve is used: that job's agent."""
    def run():
        script, go, here, refused = (tmp_path / n for n in ("stores.py", "go", "here", "refused"))
        script.write_text(f"open({str(here)!r}, 'w')\nimport os, time\n"
                          f"while not os.path.exists({str(go)!r}): time.sleep(0.05)\n" +
                          STORES_ON.format(tests=os.path.dirname(__file__), refused=str(refused)))
        stores, = job("stores", script)
        wait_for(here.exists, PATIENCE)
        fill(small_disk)
        wait_for(lambda: "nearly full" in service.process.err(), PATIENCE)
        go.touch()
        wait_for(refused.exists, PATIENCE)
        wait_for(lambda: "half of the reserve is used" in service.process.err(), PATIENCE)
        return stores  # whose end would give its place back
    return run


def says(agents, text):
    return any(text in a.err() for a in agents)


def test_what_is_stored_is_refused_once_half_of_the_reserve_is_used_and_taken_again_later(
        service, trains, use_half, small_disk, wait_for):
    stores = use_half()
    wait_for(lambda: "takes no new keys" in stores.err(), PATIENCE)
    wait_for(lambda: says(trains, "a checkpoint was not written: store key"), PATIENCE)
    assert says(trains, "takes no new keys")
    (small_disk / "ballast").unlink()
    wait_for(lambda: "there is space for the service's state again" in service.process.err(), PATIENCE)
    await_checkpoint(trains[0].run_dir, wait_for)
    assert not says(trains, "restarting")


def test_job_is_cancelled_at_once_where_nothing_can_be_stored(
        trains, use_half, ask, how_it_ended, wait_for):
    use_half()
    wait_for(lambda: says(trains, "a checkpoint was not written: store key"), PATIENCE)
    began = time.monotonic()
    assert ask("cancel", "trains").returncode == 0
    for agent in trains:
        agent.wait(PATIENCE)
        assert "waiting for the others" not in agent.err()
    assert time.monotonic() - began < PROMPT_S
    assert how_it_ended("trains") == [("cancelled", 143)]


def test_restart_that_would_store_keys_waits_for_space_and_costs_one_retry(
        trains, use_half, small_disk, wait_for):
    use_half()
    os.kill(training.workers(trains[0].pid)[0], 9)
    for agent in trains:
        wait_for(lambda: "restarting (1 of 1)" in agent.err(), PATIENCE)
        wait_for(lambda: "the next generation begins when there is space" in agent.err(), PATIENCE)
    (small_disk / "ballast").unlink()
    await_checkpoint(trains[0].run_dir, wait_for)
    for agent in trains:
        assert agent.err().count("restarting (") == 1
        assert "needs another --rdzv-id" not in agent.err()


# a worker that stores a small key again and again until it is told to stop
STORES_SLOWLY = """
import os, sys, time
sys.path.insert(0, {tests!r})
from store_client import Client
with Client(int(os.environ["MASTER_PORT"]), host=os.environ["MASTER_ADDR"]) as c:
    i = 0
    while not os.path.exists({stop!r}):
        c.set(f"/small/{{i}}", b"x" * 100)
        c.get(f"/small/{{i}}")
        i += 1
        if i == {n}:
            open({here!r}, "w").close()
        time.sleep(0.01)
"""


@pytest.fixture
def eater(small_disk):
    """Others who write to this disk, and take what comes free at once."""
    stop = threading.Event()

    def eat():
        while not stop.wait(0.005):
            fill(small_disk)
    thread = threading.Thread(target=eat)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_others_who_write_to_the_disk_do_not_get_the_reserve(
        service, job, small_disk, tmp_path, wait_for, eater):
    script, stop, here = (tmp_path / n for n in ("stores.py", "stop", "here"))
    script.write_text(STORES_SLOWLY.format(tests=os.path.dirname(__file__), stop=str(stop),
                                           here=str(here), n=300))
    stores, = job("stores", script)
    wait_for(lambda: here.exists() or stores.popen.poll() is not None, PATIENCE)
    assert here.exists(), stores.err()
    assert (small_disk / "state/reserve").stat().st_size > 3 * MIB
    assert "half of the reserve" not in service.process.err()
    stop.touch()
    assert stores.wait(PATIENCE) == 0, stores.err()


def test_end_of_a_job_is_known_to_the_next_start_when_the_reserve_is_used_too(
        service, restart, job, bin_dir, how_it_ended, small_disk, tmp_path, wait_for):
    go, here = tmp_path / "go", tmp_path / "here"
    ends, = job("ends", bin_dir / "fake-worker", f"touch={here}", f"wait={go}", "exit=7")
    wait_for(here.exists, PATIENCE)

    def use_reserve():
        (small_disk / "state/reserve").unlink()
        leave_free(small_disk, MIB // 4)
    restart(use_reserve)
    wait_for(lambda: "the reserve is used" in service.process.err(), PATIENCE)
    go.touch()
    assert ends.wait(PATIENCE) == 7
    restart()
    assert how_it_ended("ends") == [("failed", 7)]


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
    line, = [li for li in service.process.err().splitlines() if "no new job is begun" in li]
    assert "job=new" in line
    assert turned_away(service) == 1
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
