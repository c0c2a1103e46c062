"""Many workers under one agent, many agents on one machine: no line is lost, nothing is left."""

import os
import pathlib

import training

WORKERS = 256 if training.SOAK else 32
AGENTS = 64 if training.SOAK else 8
LINES = 20


def processes_with(mark):
    """The live processes that inherited this entry of the environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def lines_of(ranks):
    return sorted(f"rank {r} line {i}" for r in range(ranks) for i in range(LINES))


def test_many_workers_start_and_end_without_a_lost_line_or_process(
    start, bin_dir, tmp_path, wait_for
):
    """Each has a child that would outlive it."""
    env = {**os.environ, "TEST_MARK": str(tmp_path), "OMP_NUM_THREADS": "1"}  # or it is told
    ctrun = start(bin_dir / "ctrun", "--standalone", f"--nproc-per-node={WORKERS}",
                  bin_dir / "fake-worker", "child=setsid",
                  *(f"print=rank %r line {i}" for i in range(LINES)), env=env)
    assert ctrun.wait() == 0, ctrun.err()
    assert sorted(ctrun.out().splitlines()) == lines_of(WORKERS)
    assert ctrun.err() == ""
    wait_for(lambda: not processes_with(f"TEST_MARK={tmp_path}".encode()))


def test_many_agents_of_one_machine_start_and_end_without_a_lost_line_or_process(
    start, bin_dir, tmp_path, wait_for, free_port
):
    env = {**os.environ, "TEST_MARK": str(tmp_path)}
    agents = [start(bin_dir / "ctrun", f"--nnodes={AGENTS}", "--nproc-per-node=1",
                    f"--rdzv-endpoint=127.0.0.1:{free_port}", bin_dir / "fake-worker",
                    "child=setsid", *(f"print=rank %r line {i}" for i in range(LINES)), env=env)
              for _ in range(AGENTS)]
    assert [a.wait() for a in agents] == [0] * AGENTS, [a.err() for a in agents]
    assert sorted(line for a in agents for line in a.out().splitlines()) == lines_of(AGENTS)
    wait_for(lambda: not processes_with(f"TEST_MARK={tmp_path}".encode()))
