"""Trains a small GPT-2 by each of PyTorch's own strategies, one after another, for
test_strategies_torch.py. Every rank starts

    train_strategies.py SETTINGS.json

under ctrun; rank 0 prints a line of JSON for each strategy: the steps' losses, gradient norms and
loss scales. Some compute in bf16 or fp16: fully_shard by its MixedPrecisionPolicy, DDP with weights
cast for each step or under autocast.
The first weights are those of a checkpoint of the engine, which torch.distributed.checkpoint loads
into each strategy's own mesh; the samples are DistributedSampler's. One more line tells what of the
checkpoint, moments included, a mesh of two ranks has got wrong (starting PyTorch is what takes
time here, so it is done once).
"""

import json
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from checkpoint_readers import differing_in_mesh
from make_fixtures import GPT2, learning_rate, optimizer_of, parameter_groups
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.utils.data import DistributedSampler


def load_weights(model, c):
    state = model.state_dict()
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(c["checkpoint"]))


def replicated(c, make_optimizer, wrap=lambda model: model):
    model = GPT2(c)
    load_weights(model, c)
    model = nn.parallel.DistributedDataParallel(wrap(model))
    return model, make_optimizer(model)


def ddp(c, **kwargs):
    return replicated(c, lambda model: optimizer_of(model, c), **kwargs)


class Cast(nn.Module):
    """Computes with weights cast to bf16, as fully_shard's MixedPrecisionPolicy does."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        cast = {name: p.bfloat16() for name, p in self.model.named_parameters()}
        return torch.func.functional_call(self.model, cast, (tokens,))


def zero1(c):
    return replicated(c, lambda model: ZeroRedundancyOptimizer(
        parameter_groups(model, c), torch.optim.AdamW, lr=1.0, betas=(c["beta1"], c["beta2"]),
        eps=c["eps"]))


def sharded(c, *mesh_shape, reshard, policy=MixedPrecisionPolicy()):
    names = ("replicate", "shard")[-len(mesh_shape):]
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
    model = GPT2(c)
    for part in (*model.h, model):
        fully_shard(part, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    load_weights(model, c)
    return model, optimizer_of(model, c)


STRATEGIES = {
    "ddp": ddp,
    "zero1": zero1,
    "zero2": lambda c: sharded(c, dist.get_world_size(), reshard=False),
    "fsdp": lambda c: sharded(c, dist.get_world_size(), reshard=True),
    "hpz": lambda c: sharded(c, dist.get_world_size(), reshard=2),
    "hsdp": lambda c: sharded(c, 2, dist.get_world_size() // 2, reshard=True),
    "fsdp, bf16": lambda c: sharded(
        c, dist.get_world_size(), reshard=True,
        policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)),
    "ddp, bf16": lambda c: ddp(c, wrap=Cast),
    "ddp, autocast to bf16": ddp,
    "ddp, autocast to fp16": ddp,
}
AUTOCAST = {"ddp, autocast to bf16": torch.bfloat16, "ddp, autocast to fp16": torch.float16}


def batches(c):
    """This rank's part of each step."""
    corpus = torch.tensor(list(pathlib.Path(c["corpus"]).read_bytes()))
    length = c["seq_len"]
    sampler = DistributedSampler(
        range((len(corpus) - 1) // length), shuffle=True, seed=c["seed"], drop_last=True)
    begins = torch.tensor(list(sampler)) * length
    each = c["batch"] // dist.get_world_size()
    for step in range(c["steps"]):
        rows = begins[step * each:(step + 1) * each]
        yield torch.stack([corpus[at:at + length + 1] for at in rows])


def mean(value):
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def train(c, model, optimizer, dtype=None):
    scaler = torch.amp.GradScaler(
        "cpu", c["init_scale"], growth_interval=c["growth_interval"],
        enabled=dtype == torch.float16)
    losses, norms, scales = [], [], []
    for step, rows in enumerate(batches(c), 1):
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            logits = model(rows[:, :-1]).float()
        loss = F.cross_entropy(logits.reshape(-1, c["vocab"]), rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), c["grad_clip"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(c, step)
        scales.append(scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
        losses.append(mean(loss.detach()))
        norms.append(getattr(norm, "full_tensor", lambda: norm)().item())
    return {"loss": losses, "norm": norms, "scale": scales}


def check_small_mesh(c):
    mesh = DeviceMesh("cpu", [0, 1])
    is_in = mesh.get_coordinate() is not None
    own = differing_in_mesh(pathlib.Path(c["checkpoint"]), mesh) if is_in else []
    wrong = [None] * dist.get_world_size()
    dist.all_gather_object(wrong, own)
    return sum(wrong, [])


def main(path):
    c = json.loads(pathlib.Path(path).read_text())
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    wrong = check_small_mesh(c)
    if dist.get_rank() == 0:
        print(json.dumps({"what": "small mesh", "wrong": wrong}), flush=True)
    for name, make in STRATEGIES.items():
        trace = train(c, *make(c), AUTOCAST.get(name))
        if dist.get_rank() == 0:
            print(json.dumps({"what": name, **trace}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
