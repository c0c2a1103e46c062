"""Records what two ranks of an old PyTorch and its own store say to each other, so that the old
protocol is tested where only a new PyTorch is at hand (tests/system/test_recorded_session.py):

    /usr/bin/python3 tests/torch/record_session.py >tests/torch/fixtures/torch-1.13.session

A line is [connection, "client" or "store", bytes in hex], in the order in which they passed; the
next one's bytes wait until the store has had time to answer, so that the order means something. A
rank that asks the same again and hears the same, as in a barrier, is written once. The host's name
is in it: unshare -u sh -c 'hostname node0 && …' gives it another."""

import json
import os
import select
import socket
import subprocess
import sys

QUIET_S = 0.05

STORE = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), None, True, wait_for_workers=False)
print("serving", flush=True)
sys.stdin.read()
"""

RANK = """
import datetime, os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
t = torch.ones(2)
dist.all_reduce(t)
assert t.tolist() == [2, 2]
pair = dist.new_group([0, 1])
dist.barrier(pair)
store = dist.distributed_c10d._get_default_store()
dist.barrier()
if rank == 0:
    store.set("key", b"value\\x00with a zero")
    assert store.get("key") == b"value\\x00with a zero"
    assert store.compare_set("key", "other", "new") == b"value\\x00with a zero"
    assert store.compare_set("fresh", "", "first") == b"first"
    assert store.add("count", 40) == 40 and store.add("count", 2) == 42
    assert store.get("count") == b"42"
    store.wait(["key", "count"])
    n = store.num_keys()
    assert store.delete_key("key") and not store.delete_key("key")
    assert store.num_keys() == n - 1
dist.barrier()
if rank == 1:
    store.set("parting", "")
    assert store.get("parting") == b""
dist.barrier()
dist.destroy_process_group()
"""


class Tap:
    """One connection of a rank, and ours to the store on its behalf."""

    def __init__(self, number, client, port):
        self.number, self.turn = number, 0
        self.ends = {client: "client", socket.create_connection(("127.0.0.1", port)): "store"}

    def pass_on(self, source, lines):
        """False when the connection has ended."""
        try:
            data = source.recv(1 << 16)
        except ConnectionError:
            data = b""
        for end in self.ends:
            if data and end is not source:
                end.sendall(data)
            elif not data:
                end.close()
        if data:
            lines.append([self.number, self.ends[source], data.hex()])
        return bool(data)


def record(listener, port, ranks):
    taps, lines = [], []
    while any(r.poll() is None for r in ranks):
        ends = {end: tap for tap in taps for end in tap.ends}
        ready = select.select([e for e in ends if ends[e].ends[e] == "store"], [], [], QUIET_S)[0]
        if not ready:  # the store has said all it can: a request of who was served longest ago
            ready = select.select([listener, *ends], [], [], QUIET_S)[0]
            ready.sort(key=lambda e: ends[e].turn if e in ends else -1)
        if ready and ready[0] is listener:
            taps.append(Tap(len(taps), listener.accept()[0], port))
        elif ready:
            tap = ends[ready[0]]
            tap.turn = len(lines)
            if not tap.pass_on(ready[0], lines):
                taps.remove(tap)
    assert [r.wait() for r in ranks] == [0, 0]
    return lines


def without_repetitions(lines):
    for number in {line[0] for line in lines}:
        before, exchange = [], []
        for line in [line for line in lines if line[0] == number] + [[None, "client", ""]]:
            if line[1] == "client" and exchange and exchange[-1][1] == "store":
                if exchange == before:
                    gone = set(map(id, exchange))
                    lines = [kept for kept in lines if id(kept) not in gone]
                before, exchange = exchange, []
            exchange.append(line)
    return lines


def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = subprocess.Popen([sys.executable, "-c", STORE, str(port)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    listener = socket.create_server(("127.0.0.1", 0))
    env = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
               MASTER_PORT=str(listener.getsockname()[1]), GLOO_SOCKET_IFNAME="lo",
               TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    ranks = []
    try:
        assert store.stdout.readline() == "serving\n"
        ranks = [subprocess.Popen([sys.executable, "-c", RANK], env=dict(env, RANK=str(r)))
                 for r in range(2)]
        for line in without_repetitions(record(listener, port, ranks)):
            print(json.dumps(line))
    finally:
        for process in [store, *ranks]:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
