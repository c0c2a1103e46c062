"""What a rank takes is its share, what is in flight, and no more; what does not fit one rank
trains on several."""

import re

import pytest
import training
from test_plan import arenas, dry_run, peaks_of

MIB = 1 << 20
DIM, LAYERS, VOCAB, CONTEXT = 512, 10, 256, 32
SMALL = ["model.layers=2", "model.dim=64", "model.heads=2"]
LARGE = [f"model.layers={LAYERS}", f"model.dim={DIM}", "model.heads=8"]
COMMON = [
    f"model.context={CONTEXT}", f"model.vocab={VOCAB}", "train.steps=2", "train.micro_batch=1",
    "optim.warmup=1", "eval.every=0", "checkpoint.every=0", "checkpoint.snapshot=false",
]

STEPS = ["train.steps=2", *(["train.steps=3"] if training.SOAK else [])]

EMBEDDINGS = (VOCAB + CONTEXT) * DIM
BLOCK = 12 * DIM * DIM + 13 * DIM
PARAMS = EMBEDDINGS + LAYERS * BLOCK + 2 * DIM


def formula(shards, ranks, micro_batches):
    """MiB of a rank: 12 bytes of state a parameter and 4 for each gradient shard of the exact
    reduction, over the shards; then the units in flight: gathered are the embeddings and two
    blocks, gradients of as many wait to be sent, and the parts of one come in."""
    counter = micro_batches.bit_length() - 1 + 2  # at most
    if ranks & (ranks - 1) == 0:  # the sum of the last round is in flight, not in a shard
        counter = max((micro_batches // ranks).bit_length() - 1, 1)
    state = 12 * PARAMS + 4 * counter * (PARAMS + VOCAB * DIM)  # the head's gradient is apart
    in_flight = 2 * (EMBEDDINGS + 2 * BLOCK) + BLOCK
    return (state / shards + 4 * in_flight) / MIB


def peaks(train, wait_for, run_dir, nproc, *extra):
    """The most MiB that each rank had."""
    run = train(run_dir, *COMMON, *extra, nproc=nproc)
    return peaks_of(run, nproc, wait_for)


@pytest.mark.release_only  # sanitizers have memory of their own
@pytest.mark.parametrize("nproc,micro_batches", [
    (2, 4), *([(2, 2), (3, 3), (3, 8), (4, 4), (4, 16)] if training.SOAK else [])])
def test_fsdp_holds_its_share_and_the_units_in_flight(
    bin_dir, corpus, train, wait_for, tmp_path, nproc, micro_batches
):
    options = ["parallel.strategy=fsdp", f"train.global_batch={micro_batches}"]
    base = max(peaks(train, wait_for, tmp_path / "base", nproc, *SMALL, *options).values())
    plan = dry_run(bin_dir, corpus, tmp_path / "run", nproc, *COMMON, *LARGE, *options)
    expected = formula(nproc, nproc, micro_batches)
    for step in STEPS:  # anew, and from a checkpoint
        found = peaks(train, wait_for, tmp_path / "run", nproc, *LARGE, *options, step)
        for peak in found.values():
            own = peak - base - arenas(plan)["activations of a micro-batch"]
            assert own < 1.1 * expected
            # which sums are alive at once is known where the tree is even, else a limit
            assert own > 0.9 * expected or nproc == 3


@pytest.mark.release_only
def test_what_needs_three_times_a_ranks_limit_trains_on_four(
    bin_dir, corpus, train, tmp_path
):
    run_dir = tmp_path / "run"
    options = ["model.layers=16", "model.dim=384", "model.heads=6", *COMMON,
               "train.global_batch=8", "checkpoint.every=1"]
    need = arenas(dry_run(bin_dir, corpus, run_dir, 1, *options))
    private = sum(mib for name, mib in need.items() if name != "program and libraries")
    limit = ["prlimit", f"--data={int(private / 3 * MIB)}"]
    for strategy in ("ddp", "fsdp"):
        alone = train(run_dir, *options, f"parallel.strategy={strategy}", nproc=1, prefix=limit,
                      options=["--max-restarts=3"])
        assert alone.wait() == 2
        assert re.search(r"^ctrun: error: ctrun-worker: gradient buffers .*: Cannot allocate memory; "
                         r"a rank takes \d+ MiB in all .*, its limit is \d+ MiB \(ulimit -d\): ",
                         alone.err(), re.M) and "restarting" not in alone.err(), alone.err()
    for steps in (1, 2):  # anew, and from a checkpoint
        run = train(run_dir, *options, "parallel.strategy=fsdp", f"train.steps={steps}", nproc=4,
                    prefix=limit)
        assert run.wait() == 0, run.err()
    assert "resumed from" in run.out()
    assert [training.step_of(c) for c in training.checkpoints(run_dir)] == [1, 2]


@pytest.mark.release_only
def test_a_limit_of_the_address_space_is_named(bin_dir, corpus, train, tmp_path):
    """There is room in it for all that a rank takes, but not for the program, too."""
    options = ["model.layers=4", "model.dim=256", "model.heads=4", *COMMON, "device.threads=1",
               "train.global_batch=2", "checkpoint.snapshot=true"]
    need = arenas(dry_run(bin_dir, corpus, tmp_path / "run", 1, *options))
    private = sum(mib for name, mib in need.items() if name != "program and libraries")
    run = train(tmp_path / "run", *options, nproc=1, options=["--max-restarts=3"],
                prefix=["prlimit", f"--as={int((private + 54) * MIB)}"])
    assert run.wait() == 2, run.err()
    assert re.search(r"its limit is \d+ MiB \(ulimit -v\): raise that", run.err()), run.err()
    assert "restarting" not in run.err()
