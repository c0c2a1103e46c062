"""Dropout: the same losses and state_hash on any number of ranks, after any death, and
whatever is computed again."""

import os
import signal
import subprocess

import pytest
import training

pytestmark = pytest.mark.threads

DROPOUT = "model.dropout=0.1"


@pytest.fixture(scope="module")
def dropped(bin_dir, corpus, tmp_path_factory):
    """What the undisturbed run with dropout gives on one rank."""
    run_dir = tmp_path_factory.mktemp("dropped") / "run"
    subprocess.run(
        [bin_dir / "ctrun-worker", *training.overrides(corpus, run_dir, DROPOUT)],
        check=True, stdout=subprocess.DEVNULL, timeout=300,
    )
    return {"losses": training.loss_column(run_dir),
            "hash": training.state_hash(bin_dir, run_dir)}


@pytest.mark.parametrize("what,nproc,threads",
                         [("none", 1, 2), ("none", 2, 1), ("none", 3, 1),
                          ("block", 1, 1), ("block", 2, 1), ("selective", 3, 1)])
def test_any_number_of_ranks_and_whatever_is_computed_again(
    bin_dir, train, dropped, tmp_path, what, nproc, threads
):
    run_dir = tmp_path / "run"
    run = train(run_dir, DROPOUT, f"train.activation_checkpointing={what}",
                f"device.threads={threads}", nproc=nproc)
    assert run.wait() == 0, run.err()
    training.assert_same_answer(bin_dir, run_dir, dropped)


def test_after_a_kill(bin_dir, train, dropped, tmp_path, wait_for):
    """Started again with another number of ranks, and with blocks computed again."""
    run_dir = tmp_path / "run"
    run = train(run_dir, DROPOUT)
    wait_for(lambda: training.last_step(run_dir) >= 13)
    for pid in [run.pid, *training.children(run.pid), *training.workers(run.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    wait_for(lambda: not training.processes_of(run_dir))
    again = train(run_dir, DROPOUT, "train.activation_checkpointing=block", nproc=3)
    assert again.wait() == 0, again.err()
    assert "changed since" not in again.err()
    training.assert_same_answer(bin_dir, run_dir, dropped)


def test_training_drops_and_evaluation_does_not(bin_dir, train, golden, dropped, tmp_path):
    """With a learning rate of 0 the weights stay, so the validation loss is the one of a run
    without dropout, while the training loss is not."""
    assert dropped["losses"] != golden()["losses"]
    rows = []
    for name, dropout in (("with", "0.1"), ("without", "0")):
        run = train(tmp_path / name, f"model.dropout={dropout}", "optim.lr=0",
                    "optim.min_lr=0", "train.steps=10")
        assert run.wait() == 0, run.err()
        rows.append(training.metrics(tmp_path / name)[-1])
    assert rows[0]["val_loss"] == rows[1]["val_loss"]
    assert rows[0]["loss"] != rows[1]["loss"]
