"""Our loss scaling against torch.amp.GradScaler: its arithmetic bit for bit, and a training with
overflows, step by step. Needs CTRUN_TORCH_PYTHON, and BIN or a release build."""

import json
import os
import pathlib
import random
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BIN", ROOT / "build/release/bin")).resolve()
PYTHON = os.environ.get(
    "CTRUN_TORCH_PYTHON", os.path.expanduser("~/.cache/ctrun/torch/bin/python"))
CASES = ROOT / "tests/torch/grad_scaler_cases.py"

# At the largest scale the gradients of some weights overflow.
SETTINGS = dict(
    layers=2, heads=2, dim=32, context=32, vocab=256, seed=3, spread=1.0, gain=1024.0, total_steps=40,
    beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=1.0, lr=1e-6, min_lr=1e-6, warmup=0,
    schedule="constant", init_scale=2.0**126, growth_factor=2.0, backoff_factor=0.5,
    growth_interval=3,
)


def torch(*args):
    return subprocess.run([PYTHON, CASES, *map(str, args)], check=True, capture_output=True,
                          text=True, timeout=300).stdout


def ours(c, run_dir, corpus):
    done = subprocess.run(
        [BIN / "ctrun-worker", *(f"model.{k}={c[k]}" for k in
                                 ("layers", "heads", "dim", "context", "vocab")),
         f"train.steps={c['total_steps']}", "train.micro_batch=1", "train.global_batch=1",
         f"train.grad_clip={c['grad_clip']}", "train.grad_scaler=true",
         *(f"train.{k}={c[k]!r}" for k in
           ("init_scale", "growth_factor", "backoff_factor", "growth_interval")),
         *(f"optim.{k}={c[k]}" for k in
           ("lr", "min_lr", "eps", "weight_decay", "warmup", "schedule")),
         f"optim.betas=[{c['beta1']},{c['beta2']}]", f"data.train={corpus}", "data.format=text",
         f"model.init_from={c['weights']}", f"run.dir={run_dir}", "checkpoint.every=0",
         "eval.every=0"],
        capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def test_the_committed_vectors_are_what_torch_computes():
    assert torch("vectors") == (ROOT / "tests/torch/fixtures/grad_scaler.inc").read_text()


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """Settings and trace of each: a scale that is no power of two is rounded as torch rounds
    it, and so are the gradients."""
    folder = tmp_path_factory.mktemp("torch")
    text = "".join(random.Random(1).choices("abcdefghijklmnop", k=SETTINGS["context"]))
    changed = {"exact": {},
               "rounded": dict(init_scale=8e37, growth_factor=1.9, backoff_factor=0.3)}
    settings = {name: dict(SETTINGS, **new, text=text, weights=str(folder / f"{name}.bin"))
                for name, new in changed.items()}
    traces = json.loads(torch("train", json.dumps(list(settings.values()))))
    return {name: (c, trace) for (name, c), trace in zip(settings.items(), traces)}


@pytest.mark.parametrize("name", ["exact", "rounded"])
def test_a_training_with_overflows_has_torchs_trace(tmp_path, trainings, name):
    c, theirs = trainings[name]
    (tmp_path / "corpus.txt").write_text(c["text"] * 100)
    trace = ours(c, tmp_path / "run", tmp_path / "corpus.txt")
    for key in ("loss_scale", "skipped"):
        assert [line[key] for line in trace] == [line[key] for line in theirs]
    for line, their in zip(trace, theirs):
        assert line["loss"] == pytest.approx(their["loss"], rel=1e-4)
        assert (line["grad_norm"] is None) == (not their["is_finite"])
        if their["is_finite"]:
            assert line["grad_norm"] == pytest.approx(their["grad_norm"], rel=1e-4)
    assert trace[-1]["skipped"] >= 3
    assert len({line["loss_scale"] for line in trace}) >= 3
