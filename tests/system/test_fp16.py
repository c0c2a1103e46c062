"""fp16 with the loss scaled, as it is by default: gradients beyond 65504 cost their steps and scale,
a sample beyond it costs its step, and every strategy, rank and restart agrees on all of it."""

import array
import json
import os
import random
import signal
import subprocess

import pytest
import training

SCALE = 2.0**30
INTERVAL = 6
# micro_batch · M = 8 sequences of 32 tokens: what comes first, 1 / 256 of the scale, overflows
FP16 = ["train.precision=fp16", f"train.init_scale={SCALE}", f"train.growth_interval={INTERVAL}",
        "checkpoint.every=2"]
COLUMNS = ("step", "loss", "grad_norm", "lr", "loss_scale", "skipped")


def trace(run_dir):
    return [{name: line[name] for name in COLUMNS} for line in training.metrics(run_dir)]


@pytest.fixture(scope="module")
def alone(bin_dir, train_in):
    """One rank: its folder, and its state at the end."""
    run_dir, _ = train_in(*FP16, nproc=1)
    return run_dir, training.state_hash(bin_dir, run_dir)


def test_a_scale_too_large_comes_down_and_the_run_trains(bin_dir, alone):
    scale, tracker, skipped = SCALE, 0, 0
    lines = trace(alone[0])
    for line in lines:
        assert line["loss"] < 6  # it is not scaled
        assert line["loss_scale"] == scale
        if line["grad_norm"] is None:
            scale, tracker, skipped = scale / 2, 0, skipped + 1
        else:
            tracker = (tracker + 1) % INTERVAL
            scale *= 2 if tracker == 0 else 1
        assert line["skipped"] == skipped
    assert lines[5]["skipped"] == 6 and 6 < skipped < training.STEPS / 2
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.5
    shown = json.loads(subprocess.run(
        [bin_dir / "ctrun", "ckpt", "show", "--json", training.checkpoints(alone[0])[-1]],
        check=True, capture_output=True).stdout)
    assert shown["scaler"] == {"scale": scale, "growth_tracker": tracker,
                               "updates": training.STEPS - skipped, "skipped": skipped}


@pytest.mark.parametrize("strategy,nproc", [
    ("fsdp", 3), *([("ddp", 2), ("ddp", 3), ("fsdp", 1), ("fsdp", 2), ("zero1", 3), ("zero2", 2),
                    ("dp", 3)] if training.SOAK else [])])
def test_killed_while_the_scale_comes_down_every_strategy_ends_the_same(
    bin_dir, train, alone, tmp_path, wait_for, strategy, nproc
):
    run_dir = tmp_path / "run"
    run = train(run_dir, *FP16, f"parallel.strategy={strategy}", nproc=nproc,
                options=["--max-restarts=1"])
    pids = wait_for(lambda: training.last_step(run_dir) >= 4 and training.workers(run.pid))
    os.kill(pids[-1], signal.SIGKILL)
    assert run.wait() == 0, run.err()
    assert "restarting" in run.err()
    assert trace(run_dir) == trace(alone[0])
    assert training.state_hash(bin_dir, run_dir) == alone[1]


LAYERS, DIM, CONTEXT, VOCAB = 2, 32, 32, 256  # training.MODEL


def write_model(path, stream=0.0, rare=0.0):
    """In llm.c's format: the stream begins with `stream` in its first channel, of which the head
    sees nothing, and `rare` is added to it by the token "~"."""
    generator = random.Random(1)

    def noise(rows, first):
        numbers = array.array("f", (generator.gauss(0, 0.02) for _ in range(rows * DIM)))
        for row in range(rows):
            numbers[row * DIM] = first(row)
        return numbers

    def block(width, value):
        return array.array("f", [value] * (LAYERS * width))

    def weights(n):
        return array.array("f", (generator.gauss(0, 0.02) for _ in range(LAYERS * n)))

    with open(path, "wb") as file:
        array.array("i", [20240326, 3, CONTEXT, VOCAB, LAYERS, 2, DIM, VOCAB, *[0] * 248]).tofile(file)
        noise(VOCAB, lambda row: rare * (row == ord("~"))).tofile(file)
        noise(CONTEXT, lambda row: stream).tofile(file)
        for width, inputs in ((3 * DIM, DIM), (DIM, DIM), (4 * DIM, DIM), (DIM, 4 * DIM)):
            if width in (3 * DIM, 4 * DIM):  # behind a norm
                block(DIM, 1.0).tofile(file)
                block(DIM, 0.0).tofile(file)
            weights(width * inputs).tofile(file)
            block(width, 0.0).tofile(file)
        array.array("f", [0.0, *[1.0] * (DIM - 1)]).tofile(file)
        array.array("f", [0.0] * DIM).tofile(file)


GIVEN = ["train.precision=fp16", "checkpoint.every=0", "eval.every=0", "optim.lr=1e-7",
         "optim.min_lr=0", "optim.weight_decay=0"]


@pytest.mark.parametrize("nproc", [1, *([2, 3] if training.SOAK else [])])
def test_a_sample_that_overflows_costs_its_step_alone(train, tmp_path, nproc):
    write_model(tmp_path / "model.bin", stream=6e4, rare=6e4)
    text = "".join(random.Random(1).choices("abcdefgh", k=10 * 8 * CONTEXT + 1))
    at = len(text) // 2 + CONTEXT // 2  # read and foretold by one sample alone
    (tmp_path / "corpus.txt").write_text(text[:at] + "~" + text[at + 1:])
    run_dir = tmp_path / "run"
    run = train(run_dir, *GIVEN, f"model.init_from={tmp_path}/model.bin", "train.steps=10",
                f"data.train=[{tmp_path}/corpus.txt]", "parallel.strategy=fsdp", nproc=nproc)
    assert run.wait() == 0, run.err()
    lost = [line["step"] for line in training.metrics(run_dir) if line["loss"] is None]
    assert len(lost) == 1
    assert [line["step"] for line in trace(run_dir) if line["grad_norm"] is None] == lost
    assert trace(run_dir)[-1]["skipped"] == 1
    assert trace(run_dir)[-1]["loss_scale"] == 32768


@pytest.mark.parametrize("scaler,steps,remedy", [
    ("auto", 17, "set train.precision=bf16, "),
    ("false", 1, "set train.grad_scaler=true or train.precision=bf16, "),
])
def test_weights_beyond_fp16_end_the_run_and_it_says_what_holds_them(
    train, tmp_path, scaler, steps, remedy
):
    write_model(tmp_path / "model.bin", stream=7e4)
    run = train(tmp_path / "run", *GIVEN, f"model.init_from={tmp_path}/model.bin",
                f"train.grad_scaler={scaler}", nproc=1)
    assert run.wait() == 1, run.err()
    assert len(training.metrics(tmp_path / "run")) == steps
    [said] = [line for line in run.err().splitlines() if "not finite" in line]
    assert f"the loss of step {steps} is not finite (nan" in said
    assert remedy + "lower optim.lr" in said and said.endswith("or raise optim.warmup")
