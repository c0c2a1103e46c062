"""Unmodified PyTorch scripts under ctrun: gloo over the agents' store.

CTRUN_TORCH_PYTHON names the interpreter that has PyTorch."""

import os
import pathlib
import subprocess
import textwrap

import pytest

PYTHON = os.environ.get("CTRUN_TORCH_PYTHON",
                        os.path.expanduser("~/.cache/ctrun/torch/bin/python"))
ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BIN", ROOT / "build/release/bin"))

pytestmark = pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"no PyTorch: {PYTHON}")

# gloo's threads must be joined before C++ tears its static objects down: one that leaves with its group
# open now and then ends in std::terminate ("terminate called without an active exception")
HEAD = """
import atexit, os, sys, torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())
rank, world = dist.get_rank(), dist.get_world_size()
"""
ALL_REDUCE = """
t = torch.full((4,), float(rank + 1))
dist.all_reduce(t)
assert t.tolist() == [world * (world + 1) / 2] * 4, t
"""


@pytest.fixture
def run(tmp_path):
    """run(body, *options, agents=1) runs a script to the end: [(exit code, out, err), …]."""

    def go(body, *options, agents=1):
        script = tmp_path / "script.py"
        script.write_text(HEAD + textwrap.dedent(body))
        env = {**os.environ, "PYTHON_EXEC": PYTHON, "GLOO_SOCKET_IFNAME": "lo"}
        processes = [
            subprocess.Popen([BIN / "ctrun", *options, script], env=env, text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
            for _ in range(agents)
        ]
        try:
            outputs = [p.communicate(timeout=300) for p in processes]
        finally:
            for p in processes:
                p.kill()
                p.wait()
        return [(p.returncode, *o) for p, o in zip(processes, outputs)]

    return go


def test_two_ranks_all_reduce(run):
    [(code, out, err)] = run(
        ALL_REDUCE + """
dist.barrier()
assert dist.is_torchelastic_launched()
print(f"rank {rank} of {world} done\\n", end="")
""", "--standalone", "--nproc-per-node=2")
    assert code == 0, err
    assert sorted(out.splitlines()) == ["rank 0 of 2 done", "rank 1 of 2 done"]


def test_restart_gets_a_fresh_key_space(run):
    [(code, out, err)] = run(
        ALL_REDUCE + """
store = dist.distributed_c10d._get_default_store()
seen = store.add("starts", 1)
dist.barrier()
if restart < 2 and rank == 1:
    os._exit(17)
if restart < 2:
    dist.barrier()
print(f"rank {rank} restart {restart} keys {seen <= world}\\n", end="")
""", "--standalone", "--nproc-per-node=2", "--max-restarts=2")
    assert code == 0, err
    assert sorted(out.splitlines()) == [f"rank {r} restart 2 keys True" for r in range(2)]
    assert "restarting (2 of 2)" in err


def test_two_nodes_meet_directly(run, free_port):
    results = run(
        ALL_REDUCE + """
print(f"rank {rank} of {world} group {os.environ['GROUP_RANK']}\\n", end="")
dist.barrier()
""", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=job",
        f"--rdzv-endpoint=127.0.0.1:{free_port}", agents=2)
    assert [code for code, _, _ in results] == [0, 0], results
    lines = [line for _, out, _ in results for line in out.splitlines()]
    assert sorted(lines) == [f"rank {r} of 4 group {r // 2}" for r in range(4)]


def test_exception_of_a_recorded_main_is_in_the_report(run):
    [(code, _, err)] = run(
        """
@record
def main():
    dist.barrier()
    if rank == 1:
        raise ValueError("the cat sat on the keyboard")
    dist.barrier()

main()
""", "--standalone", "--nproc-per-node=2")
    assert code == 1
    report = err[err.index("Root Cause"):]
    assert "ValueError: the cat sat on the keyboard" in report
    assert "rank      : 1" in report


@pytest.fixture
def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
