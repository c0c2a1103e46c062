"""More of store_cases.py: handlers, helpers and prefixes in front of a store, and the odd values."""

import contextlib
import datetime
import os
import socket
import threading

from store_rig import dist_error, raises, seconds, store


def case_every_method_through_a_prefix(port):
    import torch.distributed as dist

    raw = store(port)
    s = dist.PrefixStore("p", raw)
    s.set("a", "1")
    s.append("a", "2")
    s.multi_set(["b", "c"], ["3", ""])
    assert s.multi_get(["a", "b", "c"]) == [b"12", b"3", b""]
    assert s.compare_set("b", "3", "4") == b"4"
    assert s.check(["a", "b", "c"]) and not s.check(["a", "missing"])
    s.queue_push("q", "x")
    assert s.queue_len("q") == raw.queue_len("p/q") == 1
    assert s.queue_pop("q") == b"x"
    assert s.add("n", -5) == -5
    s.wait(["a", "n"], seconds(30))
    assert sorted(s.list_keys()) == ["a", "b", "c", "n"]
    assert s.has_extended_api()
    assert s.underlying_store.get("p/a") == b"12"
    with raises(dist_error(), r"wait timeout after 20ms, keys: /p/missing"):
        s.wait(["missing"], datetime.timedelta(milliseconds=20))


def case_binary_and_empty(port):
    s = store(port)
    value = bytes(range(256)) * 3
    s.set("binary", value)
    assert s.get("binary") == value
    s.set("", "the empty key")
    assert s.get("") == b"the empty key"
    s.set("empty", "")
    assert s.get("empty") == b"" and s.check(["empty"])
    assert s.compare_set("empty", "", "full") == b"full"
    assert s.check([]) and s.multi_get([]) == []
    s.multi_set([], [])
    s.wait([])
    s.set("\u00e9/\u4e2d", "text")
    assert s.get("\u00e9/\u4e2d") == b"text"


def case_add_reads_text(port):
    s = store(port)
    s.set("n", " 41 apples")
    assert s.add("n", 1) == 42 and s.get("n") == b"42"
    assert s.add("n", 0) == 42 and s.add("new", 0) == 0 and s.get("new") == b"0"
    top = 2**63 - 1
    assert s.add("top", top) == top and s.add("top", 1) == -(2**63)
    s.set("text", "apples")
    with raises(Exception, ""):
        s.add("text", 1)  # costs the connection
    assert store(port).get("text") == b"apples"


def case_waits_for_several_end_together(port):
    """Woken by each kind of write; one key is named twice."""
    s, other = store(port), store(port)
    done = []

    def worker():
        mine = store(port)
        mine.set("waiting", "")
        mine.wait(["a", "b", "c", "d", "a"])
        done.append(mine.multi_get(["a", "b", "c", "d"]))

    thread = threading.Thread(target=worker)
    thread.start()
    s.wait(["waiting"])
    other.set("a", "1")
    other.add("b", 2)
    other.append("c", "3")
    assert done == []
    other.compare_set("d", "", "4")
    thread.join()
    assert done == [[b"1", b"2", b"3", b"4"]]


def case_clones_are_connections_of_their_own(port):
    """One may wait while another sets; they count no worker in."""
    s = store(port, world_size=1)
    clones = [s.clone() for _ in range(8)]
    threads = [threading.Thread(target=c.get, args=("late",)) for c in clones]
    for t in threads:
        t.start()
    assert s.num_keys() == 1  # init/
    s.set("late", "x")
    for t in threads:
        t.join()
    nested = clones[0].clone().clone()
    assert nested.get("late") == b"x" and nested.num_keys() == 2


def case_timeout_is_the_clients(port):
    s = store(port)
    s.set_timeout(seconds(7))
    assert s.timeout == seconds(7) and s.clone().timeout == seconds(7)


def case_repr(port):
    text = repr(store(port))
    assert "TCPStore" in text and f":{port}" in text, text
    assert (store(port).host, store(port).port) == ("127.0.0.1", port)


def case_world_size_0_raises(port):
    with raises(ValueError, "world size"):
        store(port, world_size=0)


def case_our_port_is_taken_for_others(port):
    import torch.distributed as dist

    with raises(dist.DistNetworkError, f"server socket has failed to listen.*{port}"):
        dist.TCPStore("127.0.0.1", port, 1, True, timeout=seconds(10), use_libuv=True)


@contextlib.contextmanager
def environment(**variables):
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def as_worker(port, rank, world):
    return environment(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True",
                       TORCHELASTIC_RESTART_COUNT="0")


def case_agent_store(port):
    """Who would host becomes a client where the agent's store is."""
    import torch.distributed as dist

    with as_worker(port, 0, 1):
        would_be = dist.TCPStore("127.0.0.1", port, 1, True, timeout=seconds(10))
    would_be.set("a", "b")
    assert store(port).get("a") == b"b"


def case_rendezvous_by_environment(port):
    import torch.distributed as dist

    stores = []
    for rank in range(2):
        with as_worker(port, rank, 2):
            s, r, w = next(dist.rendezvous("env://"))
        assert (r, w) == (rank, 2)
        stores.append(s)
    stores[0].set("key0", "value0")
    stores[1].set("key1", "value1")
    assert stores[1].multi_get(["key0", "key1"]) == [b"value0", b"value1"]
    assert store(port).add("init", 0) == 0
    assert stores[0].num_keys() == 4  # init/ and what was looked for just now


def case_rendezvous_by_tcp(port):
    import torch.distributed as dist

    with as_worker(port, 0, 1):
        s, rank, world = next(dist.rendezvous(f"tcp://127.0.0.1:{port}?rank=0&world_size=1"))
        with raises(ValueError, "rank parameter missing"):
            next(dist.rendezvous(f"tcp://127.0.0.1:{port}?world_size=1"))
    assert (rank, world) == (0, 1)
    s.set("a", "b")
    assert s.get("a") == b"b"


def case_elastic_store_helpers(port):
    """As torch.distributed.elastic uses the store."""
    from torch.distributed.elastic.utils import store as helpers

    n, results = 3, {}

    def worker(rank):
        mine = store(port)
        results[rank] = helpers.synchronize(mine, str(rank).encode(), rank, n, "all", 30)
        helpers.barrier(mine, n, "all of them", 30)

    threads = [threading.Thread(target=worker, args=(r,)) for r in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {r: [b"0", b"1", b"2"] for r in range(n)}, results


def case_client_says_the_recorded_bytes(port):
    """The protocol's client half is what ours was built for; of this PyTorch, too."""
    del port
    said = []

    def serve(listener):
        peer = listener.accept()[0]
        with peer, peer.makefile("rb") as f:
            said.append(f.read(10))
            peer.sendall(said[0][6:])
            said.append(f.read(1 + 8 + 5 + 8))
            peer.sendall((1).to_bytes(8, "little"))
            said.append(f.read(1 + 8 + 2 + 8 + 1))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        s = store(listener.getsockname()[1], world_size=1)
        s.set("k", "v")
        thread.join()
    pid = os.getpid().to_bytes(4, "little").hex()
    assert [b.hex() for b in said] == [
        f"00cef7853c0d{pid}",
        "040500000000000000696e69742f0100000000000000",
        "0102000000000000002f6b010000000000000076",
    ], said
