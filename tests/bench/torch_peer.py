"""PyTorch's side of two benchmarks; run by an interpreter that has it.

    torchrun … torch_peer.py all-reduce BYTES:COUNT…     gloo; a line of JSON for each
    torch_peer.py store                                  a TCPStore until it is killed
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


if sys.argv[1] == "store":
    store()
else:
    all_reduce(sys.argv[2:])
