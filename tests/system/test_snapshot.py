"""checkpoint.snapshot=false: the state is written from where it lies, and stays until it is."""

import pytest
import training

STEPS = 5
# Written slower than a step computes.
LARGE = ["model.layers=4", "model.heads=4", "model.dim=384", "train.micro_batch=1",
         "train.global_batch=1", f"train.steps={STEPS}", "train.seq_len=1",
         "eval.every=0", "checkpoint.keep=3"]


@pytest.mark.release_only  # only there steps are fast enough
def test_what_is_saved_is_of_its_step(bin_dir, train, tmp_path):
    """Whatever goes on from one of the checkpoints ends as the run that wrote them."""
    run_dir = tmp_path / "run"
    run = train(run_dir, *LARGE, "checkpoint.every=1", "checkpoint.snapshot=false", nproc=1)
    assert run.wait() == 0, run.err()
    *early, last = training.checkpoints(run_dir)
    assert early and training.step_of(last) == STEPS
    again = train(tmp_path / "again", *LARGE, "checkpoint.every=0",
                  f"checkpoint.resume={early[-1]}", nproc=1)
    assert again.wait() == 0, again.err()
    assert f"resumed from {early[-1].name}" in again.out()
    hashes = {training.state_hash(bin_dir, d, STEPS) for d in (run_dir, tmp_path / "again")}
    assert len(hashes) == 1
