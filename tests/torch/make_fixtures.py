#!/usr/bin/env python3
"""Writes what PyTorch computes, as safetensors, for tests/conformance/test_gpt2_torch.c.

    make_fixtures.py DIR            the small shapes (they are committed in fixtures/)
    make_fixtures.py --shape NAME FILE   one shape, also those too large to be committed

The model is plain PyTorch, written here and nowhere else. Each file holds a model's first
parameters (init.*), tokens and targets of every step, and of the first step logits and all
gradients (grad.*); of all steps loss and gradient norm; and after the last AdamW step the
parameters (final.*) and, for small files, the moments. The metadata are the settings.
"""

import argparse
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

BASE = dict(
    batch=1, steps=10, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=1.0,
    lr=6e-4, min_lr=6e-5, warmup=3, total_steps=10, schedule="cosine", seed=1, spread=1.0,
    moments=0,
)

SMALL = {
    "odd": dict(BASE, layers=2, heads=3, dim=48, context=16, vocab=101, batch=2, seq_len=13),
    "tiny": dict(
        BASE, layers=1, heads=1, dim=7, context=5, vocab=11, seq_len=5, seed=2, grad_clip=0.5,
        schedule="linear", warmup=0, lr=1e-2, min_lr=1e-3, total_steps=12, moments=1,
    ),
    "deep": dict(
        BASE, layers=4, heads=5, dim=20, context=33, vocab=65, batch=3, seq_len=33, seed=3,
        grad_clip=0.0, schedule="constant", warmup=5, weight_decay=0.0, moments=1,
    ),
    "one-token": dict(
        BASE, layers=2, heads=2, dim=10, context=1, vocab=3, batch=5, seq_len=1, seed=4,
        grad_clip=100.0, beta2=0.999, eps=1e-6, moments=1,
    ),
}

LARGE = {
    # the head's rows in more than one chunk
    "wide-vocab": dict(
        BASE, layers=1, heads=2, dim=16, context=128, vocab=50257, batch=3, seq_len=128,
        seed=5, steps=2, total_steps=2, warmup=1,
    ),
    # the real thing; `spread` 0: GPT-2's own initialisation
    "gpt2-124m": dict(
        BASE, layers=12, heads=12, dim=768, context=1024, vocab=50257, seq_len=64, seed=6,
        steps=1, spread=0.0,
    ),
}


class Conv1D(nn.Module):
    """Hugging Face's linear layer of GPT-2: weight is [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c["heads"]
        self.c_attn = Conv1D(c["dim"], 3 * c["dim"])
        self.c_proj = Conv1D(c["dim"], c["dim"])

    def forward(self, x):
        batch, time, dim = x.shape
        q, k, v = (
            part.view(batch, time, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(dim, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, time, dim))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_fc = Conv1D(c["dim"], 4 * c["dim"])
        self.c_proj = Conv1D(4 * c["dim"], c["dim"])

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c["dim"])
        self.attn = Attention(c)
        self.ln_2 = nn.LayerNorm(c["dim"])
        self.mlp = MLP(c)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte = nn.Embedding(c["vocab"], c["dim"])
        self.wpe = nn.Embedding(c["context"], c["dim"])
        self.h = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.ln_f = nn.LayerNorm(c["dim"])

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def initialise(model, c):
    """GPT-2's initialisation; biases and norms are spread, so that each one matters."""
    spread = c["spread"]
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() >= 2:
                scale = 1 / math.sqrt(2 * c["layers"]) if "c_proj" in name else 1
                p.normal_(0, 0.02 * scale * (1 + 4 * spread))
            else:
                p.normal_(0, 0.1 * spread) if spread else p.zero_()
                if name.endswith("weight"):
                    p.add_(1)


def learning_rate(c, step):
    s, warmup = step - 1, c["warmup"]
    if s < warmup:
        return c["lr"] * (s + 1) / warmup
    done = (s - warmup) / (c["total_steps"] - warmup)
    if c["schedule"] == "cosine":
        return c["min_lr"] + 0.5 * (1 + math.cos(math.pi * done)) * (c["lr"] - c["min_lr"])
    if c["schedule"] == "linear":
        return c["lr"] + done * (c["min_lr"] - c["lr"])
    return c["lr"]


def optimizer_of(model, c):
    params = list(model.parameters())
    groups = [
        dict(params=[p for p in params if p.dim() >= 2], weight_decay=c["weight_decay"]),
        dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0),
    ]
    return torch.optim.AdamW(groups, lr=1.0, betas=(c["beta1"], c["beta2"]), eps=c["eps"])


def make(c, path):
    torch.manual_seed(c["seed"])
    model = GPT2(c)
    initialise(model, c)
    tokens = torch.randint(0, c["vocab"], (c["steps"], c["batch"], c["seq_len"] + 1))
    out = {
        "tokens": tokens[..., :-1].to(torch.int32).contiguous(),
        "targets": tokens[..., 1:].to(torch.int32).contiguous(),
    }
    for name, p in model.named_parameters():
        out["init." + name] = p.detach().clone()

    optimizer = optimizer_of(model, c)
    losses, norms = [], []
    for step in range(1, c["steps"] + 1):
        batch = tokens[step - 1]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, c["vocab"]), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == 1:
            out["logits"] = logits.detach()
            for name, p in model.named_parameters():
                out["grad." + name] = p.grad.clone()
        clip = c["grad_clip"] if c["grad_clip"] > 0 else math.inf
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        if c["steps"] == 1:
            break  # gradients alone
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(c, step)
        optimizer.step()

    out["loss"] = torch.tensor(losses, dtype=torch.float64)
    out["norm"] = torch.tensor(norms, dtype=torch.float64)
    for name, p in model.named_parameters():
        if c["steps"] > 1:
            out["final." + name] = p.detach()
        if c["moments"]:
            out["final." + name + ".exp_avg"] = optimizer.state[p]["exp_avg"]
            out["final." + name + ".exp_avg_sq"] = optimizer.state[p]["exp_avg_sq"]
    save_file(out, path, metadata={key: str(value) for key, value in c.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=[*SMALL, *LARGE])
    parser.add_argument("path", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(2)
    if args.shape:
        make((SMALL | LARGE)[args.shape], args.path)
        return
    args.path.mkdir(parents=True, exist_ok=True)
    for name, c in SMALL.items():
        make(c, args.path / f"{name}.safetensors")


if __name__ == "__main__":
    main()
