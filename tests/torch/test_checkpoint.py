"""Our checkpoints through the format's own readers: the safetensors package and torch's
distributed checkpoint.  They are written by the unit tests' binaries (CTRUN_CKPT_OUT)."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("CTRUN_BUILD", "build/release")
WRITER = BUILD / "tests/unit/worker/test_checkpoint"
SAVER = BUILD / "tests/unit/worker/test_saver"
TORCH = os.environ.get(
    "CTRUN_TORCH_PYTHON", os.path.expanduser("~/.cache/ctrun/torch/bin/python"))
READERS = pathlib.Path(__file__).with_name("checkpoint_readers.py")


def under_torch(what, paths):
    """Reads them where torch is, and pytest may not be."""
    done = subprocess.run([TORCH, READERS, what, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """The same state, written by 1, 2, 3 and 4 ranks."""
    out = tmp_path_factory.mktemp("ckpt")
    subprocess.run([WRITER], env={**os.environ, "CTRUN_CKPT_OUT": str(out)}, check=True)
    paths = sorted(out.glob("step-*"))
    assert len(paths) == 4
    return paths


def test_the_safetensors_package_reads_every_shard(checkpoints):
    under_torch("safetensors", checkpoints)


def test_torch_distributed_checkpoint_loads_any_sharding(checkpoints):
    under_torch("dcp", checkpoints)


def test_our_writer_and_theirs_agree_on_every_byte(checkpoints):
    under_torch("bytes", checkpoints[:1])


def test_both_readers_put_the_shards_of_any_mesh_together(tmp_path):
    """Of 8, 3, 2 x 2 and 9 shards, one of which is empty, beside a single rank's."""
    subprocess.run([SAVER], env={**os.environ, "CTRUN_CKPT_OUT": str(tmp_path)}, check=True)
    paths = sorted(tmp_path.glob("*/ckpt/step-*"))
    assert [len(list(p.glob("shard-*"))) for p in paths] == [1, 8, 3, 2, 9]
    under_torch("same", paths)
