"""Another service answers, or an old copy of its state: its agents do not follow it."""

import shutil
import signal


def count(file):
    words = file.read_text().split() if file.exists() else []
    return int(words[1]) if len(words) == 2 else 0


def test_agents_refuse_an_older_state_and_go_on_with_the_right_one(
        start_server, start, bin_dir, tmp_path, free_port, wait_for):
    state, counts = tmp_path / "state", tmp_path / "counts"
    counts.mkdir()

    def serve():
        return start_server(f"--listen=127.0.0.1:{free_port}", f"--state-dir={state}",
                            "--state-reserve-mib=1").process

    def kill(process):
        process.signal(signal.SIGKILL)
        process.wait()

    def goes_on():
        before = count(counts / "0")
        wait_for(lambda: count(counts / "0") > before + 2)

    service = serve()
    agent = start(bin_dir / "ctrun", "--nnodes=1", "--nproc-per-node=1", "--rdzv-id=kept",
                  f"--rdzv-endpoint=127.0.0.1:{free_port}", "--max-restarts=0",
                  bin_dir / "fake-counter", counts, 1000)
    goes_on()
    kill(service)
    shutil.copytree(state, tmp_path / "old")
    service = serve()
    goes_on()
    kill(service)
    state.rename(tmp_path / "right")
    (tmp_path / "old").rename(state)
    service = serve()  # the second time, as the right one has been
    wait_for(lambda: "an older state of the service answers there (start 2, this node has seen "
             "start 2); start it with the state that it had" in agent.err())
    kill(service)
    state.rename(tmp_path / "old")
    (tmp_path / "right").rename(state)
    serve()
    goes_on()
    (counts / "stop").touch()
    assert agent.wait() == 0, agent.err()
    assert "restart" not in agent.err(), agent.err()


def test_agents_refuse_a_state_that_lacks_what_was_acknowledged(
        start_server, start, bin_dir, tmp_path, free_port, wait_for):
    """A copy that was made while the service ran: its next start is no older than the right one's."""
    state, old, counts = tmp_path / "state", tmp_path / "old", tmp_path / "counts"
    counts.mkdir()

    def serve():
        return start_server(f"--listen=127.0.0.1:{free_port}", f"--state-dir={state}",
                            "--state-reserve-mib=1").process

    def kill(process):
        process.signal(signal.SIGKILL)
        process.wait()

    def goes_on():
        before = count(counts / "0")
        wait_for(lambda: count(counts / "0") > before + 2)

    service = serve()
    agent = start(bin_dir / "ctrun", "--nnodes=1", "--nproc-per-node=1", "--rdzv-id=kept",
                  f"--rdzv-endpoint=127.0.0.1:{free_port}", "--max-restarts=0",
                  bin_dir / "fake-counter", counts, 1000)
    goes_on()
    shutil.copytree(state, old)
    goes_on()
    kill(service)
    state.rename(tmp_path / "right")
    shutil.copytree(old, state)
    service = serve()
    wait_for(lambda: "is refused: an older state of the service answers there (transaction "
             in agent.err())
    kill(service)
    shutil.rmtree(state)
    (tmp_path / "right").rename(state)
    serve()
    goes_on()  # with every number that it had: the worker notices when one repeats
    (counts / "stop").touch()
    assert agent.wait() == 0, agent.err()
    assert "restart" not in agent.err(), agent.err()


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
