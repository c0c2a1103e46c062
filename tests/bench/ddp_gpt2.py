"""GPT-2 124M under DistributedDataParallel with gloo, as one writes it in plain PyTorch: fp32,
AdamW, clipping, random tokens. Run by torchrun; rank 0 prints a line of JSON for each step.

What PyTorch offers to be quicker without torch.compile is taken: fused AdamW and attention,
gradients as views of the buckets, denormals flushed.
"""

import argparse
import json
import math
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, DIM, CONTEXT, VOCAB = 12, 12, 768, 1024, 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn, self.attn_proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.fc, self.fc_proj = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def attend(self, x):
        batch, time_, _ = x.shape
        q, k, v = (part.view(batch, time_, HEADS, DIM // HEADS).transpose(1, 2)
                   for part in self.attn(x).split(DIM, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn_proj(y.transpose(1, 2).reshape(batch, time_, DIM))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(DIM)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02 / (math.sqrt(2 * LAYERS) if "proj" in name else 1))

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="sequences a rank")
    parser.add_argument("--seq-len", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(GPT2(), gradient_as_bucket_view=True)
    groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) == decays],
               "weight_decay": 0.1 if decays else 0.0} for decays in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
    torch.manual_seed(1 + dist.get_rank())
    for step in range(1, args.steps + 1):
        began = time.perf_counter()
        tokens = torch.randint(VOCAB, (args.batch, args.seq_len + 1))
        loss = model(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(json.dumps({"step": step, "loss": loss.item(),
                              "step_s": time.perf_counter() - began}), flush=True)
    dist.destroy_process_group()


main()
