"""Checkpoints: how long training stands still, how fast one is written and read."""

import contextlib
import os
import re
import subprocess
import time

from measure import (
    HERE, Failed, Row, end_tree, environment, run, run_json, text_of,
)
from training import SEQ_LEN, fresh, model, training_command

MIB = 1 << 20
STATE_MIB = 1424  # parameters and optimizer state of GPT-2 124M
SMALL_STATE_MIB = 162  # of the model for --quick


def figures(lines):
    return {line["what"]: line["seconds"] for line in lines}


# --- the pause ---

EVERY = 8  # steps from one checkpoint to the next: time to write it, and some quiet ones
PAUSE_LIMIT_S = 900
STEP_LINE = re.compile(r"^step (\d+)/")


def step_ends(command, n):
    """When each of the first n steps was over, by its line. The time between two lines has
    everything in it, not only what the program calls its step."""
    ends = {}
    with subprocess.Popen([str(part) for part in command], env=environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:
        try:
            limit = time.monotonic() + PAUSE_LIMIT_S
            for line in process.stdout:
                found = STEP_LINE.match(line)
                if found:
                    ends[int(found[1])] = time.perf_counter()
                if len(ends) == n or time.monotonic() > limit:
                    break
        finally:
            end_tree(process)
    if len(ends) < n:
        raise Failed(f"{text_of(command)} made {len(ends)} of {n} steps")
    return ends


def pause(ctx):
    """Training stands still for no longer than a copy of the state takes: the quickest step
    with a snapshot, less the quickest of the steps before snapshots, when the last checkpoint
    is long written. Whatever else the machine does makes both longer."""
    snapshots = ctx.count(6, 10)
    n = snapshots * EVERY + 1
    run_dir = ctx.scratch / "pause"
    command = training_command(
        ctx, fresh(run_dir), options=[f"checkpoint.every={EVERY}", "checkpoint.keep=1",
                                      "log.every=1"])
    what = f"checkpoint, pause of a step, {model(ctx)[0]}, {2 * SEQ_LEN} tokens"
    ctx.note(f"{what}: {n} steps")
    ends = step_ends(command, n)
    took = {i: ends[i] - ends[i - 1] for i in range(2, n + 1)}
    with_snapshot = [took[i + 1] for i in range(EVERY, n, EVERY)]
    quiet = [took[i - j] for i in range(EVERY, n, EVERY) for j in range(3)]
    mib = ctx.count(STATE_MIB, SMALL_STATE_MIB)
    copy = [ctx.bin / "bench-checkpoint", ctx.scratch, mib]
    copies = [figures(run_json(copy))["copy"] for _ in range(3)]
    yield Row(what, "s", "lower", max(min(with_snapshot) - min(quiet), 0), text_of(command),
              f"best of {len(with_snapshot)} − best of {len(quiet)}", f"memcpy of {mib} MiB",
              min(copies), text_of(copy), goal=1.0)


# --- writing and reading ---


def dd_source(mib):
    """A file in memory of bytes that no disk can make smaller."""
    source = os.memfd_create("bench")
    block = os.urandom(4 * MIB)
    for _ in range(mib // 4):
        os.write(source, block)
    return source


def timed(command, **kwargs):
    began = time.perf_counter()
    run(command, **kwargs)
    return time.perf_counter() - began


def checkpoint(ctx):
    """A rank's shard with hash, fsync, manifest and commit, and back with verification; beside
    dd past the page cache, in turns."""
    n, mib = ctx.count(5, 3), ctx.count(STATE_MIB, STATE_MIB // 4)
    command = [ctx.bin / "bench-checkpoint", ctx.scratch, mib]
    path = ctx.scratch / "dd"
    write = ["dd", f"of={path}", "bs=4M", "iflag=fullblock", "oflag=direct", "conv=fsync"]
    read = ["dd", f"if={path}", "of=/dev/null", "bs=4M", "iflag=direct"]
    ours, theirs = [], []
    with contextlib.ExitStack() as stack:
        source = dd_source(mib)
        stack.callback(os.close, source)
        stack.callback(path.unlink, missing_ok=True)
        for i in range(n):
            ctx.note(f"checkpoint of {mib} MiB: round {i + 1} of {n}")
            ours.append(figures(run_json(command)))
            os.lseek(source, 0, os.SEEK_SET)
            theirs.append({"write": timed(write, stdin=source), "load": timed(read)})
            path.unlink()
    for what, key, peer, text in (
        ("writing", "write", "dd, O_DIRECT, fsync", [*write, f"count={mib // 4}"]),
        ("loading", "load", "dd, O_DIRECT", read),
    ):
        yield Row(f"checkpoint, {what} {mib} MiB", "bytes/s", "higher",
                  mib * MIB / min(o[key] for o in ours), text_of(command), f"best of {n}", peer,
                  mib * MIB / min(t[key] for t in theirs), text_of(text), goal=0.9)
    yield from torch_save(ctx, mib, ours, text_of(command))


def torch_save(ctx, mib, ours, command):
    if not ctx.torch:
        yield ctx.no_torch("checkpoint, against torch.save")
        return
    ctx.note("torch.save and torch.load")
    path = ctx.scratch / "torch.pt"
    peer = [ctx.torch, HERE / "torch_peer.py", "save", path, mib]
    lines = run_json(peer)
    path.unlink()
    for what, key, other in (("writing", "write", "save"), ("loading", "load", "load")):
        yield Row(f"checkpoint, {what} {mib} MiB", "bytes/s", "higher",
                  mib * MIB / min(o[key] for o in ours), command, f"best of {len(ours)}, theirs of 2",
                  f"torch.{other}, page cache",
                  max(o["bytes"] / o[f"{other}_s"] for o in lines), text_of(peer))
