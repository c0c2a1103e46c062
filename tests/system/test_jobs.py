"""Several jobs on one host, at a time and one after another: none takes another's place."""

import json

import pytest


def test_jobs_of_one_node_have_stores_of_their_own(launch, wait_for, tmp_path):
    go = tmp_path / "go"
    jobs = [launch("env", f"wait={go}", options=()) for _ in range(2)]
    wait_for(lambda: all(j.out().endswith("\n") for j in jobs))
    go.touch()
    assert [j.wait() for j in jobs] == [0, 0]
    assert len({json.loads(j.out())["MASTER_PORT"] for j in jobs}) == 2


def test_jobs_of_one_node_without_a_name_share_no_endpoint(launch, free_port, wait_for, tmp_path):
    """The second one stood by, to take over what the first does."""
    go = tmp_path / "go"
    options = [f"--rdzv-endpoint=127.0.0.1:{free_port}"]
    first = launch("print=one", f"wait={go}", options=options)
    wait_for(lambda: "one" in first.out())
    second = launch("print=two", f"wait={go}", options=options)
    wait_for(lambda: "two" in second.out())
    wait_for(lambda: f"127.0.0.1:{free_port} serves another job, of pid {first.pid} (ctrun)"
             in second.err())  # written by a thread
    go.touch()
    assert first.wait() == 0
    assert second.wait() == 0
    assert len(second.err().splitlines()) == 1


def test_second_job_of_a_name_says_that_it_stands_by_and_that_nothing_was_run(
    launch, free_port, wait_for, tmp_path
):
    go = tmp_path / "go"
    options = ["--rdzv-id=a", f"--rdzv-endpoint=127.0.0.1:{free_port}"]
    first = launch("print=one", f"wait={go}", options=options)
    wait_for(lambda: "one" in first.out())
    second = launch("print=two", options=options)
    wait_for(lambda: "(a job of its own needs another --rdzv-id)" in second.err())
    assert f"job a at 127.0.0.1:{free_port}: generation 1 runs with 1 node" in second.err()
    go.touch()
    assert [first.wait(), second.wait()] == [0, 0]
    assert second.out() == ""
    assert "job a has ended well; this node stood by, and nothing was run here" in second.err()


def test_jobs_of_different_names_share_an_endpoint(launch, free_port, wait_for, tmp_path):
    go = tmp_path / "go"

    def pair(job, *actions):
        options = ["--nnodes=2", f"--rdzv-id={job}", f"--rdzv-endpoint=127.0.0.1:{free_port}"]
        return [launch(f"print={job} %r", *actions, options=options) for _ in range(2)]

    first = pair("A", f"wait={go}")
    wait_for(lambda: all(a.out() for a in first))
    second = pair("B")
    assert [a.wait() for a in second] == [0, 0]
    go.touch()
    assert [a.wait() for a in first] == [0, 0]
    for job, agents in (("A", first), ("B", second)):
        assert sorted(a.out() for a in agents) == [f"{job} 0\n", f"{job} 1\n"]


@pytest.mark.parametrize("name", ["job", None])
def test_node_that_comes_late_is_told_how_its_job_ended(start_server, launch, name):
    """A job without a name is begun anew: it may be any."""
    port = start_server().ports[0]
    agents = []
    for rank in range(2):
        agents.append(launch("exit=3", options=[
            "--nnodes=1:2", f"--node-rank={rank}", f"--rdzv-endpoint=127.0.0.1:{port}",
            "--rdzv-conf=last_call_timeout=1", *([f"--rdzv-id={name}"] if name else [])]))
        assert agents[rank].wait() == 3
    assert "Root Cause" in agents[0].err()
    if name:
        assert len(agents[1].err().splitlines()) == 1
        assert "job job is over: it ended with exit code 3" in agents[1].err()
    else:
        assert "Root Cause" in agents[1].err()
