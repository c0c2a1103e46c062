"""Dynamic loss scaling: the same answer, with and without it, on any ranks, after any kill; a
gradient that overflows costs its step and a part of the scale, and nothing else."""

import array
import json
import os
import random
import signal
import subprocess

import pytest
import training

# So high a rate gives gradients that overflow at the largest scale, now and then.
OVERFLOW = ["train.grad_scaler=true", "train.init_scale=8.507059173023462e37", "optim.lr=1",
            "optim.warmup=0", "optim.schedule=constant", "train.growth_interval=5", "eval.every=0"]
COLUMNS = ("step", "loss", "grad_norm", "lr", "loss_scale", "skipped")


def trace(run_dir):
    return [{name: line[name] for name in COLUMNS} for line in training.metrics(run_dir)]


def show(bin_dir, path, *options):
    return subprocess.run([bin_dir / "ctrun", "ckpt", "show", *options, path], check=True,
                          capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def alone(bin_dir, corpus, tmp_path_factory):
    """One rank, with a checkpoint of every step."""
    run_dir = tmp_path_factory.mktemp("scaler") / "run"
    done = subprocess.run(
        [bin_dir / "ctrun-worker", *training.overrides(
            corpus, run_dir, *OVERFLOW, "checkpoint.every=1", "checkpoint.keep=0")],
        check=True, capture_output=True, text=True, timeout=300)
    return run_dir, done.stdout


def test_a_scale_that_is_a_power_of_two_changes_no_bit(bin_dir, train, golden, tmp_path):
    run_dir = tmp_path / "run"
    run = train(run_dir, "train.grad_scaler=true", "train.growth_interval=6")
    assert run.wait() == 0, run.err()
    training.assert_same_answer(bin_dir, run_dir, golden())
    scales = [line["loss_scale"] for line in training.metrics(run_dir)]
    assert scales == [65536.0 * 2 ** (i // 6) for i in range(training.STEPS)]
    assert {line["skipped"] for line in training.metrics(run_dir)} == {0}


def test_an_overflow_costs_its_step_and_half_of_the_scale(bin_dir, alone):
    run_dir, out = alone
    scale, tracker, skipped = 2.0**126, 0, 0
    saved = {training.step_of(path): path for path in training.checkpoints(run_dir)}
    for line in trace(run_dir):
        assert line["loss_scale"] == scale
        if line["grad_norm"] is None:
            scale, tracker, skipped = scale / 2, 0, skipped + 1
        else:
            tracker += 1
            if tracker == 5:
                scale, tracker = min(scale * 2, 2.0**126), 0
        assert line["skipped"] == skipped
        if line["step"] in saved:  # unless the one before was still being written
            shown = json.loads(show(bin_dir, saved[line["step"]], "--json"))
            assert shown["scaler"] == {"scale": scale, "growth_tracker": tracker,
                                       "updates": line["step"] - skipped, "skipped": skipped}
    assert 2 <= skipped < training.STEPS / 2
    assert out.count("  skipped 1") == skipped and "  scale 2^126  skipped 1" in out
    assert f"updates, {skipped} skipped\n" in show(bin_dir, saved[training.STEPS])


def test_a_skipped_step_leaves_the_state_as_it_is(bin_dir, start, corpus, alone, tmp_path):
    run_dir = tmp_path / "run"
    skipped = next(line["step"] for line in trace(alone[0]) if line["skipped"])
    hashes = []
    for steps in (skipped - 1, skipped, skipped + 1):
        run = start(bin_dir / "ctrun-worker", *training.overrides(
            corpus, run_dir, *OVERFLOW, f"train.steps={steps}"))
        assert run.wait() == 0, run.err()
        hashes.append(training.state_hash(bin_dir, run_dir, steps))
    assert trace(run_dir) == trace(alone[0])[:steps]
    assert hashes[0] == hashes[1] != hashes[2]


def thorough(*values):
    return pytest.param(*values, marks=pytest.mark.thorough)


@pytest.mark.parametrize("strategy,nproc", [
    ("fsdp", 3), thorough("ddp", 2), thorough("ddp", 3), thorough("zero1", 2),
    thorough("zero2", 3), thorough("fsdp", 2),
])
def test_every_rank_of_every_strategy_skips_alike(
    bin_dir, train, alone, tmp_path, strategy, nproc
):
    run_dir = tmp_path / "run"
    run = train(run_dir, *OVERFLOW, f"parallel.strategy={strategy}", nproc=nproc)
    assert run.wait() == 0, run.err()
    assert trace(run_dir) == trace(alone[0])
    assert training.state_hash(bin_dir, run_dir) == training.state_hash(bin_dir, alone[0])


LONG = 240  # steps enough to be killed in


@pytest.fixture(scope="module")
def long_alone(bin_dir, corpus, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("scaler") / "long"
    subprocess.run([bin_dir / "ctrun-worker", *training.overrides(
        corpus, run_dir, *OVERFLOW, f"train.steps={LONG}")],
        check=True, stdout=subprocess.DEVNULL, timeout=300)
    return trace(run_dir), training.state_hash(bin_dir, run_dir, LONG)


@pytest.mark.parametrize("strategy", ["ddp", thorough("fsdp")])
def test_killed_the_scale_comes_back_with_every_bit(
    bin_dir, train, long_alone, tmp_path, wait_for, strategy
):
    run_dir = tmp_path / "run"
    run = train(run_dir, *OVERFLOW, f"train.steps={LONG}", f"parallel.strategy={strategy}",
                options=["--max-restarts=1"])
    wait_for(lambda: training.last_step(run_dir) >= 9 and training.checkpoints(run_dir))
    pids = training.workers(run.pid)
    os.kill(pids[-1], signal.SIGKILL)
    assert run.wait() == 0, run.err()
    assert "resumed from" in run.out()
    assert (trace(run_dir), training.state_hash(bin_dir, run_dir, LONG)) == long_alone


def test_turned_off_the_updates_are_still_counted(bin_dir, start, corpus, tmp_path):
    run_dir = tmp_path / "run"
    for steps, scaler in ((8, "true"), (10, "false")):
        run = start(bin_dir / "ctrun-worker", *training.overrides(
            corpus, run_dir, *OVERFLOW, f"train.steps={steps}", f"train.grad_scaler={scaler}"))
        assert run.wait() == 0, run.err()
    first, last = (json.loads(show(bin_dir, path, "--json"))["scaler"]
                   for path in training.checkpoints(run_dir)[-2:])
    assert first["skipped"] > 0
    assert last == dict(first, updates=first["updates"] + 2)
    assert "loss_scale" not in training.metrics(run_dir)[-1]


def write_model(path):
    """training.MODEL in llm.c's format: its losses are as any new model's, but in the gradient of
    c_attn.weight the norm before it, 1e37 times too large, overflows at any scale."""
    layers, dim, context, vocab = 2, 32, 32, 256
    generator = random.Random(1)
    with open(path, "wb") as file:
        header = array.array("i", [20240326, 3, context, vocab, layers, 2, dim, vocab])
        (header + array.array("i", [0] * 248)).tofile(file)
        for n, value in (
            ((vocab + context) * dim, None),
            (layers * dim, 1e37), (layers * dim, 0),  # ln_1
            (layers * 3 * dim * dim, 0), (layers * 3 * dim, 0),  # c_attn
            (layers * dim * dim, 1e8), (layers * dim, 0),  # attn.c_proj
            (layers * dim, 1), (layers * dim, 0),
            (layers * 4 * dim * dim, None), (layers * 4 * dim, 0),
            (layers * 4 * dim * dim, None), (layers * dim, 0),
            (dim, 1), (dim, 0),
        ):
            numbers = [generator.gauss(0, 0.02) * (value if value == 1e8 else 1) for _ in range(n)]
            array.array("f", numbers if value in (None, 1e8) else [value] * n).tofile(file)


@pytest.mark.parametrize("nproc", [1, 2])
def test_below_one_no_scale_helps_and_the_run_ends(train, tmp_path, nproc):
    run_dir = tmp_path / "run"
    write_model(tmp_path / "model.bin")
    run = train(run_dir, "train.grad_scaler=true", "train.init_scale=4", "checkpoint.every=0",
                f"model.init_from={tmp_path}/model.bin", nproc=nproc, options=["--max-restarts=3"])
    assert run.wait() == 1, run.err()
    lines = training.metrics(run_dir)
    assert [(line["loss_scale"], line["skipped"]) for line in lines] == [(4, 1), (2, 2), (1, 3)]
    assert lines[0]["loss"] < 6 and {line["grad_norm"] for line in lines} == {None}
    said = [line for line in run.err().splitlines() if "not finite" in line]
    assert len(said) == 1 and "restarting" not in run.err()
    assert "the gradient of step 3 is not finite (" in said[0]
    assert ", at a loss scale of 1, and one below 1 does not help): training stops" in said[0]
    assert said[0].endswith("or raise optim.warmup"), said[0]  # not cut


def test_a_loss_that_is_not_finite_ends_the_run(train, tmp_path):
    """It is the weights': no scale would help."""
    run_dir = tmp_path / "run"
    run = train(run_dir, "train.grad_scaler=true", "optim.lr=1000", "optim.min_lr=1000",
                "optim.warmup=4", "optim.weight_decay=1000", "train.grad_clip=0", "eval.every=0")
    assert run.wait() == 1, run.err()
    last = training.metrics(run_dir)[-1]
    assert last["loss"] is None
    assert f"the loss of step {last['step']} is not finite (" in run.err()
    assert ", at a loss scale of " in run.err() and "does not help" not in run.err()
