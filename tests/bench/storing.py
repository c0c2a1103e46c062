"""The store: requests a second with 64 clients; beside a bare echo and PyTorch's store."""

from measure import HERE, Row, background, median, port_of, run_json, text_of

CLIENTS = 64


def store(ctx):
    """One request of each client in flight."""
    n, ms = ctx.count(5, 3), ctx.count(1000, 300)
    server = [ctx.bin / "ctrun-rendezvous", "--listen=127.0.0.1:0", "--log-level=info"]
    peer = [ctx.torch, HERE / "torch_peer.py", "store"]

    def load(where, times=1):
        return run_json([ctx.bin / "bench-store", where, CLIENTS, ms, times])

    ours, echo, theirs = [], [], []
    with background(server, ctx.scratch) as process:
        port = port_of(process, r"listening on \S+:(\d+)\n")
        for _ in range(n):
            ours += load(port)
            echo += load("echo")
    if ctx.torch:
        with background(peer, ctx.scratch) as process:
            port = port_of(process, r'"port": (\d+)')
            theirs = load(port, n)  # it takes 80 ms to accept a client
    how = f"median of {n} × {ms} ms"
    command = f"{text_of(server)} & bench-store PORT {CLIENTS} {ms} 1"

    def rows(against, others, their_command, *goals):
        for (what, unit, better, key, scale), goal in zip((
            (f"store, {CLIENTS} clients, requests/s", "1/s", "higher", "requests_per_s", 1),
            (f"store, {CLIENTS} clients, p99", "s", "lower", "p99_us", 1e-6),
        ), goals):
            yield Row(what, unit, better, scale * median(o[key] for o in ours), command, how,
                      against, scale * median(o[key] for o in others), their_command, goal=goal)

    yield from rows("bare epoll echo", echo, f"bench-store echo {CLIENTS} {ms} 1", 0.95, None)
    if ctx.torch:
        yield from rows("PyTorch's TCPStore", theirs, text_of(peer), 1, 1)
    else:
        yield ctx.no_torch("store, against PyTorch's TCPStore")
