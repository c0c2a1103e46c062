"""A worker's place: its rank in the job and in its role, on nodes that differ."""

import json
import os
import subprocess
import sys

import pytest


def cpus_in(text):
    """The numbers in "0-3,8"."""
    ends = [part.split("-") for part in text.split(",")]
    return {cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1)}


# The sum of all ranks, as six processes of one world agree on it through their store.
SUM = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import store_client as sc
store = sc.Client(int(os.environ["MASTER_PORT"]), os.environ["MASTER_ADDR"])
total = store.add("sum", int(os.environ["RANK"]))
if store.add("n", 1) == int(os.environ["WORLD_SIZE"]):
    store.set("all", b"")
store.send(sc.request(sc.WAIT, ["all"]))
assert store.read(1) == b"\\0"
names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_RANK", "ROLE_NAME",
         "ROLE_RANK", "ROLE_WORLD_SIZE")
print(json.dumps({"sum": store.add("sum", 0), **{n: os.environ[n] for n in names}}))
"""


def test_nodes_of_1_2_and_3_workers_and_two_roles_are_one_world(
    start, bin_dir, free_port, tmp_path
):
    (tmp_path / "sum.py").write_text(SUM)
    nodes = [("trainer", 1), ("data", 2), ("trainer", 3)]
    agents = [
        start(bin_dir / "ctrun", "--nnodes=3", f"--rdzv-endpoint=127.0.0.1:{free_port}",
              f"--node-rank={i}", f"--role={role}", f"--nproc-per-node={nproc}", "--no-python",
              sys.executable, tmp_path / "sum.py", os.path.dirname(__file__))
        for i, (role, nproc) in enumerate(nodes)
    ]
    assert [agent.wait() for agent in agents] == [0, 0, 0], agents[0].err()
    seen = sorted((json.loads(line) for agent in agents for line in agent.out().splitlines()),
                  key=lambda e: int(e["RANK"]))
    assert [e["sum"] for e in seen] == [15] * 6
    assert [e["WORLD_SIZE"] for e in seen] == ["6"] * 6
    # rank: group rank, local rank of so many, rank in the role of so many
    assert [tuple(e[n] for n in ("GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "ROLE_NAME",
                                 "ROLE_RANK", "ROLE_WORLD_SIZE")) for e in seen] == [
        ("0", "0", "1", "trainer", "0", "4"),
        ("1", "0", "2", "data", "0", "2"),
        ("1", "1", "2", "data", "1", "2"),
        ("2", "0", "3", "trainer", "1", "4"),
        ("2", "1", "3", "trainer", "2", "4"),
        ("2", "2", "3", "trainer", "3", "4"),
    ]


def test_virtual_local_rank_gives_each_worker_one_device(start, bin_dir):
    ctrun = start(bin_dir / "ctrun", "--nproc-per-node=2", "--virtual-local-rank",
                  bin_dir / "fake-worker", "env",
                  env={**os.environ, "CUDA_VISIBLE_DEVICES": "3,1"})
    assert ctrun.wait() == 0, ctrun.err()
    seen = sorted((json.loads(line) for line in ctrun.out().splitlines()),
                  key=lambda e: e["RANK"])
    assert [(e["LOCAL_RANK"], e["CUDA_VISIBLE_DEVICES"]) for e in seen] == [
        ("0", "3"), ("0", "1")]


@pytest.mark.parametrize("program, devices, said", [
    ("fake-worker", "0", "is too short for 2 workers"),
    ("ctrun-worker", "0,1", "ctrun-worker finds its own: leave it out"),
])
def test_virtual_local_rank_that_cannot_be_is_one_line_and_exit_2(
    bin_dir, program, devices, said
):
    done = subprocess.run(
        [bin_dir / "ctrun", "--nproc-per-node=2", "--virtual-local-rank", bin_dir / program],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": devices}, capture_output=True, text=True,
        timeout=60, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


def test_numa_binding_without_gpus_gives_each_worker_its_cores(start, bin_dir):
    """On any machine with two cores: they are divided, and no worker has another's."""
    said = "grep Cpus_allowed_list /proc/self/status; echo $CTRUN_CPU_RANK/$CTRUN_CPU_RANKS"
    ctrun = start(bin_dir / "ctrun", "--nproc-per-node=2", "--numa-binding=exclusive",
                  "--no-python", "/bin/sh", "-c", said,
                  env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert ctrun.wait() == 0, ctrun.err()
    words = ctrun.out().split()
    lists = [word for word in words if word[0].isdigit() and "/" not in word]
    assert len(lists) == 2 and words.count("0/1") == 2
    first, second = (cpus_in(text) for text in lists)
    assert not first & second
    assert first | second <= os.sched_getaffinity(0)


def test_numa_binding_that_cannot_be_is_one_line_and_exit_2(bin_dir):
    done = subprocess.run(
        ["taskset", "-c", str(min(os.sched_getaffinity(0))), bin_dir / "ctrun",
         "--nproc-per-node=2", "--numa-binding=exclusive", bin_dir / "fake-worker"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True,
        timeout=60, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("ctrun: error: --numa-binding=exclusive: 1 core of ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("nproc, given, seen, says", [
    (2, None, "1", True), (2, "3", "3", False), (1, None, "", False),
])
def test_omp_num_threads_is_1_where_it_is_unset_and_several_workers_are_here(
    start, bin_dir, nproc, given, seen, says
):
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    ctrun = start(bin_dir / "ctrun", f"--nproc-per-node={nproc}", "--no-python", "/bin/sh", "-c",
                  "echo t$OMP_NUM_THREADS",
                  env={**env, **({"OMP_NUM_THREADS": given} if given else {})})
    assert ctrun.wait() == 0, ctrun.err()
    assert ctrun.out().split() == ["t" + seen] * nproc
    assert ctrun.err().count("OMP_NUM_THREADS is not set") == says
