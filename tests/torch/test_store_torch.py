"""PyTorch's public store tests (test/distributed/test_store.py), mirrored, with PyTorch's own
client against ctrun-rendezvous and against ctrun. The cases are in store_cases.py."""

import json
import os
import pathlib
import subprocess

import pytest
import store_cases

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(os.environ.get("BIN", HERE.parents[1] / "build/release/bin")).resolve()
TORCH = os.environ.get(
    "CTRUN_TORCH_PYTHON", os.path.expanduser("~/.cache/ctrun/torch/bin/python")
)


@pytest.fixture(scope="module")
def results():
    """All cases run in one process: importing torch takes longer than any of them."""
    process = subprocess.Popen(
        [TORCH, "-W", "ignore", HERE / "store_cases.py", BIN],
        env=dict(os.environ, TORCH_CPP_LOG_LEVEL="ERROR"),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=400)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, _ = process.communicate()
    return dict(json.loads(line) for line in out.splitlines())


@pytest.mark.parametrize("name", [f"{kind}: {case}" for kind in store_cases.STORES
                                  for case in store_cases.CASES])
def test_torch_client(results, name):
    assert name in results, f"not reached; the one before hung: {list(results)[-1:]}"
    assert results[name] == "ok", results[name]
