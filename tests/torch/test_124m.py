"""Shapes that are too large to be committed, against PyTorch: the real GPT-2 124M, and a
vocabulary whose logits need more than one chunk. Needs CTRUN_TORCH_PYTHON (PyTorch and
safetensors) and the built test; CTRUN_BUILD is the build folder."""

import json
import os
import pathlib
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path(
    os.environ.get("CTRUN_TORCH_PYTHON", "~/.cache/ctrun/torch/bin/python")
).expanduser()
BUILD = ROOT / os.environ.get("CTRUN_BUILD", "build/release")
TEST = BUILD / "tests/conformance/test_gpt2_torch"


def generate(shape, path):
    subprocess.run(
        [PYTHON, ROOT / "tests/torch/make_fixtures.py", "--shape", shape, path],
        check=True, timeout=600,
    )


def compare(path, **env):
    done = subprocess.run(
        [TEST], env={**os.environ, "CTRUN_FIXTURE": str(path), **env}, cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def first_loss(path):
    """Reads `loss` without numpy."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        begin, _ = json.loads(file.read(size))["loss"]["data_offsets"]
        file.seek(8 + size + begin)
        return struct.unpack("<d", file.read(8))[0]


def best_isa():
    flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= flags:
        return "avx512"
    return "avx2" if {"avx2", "fma"} <= flags else "scalar"


def test_gpt2_124m_has_pytorchs_loss_logits_and_gradients(tmp_path):
    fixture = tmp_path / "gpt2-124m.safetensors"
    generate("gpt2-124m", fixture)
    try:
        assert first_loss(fixture) == pytest.approx(10.82, rel=0.05)  # ln 50257
        output = compare(fixture, CTRUN_ISA=best_isa())
        assert "[       OK ] numbers_equal_pytorchs" in output, output
    finally:
        fixture.unlink()  # 1 GB


def test_a_vocabulary_of_many_chunks_has_pytorchs_gradients_and_steps(tmp_path):
    fixture = tmp_path / "wide-vocab.safetensors"
    generate("wide-vocab", fixture)
    for isa in ("scalar", best_isa()):
        output = compare(fixture, CTRUN_ISA=isa)
        assert "[       OK ] numbers_equal_pytorchs" in output, output


def test_committed_fixtures_are_what_the_generator_writes(tmp_path):
    subprocess.run(
        [PYTHON, ROOT / "tests/torch/make_fixtures.py", tmp_path], check=True, timeout=600
    )
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    committed = ROOT / "tests/torch/fixtures"
    assert names == sorted(path.name for path in committed.glob("*.safetensors"))
    for name in names:
        # settings, names and shapes; the values may differ in the last bits
        assert header_of(tmp_path / name) == header_of(committed / name)


def header_of(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(size))
