"""What torch.amp.GradScaler does, run where torch is:

    grad_scaler_cases.py vectors            prints the table of fixtures/grad_scaler.inc
    grad_scaler_cases.py train JSON         prints the trace of each of some trainings

A training has the one sample of its settings, their text, over and over; it writes its first
weights as a model file of llm.c.
"""

import json
import struct
import sys

import torch

# init_scale, growth_factor, backoff_factor, growth_interval, gradients: . finite, i inf, n NaN
CASES = [
    (65536.0, 2.0, 0.5, 2000, "..i.n."),
    (65536.0, 2.0, 0.5, 3, ".......i..i....ii..."),
    (1000.0, 1.7, 0.3, 2, "...i..i.....n....i.."),  # nothing is exact
    (12345.678, 1.0009765625, 0.999, 1, ".....iiiii.....i.i.i"),
    (1.5 * 2.0**100, 1024.0, 0.001, 1, "......i....."),  # grows until it would not be finite
    (3.0, 1e9, 0.7, 1, "....i...."),
    (1.0, 2.0, 0.5, 1, ".i.i."),
]


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def steps(case, generator):
    """Of each step: scale, inverse, gradient and what unscaling makes of it, then the scale,
    tracker and AdamW's count after it."""
    init, growth, backoff, interval, pattern = case
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([p])
    scaler = torch.amp.GradScaler("cpu", init, growth, backoff, interval)
    for kind in pattern:
        scaler.scale(torch.zeros(()))
        before = scaler.get_scale()
        inverse = scaler._scale.double().reciprocal().float().item()
        gradient = torch.randn((), generator=generator).item() * min(before, 1e30)
        bad = {".": gradient, "i": float("-inf"), "n": float("nan")}[kind]
        p.grad = torch.tensor([gradient, bad])
        gradient = p.grad[0].item()
        scaler.unscale_(optimizer)
        unscaled = p.grad[0].item()
        scaler.step(optimizer)
        scaler.update()
        count = int(optimizer.state[p]["step"]) if optimizer.state else 0
        yield (before, inverse, gradient, unscaled, scaler.get_scale(),
               scaler._get_growth_tracker(), count, kind != ".")


def vectors():
    generator = torch.Generator().manual_seed(1)
    print("/* torch.amp.GradScaler's own, of tests/torch/grad_scaler_cases.py. */")
    for i, case in enumerate(CASES):
        print(f"static const struct recorded_step case_{i}[] = {{")
        for *floats, tracker, count, bad in steps(case, generator):
            text = ", ".join(f"0x{bits(f):08x}" for f in floats)
            print(f"    {{{text}, {tracker}, {count}, {str(bad).lower()}}},")
        print("};")
    print("static const struct recorded_case cases[] = {")
    for i, (init, growth, backoff, interval, _) in enumerate(CASES):
        print(f"    {{{{{init.hex()}, {growth.hex()}, {backoff.hex()}, {interval}}}, "
              f"case_{i}, ARRAY_LEN(case_{i})}},")
    print("};")


def write_llmc(model, c, path):
    """The weights in llm.c's format: tensors of all layers side by side, weights as (out, in)."""
    p = dict(model.named_parameters())
    header = [20240326, 3, c["context"], c["vocab"], c["layers"], c["heads"], c["dim"], c["vocab"]]
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", *header, *[0] * (256 - len(header))))
        file.write(p["wte.weight"].detach().numpy().tobytes())
        file.write(p["wpe.weight"].detach().numpy().tobytes())
        for module in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
            for kind in ("weight", "bias"):
                for layer in range(c["layers"]):
                    t = p[f"h.{layer}.{module}.{kind}"].detach()
                    t = t.T if t.dim() == 2 else t
                    file.write(t.contiguous().numpy().tobytes())
        file.write(p["ln_f.weight"].detach().numpy().tobytes())
        file.write(p["ln_f.bias"].detach().numpy().tobytes())


def make_large_gradients(model, gain):
    """Of the weights behind each block's norms alone, whose inputs become so large: what backward
    computes on the way to them stays as it is, and overflows nowhere before they do."""
    with torch.no_grad():
        for block in model.h:
            for norm, layer in ((block.ln_1, block.attn.c_attn), (block.ln_2, block.mlp.c_fc)):
                norm.weight.mul_(gain)
                norm.bias.mul_(gain)
                layer.weight.div_(gain)


def train(c, path):
    from make_fixtures import GPT2, initialise, learning_rate, optimizer_of

    torch.manual_seed(c["seed"])
    model = GPT2(c)
    initialise(model, c)
    make_large_gradients(model, c["gain"])
    write_llmc(model, c, path)
    text = list(c["text"].encode())
    tokens, targets = torch.tensor([text]), torch.tensor(text[1:] + text[:1])
    optimizer = optimizer_of(model, c)
    scaler = torch.amp.GradScaler(
        "cpu", c["init_scale"], c["growth_factor"], c["backoff_factor"], c["growth_interval"])
    trace = []
    for step in range(1, c["total_steps"] + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(c, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets)
        scaler.scale(loss).backward()
        scale = scaler.get_scale()
        largest = max(p.grad.abs().max().item() for p in model.parameters())
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), c["grad_clip"]).item()
        scaler.step(optimizer)
        scaler.update()
        updates = [int(state["step"]) for state in optimizer.state.values()]
        trace.append({"loss": loss.item(), "loss_scale": scale, "grad_norm": norm,
                      "is_finite": largest < float("inf"),
                      "skipped": step - max(updates, default=0)})
    return trace


if __name__ == "__main__":
    if sys.argv[1] == "vectors":
        vectors()
    else:
        print(json.dumps([train(c, c["weights"]) for c in json.loads(sys.argv[2])]))
