"""--dry-run prints the memory plan, and the processes keep to it."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
import training

SHARDED = ["checkpoint.every=0", "checkpoint.resume=never", "sample.every=2",
           "sample.tokens=3"]
SHAPES = {
    "one rank": ["model.layers=3", "model.dim=512", "model.heads=8", "model.context=64",
                 "model.vocab=8192", "train.micro_batch=1", "train.global_batch=2"],
    "two ranks": ["model.layers=2", "model.dim=512", "model.heads=8", "model.context=32",
                  "model.vocab=8192", "train.micro_batch=1", "train.global_batch=2"],
    "three ranks, of which one has two leaves": [
        "model.layers=2", "model.dim=512", "model.heads=8", "model.context=32",
        "model.vocab=8192", "train.micro_batch=1", "train.global_batch=4"],
    "fsdp, of which one rank has two leaves": [
        "model.layers=6", "model.dim=512", "model.heads=8", "model.context=32",
        "model.vocab=8192", "train.micro_batch=1", "train.global_batch=4", *SHARDED,
        "parallel.strategy=fsdp"],
    "fsdp that keeps pieces": [
        "model.layers=12", "model.dim=512", "model.heads=8", "model.context=32",
        "model.vocab=8192", "train.micro_batch=1", "train.global_batch=4", *SHARDED,
        "parallel.strategy=fsdp", "parallel.reshard_after_forward=2"],
    "zero1, of which one rank has two leaves": [
        "model.layers=2", "model.dim=512", "model.heads=8", "model.context=32",
        "model.vocab=8192", "train.micro_batch=1", "train.global_batch=4", *SHARDED,
        "parallel.strategy=zero1"],
    "dp, of which one rank owns all": [
        "model.layers=2", "model.dim=512", "model.heads=8", "model.context=32",
        "model.vocab=8192", "train.micro_batch=1", "train.global_batch=2", "sample.every=2",
        "sample.tokens=3", "parallel.strategy=dp"],
    "the order of the samples": [
        "model.layers=2", "model.dim=512", "model.heads=8", "model.context=2",
        "model.vocab=8192", "train.micro_batch=1", "train.global_batch=1",
        "data.sampler=torch"],
    "blocks computed again": [
        "model.layers=12", "model.dim=256", "model.heads=8", "model.context=512",
        "model.vocab=2048", "train.micro_batch=2", "train.global_batch=4",
        "train.activation_checkpointing=block"],
    "a copy of the weights in bf16": [
        "model.layers=6", "model.dim=512", "model.heads=8", "model.context=32",
        "model.vocab=8192", "train.micro_batch=1", "train.global_batch=2", "train.precision=bf16"],
    "norms and gelu computed again": [
        "model.layers=4", "model.dim=256", "model.heads=8", "model.context=512",
        "model.vocab=2048", "train.micro_batch=2", "train.global_batch=4",
        "train.activation_checkpointing=selective"],
}
COMMON = ["checkpoint.every=1", "train.steps=3", "optim.warmup=1", "eval.every=2"]
RANKS = [("one rank", 1), ("two ranks", 2), ("three ranks, of which one has two leaves", 3),
         ("fsdp, of which one rank has two leaves", 3),
         ("zero1, of which one rank has two leaves", 3),
         ("dp, of which one rank owns all", 2), ("the order of the samples", 1),
         ("blocks computed again", 1), ("a copy of the weights in bf16", 1),
         ("norms and gelu computed again", 1),
         *([("fsdp that keeps pieces", 4)] if training.SOAK else [])]


def dry_run(bin_dir, corpus, run_dir, nproc, *extra):
    return subprocess.run(
        [bin_dir / "ctrun", f"--nproc-per-node={nproc}", "ctrun-worker",
         *training.overrides(corpus, run_dir, *extra), "--dry-run"],
        check=True, capture_output=True, text=True,
    ).stdout


def totals(plan):
    """The MiB of each rank that the plan names."""
    found = re.findall(r"memory of rank (\d+)[^:]*:\n(?:  .*\n)*?  total +([\d.]+) MiB", plan)
    return {int(rank): float(total) for rank, total in found}


def sent_floats(plan):
    return float(re.search(r"sent per step: ([\d.]+) MiB by rank 0", plan)[1]) * (1 << 18)


def rank_and_peak(pid):
    """The rank of a live worker, and the MiB it had at most until now; None when gone."""
    proc = pathlib.Path(f"/proc/{pid}")
    try:
        environment = (proc / "environ").read_bytes()
        status = (proc / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    rank = re.search(rb"(?:^|\0)RANK=(\d+)\0", environment)
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)  # a zombie has none
    return (int(rank[1]), int(peak[1]) / 1024) if rank and peak else None


def peaks_of(run, nproc, wait_for):
    """The most MiB that each rank had until the run had ended well."""
    seen = {}

    def ended():
        for pid in training.workers(run.pid):
            found = rank_and_peak(pid)
            if found:
                seen[found[0]] = max(seen.get(found[0], 0), found[1])
        return run.popen.poll() is not None

    wait_for(ended)
    assert run.wait() == 0, run.err()
    assert sorted(seen) == list(range(nproc))
    return seen


def test_dry_run_writes_nothing(bin_dir, corpus, tmp_path):
    dry_run(bin_dir, corpus, tmp_path / "run", 1)
    assert not (tmp_path / "run").exists()


def test_a_plan_needs_no_data_and_says_so(bin_dir, corpus, tmp_path):
    with_data = dry_run(bin_dir, corpus, tmp_path / "run", 2)
    without = dry_run(bin_dir, corpus, tmp_path / "run", 2, "data.train=[]")
    assert "data.train is not set" in without
    assert "samples" in with_data and "is not set" not in with_data
    lines = [re.search(r"activations.*", plan)[0] for plan in (with_data, without)]
    assert lines[0] == lines[1]


def test_a_plan_speaks_of_micro_batches(bin_dir, corpus, tmp_path):
    plan = dry_run(bin_dir, corpus, tmp_path / "run", 2)
    assert "4 micro-batches a step" in plan
    assert "in 4 units: embeddings, 2 blocks, last norm" in plan
    assert not re.search(r"\blea(f|ves)\b", plan)
    one = dry_run(bin_dir, corpus, tmp_path / "run", 1, "model.layers=1", "train.micro_batch=8")
    assert "1 micro-batch a step" in one and "in 3 units: embeddings, 1 block, last norm" in one


def test_a_plan_larger_than_the_machine_says_so(bin_dir, corpus, tmp_path):
    huge = dry_run(bin_dir, corpus, tmp_path / "run", 2, "model.layers=1000", "model.dim=16384")
    assert re.search(r"too large: [\d.]+ GiB for the 2 ranks here, more than the [\d.]+ GiB of"
                     " this machine", huge), huge
    assert "too large" not in dry_run(bin_dir, corpus, tmp_path / "run", 2)


@pytest.mark.parametrize("nproc", [1, 2])
@pytest.mark.parametrize("more", [True, False])
def test_more_threads_than_cores_are_told(bin_dir, corpus, tmp_path, nproc, more):
    cores = len(os.sched_getaffinity(0))
    threads = cores // nproc + 1 if more else "auto"
    done = subprocess.run(
        [bin_dir / "ctrun", f"--nproc-per-node={nproc}", "ctrun-worker",
         *training.overrides(corpus, tmp_path / "run", f"device.threads={threads}"), "--dry-run"],
        check=True, capture_output=True, text=True)
    told = f"device.threads={threads} for each of {nproc} rank"
    assert done.stderr.count(told) == more, done.stderr
    assert more or not done.stderr


def test_more_ranks_than_cores_are_told_what_is_faster(bin_dir, corpus, tmp_path):
    core = {min(os.sched_getaffinity(0))}
    for threads, better in ((1, "fewer ranks are faster"), (2, "1 is faster")):
        done = subprocess.run(
            [bin_dir / "ctrun", "--nproc-per-node=2", "ctrun-worker",
             *training.overrides(corpus, tmp_path / "run", f"device.threads={threads}"),
             "--dry-run"],
            check=True, capture_output=True, text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, core))
        assert done.stderr.endswith(f"take turns; {better}\n"), done.stderr


def test_every_shipped_configuration_can_be_planned(bin_dir, tmp_path):
    configs = pathlib.Path(__file__).resolve().parents[2] / "configs"
    shutil.copytree(configs, tmp_path / "configs")  # as installed: outside the source tree
    names = [p.name for p in configs.glob("*.yaml") if p.name != "rendezvous.yaml"]
    assert "gpt2-124m.yaml" in names
    for name in names:
        plan = subprocess.run(
            [bin_dir / "ctrun-worker", f"--config-name={name}", "--dry-run",
             *(["data.train=[]"] if name == "demo.yaml" else [])],
            cwd=tmp_path, capture_output=True, text=True,
        )
        assert plan.returncode == 0, plan.stderr
        assert "sent per step" in plan.stdout


@pytest.mark.release_only  # sanitizers have memory of their own
@pytest.mark.parametrize("shape,nproc", RANKS, ids=[shape for shape, _ in RANKS])
def test_processes_keep_to_the_plan(bin_dir, corpus, train, tmp_path, wait_for, shape, nproc):
    extra = [*COMMON, *SHAPES[shape]]
    if "data.sampler=torch" in extra:
        (tmp_path / "long.txt").write_bytes(bytes(20 << 20))  # 40 MiB of order
        extra.append(f"data.train=[{tmp_path}/long.txt]")
    planned = totals(dry_run(bin_dir, corpus, tmp_path / "run", nproc, *extra))
    assert planned[0] > 150, "too small for 5 % to say much"
    # of three ranks one holds more than rank 0, and dp's others less
    assert len(planned) <= 2 and (nproc == 3 or "dp" in shape or list(planned) == [0])
    run = train(tmp_path / "run", *extra, nproc=nproc)
    peaks = peaks_of(run, nproc, wait_for)
    for rank, peak in peaks.items():
        # a rank that is not named holds about as much as rank 0
        assert peak == pytest.approx(planned.get(rank, planned[0]), rel=0.05), (rank, planned)


@pytest.mark.parametrize("reduction", ["exact", "fast"])
@pytest.mark.parametrize("nproc", [1, 2, 4])
def test_sent_per_step(bin_dir, corpus, tmp_path, reduction, nproc):
    """One leaf each. exact: every other owner's part of the gradient and of the tied head's,
    then the own part of the sum to all; the head's sum does not travel. fast: the head
    does not travel at all."""
    # sizes that are whole chunks, so that parts come out even: no padding to reckon with
    plan = dry_run(bin_dir, corpus, tmp_path / "run", nproc, "model.dim=512", "model.heads=8",
                   "model.layers=2", "model.vocab=8192", "train.micro_batch=1",
                   f"train.global_batch={nproc}", f"train.reduction={reduction}")
    gradient = int(re.search(r"parameters: (\d+) in", plan)[1])
    head = 8192 * 512
    others = (nproc - 1) / nproc
    expected = others * ((gradient + head if reduction == "exact" else gradient) + gradient)
    assert sent_floats(plan) == pytest.approx(expected, rel=0.01)


def test_in_dp_everything_is_rank_0s_and_goes_through_it(bin_dir, corpus, tmp_path):
    """Parameters to everybody, everybody's gradient and tied head's back; the state is there
    alone, as are the data."""
    plan = dry_run(bin_dir, corpus, tmp_path / "run", 4, "model.dim=512", "model.heads=8",
                   "model.layers=2", "model.vocab=8192", "train.micro_batch=1",
                   "train.global_batch=4", "parallel.strategy=dp")
    params = int(re.search(r"parameters: (\d+) in", plan)[1])
    sent_by_all = float(re.search(r", ([\d.]+) MiB by all", plan)[1]) * (1 << 18)
    assert sent_floats(plan) == pytest.approx(3 * params, rel=0.01)
    assert sent_by_all == pytest.approx(3 * params + 3 * (params + 8192 * 512), rel=0.01)
    owner, other = arenas(plan), arenas(plan, 1)
    mib = 4 / (1 << 20)
    assert owner["optimizer state"] == pytest.approx(2 * params * mib, rel=0.01)
    assert "parameters of others" not in owner
    assert other["optimizer state"] < 0.2
    assert other["parameters"] == other["checkpoint snapshot"] == other["batches read ahead"] == 0
    assert other["parameters of others"] == pytest.approx(params * mib, rel=0.01)


def arenas(plan, rank=0):
    """What a rank's arenas take, in MiB."""
    part = plan.split(f"memory of rank {rank}")[1].split("total")[0]
    return {name.strip(): float(mib) for name, mib in re.findall(r"^  (.*?) +([\d.]+) MiB", part, re.M)}


@pytest.mark.parametrize("nproc,micro_batches", [(2, 8), (4, 4), (4, 16), (3, 7)])
def test_fsdp_holds_a_share_and_the_units_in_flight(
    bin_dir, corpus, tmp_path, nproc, micro_batches
):
    """12 bytes a parameter and rank, gradients up to floor(log2 M) + 2 shards, and buffers of
    units: those gathered, two gradients, the parts of a round."""
    plan = dry_run(bin_dir, corpus, tmp_path / "run", nproc, "model.dim=512", "model.heads=8",
                   "model.layers=10", "model.vocab=8192", "train.micro_batch=1",
                   f"train.global_batch={micro_batches}", *SHARDED, "parallel.strategy=fsdp")
    took = arenas(plan)
    mib = 4 / (1 << 20)
    n_params = int(re.search(r"parameters: (\d+) in", plan)[1]) * mib
    embedding, block = 8192 * 512 * mib + 0.1, 12 * 513 * 512 * mib + 0.1
    assert took["parameters"] == pytest.approx(n_params / nproc, rel=0.02)
    assert took["optimizer state"] == pytest.approx(2 * n_params / nproc, rel=0.02)
    assert took["parameters of others"] <= embedding + 2 * block
    shards = micro_batches.bit_length() - 1 + 2
    if nproc & (nproc - 1) == 0:
        shards = (micro_batches // nproc).bit_length()
    assert took["gradients and reduction"] <= (
        shards * (n_params + embedding) / nproc * 1.02 + 2 * embedding + 2 * block)


def test_kept_pieces_are_planned(bin_dir, corpus, tmp_path):
    """Of all but the embeddings, which stay as they are; each block's second gather is of two
    halves instead of four quarters, except the last norm's and the last block's: they are
    still there."""
    options = ["model.dim=512", "model.heads=8", "model.layers=10", "model.vocab=8192",
               "train.micro_batch=1", "train.global_batch=4", *SHARDED, "parallel.strategy=fsdp"]
    plain = dry_run(bin_dir, corpus, tmp_path / "run", 4, *options)
    kept = dry_run(bin_dir, corpus, tmp_path / "run", 4, *options,
                   "parallel.reshard_after_forward=2")
    block = 12 * 513 * 512
    mib = 4 / (1 << 20)
    assert arenas(kept)["pieces of them, kept"] == pytest.approx(10 * block / 2 * mib, rel=0.01)
    assert arenas(kept)["parameters of others"] == arenas(plain)["parameters of others"]
    assert arenas(kept)["collectives"] > arenas(plain)["collectives"]
    assert "pieces of them, kept" not in arenas(plain)
    assert sent_floats(plain) - sent_floats(kept) == pytest.approx(
        9 * block * (3 / 4 - 1 / 2), rel=0.02)
    for same, as_number in (("true", 4), ("false", 1)):
        plans = [dry_run(bin_dir, corpus, tmp_path / "run", 4, *options,
                         f"parallel.reshard_after_forward={value}") for value in (same, as_number)]
        assert sent_floats(plans[0]) == sent_floats(plans[1])
        assert "pieces of them, kept" not in arenas(plans[1])
