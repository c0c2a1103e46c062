"""Which checkpoints are made and which stay: checkpoint.every by time and auto, keep_*."""

import json
import os
import signal
import subprocess

import pytest
import training

pytestmark = pytest.mark.threads


def listed(bin_dir, run_dir):
    """What `ckpt list` says, oldest first."""
    out = subprocess.run([bin_dir / "ctrun", "ckpt", "list", "--json", run_dir],
                         check=True, capture_output=True)
    return json.loads(out.stdout)[::-1]


def shown(bin_dir, path):
    out = subprocess.run([bin_dir / "ctrun", "ckpt", "show", "--json", path],
                         check=True, capture_output=True)
    return json.loads(out.stdout)


def firsts(steps, every):
    """The first at or after each multiple."""
    return {min(s for s in steps if s // every == k) for k in {s // every for s in steps} - {0}}


def val_losses(run_dir):
    return {m["step"]: m["val_loss"] for m in training.metrics(run_dir) if "val_loss" in m}


KEPT = ["eval.every=1000", "checkpoint.every=1", "checkpoint.keep=1", "checkpoint.keep_every=3",
        "checkpoint.keep_best=2"]


def assert_kept(bin_dir, run_dir, last):
    losses = val_losses(run_dir)  # of each checkpoint; how many there were, the disk decides
    assert {1, last} <= set(losses)
    kept = listed(bin_dir, run_dir)
    assert [c["step"] for c in kept] == sorted(
        {last} | firsts(losses, 3) | set(sorted(losses, key=losses.get)[:2]))
    assert {c["step"]: c["val_loss"] for c in kept} == {c["step"]: losses[c["step"]] for c in kept}
    assert shown(bin_dir, run_dir)["val_loss"] == losses[last]


@pytest.mark.parametrize("nproc", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_the_best_and_every_nth_stay(bin_dir, train, tmp_path, nproc):
    run_dir = tmp_path / "run"
    run = train(run_dir, "train.steps=100", *KEPT, nproc=nproc)
    assert run.wait() == 0, run.err()
    assert_kept(bin_dir, run_dir, 100)


SHARDED = [(3, ["parallel.strategy=fsdp", "checkpoint.snapshot=false"])]
if training.SOAK:
    SHARDED += [(4, ["parallel.strategy=hsdp", "parallel.dp_shard=2", f"checkpoint.snapshot={copy}"])
                for copy in ("true", "false")] + [(2, ["parallel.strategy=fsdp"]),
                                                  (2, ["checkpoint.snapshot=false"])]


@pytest.mark.thorough
@pytest.mark.parametrize("nproc,options", SHARDED, ids=["-".join(o) for _, o in SHARDED])
def test_the_best_and_every_nth_stay_of_shards_whatever_is_killed(
    bin_dir, train, golden, tmp_path, wait_for, nproc, options
):
    run_dir = tmp_path / "run"
    run = train(run_dir, *KEPT, *options, nproc=nproc, options=["--max-restarts=2"])
    for rank, step in ((0, 5), (1, 15)):
        wait_for(lambda: training.last_step(run_dir) >= step and
                 training.checkpoints(run_dir) and len(training.workers(run.pid)) == nproc)
        os.kill(training.workers(run.pid)[rank], signal.SIGKILL)
        wait_for(lambda: run.out().count("resumed from") > rank)
    assert run.wait() == 0, run.err()
    training.assert_same_answer(bin_dir, run_dir, golden())
    assert_kept(bin_dir, run_dir, training.STEPS)
    for path in training.checkpoints(run_dir):
        subprocess.run([bin_dir / "ctrun", "ckpt", "verify", path], check=True)


def test_without_keep_best_only_the_evaluated_steps_have_a_val_loss(bin_dir, train, tmp_path):
    run_dir = tmp_path / "run"
    run = train(run_dir, "train.steps=16", "checkpoint.every=1", "checkpoint.keep=0",
                "eval.every=2")
    assert run.wait() == 0, run.err()
    losses = val_losses(run_dir)
    assert set(losses) == set(range(2, 17, 2))
    assert all(c.get("val_loss") == losses.get(c["step"]) for c in listed(bin_dir, run_dir))


def test_prune_does_the_same_by_hand(bin_dir, train, tmp_path):
    run_dir = tmp_path / "run"
    run = train(run_dir, "train.steps=12", "eval.every=1000", "checkpoint.every=1",
                "checkpoint.keep=12", "checkpoint.keep_best=1")
    assert run.wait() == 0, run.err()
    losses = val_losses(run_dir)
    subprocess.run([bin_dir / "ctrun", "ckpt", "prune", run_dir, "--keep=1", "--keep-every=2",
                    "--keep-best=1"], check=True, capture_output=True)
    assert [c["step"] for c in listed(bin_dir, run_dir)] == sorted(
        {12, min(losses, key=losses.get)} | firsts(losses, 2))


def test_by_time_all_ranks_save_the_same_steps(bin_dir, train, golden, tmp_path, wait_for):
    run_dir = tmp_path / "run"
    run = train(run_dir, "checkpoint.every=0.01s", "checkpoint.keep=0", nproc=4)
    assert run.wait() == 0, run.err()
    assert len(training.checkpoints(run_dir)) > 1
    training.assert_same_answer(bin_dir, run_dir, golden())


def test_a_long_time_saves_the_last_step_only(bin_dir, train, tmp_path):
    run_dir = tmp_path / "run"
    run = train(run_dir, "checkpoint.every=2h", "checkpoint.keep=0")
    assert run.wait() == 0, run.err()
    assert [training.step_of(c) for c in training.checkpoints(run_dir)] == [training.STEPS]
    assert "  every: 2h\n" in (run_dir / "config.yaml").read_text()


@pytest.mark.parametrize("strategy", ["fsdp", *(["ddp", "zero1"] if training.SOAK else [])])
def test_auto_measures_tells_and_remembers_failures(
    bin_dir, train, tmp_path, wait_for, strategy
):
    run_dir = tmp_path / "run"
    options = [f"parallel.strategy={strategy}", "train.steps=1000000", "checkpoint.every=auto",
               "checkpoint.keep=0", "log.every=1000"]
    run = train(run_dir, *options, options=["--max-restarts=1"])
    wait_for(lambda: "checkpoint.every=auto: one every " in run.out())  # measured
    lines = training.metrics(run_dir)
    assert lines[0]["ckpt_every_s"] == 5 and "ckpt_cost_s" not in lines[0]
    measured = [m for m in lines if m.get("ckpt_cost_s", 0) > 0]
    assert all(5 <= m["ckpt_every_s"] <= 3600 for m in measured)
    os.kill(training.workers(run.pid)[0], signal.SIGKILL)
    wait_for(lambda: "resumed from" in run.out())
    wait_for(lambda: training.metrics(run_dir)[-1]["generation"] > 1)
    run.signal(signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM, run.err()
    left = shown(bin_dir, run_dir)
    assert left["failures"] == 1 and left["is_end"]
    assert left["trained_ms"] >= 5000
    # it left on request, which is no failure
    again = train(run_dir, *options, f"train.steps={left['step'] + 2}")
    assert again.wait() == 0, again.err()
    assert shown(bin_dir, run_dir)["failures"] == 1
    assert shown(bin_dir, run_dir)["trained_ms"] >= left["trained_ms"]


@pytest.mark.parametrize("option, key", [
    ("checkpoint.every=10min", "checkpoint.every"),
    ("checkpoint.every=0s", "checkpoint.every"),
    ("checkpoint.keep_best=-1", "checkpoint.keep_best"),
])
def test_what_cannot_be_is_refused_by_name(train, tmp_path, option, key):
    run = train(tmp_path / "run", option)
    assert run.wait() == 2, run.err()
    assert key in run.err() and "Traceback" not in run.err()
