"""The launcher: start and end, memory, restart; beside bare processes and torchrun."""

import os
import resource
import signal
import time

from measure import (TRUE, Gap, Roll, Row, background, children, free_port, median, memory,
                     port_of, run_json, spawn, text_of)

WORKERS = 256
AGENTS = 64
CROWDS = {1000: 0.2, 10000: 1.5}  # seconds to reach


def start(ctx):
    """A whole command with two workers that do nothing."""
    what = "start and end, 2 no-op workers"
    n = ctx.count(15, 5)
    command = ctx.ctrun(TRUE)
    ours, bare = [], []
    for _ in range(n):
        ours.append(spawn(command))
        bare.append(spawn([TRUE], 2))
    how = f"median of {n}"
    yield Row(what, "s", "lower", median(ours), text_of(command), how,
              "two bare spawns", median(bare), f"{TRUE} & {TRUE}", limit=7e-3)
    if not ctx.torch:
        yield ctx.no_torch(f"{what}, against torchrun")
        return
    torchrun = ctx.torchrun("--no-python", TRUE)
    n = ctx.count(3, 1)
    yield Row(what, "s", "lower", median(ours), text_of(command), f"{how}, theirs of {n}",
              "torchrun", median(spawn(torchrun) for _ in range(n)), text_of(torchrun),
              goal=1 / 300)


def workers(ctx):
    """One agent, many workers that do nothing."""
    n = ctx.count(9, 3)
    command = [ctx.bin / "ctrun", "--standalone", f"--nproc-per-node={WORKERS}", "--no-python",
               TRUE]
    ours, bare = [], []
    for _ in range(n):
        ours.append(spawn(command))
        bare.append(spawn([TRUE], WORKERS))
    yield Row(f"start and end, {WORKERS} no-op workers", "s", "lower", median(ours),
              text_of(command), f"median of {n}", f"{WORKERS} bare spawns", median(bare),
              f"{WORKERS} × {TRUE} &", limit=1.2 * median(bare) + 20e-3)


def agents(ctx):
    """One job of many agents, all on this machine, with a worker each that does nothing."""
    n = ctx.count(9, 3)
    ours, bare = [], []
    for _ in range(n):
        command = [ctx.bin / "ctrun", f"--nnodes={AGENTS}", "--nproc-per-node=1",
                   "--rdzv-id=bench", "--rdzv-backend=c10d",
                   f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--no-python", TRUE]
        ours.append(spawn(command, AGENTS))
        bare.append(spawn([TRUE], AGENTS))
    yield Row(f"start and end, one job of {AGENTS} agents", "s", "lower", median(ours),
              f"{AGENTS} × {text_of(command)} &", f"median of {n}", f"{AGENTS} bare spawns",
              median(bare), f"{AGENTS} × {TRUE} &", limit=1)


def crowd(ctx):
    """From the first connection of many simulated agents until all have their ranks."""
    n = ctx.count(7, 3)
    server = [ctx.bin / "ctrun-rendezvous", "--listen=127.0.0.1:0", "--log-level=info",
              "--lease-ms=60000"]  # the crowd sends no heartbeats
    for size, limit in CROWDS.items():
        what = f"{size} agents joined and ranked"
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if files < size + 100:
            yield Gap(what, f"a process may have only {files} open files (ulimit -Hn)")
            continue
        ours, echo = [], []
        with background(server, ctx.scratch) as process:
            port = port_of(process, r"listening on \S+:(\d+)\n")
            for _ in range(n):
                ours += run_json([ctx.bin / "bench-agents", port, size, 1])
                echo += run_json([ctx.bin / "bench-agents", "echo", size, 1])
        yield Row(what, "s", "lower", median(o["seconds"] for o in ours),
                  f"{text_of(server)} & bench-agents PORT {size} 1", f"median of {n}",
                  "bare epoll echo", median(o["seconds"] for o in echo),
                  f"bench-agents echo {size} 1", limit=limit)


def agent_memory(command, ctx):
    """(resident, anonymous) of a launcher while its workers run. What it has started beside
    them (the keeper) counts; pages of both count twice."""
    with Roll(ctx.scratch) as roll:
        command = [*command, ctx.bin / "fake-worker", f"pid={roll.path}", "hang"]
        with background(command, ctx.scratch) as process:
            workers = roll.next(2, process)
            own = [process.pid, *(p for p in children(process.pid) if p not in workers)]
            parts = [memory(pid) for pid in own]
    return [sum(part) for part in zip(*parts)], text_of(command)


def agent(ctx):
    """The launcher's memory."""
    limits = {"agent's memory, resident": 10e6, "agent's memory, anonymous": 2e6}
    how = "once, with the keeper"
    ours, command = agent_memory(ctx.ctrun(), ctx)
    if not ctx.torch:
        for (name, limit), value in zip(limits.items(), ours):
            yield Row(name, "bytes", "lower", value, command, how, limit=limit)
        yield ctx.no_torch("agent's memory, against torchrun")
        return
    theirs, their_command = agent_memory(ctx.torchrun("--no-python"), ctx)
    for (name, limit), value, other in zip(limits.items(), ours, theirs):
        yield Row(name, "bytes", "lower", value, command, how, "torchrun", other,
                  their_command, limit=limit)


def restart_times(command, ctx, n):
    """Seconds from a worker's kill -9 until both of the next generation run, n times."""
    times = []
    with Roll(ctx.scratch) as roll:
        command = [*command, ctx.bin / "fake-worker", f"pid={roll.path}", "hang"]
        with background(command, ctx.scratch) as process:
            workers = roll.next(2, process)
            for i in range(n):
                time.sleep(0.05)  # let the launcher come to rest
                began = time.perf_counter()
                os.kill(workers[i % 2], signal.SIGKILL)
                workers = roll.next(2, process)
                times.append(time.perf_counter() - began)
    return times, text_of(command)


def restart(ctx):
    """From the death of a worker to the next generation."""
    what = "kill -9 of a worker → next 2 run"
    n = ctx.count(20, 5)
    ours, command = restart_times(ctx.ctrun(f"--max-restarts={n}"), ctx, n)
    how = f"median of {n}"
    if not ctx.torch:
        yield Row(what, "s", "lower", median(ours), command, how, limit=10e-3)
        yield ctx.no_torch(f"{what}, against torchrun")
        return
    n = ctx.count(10, 3)
    torchrun = ctx.torchrun(f"--max-restarts={n}", "--no-python")
    theirs, their_command = restart_times(torchrun, ctx, n)
    yield Row(what, "s", "lower", median(ours), command, f"{how}, theirs of {n}",
              "torchrun", median(theirs), their_command, limit=10e-3)
