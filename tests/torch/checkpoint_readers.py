"""Reads checkpoints with the format's own readers: the safetensors package and torch's
distributed checkpoint.  Run where torch is: checkpoint_readers.py safetensors|dcp|bytes PATH…"""

import json
import pathlib
import sys

SHAPES = {"wte.weight": (7, 3), "h.0.ln_1.weight": (5,), "h.0.mlp.weight": (3, 11),
          "h.10.mlp.weight": (2, 4), "ln_f.bias": (1,)}
NAMES = [name + end for end in ("", ".exp_avg", ".exp_avg_sq") for name in SHAPES]
SALT = 5


def expected():
    """tests/lib/tiny_checkpoint.h's formula."""
    import torch

    state = {}
    for k, name in enumerate(NAMES):
        shape = SHAPES[name.removesuffix(".exp_avg").removesuffix(".exp_avg_sq")]
        i = torch.arange(torch.Size(shape).numel())
        state[name] = ((i * 7 + k * 131 + SALT * 17) % 1000 / 8).float().reshape(shape)
    return state


def read_by_safetensors(path):
    """Every file loads with the format's own strict reader; the rows make up the whole."""
    import torch
    from safetensors import safe_open

    state = {name: torch.full_like(t, float("nan")) for name, t in expected().items()}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as f:
            assert f.metadata()["format"] == "pt"
            info = json.loads(f.metadata()["DCP_SHARDING_INFO"])
            assert set(info) == set(f.keys())
            for name in f.keys():
                row = info[name]["saved_offsets"][0]
                tensor = f.get_tensor(name)
                assert state[name][row:row + len(tensor)].isnan().all()  # once only
                state[name][row:row + len(tensor)] = tensor
    return state


def read_by_dcp(path):
    import torch
    import torch.distributed.checkpoint as dcp

    state = {name: torch.full_like(t, float("nan")) for name, t in expected().items()}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(path)), no_dist=True)
    return state


def bytes_equal(path):
    """Our writer and theirs agree on every byte of a whole file."""
    from safetensors import safe_open
    from safetensors.torch import save

    file = path / "shard-00001-model-00001-of-00001.safetensors"
    ours = file.read_bytes()
    n = int.from_bytes(ours[:8], "little")
    with safe_open(file, framework="pt") as f:
        theirs = save({name: f.get_tensor(name) for name in f.keys()})
    m = int.from_bytes(theirs[:8], "little")
    assert n % 8 == 0
    assert ours[8 + n:] == theirs[8 + m:]
    header = json.loads(ours[8:8 + n])
    assert list(header)[0] == "__metadata__"
    del header["__metadata__"]
    assert json.dumps(header, separators=(",", ":")) == theirs[8:8 + m].decode().rstrip(" ")


def check(reader, path):
    import torch

    state = reader(path)
    for name, tensor in expected().items():
        assert torch.equal(state[name], tensor), name


def main(what, *paths):
    for path in map(pathlib.Path, paths):
        if what == "bytes":
            bytes_equal(path)
        else:
            check({"safetensors": read_by_safetensors, "dcp": read_by_dcp}[what], path)


if __name__ == "__main__":
    main(*sys.argv[1:])
