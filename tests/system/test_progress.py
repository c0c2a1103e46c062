"""The progress line: one below the other in a pipe, one over the other on a terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest
import training

STEPS = ["train.steps=12", "eval.every=5", "checkpoint.every=0"]


def on_terminal(bin_dir, corpus, run_dir, columns, *extra, prefix=()):
    """The exit status of a lone worker, and what it wrote to a terminal of that width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    worker = subprocess.Popen(
        [*prefix, bin_dir / "ctrun-worker", *training.overrides(corpus, run_dir, *STEPS, *extra)],
        stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
    )
    os.close(slave)
    written = b""
    try:
        while chunk := os.read(master, 65536):
            written += chunk
    except OSError:
        pass  # the other end is closed
    os.close(master)
    return worker.wait(), written.decode().replace("\r\n", "\n")


def left_to_see(written):
    """The lines as they stand at the end: each begins anew after a carriage return."""
    return [line.split("\r\x1b[K")[-1] for line in written.split("\n")]


def test_a_pipe_gets_every_line(train, tmp_path):
    run = train(tmp_path / "run", *STEPS)
    assert run.wait() == 0, run.err()
    steps = re.findall(r"^step (\d+)/12 .*tok/s  ETA \S+", run.out(), re.M)
    assert steps == [str(n) for n in range(1, 13)]
    assert "\r" not in run.out() and "\x1b" not in run.out()


# of a step of training.MODEL's two leaves, as PaLM's paper counts them
LEAF_FLOPS = 2 * 32 * (6 * (2 * 12 * 32 * 32 + 256 * 32) + 12 * 2 * 32 * 32)


@pytest.mark.parametrize("nproc", [1, 2, 3])
def test_each_step_says_what_it_took_of_the_machine(train, tmp_path, nproc):
    run = train(tmp_path / "run", *STEPS, "checkpoint.every=1", nproc=nproc)
    assert run.wait() == 0, run.err()
    lines = training.metrics(tmp_path / "run")
    leaves = {1: 4, 2: 2, 3: 1}[nproc]  # rank 0's of four
    for m in lines:
        assert m["gemm_flop_s"] > 0
        assert m["mfu"] == pytest.approx(leaves * LEAF_FLOPS / m["gemm_flop_s"] / m["step_s"])
        assert 0 < m["mem_bytes"] and 0 < m["mem_peak_bytes"] <= m["mem_peak_max_bytes"]
        assert 0 <= m["mem_peak_max_rank"] < nproc
        assert m["mem_peak_max_rank"] or m["mem_peak_max_bytes"] == m["mem_peak_bytes"]
        assert m["compute_s"] > 0
        assert (m["reduce_s"] > 0) == (nproc > 1)
        assert m["gather_s"] == 0  # ddp gathers nothing
    assert sum(m["copy_s"] for m in lines) > 0  # a snapshot
    peaks = [m["mem_peak_max_bytes"] for m in lines]
    assert peaks == sorted(peaks)
    shown = re.findall(r"^step \d+/12 .* ETA \S+(?:  val \S+)?  mfu \d+%  mem \S+ peak \S+"
                       r"(?: r[12])?  (?:compute|reduce) \d+%", run.out(), re.M)
    assert len(shown) == 12, run.out()


def test_log_every_thins_the_lines_out(train, tmp_path):
    run = train(tmp_path / "run", *STEPS, "log.every=5")
    assert run.wait() == 0, run.err()
    assert re.findall(r"^step (\d+)/12 ", run.out(), re.M) == ["5", "10", "12"]


def test_a_terminal_keeps_the_lines_with_a_validation_loss_and_the_last(bin_dir, corpus, tmp_path):
    code, written = on_terminal(bin_dir, corpus, tmp_path / "run", 200, "sample.every=7",
                                "sample.tokens=5")
    assert code == 0, written
    assert len(re.findall(r"step \d+/12 ", written)) == 12  # each was shown
    seen = [line for line in left_to_see(written) if line.startswith("step ")]
    # step 7 stays too: a sample followed it
    assert [line.split("/")[0] for line in seen] == ["step 5", "step 7", "step 10", "step 12"]
    assert "--- sample at step 7 ---" in left_to_see(written)  # on a line of its own


def test_a_narrow_terminal_is_not_wrapped(bin_dir, corpus, tmp_path):
    code, written = on_terminal(bin_dir, corpus, tmp_path / "run", 40)
    assert code == 0, written
    rewritten = [part for line in written.split("\n") for part in line.split("\r\x1b[K")[:-1]]
    assert len(rewritten) == 9  # all steps but 5, 10 and 12
    assert all(len(part) < 40 for part in rewritten)


def test_what_the_saver_logs_has_a_line_of_its_own(bin_dir, corpus, tmp_path):
    old = tmp_path / "run/ckpt/step-00000001-g1"  # a mount point is not deleted
    old.mkdir(parents=True)
    mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {old} && exec "$@"', "sh"]
    code, written = on_terminal(bin_dir, corpus, tmp_path / "run", 200, "eval.every=0",
                                "checkpoint.every=1", "checkpoint.keep=1", prefix=mount)
    assert code == 0, written
    warnings = [line for line in left_to_see(written) if "was not deleted" in line]
    assert warnings, written
    assert all(line.startswith("ctrun-worker: warn: ") for line in warnings), written
