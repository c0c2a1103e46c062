"""DP beside DDP: why nobody should use it."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

from measure import Gap, Row, background, descendants, median, peak_memory, run, text_of
from training import model, run_steps, training_command

SWITCH = "ctrun-bench-switch"
RATE = "250mbit"  # each way of a cable: so that they, not this machine's cores, are what is scarce
PORT = 29534


def host_name(i):
    return f"ctrun-bench-host-{i}"


def address(i):
    return f"10.77.32.{i + 1}"


def ip(*args):
    return run(["ip", *args])


def join(i):
    """A host's cable to the switch, slowed down at both ends: what goes out, and what comes."""
    host, cable, port = host_name(i), f"ctrunh{i}", f"ctruns{i}"
    ip("netns", "add", host)
    ip("link", "add", cable, "netns", host, "type", "veth", "peer", "name", port, "netns", SWITCH)
    ip("-n", SWITCH, "link", "set", port, "master", "switch", "up")
    ip("-n", host, "addr", "add", f"{address(i)}/24", "dev", cable)
    ip("-n", host, "link", "set", cable, "up")
    ip("-n", host, "link", "set", "lo", "up")
    for name, device in ((host, cable), (SWITCH, port)):
        run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", device, "root", "tbf",
             "rate", RATE, "burst", "256kb", "latency", "100ms"])


@contextlib.contextmanager
def hosts(n):
    names = [SWITCH, *map(host_name, range(n))]
    try:
        ip("netns", "add", SWITCH)
        ip("-n", SWITCH, "link", "add", "switch", "up", "type", "bridge")
        for i in range(n):
            join(i)
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def through(i):
    """Bytes that have gone through a host's cable, either way."""
    stats = json.loads(ip("-n", host_name(i), "-j", "-s", "link", "show", f"ctrunh{i}"))[0]
    return stats["stats64"]["rx"]["bytes"] + stats["stats64"]["tx"]["bytes"]


def ranks_below(process):
    """{rank: process id} of the workers of an agent."""
    found = {}
    for pid in descendants(process.pid):
        proc = pathlib.Path(f"/proc/{pid}")
        if os.readlink(proc / "exe").endswith("/ctrun-worker"):
            environ = dict(item.split(b"=", 1) for item in
                           (proc / "environ").read_bytes().split(b"\0") if b"=" in item)
            found[int(environ[b"RANK"])] = pid
    return found


def small(ctx):
    """The quick model, always: four of a larger one are too much for a small machine."""
    return dataclasses.replace(ctx, quick=True)


def command_of(ctx, strategy, ranks, run_dir):
    return training_command(small(ctx), run_dir, ranks=ranks, global_batch=ranks,
                            options=[f"parallel.strategy={strategy}"])


def name_of(ctx, what):
    return f"dp: {what}, {model(small(ctx))[0]}"


# --- one machine ---


def on_one_machine(ctx, ranks):
    n, rounds = ctx.count(4, 3), ctx.count(3, 2)
    times, peaks, commands = {"ddp": [], "dp": []}, {"ddp": {}, "dp": {}}, {}
    for i in range(rounds):
        ctx.note(f"dp and ddp, {ranks} ranks: round {i + 1} of {rounds}")
        for strategy in times:
            def look(process, seen=peaks[strategy]):
                seen.update({r: peak_memory(pid) for r, pid in ranks_below(process).items()})

            run_dir = ctx.scratch / strategy
            commands[strategy] = text_of(command_of(ctx, strategy, ranks, run_dir))
            times[strategy] += run_steps(ctx, command_of(ctx, strategy, ranks, run_dir), run_dir,
                                         n, look)
    where = f"{ranks} ranks"
    yield Row(f"{name_of(ctx, 'step')}, {where}", "s", "lower", median(times["dp"]), commands["dp"],
              f"median of {len(times['dp'])}", "ddp", median(times["ddp"]), commands["ddp"])
    memory = (f"{name_of(ctx, 'memory of rank 0')}, {where}", "bytes", "lower", peaks["dp"][0], commands["dp"],
              f"peak of {n + 1} steps")
    others = max(peak for rank, peak in peaks["dp"].items() if rank > 0)
    yield Row(*memory, "its largest other rank", others, commands["dp"])
    yield Row(*memory, "ddp's largest rank", max(peaks["ddp"].values()), commands["ddp"])


# --- a rank to a host ---


def agent(ctx, i, n, worker):
    return ["ip", "netns", "exec", host_name(i), ctx.bin / "ctrun", f"--nnodes={n}",
            "--nproc-per-node=1", "--rdzv-id=bench", f"--rdzv-endpoint={address(0)}:{PORT}",
            *worker]


def run_on_hosts(ctx, n_hosts, strategy, n):
    """Seconds of n steps, and the bytes that went through rank 0's cable in one."""
    run_dir = ctx.scratch / strategy
    command = command_of(ctx, strategy, 1, run_dir)
    worker = command[command.index("ctrun-worker"):]
    worker = [f"train.global_batch={n_hosts}" if str(word).startswith("train.global_batch=")
              else word for word in worker]
    counts = []

    def count(_=None):
        counts.append([through(i) for i in range(n_hosts)])

    def find(process):
        count()
        for i, one in enumerate([process, *others]):
            if 0 in ranks_below(one):
                counts.append(i)

    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(background(agent(ctx, i, n_hosts, worker), ctx.scratch))
                  for i in range(1, n_hosts)]
        times = run_steps(ctx, agent(ctx, 0, n_hosts, worker), run_dir, n, find, at_first=count)
    first, last, leader = counts
    return times, (last[leader] - first[leader]) / n


def between_hosts(ctx, n_hosts):
    n, rounds = ctx.count(4, 3), ctx.count(3, 1)
    times, sizes = {"ddp": [], "dp": []}, {"ddp": [], "dp": []}
    with hosts(n_hosts):
        for i in range(rounds):
            ctx.note(f"dp and ddp, {n_hosts} hosts: round {i + 1} of {rounds}")
            for strategy in times:
                seconds, size = run_on_hosts(ctx, n_hosts, strategy, n)
                times[strategy] += seconds
                sizes[strategy].append(size)
    where = f"{n_hosts} hosts, {RATE}"
    command = f"ctrun --nnodes={n_hosts} --nproc-per-node=1 … parallel.strategy="
    yield Row(f"{name_of(ctx, 'step')}, {where}", "s", "lower", median(times["dp"]),
              command + "dp",
              f"median of {len(times['dp'])}", "ddp", median(times["ddp"]), command + "ddp")
    yield Row(f"{name_of(ctx, 'bytes through rank 0')}, {where}", "bytes", "lower",
              median(sizes["dp"]), command + "dp", f"median of {rounds} × {n} steps", "ddp", median(sizes["ddp"]),
              command + "ddp")


def dp(ctx):
    """Where ranks share a machine the memory shows it; where each has a cable, the time does."""
    for ranks in (2, 4):
        yield from on_one_machine(ctx, ranks)
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc"))):
        yield Gap("dp, a rank to a host", "network namespaces need root, and iproute2")
        return
    for n_hosts in (2, 4):
        yield from between_hosts(ctx, n_hosts)
