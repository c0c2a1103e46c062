"""Reads checkpoints with the format's own readers: the safetensors package and torch's
distributed checkpoint.  Run where torch is:
checkpoint_readers.py safetensors|dcp|bytes|same PATH…"""

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


def blank(shapes):
    import torch

    return {name: torch.full(shape, float("nan")) for name, shape in shapes.items()}


def expected_shapes():
    return {name: t.shape for name, t in expected().items()}


def read_by_safetensors(path, shapes):
    """Every file loads with the format's own strict reader; the rows make up the whole."""
    from safetensors import safe_open

    state = blank(shapes)
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


def read_by_dcp(path, shapes):
    import torch.distributed.checkpoint as dcp

    state = blank(shapes)
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

    state = reader(path, expected_shapes())
    for name, tensor in expected().items():
        assert torch.equal(state[name], tensor), name


def shapes_of(path):
    """The whole tensors', as the files themselves say."""
    from safetensors import safe_open

    shapes = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as f:
            shapes.update(json.loads(f.metadata()["CTRUN_SHAPES"]))
    return shapes


def all_the_same(first, *others):
    """Both readers find one state in checkpoints of any shards."""
    import torch

    shapes = shapes_of(first)
    wanted = read_by_safetensors(first, shapes)
    assert len(wanted) > 30 and not any(t.isnan().any() for t in wanted.values())
    for path in others:
        assert shapes_of(path) == shapes
        for reader in read_by_safetensors, read_by_dcp:
            state = reader(path, shapes)
            for name, tensor in wanted.items():
                assert torch.equal(state[name], tensor), (path, reader, name)


def differing_in_mesh(path, mesh):
    """What this rank of a mesh does not find in its part of a tensor: of its rows, and then of
    its last dimension, so that boxes cross those of the files."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor

    shapes = shapes_of(path)
    wanted = read_by_safetensors(path, shapes)
    wrong = []
    for dim in (0, -1):
        state = {name: distribute_tensor(t, mesh, [Shard(dim % t.dim())])
                 for name, t in blank(shapes).items()}
        dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(path)),
                 process_group=mesh.get_group())
        for name, tensor in wanted.items():
            part = tensor.chunk(mesh.size(), dim)[mesh.get_local_rank()]
            if not torch.equal(state[name].to_local(), part):
                wrong.append([dim, name])
    return wrong


def main(what, *paths):
    if what == "same":
        return all_the_same(*map(pathlib.Path, paths))
    for path in map(pathlib.Path, paths):
        if what == "bytes":
            bytes_equal(path)
        else:
            check({"safetensors": read_by_safetensors, "dcp": read_by_dcp}[what], path)


if __name__ == "__main__":
    main(*sys.argv[1:])
