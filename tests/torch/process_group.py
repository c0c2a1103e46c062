"""What an unmodified PyTorch script does with its process group: one function for each thing.

    ctrun … process_group.py FOLDER [KILLS]

All that begin with check_ are run on every rank; rank 0 prints as JSON what it ran, and what this
PyTorch's gloo does not have. In each of the first KILLS generations the last rank is killed amidst
its work instead. Runs with PyTorch 1.13 and with 2.15."""

import contextlib
import datetime
import json
import os
import re
import signal
import socket
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FOLDER = sys.argv[1]
KILLS = int(sys.argv[2]) if len(sys.argv) > 2 else 0
GENERATION = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
IS_MODERN = int(torch.__version__.split(".")[0]) >= 2
NEXT, PREVIOUS = (RANK + 1) % WORLD, (RANK - 1) % WORLD


class Absent(Exception):
    """This version of gloo cannot do it."""


@contextlib.contextmanager
def perhaps_absent():
    try:
        yield
    except (AttributeError, ImportError, RuntimeError, ValueError) as e:
        if isinstance(e, (AttributeError, ImportError)) or re.search("support|implement|CUDA", str(e)):
            raise Absent(str(e)) from e
        raise


def filled(value, n=3):
    return torch.full((n,), float(value))


def total():
    return WORLD * (WORLD + 1) // 2


def equal(tensors, values):
    assert [t.tolist() for t in tensors] == [[float(v)] * t.numel()
                                             for t, v in zip(tensors, values)], tensors


# ---- what is known of the launch ----


def check_launched_by_elastic():
    assert dist.is_torchelastic_launched()
    assert (dist.get_rank(), dist.get_world_size()) == (RANK, WORLD)
    assert dist.get_backend() == "gloo"


def check_store_is_new():
    """Left by a generation before: its addresses, which would be dialled in vain."""
    store = dist.distributed_c10d._get_default_store()
    assert store.add(f"generation of {RANK}", 1) == 1
    if IS_MODERN:
        assert not any(store.check([f"left by {r} in {g}"])
                       for r in range(WORLD) for g in range(GENERATION))
    dist.barrier()
    keys = [store.add(f"generation of {r}", 0) for r in range(WORLD)]
    assert keys == [1] * WORLD, keys


# ---- collectives ----


def check_all_reduce():
    operations = {"SUM": total(), "MIN": 1, "MAX": WORLD}
    for name, expected in operations.items():
        t = filled(RANK + 1)
        dist.all_reduce(t, op=getattr(dist.ReduceOp, name))
        equal([t], [expected])
    t = filled(2)
    dist.all_reduce(t, op=dist.ReduceOp.PRODUCT)
    equal([t], [2**WORLD])
    t = torch.tensor([1 << RANK])
    dist.all_reduce(t, op=dist.ReduceOp.BOR)
    assert t.item() == (1 << WORLD) - 1
    many = [filled(RANK + i) for i in range(16)]
    for work in [dist.all_reduce(t, async_op=True) for t in many]:
        work.wait()
    equal(many, [total() - WORLD + i * WORLD for i in range(16)])


def check_broadcast():
    for source in range(WORLD):
        t = filled(RANK)
        dist.broadcast(t, source)
        equal([t], [source])


def check_all_gather():
    got = [filled(-1) for _ in range(WORLD)]
    dist.all_gather(got, filled(RANK))
    equal(got, range(WORLD))


def check_all_gather_into_tensor():
    got = filled(-1, 3 * WORLD)
    with perhaps_absent():
        dist.all_gather_into_tensor(got, filled(RANK))
    equal(got.chunk(WORLD), range(WORLD))


def check_gather():
    root = WORLD - 1
    got = [filled(-1) for _ in range(WORLD)] if RANK == root else None
    dist.gather(filled(RANK), got, dst=root)
    equal(got or [], range(WORLD))


def check_scatter():
    t = filled(-1)
    dist.scatter(t, [filled(r) for r in range(WORLD)] if RANK == 0 else None, src=0)
    equal([t], [RANK])


def check_reduce():
    t = filled(RANK + 1)
    dist.reduce(t, dst=WORLD - 1)
    if RANK == WORLD - 1:
        equal([t], [total()])


def check_reduce_scatter():
    t = filled(-1)
    with perhaps_absent():
        dist.reduce_scatter(t, [filled(RANK + 1 + r) for r in range(WORLD)])
    equal([t], [total() + WORLD * RANK])


def check_reduce_scatter_tensor():
    t = filled(-1)
    with perhaps_absent():
        dist.reduce_scatter_tensor(t, torch.cat([filled(RANK + 1 + r) for r in range(WORLD)]))
    equal([t], [total() + WORLD * RANK])


def check_all_to_all():
    got = [filled(-1) for _ in range(WORLD)]
    with perhaps_absent():
        dist.all_to_all(got, [filled(100 * RANK + r) for r in range(WORLD)])
    equal(got, [100 * r + RANK for r in range(WORLD)])


def check_all_to_all_single():
    """Of uneven parts, too."""
    got = filled(-1, WORLD)
    with perhaps_absent():
        dist.all_to_all_single(got, torch.arange(WORLD) + 100.0 * RANK)
    assert got.tolist() == [100 * r + RANK for r in range(WORLD)]
    got = filled(-1, WORLD * (RANK + 1))
    sent = [r + 1 for r in range(WORLD)]
    dist.all_to_all_single(got, filled(RANK, sum(sent)), [RANK + 1] * WORLD, sent)
    equal(got.chunk(WORLD), range(WORLD))


def check_barrier():
    dist.barrier()
    dist.barrier(async_op=True).wait()


def check_send_and_receive():
    got = filled(-1)
    if RANK % 2 == 0:
        dist.send(filled(RANK), NEXT, tag=7)
        dist.recv(got, PREVIOUS, tag=7)
    else:
        dist.recv(got, PREVIOUS, tag=7)
        dist.send(filled(RANK), NEXT, tag=7)
    equal([got], [PREVIOUS])
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, filled(RANK), PREVIOUS),
                                    dist.P2POp(dist.irecv, got, NEXT)])
    for work in works:
        work.wait()
    equal([got], [NEXT])
    for receiver in range(WORLD):  # from anybody
        if RANK == receiver:
            senders = [dist.recv(got) for _ in range(1, WORLD)]
            assert sorted(senders) == [r for r in range(WORLD) if r != RANK]
        else:
            dist.send(filled(RANK), receiver)


def check_large_messages():
    t = filled(RANK + 1, 1 << 20)
    dist.all_reduce(t)
    assert t.min() == t.max() == total()


# ---- objects ----


def check_objects():
    mine = {"rank": RANK, "text": "x" * RANK}
    got = [None] * WORLD
    dist.all_gather_object(got, mine)
    assert [o["rank"] for o in got] == list(range(WORLD))
    got = [mine, "and more"] if RANK == 0 else [None, None]
    dist.broadcast_object_list(got, src=0)
    assert got == [{"rank": 0, "text": ""}, "and more"]
    got = [None] * WORLD if RANK == 0 else None
    dist.gather_object(mine, got, dst=0)
    assert RANK != 0 or got[-1] == {"rank": WORLD - 1, "text": "x" * (WORLD - 1)}
    got = [None]
    dist.scatter_object_list(got, [f"for {r}" for r in range(WORLD)] if RANK == 0 else None, src=0)
    assert got == [f"for {RANK}"]


def check_objects_from_one_to_one():
    got = [None]
    with perhaps_absent():
        send, receive = dist.send_object_list, dist.recv_object_list
    if RANK % 2 == 0:
        send([{"from": RANK}], dst=NEXT)
        receive(got, src=PREVIOUS)
    else:
        receive(got, src=PREVIOUS)
        send([{"from": RANK}], dst=NEXT)
    assert got == [{"from": PREVIOUS}]


# ---- groups ----


def check_new_group():
    """Of some of the ranks; each is a member of its own row, and of the even or odd ones."""
    for ranks in ([0], list(range(WORLD)), list(range(0, WORLD, 2)), list(range(1, WORLD, 2))):
        group = dist.new_group(ranks)
        if RANK not in ranks:
            continue
        t = filled(RANK)
        dist.all_reduce(t, group=group)
        equal([t], [sum(ranks)])
        assert dist.get_rank(group) == ranks.index(RANK)
        dist.destroy_process_group(group)


def check_subgroups():
    with perhaps_absent():
        mine, groups = dist.new_subgroups(2)
    assert len(groups) == WORLD // 2
    t = filled(1)
    dist.all_reduce(t, group=mine)
    equal([t], [2])


def check_group_made_by_its_members_alone():
    with perhaps_absent():
        if not IS_MODERN:
            raise AttributeError("use_local_synchronization")
        pair = [RANK - RANK % 2, RANK - RANK % 2 + 1]
        group = dist.new_group(pair, use_local_synchronization=True)
        t = filled(RANK)
        dist.all_reduce(t, group=group)
        equal([t], [sum(pair)])


def check_device_mesh():
    with perhaps_absent():
        if not IS_MODERN:
            raise AttributeError("init_device_mesh")
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("replicate", "shard"))
        for name in ("replicate", "shard"):
            t = filled(1)
            dist.all_reduce(t, group=mesh.get_group(name))
            equal([t], [mesh[name].size()])


def check_monitored_barrier():
    dist.monitored_barrier()
    group = dist.new_group(timeout=datetime.timedelta(seconds=60))
    if RANK != WORLD - 1:
        try:
            dist.monitored_barrier(group, timeout=datetime.timedelta(milliseconds=300),
                                   wait_all_ranks=True)
        except RuntimeError as e:  # on a crowded machine others may be late, and named too
            assert RANK != 0 or re.search(rf"Ranks [\d, ]*\b{WORLD - 1} failed to pass", str(e)), e
        else:
            raise AssertionError("passed a barrier that one rank did not come to")
    dist.barrier()


# ---- training ----


def check_ddp_training():
    """As one process that has all the data."""
    torch.manual_seed(1)
    data = torch.randn(WORLD, 6, 5)

    def model():
        torch.manual_seed(2)
        return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))

    def train(net, batch):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        for _ in range(5):
            optimizer.zero_grad()
            net(batch).square().mean().backward()
            optimizer.step()

    parallel, alone = DistributedDataParallel(model(), bucket_cap_mb=1), model()
    train(parallel, data[RANK])
    train(alone, data.flatten(0, 1))
    for p, q in zip(parallel.parameters(), alone.parameters()):
        assert torch.allclose(p, q, atol=1e-5), (p, q)


def check_distributed_checkpoint():
    """torch.distributed.checkpoint: each rank writes, all read."""
    with perhaps_absent():  # Debian's 1.13 has left it out
        import torch.distributed.checkpoint as dcp

    path = os.path.join(FOLDER, "dcp")
    saved = {"weights": torch.arange(24.0).reshape(4, 6)}
    loaded = {"weights": torch.zeros(4, 6)}
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (WORLD,))
    saved["shards"] = distribute_tensor(torch.arange(64.0), mesh, [Shard(0)])
    loaded["shards"] = distribute_tensor(torch.zeros(64), mesh, [Shard(0)])
    dcp.save(saved, checkpoint_id=path)
    dcp.load(loaded, checkpoint_id=path)
    assert loaded["shards"].full_tensor().tolist() == list(range(64))
    assert torch.equal(loaded["weights"], saved["weights"])


# ---- all of them ----


def die_amidst_the_work():
    """In a group that was made by init_method=tcp://, for once, and is checked by gloo."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group(
        "gloo", f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", rank=RANK,
        world_size=WORLD)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"left by {RANK} in {GENERATION}", "an address")
    dist.barrier()
    while True:
        dist.all_reduce(filled(1))
        if RANK == WORLD - 1:
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    if GENERATION < KILLS:
        die_amidst_the_work()
    dist.init_process_group("gloo")
    ran, absent = [], []
    for name, check in list(globals().items()):
        if not name.startswith("check_"):
            continue
        try:
            check()
            ran.append(name[len("check_"):])
        except Absent:
            absent.append(name[len("check_"):])
    everywhere = [None] * WORLD
    dist.all_gather_object(everywhere, (ran, absent, socket.gethostname()))
    assert all(e[:2] == (ran, absent) for e in everywhere), everywhere
    if RANK == 0:
        print(json.dumps({"ran": ran, "absent": absent, "world": WORLD,
                          "torch": torch.__version__, "generation": GENERATION,
                          "master": os.environ["MASTER_ADDR"]}))
    # gloo's threads must be joined before C++ tears its static objects down
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
