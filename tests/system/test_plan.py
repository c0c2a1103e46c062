"""--dry-run prints the memory plan, and the process keeps to it."""

import os
import re
import subprocess

import pytest
import training

MEDIUM = ["model.layers=6", "model.dim=512", "model.heads=8", "model.context=128",
          "model.vocab=8192", "train.micro_batch=2", "train.global_batch=2",
          "train.steps=2", "eval.every=0"]


def plan(bin_dir, corpus, run_dir):
    out = subprocess.run(
        [bin_dir / "ctrun-worker", *training.overrides(corpus, run_dir, *MEDIUM), "--dry-run"],
        check=True, capture_output=True, text=True,
    ).stdout
    return float(re.search(r"total +([\d.]+) MiB", out)[1])


def test_dry_run_writes_nothing(bin_dir, corpus, tmp_path):
    plan(bin_dir, corpus, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.release_only  # sanitizers have memory of their own
def test_process_keeps_to_the_plan(bin_dir, corpus, tmp_path):
    planned = plan(bin_dir, corpus, tmp_path / "run")
    worker = subprocess.Popen(
        [bin_dir / "ctrun-worker", *training.overrides(corpus, tmp_path / "run", *MEDIUM)],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(worker.pid, 0)
    assert status == 0
    assert usage.ru_maxrss / 1024 == pytest.approx(planned, rel=0.05)
