"""The engine: all-reduce, a training step, exact reduction, writing a checkpoint."""

import array
import json
import os
import pathlib
import random
import time

from measure import (
    HERE, LIMIT_S, MIB, ROOT, Failed, Row, background, last_line, median, run, run_json, text_of,
)

SMALLEST_VOCAB = 8192  # of the models here
SEQ_LEN = 128


def all_reduce(ctx):
    """Two ranks of this machine, at the comm level."""
    counts = {4096: ctx.count(5000, 1000), 25 * MIB: ctx.count(50, 10)}
    sizes = [f"{size}:{n}" for size, n in counts.items()]
    names = {4096: "4 KiB", 25 * MIB: "25 MiB"}
    command = [ctx.bin / "bench-comm", "shm", 2, *sizes]
    peer = ctx.torchrun(HERE / "torch_peer.py", "all-reduce", *sizes) if ctx.torch else None

    def by_size(lines, what):
        return {o["bytes"]: o["median_us"] / 1e6 for o in lines if o["what"] == what}

    lines = run_json(command)
    ours, copies = by_size(lines, "all-reduce"), by_size(lines, "memcpy")
    theirs = by_size(run_json(peer), "all-reduce") if peer else {}
    for size, n in counts.items():
        row = (f"all-reduce, 2 ranks, {names[size]}", "s", "lower", ours[size],
               text_of(command), f"median of {n}")
        if size == 25 * MIB:
            yield Row(*row, "memcpy of as much", copies[size], text_of(command))
        if peer:
            yield Row(*row, "gloo", theirs[size], text_of(peer))
    if not peer:
        yield ctx.no_torch("all-reduce, against gloo")


def token_file(ctx):
    path = ctx.scratch / "tokens.bin"
    if not path.exists():
        generator = random.Random(1)
        tokens = (generator.randrange(SMALLEST_VOCAB) for _ in range(MIB))
        path.write_bytes(array.array("H", tokens))
    return path


def model(ctx):
    """GPT-2 124M, whose start takes seconds; or, to be quick, a small one."""
    if ctx.quick:
        return "GPT-2 of 14M", dict(layers=6, heads=6, dim=384, vocab=8192)
    return "GPT-2 124M", dict(layers=12, heads=12, dim=768, vocab=50257)


def training_command(ctx, run_dir, global_batch, micro_batch, reduction="exact"):
    return ctx.ctrun(
        "ctrun-worker", f"--config-path={ROOT / 'configs'}", "--config-name=gpt2-124m",
        *(f"model.{key}={value}" for key, value in model(ctx)[1].items()),
        f"run.dir={run_dir}", f"data.train=[{token_file(ctx)}]", "data.val=[]",
        "data.format=u16", f"train.seq_len={SEQ_LEN}", f"train.micro_batch={micro_batch}",
        f"train.global_batch={global_batch}", f"train.reduction={reduction}",
        "checkpoint.every=0", "eval.every=0", "sample.every=0", "device.kind=cpu",
        "device.threads=1",
    )


def step_times(ctx, command, run_dir, n):
    """Seconds of n steps after the first; the run is killed then, so that it saves nothing."""
    path = pathlib.Path(run_dir) / "metrics.jsonl"
    lines = []
    with background(command, ctx.scratch) as process:
        end = time.monotonic() + LIMIT_S
        while len(lines) < n + 1:
            if process.poll() is not None or time.monotonic() > end:
                said = last_line(process.log.read_text(errors="replace"))
                raise Failed(f"{text_of(command)} made {len(lines)} of {n + 1} steps: {said}")
            time.sleep(0.1)
            lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line)["step_s"] for line in lines[1:n + 1]]


def step(ctx):
    """The step of GPT-2 124M with the fewest tokens, where communication weighs most."""
    name, shape = model(ctx)
    what = f"step, {name}, 2 ranks × 1 thread, {2 * SEQ_LEN} tokens"
    n = ctx.count(8, 3)
    run_dir = ctx.scratch / "step"
    command = training_command(ctx, run_dir, global_batch=2, micro_batch=1)
    ours = median(step_times(ctx, command, run_dir, n))
    row = (what, "s", "lower", ours, text_of(command), f"median of {n} after the first")
    if not ctx.torch:
        yield Row(*row)
        yield ctx.no_torch("step, against PyTorch DDP")
        return
    peer = ctx.torchrun(HERE / "ddp_gpt2.py", "--steps", n + 1, "--batch", 1,
                        "--seq-len", SEQ_LEN, *(f"--{key}={value}" for key, value in shape.items()))
    theirs = median(o["step_s"] for o in run_json(peer)[1:])
    yield Row(*row, "PyTorch DDP, gloo, eager", theirs, text_of(peer))


def exact(ctx):
    """What it costs that the bits do not depend on the number of ranks: steps of more
    tokens, each kind twice in turns."""
    batch, micro_batch = ctx.count((16, 4), (4, 1))
    n = ctx.count(2, 4)
    times, commands = {"exact": [], "fast": []}, {}
    for i, kind in enumerate(("exact", "fast") * ctx.count(2, 1)):
        run_dir = ctx.scratch / f"{kind}-{i}"
        commands[kind] = training_command(ctx, run_dir, batch, micro_batch, kind)
        times[kind] += step_times(ctx, commands[kind], run_dir, n)
    yield Row(f"exact reduction, {model(ctx)[0]}, {batch * SEQ_LEN} tokens", "s", "lower",
              median(times["exact"]), text_of(commands["exact"]),
              f"median of {len(times['exact'])} after the first", "fast reduction",
              median(times["fast"]), text_of(commands["fast"]))


def reduction(ctx):
    """The sums and the exchange of exact's gradients alone, nothing of it hidden, in turns."""
    n, leaves = ctx.count(10, 5), 4
    commands = {kind: [ctx.bin / "bench-reduction", kind, 2, leaves, n]
                for kind in ("exact", "fast")}
    times = {kind: [] for kind in commands}
    for kind in ("exact", "fast") * 2:
        times[kind] += [o["median_us"] / 1e6 for o in run_json(commands[kind])]
    yield Row(f"exact reduction alone, GPT-2 124M, 2 ranks, {leaves} leaves", "s", "lower",
              min(times["exact"]), text_of(commands["exact"]), f"better of 2 medians of {n}",
              "fast reduction", min(times["fast"]), text_of(commands["fast"]))


def checkpoint(ctx):
    """Writing a rank's shard of GPT-2 124M with optimizer (a quarter of it, to be quick), the
    hash and the fsync included."""
    n, mib = ctx.count(3, 2), ctx.count(1424, 356)
    command = [ctx.bin / "bench-checkpoint", ctx.scratch, mib]
    path = ctx.scratch / "dd"
    dd = ["dd", f"of={path}", "bs=4M", "iflag=fullblock", "oflag=direct", "conv=fsync"]
    ours, theirs = [], []
    block = os.urandom(4 * MIB)  # bytes that no disk can make smaller
    source = os.memfd_create("bench")
    try:
        for _ in range(mib // 4):
            os.write(source, block)
        for _ in range(n):
            line = run_json(command)[0]
            ours.append(line["bytes"] / line["seconds"])
            os.lseek(source, 0, os.SEEK_SET)
            began = time.perf_counter()
            run(dd, stdin=source)
            theirs.append(4 * MIB * (mib // 4) / (time.perf_counter() - began))
            path.unlink()
    finally:
        os.close(source)
    yield Row(f"checkpoint, writing {mib} MiB", "bytes/s", "higher", max(ours),
              text_of(command), f"best of {n}", "dd, O_DIRECT, fsync", max(theirs),
              text_of([*dd, "count=" + str(mib // 4)]))
