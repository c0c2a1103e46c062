"""What PyTorch's own tests ask of a TCPStore, asked of ctrun-rendezvous by PyTorch's client.

Run by test_store_torch.py with the Python that has torch:

    python store_cases.py SERVER        # prints "name<TAB>ok" or "name<TAB>traceback" as JSON

Each case gets a server of its own, so that it can count keys.
"""

import contextlib
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback


def seconds(n):
    return datetime.timedelta(seconds=n)


def store(port, timeout=60, world_size=None, **kwargs):
    """A client of the server; with a world size it counts itself in (init/)."""
    import torch.distributed as dist

    args = ("127.0.0.1", port) if world_size is None else ("127.0.0.1", port, world_size)
    kwargs.setdefault("wait_for_workers", world_size is not None)
    return dist.TCPStore(*args, is_master=False, timeout=seconds(timeout), **kwargs)


@contextlib.contextmanager
def raises(kind, pattern):
    try:
        yield
    except kind as e:
        assert re.search(pattern, str(e)), str(e)
    else:
        raise AssertionError(f"no {kind.__name__}")


def dist_error():
    import torch.distributed as dist

    return dist.DistStoreError


# ---- test_store.py: StoreTestBase ----


def case_set_get(port):
    s = store(port, world_size=1)
    s.add("key", 1)
    s.add("key", 2)
    s.add("key", 3)
    s.set("key0", "value0")
    s.add("key3", 1)
    s.set("key1", "value1")
    s.add("key3", 2)
    s.set("key2", "value2")
    s.add("key3", 3)
    s.add("key3", 4)
    s.add("key3", 5)
    s.add("key3", 6)
    assert s.num_keys() == 6  # with init/
    assert s.get("key") == b"6"
    assert s.get("key0") == b"value0"
    assert s.get("key1") == b"value1"
    assert s.get("key2") == b"value2"
    assert s.get("key3") == b"21"
    s.set("-key3", "7")
    assert s.get("-key3") == b"7"
    assert s.delete_key("-key3")
    assert s.num_keys() == 6


def case_compare_set(port):
    s = store(port)
    assert s.compare_set("cs_key0", "wrong_old_value", "new_value0") == b"wrong_old_value"
    s.set("cs_key0", "value0")
    assert s.get("cs_key0") == b"value0"
    assert s.compare_set("cs_key0", "wrong_value", "new_value0") == b"value0"
    assert s.compare_set("cs_key0", "value0", "new_value0") == b"new_value0"
    assert s.get("cs_key0") == b"new_value0"
    assert s.compare_set("cs_key1", "", "new_value1") == b"new_value1"
    assert s.get("cs_key1") == b"new_value1"


def case_simple_wait(port):
    s = store(port)
    with raises(dist_error(), r"^wait timeout after 100ms, keys: /bad_key"):
        s.wait(["bad_key"], datetime.timedelta(milliseconds=100))
    s.add("good_key", 1)
    s.wait(["good_key"])


def case_wait_names_every_key(port):
    s = store(port)
    s.set("here", "x")
    with raises(dist_error(), r"^wait timeout after 50ms, keys: /here, /a, /b"):
        s.wait(["here", "a", "b"], datetime.timedelta(milliseconds=50))


def case_append(port):
    s = store(port)
    s.set("foo", "po")
    s.append("foo", "tato")
    s.append("bar", "po")
    s.append("bar", "tato")
    assert s.get("foo") == b"potato"
    assert s.get("bar") == b"potato"


def case_multi_set(port):
    s = store(port)
    s.multi_set(["foo", "bar"], ["po", "tato"])
    assert s.get("foo") == b"po"
    assert s.get("bar") == b"tato"


def case_multi_get(port):
    s = store(port)
    s.set("foo", "po")
    s.set("bar", "tato")
    assert s.multi_get(["foo", "bar"]) == [b"po", b"tato"]


def case_clone(port):
    a = store(port)
    b = a.clone()
    a.set("foo", "bar")
    assert b.get("foo") == b"bar"
    b.set("foo", "baz")
    assert a.get("foo") == b"baz"


def case_check(port):
    s = store(port)
    s.set("foo", "bar")
    assert s.check(["foo"])
    assert not s.check(["foo", "baz"])


def case_queues(port):
    s = store(port)
    s.queue_push("foo", "1")
    s.queue_push("foo", "2")
    assert s.queue_len("foo") == 2
    assert s.queue_pop("foo") == b"1"
    assert s.queue_pop("foo") == b"2"
    assert s.queue_len("foo") == 0


def case_queues_nonblocking(port):
    import torch.distributed as dist

    s = store(port)
    with raises(dist.QueueEmptyError, ""):
        s.queue_pop("foo", block=False)
    s.queue_push("foo", "1")
    assert s.queue_pop("foo", block=False) == b"1"


def case_queues_timeout(port):
    s = store(port)
    s.set_timeout(datetime.timedelta(milliseconds=50))
    with raises(dist_error(), r"timeout"):
        s.queue_pop("non_existant")


def case_queues_bidirectional(port):
    main = store(port)
    failures = []

    def worker():
        try:
            local = main.clone()
            local.queue_push("a", "a1")
            assert local.queue_pop("b") == b"b1"
        except BaseException as e:  # noqa: B902 - reported by the main thread
            failures.append(repr(e))

    thread = threading.Thread(target=worker)
    thread.start()
    local = main.clone()
    local.queue_push("b", "b1")
    assert local.queue_pop("a") == b"a1"
    thread.join()
    assert not failures, failures


def case_queues_many_poppers(port):
    """Each element is given once."""
    n = 40
    got = []
    lock = threading.Lock()

    def worker():
        mine = store(port)
        for _ in range(n // 8):
            while True:
                try:
                    value = mine.queue_pop("q")
                except Exception as e:
                    assert "empty" in str(e).lower(), e  # another was faster
                    continue
                with lock:
                    got.append(value)
                break

    threads = [threading.Thread(target=worker) for _ in range(8)]
    for t in threads:
        t.start()
    pusher = store(port)
    for i in range(n):
        pusher.queue_push("q", str(i))
    for t in threads:
        t.join()
    assert sorted(int(v) for v in got) == list(range(n)), got
    assert pusher.queue_len("q") == 0


def case_list_keys(port):
    import torch.distributed as dist

    s = store(port, world_size=1)
    s.set("a", "1")
    s.set("b", "2")
    s.queue_push("q", "x")
    assert sorted(s.list_keys()) == ["a", "b"]
    prefixed = dist.PrefixStore("p", s)
    prefixed.set("c", "3")
    assert list(prefixed.list_keys()) == ["c"]
    assert sorted(s.list_keys()) == ["a", "b", "p/c"]


def case_numkeys_delkeys(port):
    s = store(port, world_size=1)
    assert s.num_keys() == 1
    for i in range(4):
        s.set(f"key{i}", f"value{i}")
    assert s.num_keys() == 5
    assert s.delete_key("key0")
    assert s.num_keys() == 4
    assert s.delete_key("key1")
    assert s.delete_key("key2")
    assert s.num_keys() == 2
    assert not s.delete_key("key2")
    s.set("key1", "value1")
    assert s.num_keys() == 3
    s.set_timeout(seconds(2))
    with raises(dist_error(), r"^wait timeout after 2000ms, keys: /key0"):
        s.get("key0")


def case_multi_worker(port):
    n = 5
    for world_size in (n + 1, None):
        clients = [store(port, world_size=world_size) for _ in range(n)]
        for i, c in enumerate(clients):
            c.set(f"key{i}", f"value{i}")
        for c in clients:
            assert c.multi_get([f"key{i}" for i in range(n)]) == [
                f"value{i}".encode() for i in range(n)
            ]


def case_barrier(port):
    n = 4
    passed = []

    def worker():
        mine = store(port)
        mine.barrier("bar", n)
        passed.append(int(mine.get("arrived")))

    main = store(port)
    main.set("arrived", "0")
    threads = [threading.Thread(target=worker) for _ in range(n - 1)]
    for t in threads:
        t.start()
    while not main.check(["bar"]) or main.get("bar") != str(n - 1).encode():
        time.sleep(0.01)
    assert passed == []
    main.set("arrived", "1")
    main.barrier("bar", n)
    for t in threads:
        t.join()
    assert passed == [1] * (n - 1)


def case_barrier_timeout(port):
    s = store(port)
    with raises(dist_error(), r"barrier timeout after 100ms, key: bar"):
        s.barrier("bar", 2, datetime.timedelta(milliseconds=100))
    s.set("still", "works")
    assert s.get("still") == b"works"


def case_barrier_through_a_prefix(port):
    import torch.distributed as dist

    threads = [
        threading.Thread(target=lambda: dist.PrefixStore("p", store(port)).barrier("b", 3))
        for _ in range(3)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert store(port).get("p/b/last_member") == b"1"


# ---- PrefixStore ----


def case_prefix_store(port):
    import torch.distributed as dist

    s = store(port)
    prefixed = dist.PrefixStore("p", s)
    prefixed.set("foo", "bar")
    assert s.get("p/foo") == b"bar"
    assert prefixed.get("foo") == b"bar"
    twice = dist.PrefixStore("q", prefixed)
    twice.add("n", 3)
    assert s.get("p/q/n") == b"3"
    assert twice.num_keys() == s.num_keys() == 2
    assert twice.delete_key("n") and not s.check(["p/q/n"])


# ---- RendezvousTCPTest, TestMultiThreadedWait, TimeoutTest ----


def case_timeout_text(port):
    s = store(port)
    with raises(dist_error(), r"wait timeout after 100ms, keys: /nonexistent key"):
        s.set_timeout(datetime.timedelta(milliseconds=100))
        s.get("nonexistent key")


def case_timeout_does_not_break_the_client(port):
    s = store(port)
    for i in range(20):
        with raises(dist_error(), r"wait timeout after 10ms"):
            s.wait([f"never{i}"], datetime.timedelta(milliseconds=10))
        s.set(f"key{i}", f"value{i}")
        assert s.get(f"key{i}") == f"value{i}".encode()
    late = store(port)
    late.multi_set([f"never{i}" for i in range(20)], ["x"] * 20)  # no stray answers
    assert s.num_keys() == 40


def case_timeouts_that_race_with_the_set(port):
    """The wake-up and the CANCEL_WAIT cross: the connection stays in step."""
    s = store(port)
    other = store(port)
    for i in range(200):
        setter = threading.Timer(0.002, other.set, (f"k{i}", str(i)))
        setter.start()
        try:
            s.wait([f"k{i}"], datetime.timedelta(milliseconds=2))
        except dist_error():
            pass
        assert s.add("n", 1) == i + 1
        setter.join()
        assert s.get(f"k{i}") == str(i).encode()


def case_multi_threaded_wait(port):
    s = store(port)
    failures = []

    def worker():
        try:
            mine = store(port)
            mine.wait(["go"], seconds(30))
            assert mine.get("go") == b"yes"
        except BaseException as e:  # noqa: B902 - reported by the main thread
            failures.append(repr(e))

    threads = [threading.Thread(target=worker) for _ in range(16)]
    for t in threads:
        t.start()
    s.set("go", "yes")
    for t in threads:
        t.join()
    assert not failures, failures


def case_a_signal_does_not_break_a_wait(port):
    seen = []
    signal.signal(signal.SIGALRM, lambda *a: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        s = store(port)
        with raises(dist_error(), r"wait timeout after 300ms"):
            s.wait(["foo"], datetime.timedelta(milliseconds=300))
        s.set("foo", "bar")
        s.wait(["foo"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(seen) > 0


def case_large_values(port):
    s = store(port)
    value = os.urandom(8 * 1024 * 1024)
    s.set("big", value)
    assert s.get("big") == value
    assert s.multi_get(["big"] * 3) == [value] * 3
    with raises(Exception, ""):
        s.set("big", value + b"x")
        s.get("big")
    assert store(port).get("big") == value


def case_ipv6_client(port):
    """PyTorch tries IPv6 first: 127.0.0.1 is reached as ::ffff:127.0.0.1."""
    import torch.distributed as dist

    s = dist.TCPStore("localhost", port, is_master=False, wait_for_workers=False)
    s.set("a", "b")
    assert s.get("a") == b"b"


RANK = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(t)
assert t.item() == 6.0, t
group = dist.new_group([0, 2])
objects = [None] * 3
dist.all_gather_object(objects, dist.get_rank())
assert objects == [0, 1, 2]
dist.barrier()
dist.destroy_process_group()
"""


def case_process_group_over_an_agent_store(port):
    ranks = []
    for rank in range(3):
        env = dict(
            os.environ,
            RANK=str(rank),
            WORLD_SIZE="3",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            TORCHELASTIC_USE_AGENT_STORE="True",
            TORCHELASTIC_RESTART_COUNT="0",
            GLOO_SOCKET_IFNAME="lo",
            OMP_NUM_THREADS="1",
        )
        ranks.append(subprocess.Popen([sys.executable, "-c", RANK], env=env))
    try:
        assert [r.wait(120) for r in ranks] == [0, 0, 0]
    finally:
        for r in ranks:
            r.kill()
            r.wait()


CASES = [name for name in list(globals()) if name.startswith("case_")]


def start_server(program):
    server = subprocess.Popen(
        [program, "--listen=127.0.0.1:0", "--log-level=error"], stdout=subprocess.PIPE, text=True
    )
    return server, int(re.search(r":(\d+)\n", server.stdout.readline())[1])


def run(program, name):
    server, port = start_server(program)
    try:
        globals()[name](port)
        assert server.poll() is None, "the server died"
        server.terminate()
        assert server.wait(30) == 0
        return "ok"
    except BaseException:  # noqa: B902 - a case's failure is its result
        return traceback.format_exc()
    finally:
        server.kill()
        server.wait()


def main():
    for name in CASES:
        print(json.dumps([name, run(sys.argv[1], name)]), flush=True)


if __name__ == "__main__":
    main()
