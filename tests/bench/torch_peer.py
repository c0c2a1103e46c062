"""PyTorch's side of some benchmarks; run by an interpreter that has it.

    torchrun … torch_peer.py all-reduce BYTES:COUNT…     gloo; a line of JSON for each
    torch_peer.py store                                  a TCPStore until it is killed
    torch_peer.py save FILE MIB                          torch.save and torch.load, twice
"""

import json
import signal
import sys
import time

import torch
import torch.distributed as dist


def all_reduce(sizes):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for bytes_, count in (map(int, size.split(":")) for size in sizes):
        data = torch.zeros(bytes_ // 4)
        dist.all_reduce(data)
        dist.barrier()
        times = []
        for _ in range(count):
            began = time.perf_counter()
            dist.all_reduce(data)
            times.append((time.perf_counter() - began) * 1e6)
        times.sort()
        if dist.get_rank() == 0:
            print(json.dumps({"what": "all-reduce", "bytes": bytes_, "count": count,
                              "median_us": times[count // 2], "best_us": times[0]}))
    dist.destroy_process_group()


def store():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    print(json.dumps({"port": server.port}), flush=True)
    signal.pause()


def save(path, mib):
    """As scripts do it: without fsync, and the file comes back from the page cache."""
    state = {f"h.{i}.weight": torch.randn(8192, 768) for i in range(mib // 24)}
    size = sum(t.nbytes for t in state.values())
    for _ in range(2):
        began = time.perf_counter()
        torch.save(state, path)
        saved = time.perf_counter()
        torch.load(path)
        print(json.dumps({"bytes": size, "save_s": saved - began,
                          "load_s": time.perf_counter() - saved}))


if sys.argv[1] == "store":
    store()
elif sys.argv[1] == "save":
    save(sys.argv[2], int(sys.argv[3]))
else:
    all_reduce(sys.argv[2:])
