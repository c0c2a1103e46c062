"""Two hosts of an elastic job, --nnodes=1:2: one is lost, the other goes on; it comes back."""

import re
import signal
import subprocess

import pytest
import training

ENDPOINT_PORT = 29500


def options_of(two_hosts):
    return ["--nnodes=1:2", "--nproc-per-node=1", "--rdzv-id=12345", "--rdzv-backend=c10d",
            f"--rdzv-endpoint={two_hosts[0][1]}:{ENDPOINT_PORT}"]


@pytest.fixture
def agent_on(two_hosts, start, bin_dir):
    """agent_on(0) starts the job's agent on the host that owns the endpoint, 1: on the other.
    Its worker says the generation and waits."""

    def begin(i):
        return start("ip", "netns", "exec", two_hosts[i][0], bin_dir / "ctrun",
                     *options_of(two_hosts), bin_dir / "fake-worker", "print=gen %g", "hang")

    return begin


def generation(agent):
    found = re.findall(r"gen (\d+)\n", agent.out())
    return int(found[-1]) if found else 0


def are_together(agents, above=0):
    """Whether both have workers of one generation later than `above`."""
    first, second = (generation(a) for a in agents)
    return first == second > above


@pytest.fixture
def pair(agent_on, wait_for):
    agents = [agent_on(i) for i in range(2)]
    wait_for(lambda: are_together(agents))
    return agents


def set_cable(two_hosts, state):
    """Pulls it at the second host's end, or puts it back."""
    name = two_hosts[1][0]
    cable = re.search(r"\d+: (ct\w+)@", subprocess.check_output(
        ["ip", "-n", name, "link", "show", "type", "veth"], text=True))[1]
    subprocess.run(["ip", "-n", name, "link", "set", cable, state], check=True)


def test_killed_node_leaves_the_other_alone_until_it_is_back(pair, agent_on, wait_for):
    before = generation(pair[0])
    pair[1].signal(signal.SIGKILL)
    alone = wait_for(lambda: generation(pair[0]) > before and generation(pair[0]))
    assert "was lost: its connection ended; re-forming (not counted as a failure)" in pair[0].err()
    back = agent_on(1)
    wait_for(lambda: are_together((pair[0], back), above=alone))


def test_node_that_loses_the_endpoints_owner_waits_for_it(pair, agent_on, two_hosts, wait_for):
    before = generation(pair[1])
    pair[0].signal(signal.SIGKILL)
    where = f"waiting for the rendezvous at {two_hosts[0][1]}:{ENDPOINT_PORT} ("
    wait_for(lambda: where in pair[1].err())
    back = agent_on(0)
    wait_for(lambda: are_together((back, pair[1]), above=before))


def test_node_that_falls_silent_is_lost_and_comes_back_with_its_cable(
    pair, two_hosts, wait_for
):
    before = generation(pair[0])
    set_cable(two_hosts, "down")
    alone = wait_for(lambda: generation(pair[0]) > before and generation(pair[0]))
    assert "was lost: silent for 3000 ms; re-forming (not counted" in pair[0].err()
    assert generation(pair[1]) == before  # its worker was left alone
    set_cable(two_hosts, "up")
    wait_for(lambda: are_together(pair, above=alone))


def test_training_goes_on_without_the_node_that_fell_silent(
    bin_dir, train, two_hosts, golden, tmp_path, wait_for
):
    """Its rank lives on, in the middle of an exchange, and must not get in the way."""
    run = tmp_path / "run"
    agents = [train(run, nproc=1, options=options_of(two_hosts),
                    prefix=("ip", "netns", "exec", name)) for name, _ in two_hosts]
    wait_for(lambda: training.last_step(run) >= 10 and training.workers(agents[1].pid))
    set_cable(two_hosts, "down")
    assert agents[0].wait() == 0, agents[0].err()
    assert training.workers(agents[1].pid)
    training.assert_same_answer(bin_dir, run, golden())
