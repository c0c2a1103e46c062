"""The workers' output: what passes through the launcher, and what a flood costs a sibling."""

import pathlib
import tempfile
import time

from measure import HERE, Row, median, run, text_of

PEER = HERE / "output_peer.py"
FLOOD = 1 << 30
QUICK = 1 << 28


def once(command, ctx, size):
    """(seconds of the flood, from its first byte until the launcher has ended; the sibling's)"""
    with tempfile.TemporaryDirectory(dir=ctx.scratch) as name:
        folder = pathlib.Path(name)
        run(["sh", "-c", 'exec "$@" >/dev/null', "sh", *command, f"--log-dir={folder}/logs", "-t3",
             PEER, folder, size])
        flooding = folder / "flooding"
        took = time.time() - float(flooding.read_text()) if size else 0
        return took, float((folder / "seconds").read_text())


def measure(command, ctx, size, n):
    """The bytes that pass in a second, and how many times as long the sibling takes."""
    quiet, loud = [], []
    for _ in range(n):
        quiet.append(once(command, ctx, 0))
        loud.append(once(command, ctx, size))
    return (size / median(flood for flood, _ in loud),
            median(own for _, own in loud) / median(own for _, own in quiet))


def output(ctx):
    """One worker says a gigabyte, its sibling a line now and then; both teed."""
    size, n = ctx.count(FLOOD, QUICK), ctx.count(5, 1)
    what = f"output of {size >> 20} MiB, teed", "slowdown of a sibling by that"
    ours = [ctx.bin / "ctrun", "--standalone", "--nproc-per-node=2"]
    passed, slowed = measure(ours, ctx, size, n)
    command, how = f"{text_of(ours)} -t3 {PEER.name}", f"median of {n}"
    theirs, their_command = (None, None), ""
    if ctx.torch:
        torchrun = ctx.torchrun()
        theirs = measure(torchrun, ctx, size, n)
        their_command = f"{text_of(torchrun)} -t3 {PEER.name}"
    against = "torchrun -t 3" if ctx.torch else ""
    yield Row(what[0], "bytes/s", "higher", passed, command, how, against, theirs[0],
              their_command, goal=1)
    yield Row(what[1], "1", "lower", slowed, command, how, against, theirs[1], their_command,
              goal=1)
    if not ctx.torch:
        yield ctx.no_torch(f"{what[0]}, against torchrun")
