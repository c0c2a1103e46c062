"""GPT-2 as one writes it in plain PyTorch: fp32, AdamW, clipping, random tokens; 124M, if not
told otherwise. Run by torchrun it is DistributedDataParallel with gloo, or fully_shard of each
block (hsdp: on a mesh of two replicas), alone one process; rank 0 prints a line of JSON for each
step.

What PyTorch offers to be quicker is taken: fused AdamW and attention, gradients as views of the
buckets, denormals flushed, and with --compile torch.compile (whose first steps compile).
"""

import argparse
import json
import math
import os
import resource
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

CONTEXT = 1024


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn, self.attn_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc, self.fc_proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def attend(self, x):
        batch, length, dim = x.shape
        q, k, v = (part.view(batch, length, self.heads, dim // self.heads).transpose(1, 2)
                   for part in self.attn(x).split(dim, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn_proj(y.transpose(1, 2).reshape(batch, length, dim))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, heads, dim, vocab):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(CONTEXT, dim)
        self.h = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                scale = 1 / math.sqrt(2 * layers) if "proj" in name else 1
                nn.init.normal_(p, 0, 0.02 * scale)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="sequences a rank")
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--strategy", choices=("ddp", "fsdp", "hsdp"), default="ddp")
    for name, default in (("layers", 12), ("heads", 12), ("dim", 768), ("vocab", 50257)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def shard(model, is_hybrid):
    """As FSDP's users do it: a group for each block, and the rest in one."""
    world_size = dist.get_world_size()
    shape = (2, world_size // 2) if is_hybrid else (world_size,)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape):])
    for part in (*model.h, model):
        fully_shard(part, mesh=mesh)
    return model


def make_model(args, is_alone):
    model = GPT2(args.layers, args.heads, args.dim, args.vocab)
    if args.strategy != "ddp":
        model = shard(model, args.strategy == "hsdp")
    elif not is_alone:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return torch.compile(model) if args.compile else model


def main():
    args = parse_args()
    is_alone = "RANK" not in os.environ
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    if not is_alone:
        dist.init_process_group("gloo")
    rank = 0 if is_alone else dist.get_rank()
    model = make_model(args, is_alone)
    groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) == decays],
               "weight_decay": 0.1 if decays else 0.0} for decays in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
    torch.manual_seed(1 + rank)
    for step in range(1, args.steps + 1):
        began = time.perf_counter()
        tokens = torch.randint(args.vocab, (args.batch, args.seq_len + 1))
        loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(json.dumps({"step": step, "loss": loss.item(), "peak_bytes": peak,
                              "step_s": time.perf_counter() - began}), flush=True)
    if not is_alone:
        dist.destroy_process_group()


main()
