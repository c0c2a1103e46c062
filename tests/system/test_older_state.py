"""Another service answers, or an old copy of its state: its agents do not follow it."""

import shutil
import signal
import types

import pytest


@pytest.fixture
def kept(start_server, start, bin_dir, tmp_path, free_port, wait_for):
    """A job whose worker counts by a service's store: serve(), kill(service), goes_on(), ends_well()."""
    state, counts = tmp_path / "state", tmp_path / "counts"
    counts.mkdir()

    def count():
        words = (counts / "0").read_text().split() if (counts / "0").exists() else []
        return int(words[1]) if len(words) == 2 else 0

    def serve():
        return start_server(f"--listen=127.0.0.1:{free_port}", f"--state-dir={state}",
                            "--state-reserve-mib=1").process

    def kill(process):
        process.signal(signal.SIGKILL)
        process.wait()

    def goes_on():
        before = count()
        wait_for(lambda: count() > before + 2)

    def ends_well():
        (counts / "stop").touch()
        assert agent.wait() == 0, agent.err()
        assert "restart" not in agent.err(), agent.err()

    service = serve()
    agent = start(bin_dir / "ctrun", "--nnodes=1", "--nproc-per-node=1", "--rdzv-id=kept",
                  f"--rdzv-endpoint=127.0.0.1:{free_port}", "--max-restarts=0",
                  bin_dir / "fake-counter", counts, 1000)
    goes_on()
    return types.SimpleNamespace(state=state, service=service, agent=agent, serve=serve, kill=kill,
                                 goes_on=goes_on, ends_well=ends_well)


def test_agents_refuse_an_older_state_and_go_on_with_the_right_one(kept, tmp_path, wait_for):
    kept.kill(kept.service)
    shutil.copytree(kept.state, tmp_path / "old")
    service = kept.serve()
    kept.goes_on()
    kept.kill(service)
    kept.state.rename(tmp_path / "right")
    (tmp_path / "old").rename(kept.state)
    service = kept.serve()  # the second time, as the right one has been
    wait_for(lambda: "an older state of the service answers there (start 2, this node has seen "
             "start 2); start it with the state that it had" in kept.agent.err())
    kept.kill(service)
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
    wait_for(lambda: "is refused: an older state of the service answers there (transaction "
             in kept.agent.err())
    kept.kill(service)
    shutil.rmtree(kept.state)
    (tmp_path / "right").rename(kept.state)
    kept.serve()
    kept.goes_on()  # with every number that it had: the worker notices when one repeats
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
