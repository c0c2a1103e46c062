"""A loss that is not finite: the run ends there, and the good checkpoints stay."""

import pytest
import training

pytestmark = pytest.mark.threads

# A learning rate in the hundreds makes the weights overflow within some steps.
DIVERGE = ["optim.lr=1000", "optim.min_lr=1000", "optim.warmup=4", "optim.weight_decay=1000",
           "train.grad_clip=0", "eval.every=0", "checkpoint.every=1"]


@pytest.mark.parametrize("nproc", [1, 2])
def test_ends_the_run_at_that_step_without_a_checkpoint_or_a_restart(
    bin_dir, train, tmp_path, nproc
):
    run_dir = tmp_path / "run"
    run = train(run_dir, *DIVERGE, nproc=nproc, options=["--max-restarts=3"])
    assert run.wait() == 1, run.err()
    last = training.metrics(run_dir)[-1]
    assert None in (last["loss"], last["grad_norm"])
    kept = training.checkpoints(run_dir)
    assert kept and all(training.step_of(path) < last["step"] for path in kept)
    lines = [line for line in run.err().splitlines() if "not finite" in line]
    assert len(lines) == 1, run.err()
    assert f"of step {last['step']} is not finite (" in lines[0]
    assert f"the last checkpoint is {kept[-1].name};" in lines[0]
    assert "optim.lr" in lines[0]
    assert "restarting" not in run.err() and "-nan" not in run.out() + run.err()


def test_before_the_first_checkpoint_and_without_a_launcher(bin_dir, start, corpus, tmp_path):
    run_dir = tmp_path / "run"
    run = start(bin_dir / "ctrun-worker",
                *training.overrides(corpus, run_dir, *DIVERGE, "checkpoint.every=0"))
    assert run.wait() == 1, run.err()
    assert "there is no checkpoint" in run.err() and run.err().count("\n") == 1, run.err()
    assert training.checkpoints(run_dir) == []


@pytest.mark.parametrize("fp16,remedy", [
    (["train.precision=fp16"], "set train.precision=bf16, "),
    (["parallel.reduce_dtype=fp16"], "set parallel.reduce_dtype=bf16, "),
    (["train.precision=fp16", "parallel.reduce_dtype=fp16"],
     "set train.precision=bf16 and parallel.reduce_dtype=bf16, "),
], ids=["activations", "gradients", "both"])
def test_where_fp16_ends_a_wider_type_is_a_remedy(bin_dir, start, corpus, tmp_path, fp16, remedy):
    """A first scale far too large for fp16, and no second chance."""
    run = start(bin_dir / "ctrun-worker", *training.overrides(
        corpus, tmp_path / "run", *fp16, "train.grad_scaler=true", "train.init_scale=1e30",
        "train.backoff_factor=1e-31"))
    assert run.wait() == 1, run.err()
    assert "the gradient of step 1 is not finite (" in run.err()
    assert f"; {remedy}lower optim.lr" in run.err(), run.err()
