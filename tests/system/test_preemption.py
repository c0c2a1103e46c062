"""A node is told to go, by a signal or a scheduler's warning: nothing is lost, nothing counted."""

import os
import re
import signal
import subprocess
import time

import pytest
import training

# long enough that the word to go comes in the middle; only leaving, and the end, save
STEPS = 250
COMMON = [f"train.steps={STEPS}", "checkpoint.every=100000", "eval.every=0"]
WITHIN_S = 5 if training.SOAK else training.PATIENCE


@pytest.fixture
def pair(train, start_server, tmp_path, wait_for):
    """pair(*options): a service, and two nodes of two ranks that train together; no restarts."""

    def begin(*options):
        server = start_server()
        agents = [train(tmp_path / "run", *COMMON, options=[
            "--nnodes=1:2", "--max-restarts=0", "--rdzv-id=p", "--rdzv-backend=c10d",
            f"--node-rank={i}", f"--rdzv-endpoint=127.0.0.1:{server.port}", *options])
            for i in range(2)]
        wait_for(lambda: training.last_step(tmp_path / "run") >= 3
                 and all(len(training.workers(a.pid)) == 2 for a in agents))
        return server, agents

    return begin


def step_left(agents):
    """The step after which rank 0 says that they left."""
    found = [re.search(r"left on request after step (\d+), saved", a.out()) for a in agents]
    return int(next(m for m in found if m)[1])


def everything_below(pid):
    """The process and all that came from it."""
    return [pid] + [p for child in training.children(pid) for p in everything_below(child)]


def tell(agent, number, to_all):
    """Slurm sends its warning to every process of a step, the keeper and the workers too."""
    for pid in everything_below(agent.pid) if to_all else [agent.pid]:
        os.kill(pid, number)


@pytest.mark.parametrize("again", range(10 if training.SOAK else 1))
@pytest.mark.parametrize("leaver, options, number, to_all", [
    (1, [], signal.SIGTERM, False),
    pytest.param(0, ["--preempt-signal=USR1"], signal.SIGUSR1, True, marks=pytest.mark.thorough),
    pytest.param(0, [], signal.SIGTERM, False, marks=pytest.mark.soak),
    pytest.param(1, [], signal.SIGTERM, True, marks=pytest.mark.soak),
    pytest.param(1, ["--preempt-signal=USR1"], signal.SIGUSR1, True, marks=pytest.mark.soak),
])
def test_preempted_node_loses_no_step_and_costs_no_restart(
    bin_dir, pair, tmp_path, leaver, options, number, to_all, again
):
    server, agents = pair(*options)
    began = time.monotonic()
    tell(agents[leaver], number, to_all)
    assert agents[leaver].wait(WITHIN_S) == 128 + number, agents[leaver].err()
    took = time.monotonic() - began
    left = step_left(agents)
    assert training.state_hash(bin_dir, tmp_path / "run", step=left)
    rest = agents[1 - leaver]
    assert rest.wait() == 0, rest.err()
    why = f"leaves: preempted by {signal.Signals(number).name}; re-forming (not counted as a failure)"
    assert why in rest.err() and "restarting (" not in rest.err()
    assert "Root Cause" not in rest.err() + agents[leaver].err()
    assert re.search(f"job restarting job=p generation=1 cause=\"node .+ {re.escape(why)}\"",
                     server.process.err())
    assert re.search(rf"resumed from \S*step-{left:08d}-", rest.out())
    assert [line["step"] for line in training.metrics(tmp_path / "run")] == list(range(1, STEPS + 1))
    assert took < WITHIN_S


def test_drained_node_saves_and_ends_well(bin_dir, pair, tmp_path):
    """As `ctrun drain` has it: by the operator's word, with exit code 0."""
    server, agents = pair()
    subprocess.run([bin_dir / "ctrun", "drain", "1", "p"], check=True, timeout=training.PATIENCE,
                   env={**os.environ, "CTRUN_ENDPOINT": f"127.0.0.1:{server.port}"})
    assert agents[1].wait() == 0, agents[1].err()
    left = step_left(agents)
    assert agents[0].wait() == 0, agents[0].err()
    assert re.search(rf"resumed from \S*step-{left:08d}-", agents[0].out())
    assert "leaves: drained" in agents[0].err() and "restarting (" not in agents[0].err()
    assert [line["step"] for line in training.metrics(tmp_path / "run")] == list(range(1, STEPS + 1))


@pytest.mark.thorough
def test_preempted_node_comes_back_by_the_same_command(pair, train, tmp_path):
    server, agents = pair()
    agents[1].signal(signal.SIGTERM)
    assert agents[1].wait() == 128 + signal.SIGTERM
    back = train(tmp_path / "run", *COMMON, options=[
        "--nnodes=1:2", "--max-restarts=0", "--rdzv-id=p", "--rdzv-backend=c10d", "--node-rank=1",
        f"--rdzv-endpoint=127.0.0.1:{server.port}"])
    assert [agents[0].wait(), back.wait()] == [0, 0]
    assert [line["step"] for line in training.metrics(tmp_path / "run")] == list(range(1, STEPS + 1))


@pytest.mark.thorough
def test_all_nodes_are_preempted_at_once_and_begin_anew_where_they_left(pair, train, tmp_path):
    """As at the end of a batch job's time."""
    server, agents = pair("--preempt-signal=USR1")
    for a in agents:
        tell(a, signal.SIGUSR1, True)
    assert [a.wait() for a in agents] == [128 + signal.SIGUSR1] * 2
    left = step_left(agents)
    again = train(tmp_path / "run", *COMMON, options=[
        "--nnodes=1", "--max-restarts=0", "--rdzv-id=p", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{server.port}"])
    assert again.wait() == 0, again.err()
    assert re.search(rf"resumed from \S*step-{left:08d}-", again.out())
    assert [line["step"] for line in training.metrics(tmp_path / "run")] == list(range(1, STEPS + 1))


def test_rank_of_another_program_that_misses_a_preempted_one_is_no_failure(
    start, bin_dir, start_server, linked_program, tmp_path, wait_for
):
    server = start_server()
    agents = [start(bin_dir / "ctrun", "--nnodes=1:2", "--rdzv-id=q", "--rdzv-backend=c10d",
                    f"--node-rank={i}", f"--rdzv-endpoint=127.0.0.1:{server.port}",
                    linked_program, tmp_path / "socket") for i in range(2)]
    wait_for(lambda: "linked" in agents[0].out())
    agents[1].signal(signal.SIGTERM)
    assert agents[1].wait() == 128 + signal.SIGTERM
    assert agents[0].wait() == 0, agents[0].err()
    assert "leaves: preempted by SIGTERM; re-forming (not counted as a failure)" in agents[0].err()
