"""What is cut into shards: steps beside PyTorch's fully_shard and our own ddp, and how much of
the traffic is hidden."""

import json

from measure import Row, median, run, text_of
from training import (SEQ_LEN, fresh, model, peer_command, peer_steps, run_steps,
                      training_command)

ROUNDS = 2  # ours, ours as ddp and theirs, in turns


def strategy_of(ctx, strategy, ranks, sequences, options=(), goals=(None, None)):
    """A strategy of ours beside our ddp and PyTorch's of that name."""
    layout = "2 × 2 ranks" if strategy == "hsdp" else f"{ranks} ranks × 1 thread"
    what = f"{strategy} step, {model(ctx)[0]}, {layout}, {sequences * SEQ_LEN} tokens"
    n = ctx.count(3, 2)
    run_dir = ctx.scratch / "sharded"
    common = dict(ranks=ranks, global_batch=sequences, micro_batch=min(sequences // ranks, 8))
    commands = {
        kind: training_command(ctx, run_dir, **common, options=more)
        for kind, more in ((strategy, [f"parallel.strategy={strategy}", *options]), ("ddp", []))}
    peer = ctx.torch and peer_command(ctx, ranks=ranks, threads=1, batch=sequences // ranks,
                                      steps=n + 1, options=["--strategy", strategy])
    times = {strategy: [], "ddp": [], "theirs": []}
    gap = None
    for i in range(ROUNDS):
        ctx.note(f"{what}: round {i + 1} of {ROUNDS}")
        for kind, command in commands.items():
            times[kind] += run_steps(ctx, command, run_dir, n)
        if peer and not gap:
            found, gap = peer_steps(ctx, what, "PyTorch", peer, warm_up=1)
            times["theirs"] += found or []
    row = (what, "s", "lower", median(times[strategy]), text_of(commands[strategy]),
           f"median of {n * ROUNDS}")
    yield Row(*row, "ours as ddp", median(times["ddp"]), text_of(commands["ddp"]),
              goal=goals[0])
    if not peer:
        yield ctx.no_torch(f"{what}, against PyTorch")
        return
    yield gap or Row(*row, "PyTorch, fully_shard", median(times["theirs"]), text_of(peer),
                     goal=goals[1])


def fsdp(ctx):
    """Few tokens, where gathers and sums weigh most, and more."""
    for sequences in ctx.count((2, 16), (2,)):
        yield from strategy_of(ctx, "fsdp", 2, sequences, goals=(1.15, 0.4))


def hsdp(ctx):
    """Two replicas of two shards, on this machine."""
    yield from strategy_of(ctx, "hsdp", 4, 4, ["parallel.dp_shard=2"])


# --- what the profile says ---


def merge(spans):
    """Spans as few that do not overlap."""
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def common_time(some, others):
    """How long both go on; both merged."""
    total, i = 0, 0
    for begin, end in some:
        while i < len(others) and others[i][1] <= begin:
            i += 1
        for other_begin, other_end in others[i:]:
            if other_begin >= end:
                break
            total += min(end, other_end) - max(begin, other_begin)
    return total


def busy(events, rows, first_step):
    """When queues had work in hand; waiting for another queue is none."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    return merge((e["ts"], e["ts"] + e["dur"]) for e in events
                 if e["ph"] == "X" and names[e["tid"]] in rows and e["name"] != "wait"
                 and e["args"]["step"] >= first_step)


def hidden_share(path):
    """Of the time that gathers and sums take, the part while the rank computes as well; the
    first step, in which memory is touched first, apart."""
    events = json.loads(path.read_text())["traceEvents"]
    traffic = busy(events, {"gather", "reduce"}, 2)
    hidden = common_time(traffic, busy(events, {"compute"}, 2))
    return hidden / sum(end - begin for begin, end in traffic)


def overlap(ctx):
    """Traffic beside the own rank's work, from --profile's timeline."""
    steps = ctx.count(6, 4)
    run_dir, trace = ctx.scratch / "overlap", ctx.scratch / "trace"
    for sequences in ctx.count((2, 16), (2,)):
        what = f"fsdp traffic under work, {model(ctx)[0]}, {sequences * SEQ_LEN} tokens"
        command = training_command(
            ctx, run_dir, global_batch=sequences, micro_batch=min(sequences // 2, 8),
            options=["parallel.strategy=fsdp", f"train.steps={steps}", f"--profile={trace}"])
        ctx.note(what)
        fresh(run_dir)
        run(command)
        shares = [hidden_share(trace.with_name(f"trace.rank{rank}")) for rank in range(2)]
        # of one micro-batch a rank the embedding's gather and sum, a fifth, cannot be hidden
        yield Row(what, "share", "higher", min(shares), text_of(command), "lower of 2 ranks",
                  limit=ctx.count(0.6, None))
    fresh(run_dir)
