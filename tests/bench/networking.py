"""The engine between two hosts: network namespaces, joined by a cable."""

import contextlib
import os
import shutil
import subprocess
import sys

from measure import HERE, MIB, Gap, Row, background, run, run_json, text_of

NAMES = ("ctrun-bench-0", "ctrun-bench-1")
CABLES = ("ctrunb0", "ctrunb1")
ADDRESSES = ("10.77.31.1", "10.77.31.2")
PORT = 29533
SIZE = 25 * MIB


def inside(host, *command):
    return ["ip", "netns", "exec", NAMES[host], *command]


def ip(*args):
    run(["ip", *args])


@contextlib.contextmanager
def two_hosts():
    try:
        for name in NAMES:
            ip("netns", "add", name)
        ip("link", "add", CABLES[0], "netns", NAMES[0], "type", "veth",
           "peer", "name", CABLES[1], "netns", NAMES[1])
        for name, cable, address in zip(NAMES, CABLES, ADDRESSES):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def median_of(lines, what):
    return next(o["median_us"] / 1e6 for o in lines if o["what"] == what)


def gloo_rank(ctx, rank, series):
    return inside(rank, "env", f"RANK={rank}", "WORLD_SIZE=2", f"MASTER_ADDR={ADDRESSES[0]}",
                  f"MASTER_PORT={PORT}", f"GLOO_SOCKET_IFNAME={CABLES[rank]}",
                  ctx.torch, HERE / "torch_peer.py", "all-reduce", series)


def with_other(ctx, command, other):
    """The lines of a program that needs another one at the other end."""
    with background(other, ctx.scratch):
        return run_json(command), text_of(other) + " & " + text_of(command)


def tcp(ctx):
    """An all-reduce between two hosts, beside one stream in one direction, and gloo."""
    what = "all-reduce, 2 hosts (veth), 25 MiB"
    if os.geteuid() != 0 or not shutil.which("ip"):
        yield Gap(what, "two network namespaces need root, and iproute2")
        return
    n = ctx.count(50, 20)
    series = f"{SIZE}:{n}"
    places = [f"{name}={address}" for name, address in zip(NAMES, ADDRESSES)]
    command = [ctx.bin / "bench-comm", "tcp", 2, *places, series]
    peer = [sys.executable, HERE / "stream_peer.py"]
    with two_hosts():
        ours = median_of(run_json(command), "all-reduce")
        stream, stream_command = with_other(
            ctx, inside(1, *peer, "send", ADDRESSES[0], PORT, series),
            inside(0, *peer, "receive", ADDRESSES[0], PORT, series))
        row = (what, "bytes/s", "higher", SIZE / ours, text_of(command), f"median of {n}")
        yield Row(*row, "one TCP stream, one way", SIZE / median_of(stream, "stream"),
                  stream_command, goal=0.8)
        if not ctx.torch:
            yield ctx.no_torch(f"{what}, against gloo")
            return
        gloo, gloo_command = with_other(ctx, gloo_rank(ctx, 0, series),
                                        gloo_rank(ctx, 1, series))
        yield Row(*row, "gloo", SIZE / median_of(gloo, "all-reduce"), gloo_command, goal=1.5)
