"""Another service answers, or an old copy of its state: its agents do not follow it."""

import contextlib
import re
import shutil
import signal
import sqlite3
import types

import pytest


OLDER = "is refused: an older state of the service answers there, or a copy that went its own way "


@pytest.fixture
def kept(start_server, start, bin_dir, tmp_path, free_port, wait_for):
    """A job of two nodes whose workers count by a service's store: serve(), kill(service), goes_on(),
    ends_well()."""
    state, counts = tmp_path / "state", tmp_path / "counts"
    counts.mkdir()

    def count(rank):
        words = (counts / rank).read_text().split() if (counts / rank).exists() else []
        return int(words[1]) if len(words) == 2 else 0

    def serve():
        return start_server(f"--listen=127.0.0.1:{free_port}", f"--state-dir={state}",
                            "--state-reserve-mib=1", "--lease-ms=20000").process

    def kill(process):
        process.signal(signal.SIGKILL)
        process.wait()

    def goes_on():
        before = {rank: count(rank) for rank in "01"}
        wait_for(lambda: all(count(rank) > n + 2 for rank, n in before.items()))

    def ends_well():
        (counts / "stop").touch()
        for agent in agents:
            assert agent.wait() == 0, agent.err()
            assert "restart" not in agent.err() and "ends here" not in agent.err(), agent.err()

    service = serve()
    agents = [start(bin_dir / "ctrun", "--nnodes=2", "--nproc-per-node=1", "--rdzv-id=kept",
                    f"--rdzv-endpoint=127.0.0.1:{free_port}", "--max-restarts=0",
                    "--store-access=local", bin_dir / "fake-counter", counts, 1000) for _ in range(2)]
    goes_on()
    return types.SimpleNamespace(state=state, service=service, agents=agents, serve=serve, kill=kill,
                                 goes_on=goes_on, ends_well=ends_well)


def commits(state):
    with contextlib.closing(sqlite3.connect(state / "state.db")) as db:
        return db.execute("select commits from identity").fetchone()[0]


def test_agents_refuse_an_older_state_and_go_on_with_the_right_one(kept, tmp_path, wait_for):
    kept.kill(kept.service)
    shutil.copytree(kept.state, tmp_path / "old")
    service = kept.serve()
    kept.goes_on()
    kept.kill(service)
    kept.state.rename(tmp_path / "right")
    (tmp_path / "old").rename(kept.state)
    service = kept.serve()  # the second time, as the right one has been
    wait_for(lambda: all(re.search(re.escape(OLDER) + r"\(it lacks start 2, [0-9a-f]{16}, that this "
                                   r"node has seen\); start it with the state that it had\n", agent.err())
                         for agent in kept.agents))
    kept.kill(service)
    kept.state.rename(tmp_path / "old")
    (tmp_path / "right").rename(kept.state)
    kept.serve()
    kept.goes_on()
    kept.ends_well()


def test_agents_never_follow_a_copy_however_often_it_is_started(kept, tmp_path, wait_for):
    """It has as many starts as the right state, soon more, and more transactions."""
    turned_away = "which this state lacks: it is an older one, or a copy that went its own way"
    kept.kill(kept.service)
    shutil.copytree(kept.state, tmp_path / "old")
    service = kept.serve()
    kept.goes_on()
    kept.kill(service)
    right = commits(kept.state)
    kept.state.rename(tmp_path / "right")
    (tmp_path / "old").rename(kept.state)

    def turns_both_away():
        service = kept.serve()
        wait_for(lambda: service.err().count(turned_away) >= len(kept.agents))
        kept.kill(service)

    turns_both_away()  # as many starts as the right state
    while commits(kept.state) <= right:
        kept.kill(kept.serve())
    turns_both_away()
    for agent in kept.agents:
        assert agent.err().count("is refused") == agent.err().count(OLDER) == 1, agent.err()
        assert "answers again" not in agent.err().partition(OLDER)[2], agent.err()
    kept.state.rename(tmp_path / "old")
    (tmp_path / "right").rename(kept.state)
    kept.serve()
    kept.goes_on()
    kept.ends_well()


def test_agents_refuse_a_state_that_lacks_what_was_acknowledged(kept, tmp_path, wait_for):
    """A copy that was made while the service ran: its next start is no older than the right one's."""
    shutil.copytree(kept.state, tmp_path / "old")
    kept.goes_on()
    kept.kill(kept.service)
    kept.state.rename(tmp_path / "right")
    shutil.copytree(tmp_path / "old", kept.state)
    service = kept.serve()
    wait_for(lambda: all(OLDER + "(it has transaction " in agent.err() for agent in kept.agents))
    kept.kill(service)
    shutil.rmtree(kept.state)
    (tmp_path / "right").rename(kept.state)
    kept.serve()
    kept.goes_on()  # with every number that it had: a worker notices when one repeats
    kept.ends_well()


def test_agent_never_serves_in_the_place_of_the_service_that_knows_its_job(
        start_server, start, bin_dir, tmp_path, free_port, wait_for):
    endpoint = f"127.0.0.1:{free_port}"

    def serve():
        return start_server(f"--listen={endpoint}", f"--state-dir={tmp_path}/state",
                            "--state-reserve-mib=1").process

    def launch(job, nodes, *program):
        return start(bin_dir / "ctrun", f"--nnodes={nodes}", f"--rdzv-id={job}",
                     f"--rdzv-endpoint={endpoint}", "--rdzv-backend=c10d", *program)

    service = serve()
    first = launch("kept", 2, "--no-python", "/bin/true")
    wait_for(lambda: "joined job kept" in first.err())
    service.signal(signal.SIGKILL)
    service.wait()
    other = launch("other", 1, bin_dir / "fake-counter", tmp_path, 1000)  # serves there itself
    wait_for(lambda: "is refused: another service answers there" in first.err())
    (tmp_path / "stop").touch()
    assert other.wait() == 0, other.err()
    # the port is free, and stays so
    wait_for(lambda: "127.0.0.1: Connection refused, nothing listens" in first.err())
    serve()
    second = launch("kept", 2, "--no-python", "/bin/true")
    assert [first.wait(), second.wait()] == [0, 0], first.err()
