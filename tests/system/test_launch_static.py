"""torchrun's static backend: a fixed world whose store is at --master-addr and --master-port."""

import os
import socket
from pathlib import Path

import pytest

# Each rank asks the store at MASTER_ADDR:MASTER_PORT, as PyTorch does: no key of the first generation
# may be there in the second, and every rank must see the other's.
MEET = """
import os, sys
sys.path.insert(0, sys.argv[1])
from store_client import CHECK, SET, WAIT, Client, request
rank, again = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
keys = ["/0", "/1"]
with Client(int(os.environ["MASTER_PORT"]), host=os.environ["MASTER_ADDR"]) as store:
    store.send(request(CHECK, [keys[int(rank)]]))
    assert store.read(1) == bytes([1]), "a key of another generation"
    store.send(request(SET, keys[int(rank)], "x"))
    store.send(request(WAIT, keys))
    assert store.read(1) == bytes([0])
    if rank == "1" and not again:
        sys.exit(3)
    store.send(request(WAIT, ["/never"] if not again else keys))
    store.read(1)
print(os.environ["GROUP_RANK"], os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
"""


@pytest.fixture
def launch(start, bin_dir, free_port):
    def run(*args, node_rank, address="localhost"):
        return start(bin_dir / "ctrun", "--nnodes=2", f"--node_rank={node_rank}",
                     f"--master_addr={address}", f"--master_port={free_port}", *args)

    return run


def test_workers_find_each_generations_store_at_master_port(launch, tmp_path, free_port):
    script = tmp_path / "meet.py"
    script.write_text(MEET)
    agents = [launch("--max-restarts=1", script, Path(__file__).parent, node_rank=r) for r in (1, 0)]
    assert [a.wait() for a in agents] == [0, 0], agents[1].err()
    assert [a.out() for a in agents] == [f"{r} localhost {free_port}\n" for r in (1, 0)]
    assert "restarting (1 of 1)" in agents[0].err()


def test_node_0_may_take_its_own_name_for_a_loopback_address(two_hosts, bin_dir, start, tmp_path):
    """As Debian has it: 127.0.1.1. The other host knows the name's address; both tell it their workers."""
    script = tmp_path / "meet.py"
    script.write_text(MEET)
    agents = []
    for rank, (name, _) in enumerate(two_hosts):
        hosts = tmp_path / f"hosts{rank}"
        hosts.write_text(f"{'127.0.1.1' if rank == 0 else two_hosts[0][1]} node0\n")
        agents.append(start(
            "ip", "netns", "exec", name, "unshare", "-m", "sh", "-c", 'mount --bind "$1" /etc/hosts && shift && exec "$@"',
            "sh", hosts, bin_dir / "ctrun", "--nnodes=2", f"--node-rank={rank}", "--master-addr=node0",
            "--max-restarts=1", script, Path(__file__).parent))
    assert [a.wait() for a in agents] == [0, 0], [a.err() for a in agents]
    assert [a.out() for a in agents] == ["0 node0 29500\n", "1 node0 29500\n"]


def test_port_that_is_taken_is_named_with_its_holder(launch, bin_dir, free_port):
    with socket.socket() as s:
        s.bind(("127.0.0.1", free_port))
        s.listen()
        ctrun = launch(bin_dir / "fake-worker", "hang", node_rank=0)
        assert ctrun.wait() == 2
    assert f"is taken by pid {os.getpid()}" in ctrun.err()


def test_endpoint_that_is_no_address_of_rank_0_is_said_with_what_may_be_meant(launch, bin_dir, wait_for):
    """It serves all the same: other hosts may know it by that address."""
    ctrun = launch(bin_dir / "fake-worker", "hang", node_rank=0, address="192.0.2.1")
    wait_for(lambda: "192.0.2.1 is no address here; serving the rendezvous on all addresses" in ctrun.err())
    assert "(if a ctrun-rendezvous runs there: --rdzv-backend=c10d)\n" in ctrun.err()
