"""What PyTorch's own tests ask of a TCPStore, asked of our stores by PyTorch's client.

Run by test_store_torch.py with the Python that has torch:

    python store_cases.py FOLDER        # prints ["store: name", "ok" or a traceback] as JSON

FOLDER is that of the programs. Each case gets a store of its own, so that it can count keys: once
that of ctrun-rendezvous, which raw clients reach, once that of a generation, through its ctrun.

The names of PyTorch's test/distributed/test_store.py and what stands for them here (StoreTestBase,
TCPStoreTest, PrefixStoreTest, Rendezvous…Test, TestMultiThreadedWait, TimeoutTest,
TestClientProtocol, and elastic's util_test.py):

    test_set_get                              case_set_get
    test_compare_set                          case_compare_set
    test_simple_wait                          case_simple_wait, case_wait_names_every_key
    test_append, test_multi_set, _multi_get   case_append, case_multi_set, case_multi_get
    test_clone                                case_clone
    test_numkeys_delkeys                      case_numkeys_delkeys
    test_multi_worker_with_(non)fixed_…       case_multi_worker
    test_queues, _nonblocking, _bidirectional case_queues, …_nonblocking, …_bidirectional
    test_queues_timeout                       case_queues_timeout
    test_list_keys, barrier tests             case_list_keys, case_barrier…
    test_address_already_in_use               case_our_port_is_taken_for_others
    test_world_size_0_raises                  case_world_size_0_raises
    test_agent_store                          case_agent_store
    test_repr                                 case_repr
    test_tcp_store_timeout_set                case_timeout_text
    test_tcp_store_timeout_doest_break_client case_timeout_does_not_break_the_client
    RendezvousEnvTest.test_nominal            case_rendezvous_by_environment
    RendezvousTCPTest.test_common_errors …    case_rendezvous_by_tcp
    test_wait_tcp_store(_uv)                  case_multi_threaded_wait
    test_interrupt_doesnt_break_wait          case_a_signal_does_not_break_a_wait
    test_client_connect                       case_client_says_the_recorded_bytes
    PrefixStore round trip                    case_prefix_store, case_every_method_through_a_prefix
    util_test.py: store barrier               case_elastic_store_helpers

Not ours: what only PyTorch's server does in the process that hosts it (test_multitenancy,
test_take_over_listen_socket, test_store_timeout_on_missing_clients, test_init_pg_and_rpc_…), and
test_dns_timeout, which is about the client's resolver. Different on purpose: our COMPARE_SET wakes
nobody when it stores nothing, and one push to a queue ends one wait (tests/unit/rendezvous)."""

import datetime
import json
import os
import signal
import sys
import threading
import time
import traceback

import store_client_cases
from store_rig import STORES, dist_error, raises, seconds, store

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
    s.set_timeout(seconds(0.2))
    with raises(dist_error(), r"^wait timeout after 200ms, keys: /key0"):
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


FUNCTIONS = {name: f for name, f in {**globals(), **vars(store_client_cases)}.items()
             if name.startswith("case_")}
CASES = list(FUNCTIONS)


def run(kind, folder, name):
    start, exit_code = STORES[kind]
    server, port = start(folder)
    try:
        FUNCTIONS[name](port)
        assert server.poll() is None, "the server died"
        server.terminate()
        assert server.wait(30) == exit_code
        return "ok"
    except BaseException:  # noqa: B902 - a case's failure is its result
        return traceback.format_exc()
    finally:
        server.kill()
        server.wait()


def main():
    for kind in STORES:
        for name in CASES:
            print(json.dumps([f"{kind}: {name}", run(kind, sys.argv[1], name)]), flush=True)


if __name__ == "__main__":
    main()
