"""--store-access: where workers find the store, and what MASTER_ADDR is good for."""

import json
import os
import sys

import pytest

MEET = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
import store_client as sc
rank, world, addr = os.environ["RANK"], int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"]
with sc.Client(int(os.environ["MASTER_PORT"]), addr) as store:
    def wait(key):
        store.send(sc.request(sc.WAIT, [key]))
        assert store.read(1) == b"\\0"
    if sys.argv[2] == "own-sockets" and rank == "0":
        with socket.create_server((addr, 0)) as own:
            store.set("port", str(own.getsockname()[1]).encode())
            with own.accept()[0] as peer:
                peer.sendall(b"hello")
    elif sys.argv[2] == "own-sockets":
        wait("port")
        with socket.create_connection((addr, int(store.get("port")))) as own:
            assert own.makefile("rb").read() == b"hello"
    store.set("rank" + rank, b"here")
    for other in range(world):
        wait(f"rank{other}")
print(addr, "met")
"""


@pytest.fixture
def nodes(two_hosts, bin_dir, start):
    """nodes(job, access, access, …) starts an agent for each, on hosts of their own."""

    def begin(job, *accesses):
        return [
            start("ip", "netns", "exec", name, bin_dir / "ctrun", f"--nnodes={len(accesses)}",
                  f"--node-rank={rank}", f"--rdzv-endpoint={two_hosts[0][1]}:29400",
                  f"--store-access={access}", "--no-python", sys.executable, "-c", MEET,
                  os.path.dirname(__file__), job)
            for rank, (access, (name, _)) in enumerate(zip(accesses, two_hosts))
        ]

    return begin


@pytest.mark.parametrize("access", ["auto", "direct"])
def test_programs_own_sockets_meet_at_master_addr(nodes, two_hosts, access):
    agents = nodes("own-sockets", access, access)
    assert [a.wait() for a in agents] == [0, 0], [a.err() for a in agents]
    assert [a.out() for a in agents] == [f"{two_hosts[0][1]} met\n"] * 2


def test_local_is_loopback_on_every_node(nodes):
    agents = nodes("store", "local", "local")
    assert [a.wait() for a in agents] == [0, 0], [a.err() for a in agents]
    assert [a.out() for a in agents] == ["127.0.0.1 met\n"] * 2


def test_node_that_is_kept_out_of_the_store_says_so(nodes):
    agents = nodes("store", "local", "direct")
    assert [a.wait() for a in agents] == [2, 2], [a.err() for a in agents]
    for agent in agents:
        assert agent.err().count("give the same --store-access on all nodes") == 1


@pytest.mark.parametrize("access, host", [("auto", "local"), ("local", "local"),
                                          ("direct", "own")])
def test_one_node_is_found_on_loopback_unless_direct(two_hosts, bin_dir, start, access, host):
    (here, own), _ = two_hosts
    ctrun = start("ip", "netns", "exec", here, bin_dir / "ctrun", f"--store-access={access}",
                  bin_dir / "fake-worker", "env")
    assert ctrun.wait() == 0, ctrun.err()
    assert json.loads(ctrun.out())["MASTER_ADDR"] == (own if host == "own" else "127.0.0.1")


def test_direct_means_nothing_to_the_engine_and_that_is_said(train, tmp_path):
    run = train(tmp_path / "run", nproc=1, options=["--store-access=direct"])
    assert run.wait() == 0, run.err()
    assert "--store-access has no effect" in run.err()
