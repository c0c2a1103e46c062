"""The service's state: the store through the agents' relays, kept on the disk and in memory; its
CPU for each operation beside that of PyTorch's store; a restart with many keys; what an agent
that is registered costs."""

import contextlib
import os
import pathlib
import shutil
import time

from measure import (HERE, Failed, Row, background, last_line, median, peak_memory,
                     port_of, run_json, text_of)

NODES, WORKERS = 8, 8
LISTENING = r"listening on \S+:(\d+)\n"


def cpu_s(pid):
    """CPU seconds of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(condition, what, process, limit_s=120):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end or process.poll() is not None:
            raise Failed(f"{what}: {last_line(process.log.read_text(errors='replace'))}")
        time.sleep(0.01)


def service(ctx, *options):
    return [ctx.bin / "ctrun-rendezvous", "--listen=127.0.0.1:0", *options]


def counts(folder):
    """How far each worker is."""
    found = [path.read_text().split() for path in folder.iterdir()]
    return [int(words[1]) for words in found if len(words) == 2]


def through_relays(ctx, folder, command, seconds):
    """{"per_s", "cpu_s"} of operations: each adds 1, every fourth appends as well."""
    (folder / "counts").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(background(command, ctx.scratch))
        agent = [ctx.bin / "ctrun", f"--nnodes={NODES}", f"--nproc-per-node={WORKERS}",
                 "--rdzv-id=bench", f"--rdzv-endpoint=127.0.0.1:{port_of(server, LISTENING)}",
                 "--store-access=local", ctx.bin / "fake-counter", folder / "counts", 0]
        agents = [stack.enter_context(background(agent, ctx.scratch)) for _ in range(NODES)]
        until(lambda: len(counts(folder / "counts")) == NODES * WORKERS, "workers", agents[0])
        before, cpu, began = sum(counts(folder / "counts")), cpu_s(server.pid), time.monotonic()
        time.sleep(seconds)
        n = (sum(counts(folder / "counts")) - before) * 5 / 4
        took, used = time.monotonic() - began, cpu_s(server.pid) - cpu
    return {"per_s": n / took, "cpu_s": used / max(n, 1)}


def torch_cpu(ctx, ms):
    """CPU seconds of PyTorch's store for a request of 64 clients."""
    with background([ctx.torch, HERE / "torch_peer.py", "store"], ctx.scratch) as process:
        port = port_of(process, r'"port": (\d+)')
        before = cpu_s(process.pid)
        load = run_json([ctx.bin / "bench-store", port, NODES * WORKERS, ms, 1])
        return (cpu_s(process.pid) - before) / (load[0]["requests_per_s"] * ms / 1000)


def relays(ctx):
    """The store as workers reach it."""
    n, seconds = ctx.count(3, 1), ctx.count(5, 2)
    kinds = {"in memory": "--state-dir=none", "durable": "--state-dir={}/state"}
    got = {}
    for kind, option in kinds.items():
        ctx.note(f"the store through relays, {kind}")
        for i in range(n):
            folder = ctx.scratch / f"relays-{kind.split()[0]}-{i}"
            got.setdefault(kind, []).append(through_relays(
                ctx, folder, service(ctx, option.format(folder)), seconds))
            shutil.rmtree(folder)
    what = f"store through relays, {NODES} × {WORKERS} workers"
    how = f"median of {n} × {seconds} s"
    command = text_of(service(ctx, "--state-dir=DIR"))
    yield Row(f"{what}, durable, requests/s", "1/s", "higher",
              median(g["per_s"] for g in got["durable"]), command, how, "the same in memory",
              median(g["per_s"] for g in got["in memory"]))
    theirs = torch_cpu(ctx, 1000 * seconds) if ctx.torch else None
    for kind in kinds:
        row = (f"{what}, {kind}, CPU of the service/request", "s", "lower",
               median(g["cpu_s"] for g in got[kind]), command, how)
        yield Row(*row, "PyTorch's TCPStore", theirs) if theirs else Row(*row)
    if not theirs:
        yield ctx.no_torch("CPU of PyTorch's TCPStore/request")


def keys(ctx):
    """From the service's start until it listens, with a state of so many keys."""
    n, size = ctx.count(5, 3), 100000
    folder = ctx.scratch / "keys"
    folder.mkdir()
    command = [ctx.bin / "ctrun-rendezvous", f"--state-dir={folder / 'state'}"]
    times = []
    with contextlib.ExitStack() as stack:
        with background([*command, "--listen=127.0.0.1:0"], ctx.scratch) as server:
            port = port_of(server, LISTENING)
            agent = stack.enter_context(background(
                [ctx.bin / "ctrun", "--nnodes=1", "--nproc-per-node=1", "--rdzv-id=bench",
                 f"--rdzv-endpoint=127.0.0.1:{port}", HERE / "key_filler.py", size,
                 folder / "full"], ctx.scratch))
            until((folder / "full").exists, "the keys", agent)
        for _ in range(n):
            began = time.perf_counter()
            with background([*command, f"--listen=127.0.0.1:{port}"], ctx.scratch) as server:
                port_of(server, LISTENING)
                times.append(time.perf_counter() - began)
    yield Row(f"service, start with {size} keys", "s", "lower", median(times), text_of(command),
              f"median of {n}", limit=0.5)
    shutil.rmtree(folder)


def registered(ctx):
    """What the service's memory grows by, at most, for each agent of a large job."""
    size = 10000
    command = service(ctx, "--lease-ms=60000", "--max-connections=20000")
    with background(command, ctx.scratch) as server:
        port = port_of(server, LISTENING)
        before = peak_memory(server.pid)
        run_json([ctx.bin / "bench-agents", port, size, 1])
        grown = peak_memory(server.pid) - before
    yield Row(f"service, memory of each of {size} agents", "bytes", "lower", grown / size,
              f"{text_of(command)} & bench-agents PORT {size} 1", "the peak", limit=16 * 1024)
