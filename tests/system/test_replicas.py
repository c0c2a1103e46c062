"""parallel.check_every: a rank whose weights are not the others' is found before it does harm."""

import os
import signal
import struct
import subprocess

import pytest
import training

STEPS = 240  # enough to find a worker's memory before it ends
# Frozen, so that it stays what it was at first: ones, and behind them zeros.
COMMON = [f"train.steps={STEPS}", "train.freeze=[h.1.ln_2.*]", "checkpoint.every=0",
          "eval.every=0"]
NEEDLE = struct.pack("<64f", *[1.0] * 32, *[0.0] * 32)


@pytest.fixture(scope="module")
def undisturbed(bin_dir, corpus, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    subprocess.run([bin_dir / "ctrun-worker", *training.overrides(corpus, run_dir, *COMMON)],
                   check=True, stdout=subprocess.DEVNULL, timeout=120)
    return training.loss_column(run_dir), training.state_hash(bin_dir, run_dir, step=STEPS)


def flip_a_bit(pid):
    """In a live worker: of the first element of h.1.ln_2.weight, wherever it is in memory."""
    n = 0
    os.kill(pid, signal.SIGSTOP)
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in maps:
            span, rights, *_, inode = line.split()[:5]
            begin, end = (int(x, 16) for x in span.split("-"))
            if not rights.startswith("rw") or inode != "0" or end - begin > 1 << 26:
                continue
            memory.seek(begin)
            data = memory.read(end - begin)
            at = data.find(NEEDLE)
            while at >= 0:
                memory.seek(begin + at)
                memory.write(bytes([data[at] ^ 1]))
                at = data.find(NEEDLE, at + 1)
                n += 1
    os.kill(pid, signal.SIGCONT)
    assert n > 0


def end_disturbed(train, wait_for, run_dir, every, nproc):
    run = train(run_dir, *COMMON, f"parallel.check_every={every}", nproc=nproc,
                options=["--max-restarts=1"])
    wait_for(lambda: training.last_step(run_dir) >= 3)
    flip_a_bit(training.workers(run.pid)[1])
    assert run.wait() == 0, run.err()
    return run


@pytest.mark.release_only  # sanitizers have memory of their own
@pytest.mark.parametrize("every", [1, 100000], ids=["at a step", "before the checkpoint"])
def test_a_flipped_bit_fails_its_rank_and_a_restart_cures_it(
    bin_dir, train, tmp_path, wait_for, undisturbed, every
):
    run_dir = tmp_path / "run"
    run = end_disturbed(train, wait_for, run_dir, every, 3)
    assert "rank 1 on " in run.err() and "ended with exit code 1 " in run.err()
    assert "restarting (1 of 1)" in run.err()
    said = (run_dir / "log" / "1" / "rank1.log").read_text()
    assert "of rank 1 differ from all others' (first in h.1)" in said
    assert [training.step_of(path) for path in training.checkpoints(run_dir)] == [STEPS]
    assert (training.loss_column(run_dir),
            training.state_hash(bin_dir, run_dir, step=STEPS)) == undisturbed


@pytest.mark.release_only
def test_of_two_ranks_both_are_named(train, tmp_path, wait_for):
    run_dir = tmp_path / "run"
    run = end_disturbed(train, wait_for, run_dir, 1, 2)
    said = "".join((run_dir / "log" / "1" / f"rank{r}.log").read_text() for r in range(2))
    assert "of ranks 0 and 1 differ from one another (first in h.1)" in said
    assert "restarting (1 of 1)" in run.err()


@pytest.mark.release_only
def test_without_the_comparison_nobody_notices(train, tmp_path, wait_for):
    run = end_disturbed(train, wait_for, tmp_path / "run", 0, 2)
    assert "restarting" not in run.err()


@pytest.mark.parametrize("strategy,nproc,extra", [
    ("ddp", 3, ["parallel.find_unused_parameters=true", "parallel.static_graph=true"]),
    ("zero1", 2, []),
    *(pytest.param(*case, marks=pytest.mark.thorough) for case in [
        ("ddp", 2, ["comm.kind=tcp"]),
        ("zero2", 3, []),
        ("dp", 3, []),
        ("fsdp", 3, []),
        ("fsdp", 2, ["parallel.reshard_after_forward=false"]),
        ("hsdp", 4, ["parallel.dp_shard=2"]),
        ("hsdp", 4, ["parallel.dp_shard=2", "parallel.reshard_after_forward=false"]),
    ]),
])
def test_nothing_is_found_where_nothing_is_wrong(
    bin_dir, train, golden, tmp_path, strategy, nproc, extra
):
    run_dir = tmp_path / "run"
    run = train(run_dir, "parallel.check_every=1", f"parallel.strategy={strategy}", *extra,
                nproc=nproc)
    assert run.wait() == 0, run.err()
    training.assert_same_answer(bin_dir, run_dir, golden())


@pytest.mark.parametrize("strategy,nproc", [
    ("ddp", 3), *(pytest.param(s, 4, marks=pytest.mark.thorough) for s in ("hsdp", "zero1")),
])
def test_nothing_is_found_in_fast_reduction(train, tmp_path, strategy, nproc):
    mesh = ["parallel.dp_shard=2"] if strategy == "hsdp" else []
    run = train(tmp_path / "run", "parallel.check_every=1", "train.reduction=fast",
                f"parallel.strategy={strategy}", *mesh, nproc=nproc)
    assert run.wait() == 0, run.err()
