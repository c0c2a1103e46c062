"""ctrun inside torchrun and torchrun inside ctrun: the outer one tells the inner one's first cause.

CTRUN_TORCH_PYTHON names the interpreter that has PyTorch."""

import json
import os
import pathlib
import subprocess

import pytest

PYTHON = os.environ.get("CTRUN_TORCH_PYTHON",
                        os.path.expanduser("~/.cache/ctrun/torch/bin/python"))
ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BIN", ROOT / "build/release/bin"))
CTRUN = [BIN / "ctrun"]
TORCHRUN = [PYTHON, "-m", "torch.distributed.run"]
WORKERS = ["--nproc-per-node=2", "--no-python", BIN / "fake-worker",
           "--on", "rank=1", "error=ValueError: deep", "--on", "rank=1", "exit=7", "hang"]

pytestmark = pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"no PyTorch: {PYTHON}")


@pytest.mark.parametrize("outer, inner, code", [(TORCHRUN, CTRUN, 7), (CTRUN, TORCHRUN, 1)],
                         ids=["ctrun-in-torchrun", "torchrun-in-ctrun"])
def test_outer_launcher_tells_the_inner_ones_first_cause(tmp_path, outer, inner, code):
    error_file = tmp_path / "error.json"
    done = subprocess.run([*outer, "--no-python", *inner, *WORKERS], capture_output=True, text=True,
                          env={**os.environ, "TORCHELASTIC_ERROR_FILE": str(error_file)},
                          timeout=300)
    assert done.returncode == (1 if outer is TORCHRUN else code)  # torchrun knows no other
    report = done.stderr[done.stderr.rindex("\nRoot Cause"):]
    assert f"exitcode  : {code} (pid: " in report
    assert "traceback : ValueError: deep" in report
    message = json.loads(error_file.read_text())["message"]
    assert (message["message"], message["errorCode"]) == ("ValueError: deep", code)
