"""More ranks than a step has micro-batches: an elastic job goes on with those it can use."""

import re

import pytest
import training

STANDS_BY = "runs with 2 nodes and can use no more (at most 4 ranks); standing by"
TOO_MANY = "6 ranks, but a step has only"  # four, see training.TRAIN


@pytest.fixture
def three_agents(train, free_port):
    """three_agents(run_dir, nnodes) starts them together, with two ranks each."""

    def begin(run_dir, nnodes):
        options = [f"--nnodes={nnodes}", "--rdzv-id=three", "--max-restarts=0",
                   f"--rdzv-endpoint=127.0.0.1:{free_port}"]
        return [train(run_dir, options=options) for _ in range(3)]

    return begin


def test_surplus_node_stands_by_and_takes_over(
    bin_dir, three_agents, golden, tmp_path, wait_for
):
    run_dir = tmp_path / "run"
    agents = three_agents(run_dir, "1:3")
    wait_for(lambda: training.last_step(run_dir) >= 10
             and any(STANDS_BY in a.err() for a in agents), 60)
    [standby] = [a for a in agents if STANDS_BY in a.err()]
    members = [a for a in agents if a is not standby]
    assert [len(training.workers(a.pid)) for a in (standby, *members)] == [0, 2, 2]
    for agent in agents:
        line = next(x for x in agent.err().splitlines() if TOO_MANY in x)
        assert "going on with at most 4 ranks, surplus nodes stand by" in line
        assert agent.err().count(TOO_MANY) == 1
    members[0].popen.kill()
    for agent in (members[1], standby):
        assert agent.wait() == 0, agent.err()
        assert agent.err().count(TOO_MANY) == 1
    wait_for(lambda: not training.processes_of(run_dir))
    training.assert_same_answer(bin_dir, run_dir, golden())


def test_nodes_that_must_all_be_in_are_refused_once(three_agents, tmp_path):
    run_dir = tmp_path / "run"
    agents = three_agents(run_dir, "3")
    assert [a.wait() for a in agents] == [2, 2, 2]
    for agent in agents:
        assert agent.err().count(TOO_MANY) == 1
        assert not re.search("stand by|standing by|is over", agent.err())
    assert not run_dir.exists()


def test_node_that_alone_has_too_many_ranks_is_refused(train, tmp_path, free_port):
    options = ["--nnodes=1:2", f"--rdzv-endpoint=127.0.0.1:{free_port}",
               "--rdzv-conf=last_call_timeout=1"]
    run = train(tmp_path / "run", nproc=6, options=options)
    assert run.wait() == 2
    assert run.err().count(TOO_MANY) == 1


def test_logs_of_a_job_that_was_formed_again_and_ended_well_are_gone(launch, wait_for, tmp_path,
                                                                     free_port):
    """Nobody asked for them, and nothing has failed: the workers were told to end."""
    go = tmp_path / "go"
    options = ["--nnodes=1:2", "--rdzv-id=late", f"--rdzv-endpoint=127.0.0.1:{free_port}",
               "--rdzv-conf=last_call_timeout=1"]
    agents = [launch("print=here", f"wait={go}", options=options)]
    wait_for(lambda: "here" in agents[0].out())
    agents.append(launch("print=here", f"wait={go}", options=options))
    wait_for(lambda: "here" in agents[1].out() and agents[0].out().count("here") == 2)
    go.touch()
    for agent in agents:
        assert agent.wait() == 0, agent.err()
    assert list((tmp_path / "tmp").glob("ctrun_*")) == []
