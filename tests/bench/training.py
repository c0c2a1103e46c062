"""The engine: all-reduce, a training step, exact reduction, scaling, memory."""

import array
import json
import os
import pathlib
import random
import re
import shutil
import struct
import time

from measure import (
    HERE, LIMIT_S, MIB, ROOT, Failed, Gap, Row, background, descendants, last_line, median,
    peak_memory, run, run_json, text_of,
)

SMALLEST_VOCAB = 8192  # of the models here
SEQ_LEN = 128


def all_reduce(ctx):
    """Two ranks of this machine, at the comm level."""
    counts = {4096: ctx.count(5000, 1000), 25 * MIB: ctx.count(50, 10)}
    sizes = [f"{size}:{n}" for size, n in counts.items()]
    names = {4096: "4 KiB", 25 * MIB: "25 MiB"}
    limits = {4096: 10e-6, 25 * MIB: 3e-3}
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
            yield Row(*row, "memcpy of as much", copies[size], text_of(command),
                      limit=limits[size])
        if peer:
            yield Row(*row, "gloo", theirs[size], text_of(peer), limit=limits[size])
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


def training_command(ctx, run_dir, *, ranks=2, threads=1, global_batch=2, micro_batch=1,
                     seq_len=SEQ_LEN, options=()):
    return ctx.ctrun(
        "ctrun-worker", f"--config-path={ROOT / 'configs'}", "--config-name=gpt2-124m",
        *(f"model.{key}={value}" for key, value in model(ctx)[1].items()),
        f"run.dir={run_dir}", f"data.train=[{token_file(ctx)}]", "data.val=[]",
        "data.format=u16", f"train.seq_len={seq_len}", f"train.micro_batch={micro_batch}",
        f"train.global_batch={global_batch}", "checkpoint.every=0", "eval.every=0",
        "sample.every=0", "device.kind=cpu", f"device.threads={threads}", *options,
        ranks=ranks)


def fresh(run_dir):
    """An empty folder for a run: one that is there would be resumed."""
    shutil.rmtree(run_dir, ignore_errors=True)
    return run_dir


def run_steps(ctx, command, run_dir, n, at_end=None, at_first=None):
    """Seconds of n steps after the first; the run is killed then, so that it saves nothing.
    Before that `at_end` sees its process, and `at_first` when the first step is done."""
    path = pathlib.Path(fresh(run_dir)) / "metrics.jsonl"
    lines = []
    with background(command, ctx.scratch) as process:
        end = time.monotonic() + LIMIT_S
        while len(lines) < n + 1:
            if process.poll() is not None or time.monotonic() > end:
                said = last_line(process.log.read_text(errors="replace"))
                raise Failed(f"{text_of(command)} made {len(lines)} of {n + 1} steps: {said}")
            time.sleep(0.1)
            lines = path.read_text().split("\n")[:-1] if path.exists() else []
            if lines and at_first:
                at_first(process)
                at_first = None
        if at_end:
            at_end(process)
    return [json.loads(line)["step_s"] for line in lines[1:n + 1]]


def peer_command(ctx, *, ranks, threads, batch, steps, options=()):
    """The same training in PyTorch; one rank is one process without DDP."""
    script = [HERE / "torch_gpt2.py", "--steps", steps, "--batch", batch, "--seq-len", SEQ_LEN,
              "--threads", threads, *options,
              *(f"--{key}={value}" for key, value in model(ctx)[1].items())]
    return ctx.torchrun(*script, ranks=ranks) if ranks > 1 else [ctx.torch, *script]


# --- a step ---

WARM_UP = 3  # steps that torch.compile may use up
COMPILE_LIMIT_S = 1200
PEERS = {"PyTorch, eager": (), "torch.compile": ("--compile",)}
GOALS = {(2, "PyTorch, eager"): 0.5, (2, "torch.compile"): 0.62, (1, "torch.compile"): 0.85}


def peer_steps(ctx, what, name, command, warm_up=WARM_UP):
    """Their steps, or why there are none: compiling may fail where the rest works."""
    ctx.note(f"{what}: {name}")
    try:
        lines = run_json(command, limit_s=COMPILE_LIMIT_S)
    except Failed as e:
        return None, Gap(f"{what}, against {name}", str(e))
    return [line["step_s"] for line in lines[warm_up:]], None


def step_of(ctx, ranks, threads, sequences):
    """Ours before and after each of PyTorch's, all steps of a kind together."""
    layout = f"{ranks} ranks × 1 thread" if ranks > 1 else f"1 process × {threads} threads"
    what = f"step, {model(ctx)[0]}, {layout}, {sequences * SEQ_LEN} tokens"
    n = ctx.count(8 if sequences == 2 else 3, 3)
    run_dir = ctx.scratch / "step"
    command = training_command(ctx, run_dir, ranks=ranks, threads=threads,
                               global_batch=sequences, micro_batch=min(sequences // ranks, 8))
    ctx.note(what)
    before = run_steps(ctx, command, run_dir, n)
    if not ctx.torch:
        yield Row(what, "s", "lower", median(before), text_of(command), f"median of {n}")
        yield ctx.no_torch(f"{what}, against PyTorch")
        return
    for name, options in PEERS.items():
        peer = peer_command(ctx, ranks=ranks, threads=threads, batch=sequences // ranks,
                            steps=n + WARM_UP, options=options)
        theirs, gap = peer_steps(ctx, what, name, peer)
        after = run_steps(ctx, command, run_dir, n)
        yield gap or Row(what, "s", "lower", median(before + after), text_of(command),
                         f"median of {2 * n}, theirs of {n}", name, median(theirs),
                         text_of(peer), goal=GOALS.get((ranks, name)))
        before = after


def step(ctx):
    """Few tokens, where communication and the optimizer weigh most, and more."""
    for ranks, threads in ((2, 1), (1, 2)):
        for sequences in ctx.count((2, 16), (2,)):
            yield from step_of(ctx, ranks, threads, sequences)


# --- llm.c's train_gpt2, built elsewhere; its batch is fixed ---

LLMC_BATCH, LLMC_SEQ_LEN = 4, 64
LLMC_TIME = re.compile(r"^step \d+:? .*took ([0-9.]+) ms", re.MULTILINE)


def write_llmc_files(folder, shape):
    """What it wants to find: weights of GPT-2 124M (any will do) and tokens."""
    layers, heads, dim, vocab = (shape[k] for k in ("layers", "heads", "dim", "vocab"))
    padded = (vocab + 127) // 128 * 128
    block = 12 * dim * dim + 13 * dim
    left = padded * dim + 1024 * dim + layers * block + 2 * dim
    header = [20240326, 3, 1024, vocab, layers, heads, dim, padded]
    generator = random.Random(1)
    noise = array.array("f", (generator.gauss(0, 0.02) for _ in range(1 << 16)))
    with open(folder / "gpt2_124M.bin", "wb") as file:
        file.write(struct.pack("256i", *header, *[0] * (256 - len(header))))
        while left > 0:
            file.write(noise[:left])
            left -= len(noise)
    data = folder / "dev/data/tinyshakespeare"
    data.mkdir(parents=True)
    tokens = array.array("H", (generator.randrange(SMALLEST_VOCAB) for _ in range(1 << 16)))
    for name in ("train", "val"):
        with open(data / f"tiny_shakespeare_{name}.bin", "wb") as file:
            file.write(struct.pack("256i", 20240520, 1, len(tokens), *[0] * 253))
            file.write(tokens)


def llmc_times(ctx, program, n):
    """Seconds of n steps after the first."""
    folder = ctx.scratch / "llmc"
    if not folder.exists():
        folder.mkdir()
        write_llmc_files(folder, model(ctx)[1])
    command = ["env", "OMP_NUM_THREADS=2", "stdbuf", "-oL", program]
    with background(command, ctx.scratch, cwd=folder) as process:
        end = time.monotonic() + LIMIT_S
        times = []
        while len(times) < n + 1:
            text = process.log.read_text(errors="replace")
            if process.poll() is not None or time.monotonic() > end:
                raise Failed(f"{program} made {len(times)} of {n + 1} steps: {last_line(text)}")
            time.sleep(0.1)
            times = [float(t) / 1e3 for t in LLMC_TIME.findall(text)]
    return times[1:n + 1]


def llmc(ctx):
    """A step of llm.c's CPU program, if $CTRUN_LLMC says where it is."""
    what = f"step, GPT-2 124M, 1 process × 2 threads, {LLMC_BATCH} × {LLMC_SEQ_LEN} tokens"
    program = os.environ.get("CTRUN_LLMC")
    if not program:
        yield Gap(f"{what}, against llm.c", "not given: CTRUN_LLMC=PATH of its train_gpt2")
        return
    if ctx.quick:
        yield Gap(f"{what}, against llm.c", "only without --quick: its model is the large one")
        return
    n, rounds = 4, 2
    run_dir = ctx.scratch / "beside-llmc"
    command = training_command(ctx, run_dir, ranks=1, threads=2, global_batch=LLMC_BATCH,
                               micro_batch=LLMC_BATCH, seq_len=LLMC_SEQ_LEN)
    ours, theirs = [], []
    for i in range(rounds):
        ctx.note(f"{what}: round {i + 1} of {rounds}")
        ours += run_steps(ctx, command, run_dir, n)
        theirs += llmc_times(ctx, program, n)
    yield Row(what, "s", "lower", median(ours), text_of(command), f"median of {len(ours)}",
              "llm.c", median(theirs), f"OMP_NUM_THREADS=2 {program}", goal=1.0)


# --- what exactness and a second rank cost ---


def exact(ctx):
    """What it costs that the bits do not depend on the number of ranks: steps of more
    tokens, each kind twice in turns."""
    batch, micro_batch = ctx.count((16, 4), (4, 1))
    n, rounds = ctx.count(2, 4), ctx.count(2, 1)
    times, commands = {"exact": [], "fast": []}, {}
    for i in range(rounds):
        ctx.note(f"exact and fast reduction: round {i + 1} of {rounds}")
        for kind in times:
            run_dir = ctx.scratch / kind
            commands[kind] = training_command(
                ctx, run_dir, global_batch=batch, micro_batch=micro_batch,
                options=[f"train.reduction={kind}"])
            times[kind] += run_steps(ctx, commands[kind], run_dir, n)
    yield Row(f"exact reduction, {model(ctx)[0]}, {batch * SEQ_LEN} tokens", "s", "lower",
              median(times["exact"]), text_of(commands["exact"]),
              f"median of {len(times['exact'])}", "fast reduction", median(times["fast"]),
              text_of(commands["fast"]), goal=1.05)


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


def scaling(ctx):
    """Tokens a second of two ranks, beside twice those of one rank with as many tokens a
    rank; each has one thread."""
    each = ctx.count(8, 2)  # sequences a rank
    n, rounds = ctx.count(3, 4), ctx.count(2, 1)
    rates, commands = {1: [], 2: []}, {}
    for i in range(rounds):
        ctx.note(f"one and two ranks: round {i + 1} of {rounds}")
        for ranks in rates:
            run_dir = ctx.scratch / f"ranks-{ranks}"
            commands[ranks] = training_command(ctx, run_dir, ranks=ranks, micro_batch=each,
                                               global_batch=ranks * each)
            times = run_steps(ctx, commands[ranks], run_dir, n)
            rates[ranks] += [ranks * each * SEQ_LEN / t for t in times]
    yield Row(f"tokens/s, {model(ctx)[0]}, 2 ranks, {each * SEQ_LEN} tokens a rank", "1/s",
              "higher", median(rates[2]), text_of(commands[2]), f"median of {len(rates[2])}",
              "twice one rank", 2 * median(rates[1]), text_of(commands[1]), goal=0.95)


# --- memory ---

MIB_IN_PLAN = re.compile(r"^\s*total\s+([0-9.]+) MiB", re.MULTILINE)


def peak_of_workers(ctx, command, run_dir):
    """Bytes, of the larger of two workers, after some steps."""
    peaks = []

    def look(process):
        for pid in descendants(process.pid):
            if os.readlink(f"/proc/{pid}/exe").endswith("/ctrun-worker"):
                peaks.append(peak_memory(pid))

    run_steps(ctx, command, run_dir, 2, look)
    return max(peaks)


def worker_memory(ctx):
    """The largest of two workers' peaks after some steps; the plan is that of --dry-run. Beside
    PyTorch's process, which has no second copy that a checkpoint is written from, one without."""
    what = f"worker's peak memory, {model(ctx)[0]}, 2 ranks, {2 * SEQ_LEN} tokens"
    ctx.note(what)
    run_dir = ctx.scratch / "memory"
    command = training_command(ctx, run_dir)
    peak = peak_of_workers(ctx, command, run_dir)
    plan = [*command, "--dry-run"]
    totals = MIB_IN_PLAN.findall(run(plan))
    if not totals:
        raise Failed(f"{text_of(plan)} names no total")
    plan_bytes = max(map(float, totals)) * MIB
    row = (what, "bytes", "lower", peak, text_of(command), "after 3 steps")
    yield Row(*row, "its plan", plan_bytes, text_of(plan), goal=1.05)
    if not ctx.torch:
        yield ctx.no_torch(f"{what}, against PyTorch")
        return
    peer = peer_command(ctx, ranks=2, threads=1, batch=1, steps=3)
    theirs = run_json(peer)[-1]["peak_bytes"]
    yield Row(*row, "PyTorch DDP, eager", theirs, text_of(peer))
    bare = [*command, "checkpoint.snapshot=false"]
    row = ("… without a copy to write checkpoints from", "bytes", "lower",
           peak_of_workers(ctx, bare, run_dir), text_of(bare), "after 3 steps")
    yield Row(*row, "PyTorch DDP, eager", theirs, text_of(peer), goal=0.75)
