"""The node that serves the rendezvous is told to go: the others hear why, and lose nothing."""

import json
import re
import signal
import socket
import subprocess
import time

import pytest
import training

STEPS = 100
COMMON = [f"train.steps={STEPS}", "checkpoint.every=100000", "eval.every=0"]
LEAVES = r"node \S+ (\(group rank \d\) )?leaves: preempted by SIGTERM"  # two share a host
LEAVE_S = 3  # launcher/supervisor.c: so long the others are waited for


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def options(rank, nodes, port):
    return [f"--nnodes={nodes}", "--max-restarts=0", "--rdzv-id=p", "--rdzv-backend=c10d",
            f"--node-rank={rank}", f"--rdzv-endpoint=127.0.0.1:{port}"]


@pytest.fixture
def pair(train, free_port, tmp_path, wait_for):
    """pair(nodes, ranks) starts two nodes that train together: the first serves."""

    def begin(nodes, ranks):
        agents = []
        for rank in ranks:
            agents.append(train(tmp_path / "run", *COMMON, options=options(rank, nodes, free_port)))
            wait_for(lambda: listens(free_port))
        wait_for(lambda: training.last_step(tmp_path / "run") >= 3
                 and all(len(training.workers(a.pid)) == 2 for a in agents))
        return agents

    return begin


def step_left(agents):
    """The step after which rank 0 says that they left."""
    found = [re.search(r"left on request after step (\d+), saved", a.out()) for a in agents]
    return int(next(m for m in found if m)[1])


def assert_told_why(agent):
    told = re.findall(LEAVES + r"; re-forming \(not counted as a failure\)", agent.err())
    assert len(told) == 1, agent.err()
    assert "ends here" not in agent.err()  # as when the connection ends in the middle


@pytest.mark.parametrize("again", range(10 if training.SOAK else 1))
@pytest.mark.parametrize("owners_rank", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_owner_that_is_preempted_waits_until_the_others_have_saved_and_know_why(
    pair, bin_dir, free_port, tmp_path, wait_for, owners_rank, again
):
    owner, rest = pair("1:2", (owners_rank, 1 - owners_rank))
    began = time.monotonic()
    owner.signal(signal.SIGTERM)
    assert owner.wait() == 128 + signal.SIGTERM, owner.err()
    took = time.monotonic() - began
    left = step_left([owner, rest])

    def status():
        done = subprocess.run(
            [bin_dir / "ctrun", "status", "p", f"--endpoint=127.0.0.1:{free_port}", "--json"],
            capture_output=True, text=True)
        return json.loads(done.stdout)["jobs"][0] if done.returncode == 0 else {"generation": 0}

    told = wait_for(lambda: (job := status())["generation"] and job)
    assert told["committed_step"] == left and told["generation"] == 2  # none began between
    assert rest.wait() == 0, rest.err()
    assert_told_why(rest)
    assert re.search(rf"resumed from \S*step-{left:08d}-g1:", rest.out())
    assert [line["step"] for line in training.metrics(tmp_path / "run")] == list(range(1, STEPS + 1))
    assert took < (5 if training.SOAK else training.PATIENCE)


@pytest.mark.thorough
def test_job_of_a_fixed_size_says_why_it_waits_and_goes_on_when_its_owner_is_back(
    pair, train, free_port, tmp_path, wait_for
):
    owner, rest = pair("2", (0, 1))
    owner.signal(signal.SIGTERM)
    assert owner.wait() == 128 + signal.SIGTERM
    left = step_left([owner, rest])
    wait_for(lambda: "waiting for" in rest.err())
    assert_told_why(rest)
    back = train(tmp_path / "run", *COMMON, options=options(0, 2, free_port))
    assert [back.wait(), rest.wait()] == [0, 0], rest.err()
    assert re.search(rf"resumed from \S*step-{left:08d}-g1:", back.out())
    assert [line["step"] for line in training.metrics(tmp_path / "run")] == list(range(1, STEPS + 1))


@pytest.mark.thorough
def test_owner_does_not_wait_long_for_who_does_not_stop(start, bin_dir, free_port, tmp_path,
                                                        wait_for):
    agents = []
    for rank, work in enumerate(([], ["ignore=15"])):
        agents.append(start(bin_dir / "ctrun", *options(rank, "1:2", free_port),
                            bin_dir / "fake-worker", *work, f"touch={tmp_path}/{rank}", "hang"))
        wait_for(lambda: listens(free_port))
    wait_for(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists())
    began = time.monotonic()
    agents[0].signal(signal.SIGTERM)
    assert agents[0].wait() == 128 + signal.SIGTERM
    assert time.monotonic() - began >= LEAVE_S
    wait_for(lambda: "ends here: the connection" in agents[1].err())
    assert re.search(LEAVES, agents[1].err())
