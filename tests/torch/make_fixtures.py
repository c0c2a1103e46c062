#!/usr/bin/env python3
"""Writes what PyTorch computes, as safetensors, for tests/conformance/test_gpt2_torch.c.

    make_fixtures.py DIR            the small shapes (they are committed in fixtures/)
    make_fixtures.py --shape NAME FILE   one shape, also those too large to be committed

The model is plain PyTorch, written here and nowhere else. Each file holds a model's first
parameters (init.*), tokens and targets of every step, and of the first step logits and all
gradients (grad.*); of all steps loss and gradient norm; and after the last AdamW step the
parameters (final.*) and, for small files, the moments. The metadata are the settings.

bf16-and-fp16 has of `steps` steps on one batch the losses alone, in fp32 (loss) and in both
precisions (loss.bf16, loss.fp16), by the arithmetic of fully_shard's MixedPrecisionPolicy: weights
are cast for each step, the optimizer has fp32 ones; and the first step's logits in each. rounding
has numbers of all kinds, and what PyTorch casts them to.

With dropout, its masks come from the engine's generator, written here again, where the first
sample of step s stands at position (s - 1) * batch of the stream; the logits have none.
"""

import argparse
import fnmatch
import math
import pathlib

import numpy
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

SMALL["dropout"] = dict(SMALL["odd"], dim=24, dropout=0.2, seed=0x123456789)
SMALL["frozen"] = dict(
    SMALL["odd"], layers=3, dim=12, vocab=37, grad_clip=0.1, moments=1, seed=7,
    freeze="wte.weight wpe.* h.0.* h.2.ln_1.weight h.2.mlp.c_fc.* ln_f.bias",
)
SMALL["frozen-head"] = dict(SMALL["frozen"], layers=1, freeze="wte.weight *.bias", seed=8)

PRECISION = dict(
    BASE, layers=2, heads=2, dim=32, context=16, vocab=64, batch=4, seq_len=16, seed=7, steps=20,
    total_steps=20, lr=3e-3, min_lr=3e-4, warmup=2,
)

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


def philox(key, counter):
    """Philox 4x32-10 of an array of counters, [..., 4], which are numbers below 2^32."""
    x = [counter[..., i].astype(numpy.uint64) for i in range(4)]
    low = numpy.uint64(0xFFFFFFFF)
    half = numpy.uint64(32)
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        p0, p1 = x[0] * numpy.uint64(0xD2511F53), x[2] * numpy.uint64(0xCD9E8D57)
        x = [
            (p1 >> half) ^ x[1] ^ numpy.uint64(keys[0]), p1 & low,
            (p0 >> half) ^ x[3] ^ numpy.uint64(keys[1]), p0 & low,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return numpy.stack(x, axis=-1)


class Dropout(nn.Module):
    """The engine's: element e of a sample takes word e % 4 of block e // 4 of its site. Rows of
    probabilities [head, query, key] are as long as the next multiple of 4."""

    def __init__(self, c, site):
        super().__init__()
        self.share, self.seed, self.site = c.get("dropout", 0), c["seed"], site
        self.position = 0

    def forward(self, x):
        if not self.training or self.share == 0:
            return x
        *rows, width = x.shape[1:]
        stride = (width + 3) // 4 * 4 if x.dim() == 4 else width
        counter = numpy.zeros((x.shape[0], (math.prod(rows) * stride + 3) // 4, 4), numpy.uint64)
        counter[..., 0] = numpy.arange(counter.shape[1])
        counter[..., 1] = self.site
        for i in range(x.shape[0]):
            counter[i, :, 2] = (self.position + i) % 2**32
            counter[i, :, 3] = (self.position + i) >> 32
        words = philox(self.seed, counter).reshape(x.shape[0], -1)
        words = words[:, : math.prod(rows) * stride].reshape(x.shape[0], *rows, stride)[..., :width]
        kept = torch.from_numpy(words >= int(self.share * 2**32))
        return x * kept * (1 / (1 - self.share))


class Conv1D(nn.Module):
    """Hugging Face's linear layer of GPT-2: weight is [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, c, first_site):
        super().__init__()
        self.heads = c["heads"]
        self.c_attn = Conv1D(c["dim"], 3 * c["dim"])
        self.c_proj = Conv1D(c["dim"], c["dim"])
        self.attn_dropout = Dropout(c, first_site)
        self.resid_dropout = Dropout(c, first_site + 1)

    def forward(self, x):
        batch, time, dim = x.shape
        q, k, v = (
            part.view(batch, time, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(dim, dim=2)
        )
        if self.training and self.attn_dropout.share > 0:
            scores = q @ k.transpose(2, 3) / math.sqrt(dim // self.heads)
            future = torch.ones(time, time, dtype=torch.bool).triu(1)
            y = self.attn_dropout(scores.masked_fill(future, -math.inf).softmax(3)) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).reshape(batch, time, dim)))


class MLP(nn.Module):
    def __init__(self, c, site):
        super().__init__()
        self.c_fc = Conv1D(c["dim"], 4 * c["dim"])
        self.c_proj = Conv1D(4 * c["dim"], c["dim"])
        self.dropout = Dropout(c, site)

    def forward(self, x):
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))


class Block(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c["dim"])
        self.attn = Attention(c, 3 * index + 2)
        self.ln_2 = nn.LayerNorm(c["dim"])
        self.mlp = MLP(c, 3 * index + 4)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte = nn.Embedding(c["vocab"], c["dim"])
        self.wpe = nn.Embedding(c["context"], c["dim"])
        self.drop = Dropout(c, 1)
        self.h = nn.ModuleList(Block(c, i) for i in range(c["layers"]))
        self.ln_f = nn.LayerNorm(c["dim"])

    def forward(self, tokens, position=0):
        for module in self.modules():
            if isinstance(module, Dropout):
                module.position = position
        x = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
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


def parameter_groups(model, c):
    params = list(model.parameters())
    return [
        dict(params=[p for p in params if p.dim() >= 2], weight_decay=c["weight_decay"]),
        dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0),
    ]


def optimizer_of(model, c):
    return torch.optim.AdamW(
        parameter_groups(model, c), lr=1.0, betas=(c["beta1"], c["beta2"]), eps=c["eps"])


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
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in c.get("freeze", "").split()):
            p.requires_grad_(False)

    optimizer = optimizer_of(model, c)
    losses, norms = [], []
    for step in range(1, c["steps"] + 1):
        batch = tokens[step - 1]
        logits = model(batch[:, :-1], (step - 1) * c["batch"])
        loss = F.cross_entropy(logits.reshape(-1, c["vocab"]), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == 1:
            with torch.no_grad():
                out["logits"] = model.eval()(batch[:, :-1])
            model.train()
            for name, p in model.named_parameters():
                out["grad." + name] = p.grad.clone() if p.requires_grad else torch.zeros_like(p)
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
            for moment in ("exp_avg", "exp_avg_sq"):  # a frozen tensor has none
                value = optimizer.state.get(p, {}).get(moment, torch.zeros_like(p))
                out[f"final.{name}.{moment}"] = value
    save_file(out, path, metadata={key: str(value) for key, value in c.items()})


def losses_in(dtype, c, init, batch):
    """The losses of all steps, and the first one's logits."""
    model = GPT2(c)
    model.load_state_dict(init)
    optimizer = optimizer_of(model, c)
    losses, first = [], None
    for step in range(1, c["steps"] + 1):
        cast = {name: p.to(dtype) for name, p in model.named_parameters()}
        logits = torch.func.functional_call(model, cast, (batch[:, :-1],)).float()
        first = logits.detach().clone() if first is None else first
        loss = F.cross_entropy(logits.reshape(-1, c["vocab"]), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        nn.utils.clip_grad_norm_(model.parameters(), c["grad_clip"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(c, step)
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64), first


def make_precision(c, path):
    torch.manual_seed(c["seed"])
    model = GPT2(c)
    initialise(model, c)
    init = {name: p.detach().clone() for name, p in model.named_parameters()}
    batch = torch.randint(0, c["vocab"], (c["batch"], c["seq_len"] + 1))
    out = {
        "tokens": batch[:, :-1].to(torch.int32).contiguous(),
        "targets": batch[:, 1:].to(torch.int32).contiguous(),
        **{"init." + name: p for name, p in init.items()},
    }
    for name, dtype in ("", torch.float32), (".bf16", torch.bfloat16), (".fp16", torch.float16):
        out["loss" + name], out["logits" + name] = losses_in(dtype, c, init, batch)
    save_file(out, path, metadata={key: str(value) for key, value in c.items()})


def make_rounding(path):
    """Every exponent with fractions at, and beside, where bf16 and fp16 change; infinities and
    NaNs are among them. Then any bits."""
    ties = [(1 << bits) + low for bits in (12, 15) for low in (-1, 0, 1)]
    heads = [0, 1 << 13, 1 << 16, 0x7F << 16, (1 << 23) - (1 << 13)]
    fractions = sorted({(head + tie) % (1 << 23) for head in heads for tie in [0, *ties]})
    bits = torch.tensor([sign << 31 | exponent << 23 | fraction for sign in (0, 1)
                         for exponent in range(256) for fraction in fractions])
    torch.manual_seed(1)
    bits = torch.cat([bits, torch.randint(0, 1 << 32, (2048,))])
    x = (bits - (bits >> 31 << 32)).to(torch.int32).view(torch.float32)
    save_file({"x": x, "bf16": x.to(torch.bfloat16).float(), "fp16": x.to(torch.float16).float()},
              path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    makers = {name: lambda path, c=c: make(c, path) for name, c in SMALL.items()}
    makers["bf16-and-fp16"] = lambda path: make_precision(PRECISION, path)
    makers["rounding"] = make_rounding
    large = {name: lambda path, c=c: make(c, path) for name, c in LARGE.items()}
    parser.add_argument("--shape", choices=[*makers, *large])
    parser.add_argument("path", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(2)
    if args.shape:
        (makers | large)[args.shape](args.path)
        return
    args.path.mkdir(parents=True, exist_ok=True)
    for name, write in makers.items():
        write(args.path / f"{name}.safetensors")


if __name__ == "__main__":
    main()
