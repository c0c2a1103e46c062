"""kill -9 of a service that keeps its state: nobody notices but its log."""

import os
import random
import signal
import socket
import time

import pytest
import training

ATTACHED_S = 2.0  # within which every agent is back, once the service listens


class Service:
    """One state folder, one address, one process after another."""

    def __init__(self, start_server, folder, port):
        self.start_server, self.folder, self.port = start_server, folder, port
        self.n_kills = 0
        self.begin()

    def begin(self):
        self.server = self.start_server(
            f"--listen=127.0.0.1:{self.port}", f"--state-dir={self.folder}",
            "--state-reserve-mib=1",
        )
        self.listening_at = time.monotonic()

    def kill(self):
        self.server.process.signal(signal.SIGKILL)
        self.server.process.wait()
        self.n_kills += 1


@pytest.fixture
def service(start_server, tmp_path, free_port):
    return Service(start_server, tmp_path / "state", free_port)


@pytest.fixture
def agents(start, bin_dir, service):
    """agents(n, nproc, *command): so many nodes of one job."""

    def run(n, nproc, *command, options=()):
        return [
            start(
                bin_dir / "ctrun", f"--nnodes={n}", f"--nproc-per-node={nproc}",
                "--rdzv-id=kept", f"--rdzv-endpoint=127.0.0.1:{service.port}",
                "--max-restarts=0", *options, *command,
            )
            for _ in range(n)
        ]

    return run


def test_service_that_is_frozen_is_named_once_and_so_is_that_it_answers(start, bin_dir, start_server,
                                                                        tmp_path, wait_for):
    server = start_server("--lease-ms=1000")
    job = start(bin_dir / "ctrun", "--rdzv-id=kept", f"--rdzv-endpoint=127.0.0.1:{server.port}",
                "--rdzv-backend=c10d", bin_dir / "fake-worker", "print=up", f"wait={tmp_path}/go")
    wait_for(lambda: "up" in job.out())
    for _ in range(2):
        n = job.err().count("answers again")
        server.process.signal(signal.SIGSTOP)
        wait_for(lambda: job.err().count("does not answer; the workers go on without it") == n + 1)
        server.process.signal(signal.SIGCONT)
        wait_for(lambda: job.err().count("answers again") == n + 1)
    (tmp_path / "go").touch()
    assert job.wait() == 0, job.err()
    assert job.err().count("the rendezvous at") == 4


def counts(folder, world):
    """rank → (pid, count) of those that have said anything."""
    found = {}
    for rank in range(world):
        words = (folder / str(rank)).read_text().split() if (folder / str(rank)).exists() else []
        if len(words) == 2:
            found[rank] = (int(words[0]), int(words[1]))
    return found


def counted(folder, world, than):
    """True when every rank has counted on, twice: the first may have been on its way."""
    now = counts(folder, world)
    return len(now) == world and all(
        now[rank][1] >= than.get(rank, (0, 0))[1] + 2 for rank in range(world))


def kill_often(service, folder, world, n_kills, wait_for, rng):
    wait_for(lambda: counted(folder, world, {}))
    pids = {rank: pid for rank, (pid, _) in counts(folder, world).items()}
    slowest = 0.0
    for _ in range(n_kills):
        moment = time.monotonic() + rng.uniform(0, 0.15)
        wait_for(lambda: time.monotonic() >= moment)
        service.kill()
        before = counts(folder, world)
        service.begin()
        wait_for(lambda: counted(folder, world, before), timeout=60)
        slowest = max(slowest, time.monotonic() - service.listening_at)
    assert {rank: pid for rank, (pid, _) in counts(folder, world).items()} == pids
    return slowest


def count_through_kills(service, agents, bin_dir, tmp_path, wait_for, *, nodes, nproc, n_kills,
                        pace_us):
    folder = tmp_path / "counts"
    folder.mkdir()
    started = agents(nodes, nproc, bin_dir / "fake-counter", folder, pace_us)
    slowest = kill_often(service, folder, nodes * nproc, n_kills, wait_for, random.Random(7))
    (folder / "stop").touch()
    for agent in started:
        assert agent.wait() == 0, agent.err()
        assert "restart" not in agent.err(), agent.err()
    print(f"{n_kills} kills, all back within {slowest:.2f} s,"
          f" counts {[n for _, n in counts(folder, nodes * nproc).values()][:8]}")
    return slowest


@pytest.mark.threads
def test_counters_lose_and_double_nothing_through_ten_kills(
        service, agents, bin_dir, tmp_path, wait_for):
    slowest = count_through_kills(service, agents, bin_dir, tmp_path, wait_for,
                                  nodes=2, nproc=2, n_kills=10, pace_us=500)
    if "san" not in str(bin_dir):
        assert slowest < ATTACHED_S


@pytest.mark.soak
def test_64_workers_on_8_agents_live_through_100_kills(
        service, agents, bin_dir, tmp_path, wait_for):
    slowest = count_through_kills(service, agents, bin_dir, tmp_path, wait_for,
                                  nodes=8, nproc=8, n_kills=100, pace_us=5000)
    assert slowest < ATTACHED_S


def test_training_goes_on_through_kills_and_gives_the_same_numbers(
        service, agents, bin_dir, corpus, golden, tmp_path, wait_for):
    run_dir = tmp_path / "run"
    started = agents(2, 1, "ctrun-worker", *training.overrides(corpus, run_dir))
    rng = random.Random(3)
    metrics = run_dir / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") > 2)
    while started[0].popen.poll() is None and service.n_kills < 5:
        moment = time.monotonic() + rng.uniform(0, 0.2)
        wait_for(lambda: time.monotonic() >= moment)
        service.kill()
        service.begin()
    for agent in started:
        assert agent.wait() == 0, agent.err()
    assert service.n_kills > 1
    assert training.loss_column(run_dir) == golden()["losses"]
    assert training.state_hash(bin_dir, run_dir) == golden()["hash"]
    logs = [p for p in (run_dir / "log").iterdir()] if (run_dir / "log").is_dir() else []
    assert len(logs) <= 1, logs  # one run generation: no restart


@pytest.fixture
def linked(agents, linked_program, tmp_path, wait_for):
    """Two nodes of one rank, no restarts: who fails when the other is gone, and the other."""
    pair = agents(2, 1, linked_program, tmp_path / "socket", options=("--nnodes=1:2",))
    wait_for(lambda: any("linked" in a.out() for a in pair))
    return sorted(pair, key=lambda a: "linked" not in a.out())


def test_node_preempted_while_the_service_is_away_costs_no_restart(service, linked, wait_for):
    stays, leaves = linked
    service.kill()
    wait_for(lambda: "lost the rendezvous" in leaves.err())
    leaves.signal(signal.SIGTERM)
    wait_for(lambda: "to tell it that this node leaves, for " in leaves.err())
    service.begin()
    assert leaves.wait() == 128 + signal.SIGTERM, leaves.err()
    assert stays.wait() == 0, stays.err()
    assert "leaves: preempted by SIGTERM; re-forming (not counted as a failure)" in stays.err()
    assert "Root Cause" not in stays.err() + leaves.err()


def test_preempted_node_waits_for_a_service_only_so_long(service, agents, bin_dir, wait_for):
    pair = agents(2, 1, bin_dir / "fake-worker", "print=runs", "hang",
                  options=("--nnodes=1:2", "--shutdown-timeout=2"))
    wait_for(lambda: all("runs" in a.out() for a in pair))
    service.kill()
    wait_for(lambda: "lost the rendezvous" in pair[1].err())
    pair[1].signal(signal.SIGTERM)
    assert pair[1].wait() == 128 + signal.SIGTERM
    assert "leaving without a word to the rendezvous" in pair[1].err()


def test_node_killed_while_the_service_is_away_costs_no_restart(service, linked, wait_for):
    stays, dies = linked
    service.kill()
    wait_for(lambda: "lost the rendezvous" in stays.err())
    dies.signal(signal.SIGKILL)
    wait_for(lambda: "waiting for the rendezvous" in stays.err())  # its rank has failed
    service.begin()
    assert stays.wait() == 0, stays.err()
    assert "was lost: it did not come back; re-forming (not counted as a failure)" in stays.err()
    assert "Root Cause" not in stays.err()


def test_two_services_never_share_a_folder(service, start, bin_dir):
    other = start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0",
                  f"--state-dir={service.folder}")
    assert other.wait() == 1  # it may pass: the other may be about to end
    pid = service.server.process.pid
    assert f"another ctrun-rendezvous (pid {pid}) keeps its state in" in other.err()


@pytest.mark.parametrize("option", ["listen", "http"])
def test_start_that_finds_its_port_taken_is_not_counted(service, start, bin_dir, option):
    service.kill()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        again = start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0",
                      f"--{option}=127.0.0.1:{port}", f"--state-dir={service.folder}")
        assert again.wait() == 1 and f"port {port}" in again.err()
    service.begin()
    assert " boot=2" in service.server.process.err()


def test_damaged_state_is_refused_with_95_and_stays_as_it_is(service, start, bin_dir):
    service.kill()
    path = service.folder / "state.db"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 - 512:len(data) // 2] = os.urandom(512)
    data[20] ^= 0x10
    path.write_bytes(data)
    again = start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0",
                  f"--state-dir={service.folder}")
    assert again.wait() == 95, again.err()
    assert "is damaged" in again.err() and "begin anew" in again.err()
    assert path.read_bytes() == data


@pytest.mark.parametrize("way", ["emptied", "gone"])
def test_log_without_its_database_is_refused_with_95(service, start, bin_dir, way):
    service.kill()
    if way == "gone":
        (service.folder / "state.db").unlink()
    else:
        (service.folder / "state.db").write_bytes(b"")
    log = (service.folder / "state.db-wal").read_bytes()
    again = start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0",
                  f"--state-dir={service.folder}")
    assert again.wait() == 95, again.err()
    assert "empty or gone" in again.err()
    assert (service.folder / "state.db-wal").read_bytes() == log


def test_word_of_a_log_alone_is_refused_with_95(service, start, bin_dir):
    service.kill()
    for name in ("state.db", "state.db-wal"):
        (service.folder / name).unlink()
    word = (service.folder / "state.db-base").read_bytes()
    again = start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0",
                  f"--state-dir={service.folder}")
    assert again.wait() == 95, again.err()
    assert "empty or gone, and its state.db-wal or state.db-base is not" in again.err()
    assert not (service.folder / "state.db").exists()
    (service.folder / "state.db-base").rename(service.folder / "kept")
    service.begin()  # anew
    assert (service.folder / "kept").read_bytes() == word


@pytest.mark.parametrize("way", ["emptied", "gone"])
def test_database_without_its_log_is_refused_with_95(service, start, bin_dir, way):
    service.kill()
    path = service.folder / "state.db-wal"
    log, database = path.read_bytes(), (service.folder / "state.db").read_bytes()
    if way == "gone":
        path.unlink()
    else:
        path.write_bytes(b"")
    again = start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0",
                  f"--state-dir={service.folder}")
    assert again.wait() == 95, again.err()
    assert "state.db-wal is gone or was emptied: put that back" in again.err()
    assert again.err().count("\n") == 1
    assert (service.folder / "state.db").read_bytes() == database
    path.write_bytes(log)
    service.begin()


def test_state_that_somebody_has_looked_at_is_taken(service):
    import sqlite3
    service.kill()
    with sqlite3.connect(service.folder / "state.db") as db:
        assert db.execute("select boot from identity").fetchall() == [(1,)]
    db.close()  # copies the log, and removes it
    assert not (service.folder / "state.db-wal").exists()
    service.begin()


@pytest.mark.parametrize("names", ["*", "state.db*"])
def test_service_whose_files_are_removed_ends_and_says_so(service, names):
    for path in service.folder.glob(names):
        path.unlink()
    assert service.server.process.wait() == -signal.SIGABRT
    said = service.server.process.err().splitlines()[-1]
    assert "were removed" in said and "acknowledged is gone with it" in said
    assert "a new cluster, which the agents of running jobs refuse" in said
    assert "is on the disk" not in said


def test_state_of_a_newer_version_is_refused_with_95(service, start, bin_dir):
    import sqlite3
    service.kill()
    with sqlite3.connect(service.folder / "state.db") as db:
        db.execute("pragma user_version = 99")
    db.close()
    again = start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0",
                  f"--state-dir={service.folder}")
    assert again.wait() == 95, again.err()
    assert "a newer ctrun-rendezvous" in again.err()


def test_folder_that_others_may_read_is_refused_with_2(tmp_path, start, bin_dir):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    process = start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0",
                    f"--state-dir={tmp_path / 'open'}")
    assert process.wait() == 2
    assert "give a --state-dir of its own" in process.err()


@pytest.mark.faults_only
def test_io_error_ends_the_service_and_what_it_knew_is_there_at_the_next_start(
        start_server, agents, service, bin_dir, tmp_path, wait_for):
    service.kill()
    service.server = start_server(
        f"--listen=127.0.0.1:{service.port}", f"--state-dir={service.folder}",
        "--state-reserve-mib=1", env={**os.environ, "CTRUN_FAULT": "state.commit:60:EIO"})
    folder = tmp_path / "counts"
    folder.mkdir()
    started = agents(1, 2, bin_dir / "fake-counter", folder, 500)
    assert service.server.process.wait() == -signal.SIGABRT
    last = service.server.process.err().splitlines()[-1]
    assert "cannot be written, so this process ends" in last and "err=EIO" in last
    before = counts(folder, 2)
    service.begin()
    wait_for(lambda: counted(folder, 2, before))
    (folder / "stop").touch()
    for agent in started:
        assert agent.wait() == 0, agent.err()
