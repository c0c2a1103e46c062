"""train.freeze: tensors that are not trained stay to the bit, the rest is the same everywhere."""

import json
import struct
import subprocess

import pytest
import training

STEPS = 8
FROZEN = ["wte.weight", "wpe.weight", "h.0.*", "h.1.ln_1.*"]
COMMON = [f"train.steps={STEPS}", "checkpoint.every=2", "checkpoint.keep=0",
          "train.freeze=[" + ",".join(f'"{pattern}"' for pattern in FROZEN) + "]"]


def tensors(checkpoint):
    """The bytes of each tensor of one rank's checkpoint."""
    found = {}
    for path in checkpoint.glob("*.safetensors"):
        data = path.read_bytes()
        (size,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + size])
        for name, about in header.items():
            if name != "__metadata__":
                begin, end = about["data_offsets"]
                found[name] = data[8 + size + begin : 8 + size + end]
    return found


def is_frozen(name):
    return name.startswith(("wte.", "wpe.", "h.0.", "h.1.ln_1."))


@pytest.fixture(scope="module")
def alone(bin_dir, corpus, tmp_path_factory):
    """The run on one rank: its folder, losses and norms, and the final state_hash."""
    run_dir = tmp_path_factory.mktemp("frozen") / "run"
    subprocess.run([bin_dir / "ctrun-worker", *training.overrides(corpus, run_dir, *COMMON)],
                   check=True, stdout=subprocess.DEVNULL, timeout=120)
    return run_dir, numbers(run_dir), training.state_hash(bin_dir, run_dir, step=STEPS)


def numbers(run_dir):
    return [(line["step"], line["loss"], line["grad_norm"]) for line in training.metrics(run_dir)]


def test_frozen_tensors_stay_to_the_bit_without_moments(alone):
    first, *_, last = training.checkpoints(alone[0])
    before, after = tensors(first), tensors(last)
    assert before.keys() == after.keys() and "h.1.ln_1.bias.exp_avg_sq" in after
    for name, value in after.items():
        assert (value == before[name]) == is_frozen(name), name
        if is_frozen(name) and ".exp_avg" in name:
            assert not any(value), name


@pytest.mark.parametrize("strategy,nproc", [
    ("ddp", 3), ("fsdp", 2),
    *(pytest.param(*case, marks=pytest.mark.thorough)
      for case in [("ddp", 2), ("zero1", 2), ("zero2", 3), ("fsdp", 3), ("hsdp", 4)]),
])
def test_every_layout_gives_the_same_answer(bin_dir, train, tmp_path, alone, strategy, nproc):
    run_dir = tmp_path / "run"
    mesh = ["parallel.dp_shard=2"] if strategy == "hsdp" else []
    run = train(run_dir, *COMMON, f"parallel.strategy={strategy}", *mesh, nproc=nproc)
    assert run.wait() == 0, run.err()
    assert numbers(run_dir) == alone[1]
    assert training.state_hash(bin_dir, run_dir, step=STEPS) == alone[2]
    assert "34.7k parameters (12.7k trained)" in run.out()


def test_a_run_may_freeze_other_tensors_when_it_starts_again(bin_dir, train, tmp_path):
    run_dir = tmp_path / "run"
    assert train(run_dir, *COMMON, "train.steps=4").wait() == 0
    again = train(run_dir, *COMMON, "train.freeze=wte.weight")
    assert again.wait() == 0, again.err()
    assert "resumed from" in again.out()
    assert "changed since the checkpoint: train.steps, train.freeze\n" in again.err()
    shards = training.checkpoints(run_dir)
    assert {training.step_of(path) for path in shards} == {2, 4, 6, 8}


@pytest.mark.parametrize("freeze,text", [
    ('["h.0.*", "h.2.*"]', 'train.freeze: "h.2.*" matches no tensor; the nearest is '),
    ('["*"]', "train.freeze: freezes every tensor: leave something to train"),
], ids=["nothing", "everything"])
def test_what_cannot_be_frozen_is_refused_in_a_line(train, tmp_path, freeze, text):
    run = train(tmp_path / "run", f"train.freeze={freeze}", nproc=2)
    assert run.wait() == 2
    assert [line for line in run.err().splitlines() if text in line], run.err()
    assert not (tmp_path / "run").exists()


def test_a_plan_tells_how_much_is_trained(bin_dir, start, corpus, tmp_path):
    run = start(bin_dir / "ctrun-worker",
                *training.overrides(corpus, tmp_path / "run", *COMMON), "--dry-run")
    assert run.wait() == 0, run.err()
    assert "trained: 12704 of them; 21984 are frozen\n" in run.out()
